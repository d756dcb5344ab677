package headgate.sharing;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Consumer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ShareGroupDescription;

/**
 * Share consumers as kafka-clients make them, of either version that stands on the class path.
 *
 * <p>One line of JSON in is one call, answered by one line with its number; between the answers stand the events of the
 * members, as they happen:
 *
 * <pre>
 *   {"id": 1, "op": "join", "member": "one", "group": "g", "topics": ["t"], "settings": {...}, "mode": "explicit", ...}
 *   {"id": 1, "result": {}}   or   {"id": 1, "error": "class of the exception", "message": "..."}
 *   {"event": "polled", "member": "one", "at_ms": 1794731901727, "count": 500, "again": 0}
 * </pre>
 *
 * The process ends with its standard input or by {@code crash}, and its members with it, as if they were killed.
 */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, ShareMember> members = new ConcurrentHashMap<>();
    private final Lines lines = new Lines();

    private Main() {}

    public static void main(String[] arguments) throws IOException {
        new Main().serve();
        Runtime.getRuntime().halt(0);
    }

    private void serve() throws IOException {
        ExecutorService calls = Executors.newCachedThreadPool();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        lines.event("", "ready", line -> {});
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode call = JSON.readTree(line);
            calls.execute(() -> answer(call));
        }
    }

    private void answer(JsonNode call) {
        ObjectNode answer = JSON.createObjectNode().put("id", call.get("id").asLong());
        try {
            answer.set("result", run(call));
        } catch (Throwable error) {
            error.printStackTrace();
            answer.put("error", error.getClass().getSimpleName()).put("message", error.getMessage());
        }
        lines.say(answer);
    }

    private JsonNode run(JsonNode call) throws Exception {
        ObjectNode result = JSON.createObjectNode();
        switch (call.get("op").asText()) {
            case "join" -> join(call);
            case "go" -> member(call).go();
            case "downstream" -> setDownstream(call);
            case "close" -> member(call).close();
            case "seen" -> member(call).seen(result);
            case "describe" -> describe(call, result);
            case "crash" -> Runtime.getRuntime().halt(9);
            default -> throw new IllegalArgumentException("no operation " + call.get("op"));
        }
        return result;
    }

    private synchronized void join(JsonNode call) {
        String name = call.get("member").asText();
        if (members.containsKey(name) && members.get(name).isAlive()) {
            throw new IllegalArgumentException("there is a member " + name);
        }
        ShareMember member = new ShareMember(name, call, lines);
        members.put(name, member);
        member.start();
    }

    private void setDownstream(JsonNode call) {
        Verdict onFailure = Verdict.valueOf(call.get("on_failure").asText().toUpperCase(Locale.ROOT));
        member(call).setDownstream(new ShareMember.Downstream(call.get("failing_percent").asInt(), onFailure));
    }

    private ShareMember member(JsonNode call) {
        ShareMember member = members.get(call.get("member").asText());
        if (member == null) {
            throw new IllegalArgumentException("no member " + call.get("member"));
        }
        return member;
    }

    /** What the Admin client makes of the group. */
    private static void describe(JsonNode call, ObjectNode into) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        call.get("settings").properties()
            .forEach(setting -> settings.put(setting.getKey(), setting.getValue().asText()));
        String group = call.get("group").asText();
        try (Admin admin = Admin.create(settings)) {
            ShareGroupDescription found = admin.describeShareGroups(List.of(group)).all().get().get(group);
            into.put("group", found.groupId()).put("state", found.groupState().toString())
                .put("coordinator", found.coordinator().id()).put("members", found.members().size());
        }
    }

    /** Standard output: whole lines from many threads, each flushed at once. */
    static final class Lines {
        private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);

        void event(String member, String event, Consumer<ObjectNode> details) {
            ObjectNode line = JSON.createObjectNode().put("event", event).put("member", member);
            line.put("at_ms", System.currentTimeMillis());
            details.accept(line);
            say(line);
        }

        synchronized void say(JsonNode line) {
            try {
                out.print(JSON.writeValueAsString(line) + "\n");
            } catch (JsonProcessingException error) {
                throw new UncheckedIOException(error);
            }
            out.flush();
        }
    }
}
