package headgate.members;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
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
 * its members end with it, without leaving their groups. With a file as its argument the calls are read from there, and
 * it runs until it is ended.
 */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, Member> members = new ConcurrentHashMap<>();
    private final Events events = new Events(System.out);

    private Main() {}

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Main main = new Main();
        if (arguments.length == 0) {
            main.serve(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        } else {
            main.serve(Files.newBufferedReader(Path.of(arguments[0])));
            Thread.sleep(Long.MAX_VALUE);
        }
        // As if killed: nobody leaves.
        Runtime.getRuntime().halt(0);
    }

    private void serve(Reader input) throws IOException {
        System.setErr(new PushLog(System.err, members::get));
        ExecutorService calls = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(input);
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
