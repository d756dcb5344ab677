package headgate.members;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.function.Consumer;

/** Standard output: whole lines of JSON from many threads, each flushed at once. */
final class Events {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final PrintStream out;

    Events(OutputStream out) {
        this.out = new PrintStream(out, false, StandardCharsets.UTF_8);
    }

    void ready() {
        line(JSON.createObjectNode().put("event", "ready").put("member", ""));
    }

    void happened(String member, String event, Consumer<ObjectNode> details) {
        ObjectNode line = JSON.createObjectNode().put("event", event).put("member", member);
        line.put("at_ms", System.currentTimeMillis());
        details.accept(line);
        line(line);
    }

    synchronized void line(JsonNode line) {
        try {
            out.print(JSON.writeValueAsString(line) + "\n");
        } catch (JsonProcessingException error) {
            throw new UncheckedIOException(error);
        }
        out.flush();
    }
}
