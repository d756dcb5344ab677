package headgate.members;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Members of streams groups as kafka-clients 4.4.0 makes them, and the Admin client that looks at them.
 *
 * <p>One line of JSON in is one call. Calls run side by side, and each is answered by one line with its number:
 *
 * <pre>
 *   {"id": 1, "op": "join", "member": "one", "group": "g", "settings": {...}, "subtopologies": {"0": {...}}, ...}
 *   {"id": 1, "result": {}}   or   {"id": 1, "error": "class of the exception", "message": "..."}
 *   {"event": "asked", "member": "one", "at_ms": 1794731901727}
 * </pre>
 *
 * Between the answers stand the events of the members, as they happen. The process ends with its standard input, and
 * its members end with it, without leaving their groups.
 */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, Member> members = new ConcurrentHashMap<>();
    private final Events events = new Events(System.out);

    private Main() {}

    public static void main(String[] arguments) throws IOException {
        new Main().serve();
        // As if killed: nobody leaves.
        Runtime.getRuntime().halt(0);
    }

    private void serve() throws IOException {
        System.setErr(new PushLog(System.err, members::get));
        ExecutorService calls = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        events.ready();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode call = JSON.readTree(line);
            calls.execute(() -> answer(call));
        }
    }

    private void answer(JsonNode call) {
        ObjectNode answer = JSON.createObjectNode().put("id", call.get("id").asLong());
        try {
            answer.set("result", run(call));
        } catch (Throwable error) {
            System.err.println("call failed: " + call.get("op"));
            error.printStackTrace();
            answer.put("error", error.getClass().getSimpleName()).put("message", error.getMessage());
        }
        events.line(answer);
    }

    private JsonNode run(JsonNode call) throws Exception {
        switch (call.get("op").asText()) {
            case "join" -> join(call);
            case "close" -> member(call).leave();
            case "kill" -> member(call).vanish();
            case "list" -> {
                return list();
            }
            case "describe" -> {
                return AdminCalls.describe(call);
            }
            case "delete" -> {
                return AdminCalls.delete(call);
            }
            case "groups" -> {
                return AdminCalls.groups(call);
            }
            default -> throw new IllegalArgumentException("no operation " + call.get("op"));
        }
        return JSON.createObjectNode();
    }

    private synchronized void join(JsonNode call) {
        String name = call.get("member").asText();
        // A name is a client id, by which log lines are told apart: it is free again when its member has ended.
        if (members.containsKey(name) && members.get(name).isAlive()) {
            throw new IllegalArgumentException("there is a member " + name);
        }
        Member member = new Member(name, call, events);
        members.put(name, member);
        member.start();
    }

    private Member member(JsonNode call) {
        Member member = members.get(call.get("member").asText());
        if (member == null) {
            throw new IllegalArgumentException("no member " + call.get("member"));
        }
        return member;
    }

    private ObjectNode list() {
        ObjectNode all = JSON.createObjectNode();
        members.forEach((name, member) -> all.set(name, member.seen(JSON.createObjectNode())));
        return all;
    }
}
