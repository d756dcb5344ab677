package headgate.clients;

import static headgate.clients.Run.expect;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Steps for tests that do something to the gateway while clients work, or move clients from place to place. */
final class Load {
    private Load() {}

    static void create(Run run) throws Exception {
        try (Admin admin = run.admin()) {
            run.create(admin, new NewTopic(run.topic("load"), 1, (short) 1));
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, run.name() + "-share");
            TopicCalls.alter(run, admin, group, OpType.SET, "share.auto.offset.reset", "earliest");
        }
    }

    static void clean(Run run) throws Exception {
        try (Admin admin = run.admin()) {
            run.delete(admin, run.topic("load"));
            GroupCalls.sweep(admin, run.name() + "-load");
            GroupCalls.sweep(admin, run.name() + "-group");
            GroupCalls.sweep(admin, run.name() + "-share");
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, run.name() + "-share");
            TopicCalls.alter(run, admin, group, OpType.DELETE, "share.auto.offset.reset", null);
        }
    }

    /** Deletes the groups of clients that cannot do it themselves. */
    static void sweep(Run run) throws Exception {
        try (Admin admin = run.admin()) {
            for (String group : option(run, "groups").split(",")) {
                GroupCalls.sweep(admin, group);
            }
        }
    }

    /** Sends numbers at an even pace while a group reads them; the answer is what was read, in order of offsets. */
    static String produceAndConsume(Run run) throws Exception {
        int count = run.number("count");
        CompletableFuture<List<String>> reading = new CompletableFuture<>();
        Thread reader = new Thread(() -> {
            try {
                reading.complete(read(run, count));
            } catch (Throwable error) {
                reading.completeExceptionally(error);
            }
        });
        reader.start();
        try (Producer<String, String> producer =
            run.producer("load-producer", Map.of("enable.idempotence", "true", "request.timeout.ms", "5000"))) {
            List<Future<RecordMetadata>> pending = new ArrayList<>();
            for (String value : Run.values(count)) {
                pending.add(producer.send(Run.record(run.topic("load"), 0, "k", value)));
                Thread.sleep(run.number("pace_ms"));
            }
            for (Future<RecordMetadata> one : pending) {
                expect(one);
            }
        }
        return String.join(",", expect(reading));
    }

    private static List<String> read(Run run, int count) throws Exception {
        try (Consumer<String, String> consumer = run.consumer(
            "load-consumer", run.name() + "-load", Map.of("group.protocol", option(run, "protocol")))) {
            consumer.subscribe(List.of(run.topic("load")));
            // A group that lost its member reads again from the last commit: once is enough, but in order.
            Set<String> values = new LinkedHashSet<>();
            Run.await(count + " records", () -> {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    values.add(record.value());
                }
                consumer.commitAsync();
                return values.size() >= count;
            });
            return List.copyOf(values);
        }
    }

    /** A member of the group reads until it has this many records, commits exactly these, and leaves. */
    static String consumeSome(Run run) throws Exception {
        int count = run.number("count");
        Map<String, Object> settings =
            Map.of("group.protocol", option(run, "protocol"), "max.poll.records", Integer.toString(count));
        try (Consumer<String, String> consumer = run.consumer("some", run.name() + "-group", settings)) {
            consumer.subscribe(List.of(run.topic("load")));
            List<ConsumerRecord<String, String>> records = Run.poll(consumer, count).subList(0, count);
            consumer.seek(new TopicPartition(run.topic("load"), 0), records.get(count - 1).offset() + 1);
            consumer.commitSync();
            return joined(records);
        }
    }

    /** A member of a share group takes one poll's records and accepts them. */
    static String shareSome(Run run) throws Exception {
        Map<String, Object> settings =
            Map.of("max.poll.records", option(run, "count"), "share.acquire.mode", "record_limit");
        try (ShareConsumer<String, String> consumer =
            run.shareConsumer("share-some", run.name() + "-share", settings)) {
            consumer.subscribe(List.of(run.topic("load")));
            List<ConsumerRecord<String, String>> records = Run.poll(consumer, run.number("count"));
            consumer.commitSync();
            return joined(records);
        }
    }

    private static String option(Run run, String key) {
        return run.options().get(key);
    }

    static String sendInTransaction(Run run) throws Exception {
        try (Producer<String, String> producer = run.producer("mover", Map.of("transactional.id", run.name()))) {
            producer.initTransactions();
            producer.beginTransaction();
            for (String value : option(run, "values").split(",")) {
                expect(producer.send(Run.record(run.topic("load"), 0, "k", value)));
            }
            producer.commitTransaction();
        }
        return "";
    }

    private static String joined(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).collect(Collectors.joining(","));
    }
}
