package headgate.clients;

import static headgate.clients.Run.expect;

import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** A word count with a repartition topic and a changelog; kafka-streams 4.3.1, so only with 4.3.1 clients. */
final class Streaming {
    private static final List<String> LINES = List.of("to be or not", "not to be", "be");
    private static final Map<String, String> COUNTS = Map.of("to", "2", "be", "3", "or", "1", "not", "2");

    private static final int WORDS = 8;

    private Streaming() {}

    static void wordCount(Run run, String protocol, String guarantee) throws Exception {
        String input = run.topic("lines");
        String output = run.topic("counts");
        try (Admin admin = run.admin()) {
            run.create(admin, new NewTopic(input, 1, (short) 1), new NewTopic(output, 1, (short) 1));
            run.send("producer", input, 0, LINES);
            KafkaStreams streams = new KafkaStreams(topology(input, output), settings(run, protocol, guarantee));
            try {
                streams.start();
                awaitCounts(run, output);
                if (protocol.equals("streams")) {
                    expect(admin.describeStreamsGroups(List.of(run.name())).all());
                }
            } finally {
                CloseOptions leaving = CloseOptions.timeout(Duration.ofSeconds(20))
                    .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
                if (!streams.close(leaving)) {
                    throw new IllegalStateException("the application did not end within 20 s");
                }
                streams.cleanUp();
            }
            clean(run, admin, protocol);
            run.delete(admin, input, output);
        }
    }

    private static Topology topology(String input, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(output, Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    private static Properties settings(Run run, String protocol, String guarantee) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, run.name());
        settings.put(StreamsConfig.CLIENT_ID_CONFIG, "app");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, run.bootstrap());
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, protocol);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, run.options().get("folder"));
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200");
        settings.put(StreamsConfig.consumerPrefix("fetch.max.wait.ms"), Run.FETCH_WAIT_MS);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, "1");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        // Every update goes out, so that what is written does not hang on when the cache is flushed.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        return settings;
    }

    private static void awaitCounts(Run run, String output) throws Exception {
        Map<String, String> counts = new HashMap<>();
        try (Consumer<String, String> reader =
            run.consumer("reader", null, Map.of("isolation.level", "read_committed"))) {
            reader.assign(List.of(new TopicPartition(output, 0)));
            Run.await("the counts", () -> {
                reader.poll(Duration.ofMillis(100)).forEach(record -> counts.put(record.key(), record.value()));
                return counts.equals(COUNTS);
            });
        }
    }

    private static void clean(Run run, Admin admin, String protocol) throws Exception {
        if (protocol.equals("streams")) {
            expect(admin.listStreamsGroupOffsets(Map.of(run.name(), new ListStreamsGroupOffsetsSpec())).all());
            expect(admin.deleteStreamsGroups(List.of(run.name())).all());
        } else {
            expect(admin.deleteConsumerGroups(List.of(run.name())).all());
        }
        Set<String> internal = expect(admin.listTopics().names()).stream()
            .filter(topic -> topic.startsWith(run.name() + "-counts-"))
            .collect(Collectors.toSet());
        if (internal.size() != 2) {
            throw new IllegalStateException("the application made these topics: " + internal);
        }
        for (String topic : internal) {
            // Whether the application itself reads its changelog hangs on when it started: read it in any case.
            Producing.readAll(run, topic, WORDS);
        }
        run.delete(admin, internal.toArray(String[]::new));
    }
}
