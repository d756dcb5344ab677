package headgate.clients;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Real Java clients on command: one line in, one scenario run, one line out, so that one JVM serves a whole test run.
 *
 * <p>A line is {@code scenario TAB bootstrap TAB name [TAB key=value]...}; the answer is {@code ok scenario [result]}
 * or {@code failed scenario cause}. The same classes run with kafka-clients 4.3.1 and 4.4.0; Streams only with 4.3.1.
 */
public final class Main {
    @FunctionalInterface
    private interface Scenario {
        String run(Run run) throws Exception;
    }

    @FunctionalInterface
    private interface Silent {
        void run(Run run) throws Exception;
    }

    // A method reference loads its class when it is called, so that Streams is not needed on the 4.4.0 class path.
    private static final Map<String, Scenario> SCENARIOS = new LinkedHashMap<>();

    static {
        silent("warm", run -> Warming.all(run));
        silent("topics", run -> TopicCalls.topics(run));
        silent("partitions", run -> TopicCalls.partitions(run));
        silent("configs", run -> TopicCalls.configs(run));
        silent("cluster", run -> ClusterCalls.cluster(run));
        silent("security", run -> ClusterCalls.security(run));
        silent("groups", run -> GroupCalls.consumerGroups(run));
        silent("share-groups", run -> GroupCalls.shareGroups(run));
        silent("produce", run -> Producing.everyAcksAndCompression(run));
        silent("idempotent", run -> Producing.idempotent(run));
        silent("transactions", run -> Transactions.commitAndAbort(run));
        silent("offsets-in-transaction", run -> Transactions.offsets(run));
        silent("fencing", run -> Transactions.fencing(run));
        silent("classic-consumer", run -> Consuming.oneMember(run, "classic"));
        silent("consumer", run -> Consuming.oneMember(run, "consumer"));
        silent("assigned", run -> Consuming.assigned(run));
        silent("large", run -> Consuming.large(run));
        silent("classic-pattern", run -> Consuming.pattern(run, "classic"));
        silent("pattern", run -> Consuming.pattern(run, "consumer"));
        silent("classic-rebalance", run -> Consuming.twoMembers(run, "classic"));
        silent("rebalance", run -> Consuming.twoMembers(run, "consumer"));
        silent("share-implicit", run -> Sharing.implicit(run));
        silent("share-explicit", run -> Sharing.explicit(run));
        silent("streams-classic", run -> Streaming.wordCount(run, "classic", "at_least_once"));
        silent("streams", run -> Streaming.wordCount(run, "streams", "at_least_once"));
        silent("streams-exactly-once", run -> Streaming.wordCount(run, "classic", "exactly_once_v2"));
        silent("connect-input", run -> Connecting.before(run));
        silent("connect-clean", run -> Connecting.after(run));
        silent("leader-moves", run -> Leading.moves(run));
        SCENARIOS.put("load", run -> Load.produceAndConsume(run));
        SCENARIOS.put("some", run -> Load.consumeSome(run));
        SCENARIOS.put("share-some", run -> Load.shareSome(run));
        SCENARIOS.put("send", run -> Load.sendInTransaction(run));
        silent("create", run -> Load.create(run));
        silent("clean", run -> Load.clean(run));
        silent("sweep", run -> Load.sweep(run));
    }

    private Main() {}

    private static void silent(String name, Silent scenario) {
        SCENARIOS.put(name, run -> {
            scenario.run(run);
            return "";
        });
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("ready");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            System.out.println(answer(line.split("\t")));
        }
        // Clients of a scenario that failed may have left threads behind.
        System.exit(0);
    }

    private static String answer(String[] words) {
        String scenario = words[0];
        try {
            Map<String, String> options = new LinkedHashMap<>();
            Arrays.stream(words).skip(3).map(word -> word.split("=", 2)).forEach(pair -> options.put(pair[0], pair[1]));
            if (!SCENARIOS.containsKey(scenario)) {
                throw new IllegalArgumentException("no such scenario; there are " + SCENARIOS.keySet());
            }
            return ("ok " + scenario + " " + SCENARIOS.get(scenario).run(new Run(words[1], words[2], options))).strip();
        } catch (Throwable error) {
            System.err.println("scenario " + scenario + " failed");
            error.printStackTrace();
            return "failed " + scenario + " " + error.toString().replaceAll("\\s+", " ");
        }
    }
}
