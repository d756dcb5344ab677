package headgate.clients;

import static headgate.clients.Run.expect;
import static headgate.clients.Run.refused;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;

/** Producers without transactions. */
final class Producing {
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    private Producing() {}

    static void everyAcksAndCompression(Run run) throws Exception {
        String topic = run.topic("produced");
        String narrow = run.topic("narrow");
        try (Admin admin = run.admin()) {
            run.create(
                admin,
                new NewTopic(topic, 1, (short) 1),
                new NewTopic(narrow, 1, (short) 1).configs(Map.of("max.message.bytes", "1000")));
            int sent = 0;
            for (String acks : List.of("0", "1", "all")) {
                for (String codec : CODECS) {
                    Map<String, Object> settings =
                        Map.of("acks", acks, "compression.type", codec, "enable.idempotence", "false");
                    try (Producer<String, String> producer = run.producer("producer-" + acks + "-" + codec, settings)) {
                        expect(producer.send(Run.record(topic, 0, codec, "word ".repeat(40))));
                        expect(producer.send(new ProducerRecord<>(topic, 0, null, null)));
                        sent += 2;
                    }
                    // Without acknowledgements nothing else keeps two producers' records in order.
                    awaitEnd(run, topic, sent);
                }
            }
            try (Producer<String, String> producer = run.producer("narrow", Map.of("enable.idempotence", "false"))) {
                refused(RecordTooLargeException.class, producer.send(Run.record(narrow, 0, "k", "word ".repeat(400))));
            }
            readAll(run, topic, sent);
            run.delete(admin, topic, narrow);
        }
    }

    private static void awaitEnd(Run run, String topic, long end) throws Exception {
        Map<TopicPartition, OffsetSpec> latest = Map.of(new TopicPartition(topic, 0), OffsetSpec.latest());
        try (Admin waiting = run.admin("wait")) {
            Run.await(end + " records in the log", () -> expect(waiting.listOffsets(latest).all()).values().stream()
                .allMatch(seen -> seen.offset() == end));
        }
    }

    static void idempotent(Run run) throws Exception {
        String topic = run.topic("idempotent");
        try (Admin admin = run.admin()) {
            run.create(admin, new NewTopic(topic, 1, (short) 1));
            try (Producer<String, String> producer =
                run.producer("idempotent", Map.of("enable.idempotence", "true", "linger.ms", "20"))) {
                List<Future<RecordMetadata>> pending = new ArrayList<>();
                for (String value : Run.values(100)) {
                    pending.add(producer.send(Run.record(topic, 0, value, value)));
                }
                for (Future<RecordMetadata> one : pending) {
                    expect(one);
                }
                producer.partitionsFor(topic);
            }
            readAll(run, topic, 100);
            run.delete(admin, topic);
        }
    }

    static void readAll(Run run, String topic, int count) throws Exception {
        try (Consumer<String, String> reader = run.consumer("reader", null, Map.of())) {
            reader.assign(List.of(new TopicPartition(topic, 0)));
            Run.poll(reader, count);
        }
    }
}
