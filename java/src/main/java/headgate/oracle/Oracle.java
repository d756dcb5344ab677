package headgate.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;

/**
 * Kafka's own classes behind a pipe: tests ask it what bytes mean and how a message is written.
 *
 * <p>One line of JSON in, one line out, in order. A line holds many items, because a round trip costs more than an item:
 *
 * <pre>
 *   {"op": "decode", "items": [{"kind": "response", "key": 89, "version": 0, "bytes": "base64"}]}
 *   {"items": [{"tree": {...}, "bytes": "the same message written again", "version": 0}]}
 * </pre>
 *
 * An item that fails answers {"error": "..."} and leaves the others alone. The process ends with its standard input, so a test
 * that dies leaves no Java behind.
 */
public final class Oracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Oracle() {}

    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.write(JSON.writeValueAsString(answer(JSON.readTree(line))));
            out.write('\n');
            out.flush();
        }
    }

    private static ObjectNode answer(JsonNode question) {
        ObjectNode reply = JSON.createObjectNode();
        ArrayNode items = reply.putArray("items");
        String op = question.get("op").asText();
        for (JsonNode item : question.get("items")) {
            try {
                items.add(one(op, item));
            } catch (Exception | LinkageError failure) {
                items.addObject().put("error", failure.toString());
            }
        }
        return reply;
    }

    private static ObjectNode one(String op, JsonNode item) throws Exception {
        return switch (op) {
            case "decode" -> Messages.decode(item, JSON.createObjectNode());
            case "encode" -> Messages.encode(item, JSON.createObjectNode());
            case "blank" -> Messages.blank(item, JSON.createObjectNode());
            case "decode_records" -> RecordSets.decode(item, JSON.createObjectNode());
            case "encode_records" -> RecordSets.encode(item, JSON.createObjectNode());
            default -> throw new IllegalArgumentException("no operation " + op);
        };
    }
}
