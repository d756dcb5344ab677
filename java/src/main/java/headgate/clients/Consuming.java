package headgate.clients;

import static headgate.clients.Run.expect;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Consumers of both protocols. */
final class Consuming {
    private Consuming() {}

    static void oneMember(Run run, String protocol) throws Exception {
        String topic = run.topic("read");
        String group = run.name() + "-group";
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = run.admin()) {
            run.create(admin, new NewTopic(topic, 1, (short) 1));
            run.send("producer", topic, 0, Run.values(10));
            try (Consumer<String, String> consumer =
                run.consumer("consumer", group, Map.of("group.protocol", protocol, "max.poll.records", "4"))) {
                consumer.subscribe(List.of(topic));
                Run.poll(consumer, 10);
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(4, "by hand")));
                List<Exception> answers = new ArrayList<>();
                consumer.commitAsync(
                    Map.of(partition, new OffsetAndMetadata(6)), (offsets, error) -> answers.add(error));
                Run.await("the commit", () -> {
                    consumer.poll(Duration.ofMillis(20));
                    return !answers.isEmpty();
                });
                if (answers.get(0) != null) {
                    throw answers.get(0);
                }
                consumer.committed(Set.of(partition));
                consumer.beginningOffsets(List.of(partition));
                consumer.endOffsets(List.of(partition));
                consumer.offsetsForTimes(Map.of(partition, 1L));
                consumer.partitionsFor(topic);
                consumer.seekToBeginning(List.of(partition));
                Run.poll(consumer, 10);
                consumer.seek(partition, 7);
                Run.poll(consumer, 3);
                consumer.pause(List.of(partition));
                consumer.poll(Duration.ofMillis(50));
                consumer.resume(List.of(partition));
                consumer.seekToEnd(List.of(partition));
                consumer.position(partition);
                consumer.commitSync();
            }
            // A second life of the group goes on where the first has committed.
            run.send("producer", topic, 0, List.of("late"));
            try (Consumer<String, String> consumer = run.consumer("again", group, Map.of("group.protocol", protocol))) {
                consumer.subscribe(List.of(topic));
                if (Run.poll(consumer, 1).get(0).offset() != 10) {
                    throw new IllegalStateException("the second consumer did not go on at offset 10");
                }
                consumer.commitSync();
            }
            expect(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
            expect(admin.deleteConsumerGroups(List.of(group)).all());
            run.delete(admin, topic);
        }
    }

    static void assigned(Run run) throws Exception {
        String topic = run.topic("assigned");
        List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        try (Admin admin = run.admin()) {
            run.create(admin, new NewTopic(topic, 2, (short) 1));
            run.send("producer", topic, 0, Run.values(3));
            run.send("producer", topic, 1, Run.values(3));
            try (Consumer<String, String> consumer =
                run.consumer("reader", null, Map.of("group.protocol", "classic"))) {
                consumer.assign(partitions);
                Run.poll(consumer, 6);
                consumer.seek(partitions.get(1), 1);
                Run.poll(consumer, 2);
                consumer.position(partitions.get(0));
                consumer.listTopics();
            }
            run.delete(admin, topic);
        }
    }

    /** Batches of 400 KB in several partitions: a proxy may carry the records of such a response in another way. */
    static void large(Run run) throws Exception {
        String topic = run.topic("large");
        int partitions = 3;
        int each = 2;
        try (Admin admin = run.admin()) {
            run.create(admin, new NewTopic(topic, partitions, (short) 1));
            long timestamp = System.currentTimeMillis();
            List<TopicPartition> all = new ArrayList<>();
            // One by one, so that each record is a batch.
            try (Producer<String, String> producer = run.producer("producer", Map.of("acks", "all"))) {
                for (int partition = 0; partition < partitions; partition++) {
                    all.add(new TopicPartition(topic, partition));
                    for (int number = 0; number < each; number++) {
                        String value = (partition + "-" + number + " ").repeat(100_000);
                        expect(producer.send(new ProducerRecord<>(topic, partition, timestamp++, null, value)));
                    }
                }
            }
            Map<String, Object> settings = Map.of("group.protocol", "classic", "max.partition.fetch.bytes", "4194304");
            try (Consumer<String, String> consumer = run.consumer("reader", null, settings)) {
                consumer.assign(all);
                for (var record : Run.poll(consumer, partitions * each)) {
                    String value = (record.partition() + "-" + record.offset() + " ").repeat(100_000);
                    if (!record.value().equals(value)) {
                        throw new IllegalStateException("another value in partition " + record.partition());
                    }
                }
            }
            run.delete(admin, topic);
        }
    }

    static void pattern(Run run, String protocol) throws Exception {
        String group = run.name() + "-group";
        String[] topics = {run.topic("match-1"), run.topic("match-2"), run.topic("other")};
        try (Admin admin = run.admin()) {
            for (String topic : topics) {
                run.create(admin, new NewTopic(topic, 1, (short) 1));
                run.send("producer", topic, 0, Run.values(2));
            }
            try (Consumer<String, String> consumer =
                run.consumer("reader", group, Map.of("group.protocol", protocol))) {
                String expression = Pattern.quote(run.topic("match-")) + ".*";
                if (protocol.equals("consumer")) {
                    consumer.subscribe(new SubscriptionPattern(expression));
                } else {
                    consumer.subscribe(Pattern.compile(expression));
                }
                Run.poll(consumer, 4);
                consumer.commitSync();
            }
            expect(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
            expect(admin.deleteConsumerGroups(List.of(group)).all());
            run.delete(admin, topics);
        }
    }

    static void twoMembers(Run run, String protocol) throws Exception {
        String topic = run.topic("rebalanced");
        String group = run.name() + "-group";
        Map<String, Object> settings = protocol.equals("classic")
            ? Map.of("group.protocol", protocol, "heartbeat.interval.ms", "200", "session.timeout.ms", "6000")
            : Map.of("group.protocol", protocol);
        try (Admin admin = run.admin()) {
            run.create(admin, new NewTopic(topic, 2, (short) 1));
            for (int partition : new int[] {0, 1}) {
                run.send("producer", topic, partition, Run.values(3));
            }
            try (Consumer<String, String> first = run.consumer("first", group, settings)) {
                first.subscribe(List.of(topic));
                Run.poll(first, 6);
                first.commitSync();
                try (Consumer<String, String> second = run.consumer("second", group, settings)) {
                    second.subscribe(List.of(topic));
                    awaitAssigned(first, 1, second, 1);
                    for (int partition : new int[] {0, 1}) {
                        run.send("producer", topic, partition, List.of("shared"));
                    }
                    Run.poll(first, 1);
                    Run.poll(second, 1);
                    first.commitSync();
                    second.commitSync();
                }
                awaitAssigned(first, 2, first, 2);
                for (int partition : new int[] {0, 1}) {
                    run.send("producer", topic, partition, List.of("alone"));
                }
                Run.poll(first, 2);
                first.commitSync();
            }
            expect(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
            expect(admin.deleteConsumerGroups(List.of(group)).all());
            run.delete(admin, topic);
        }
    }

    private static void awaitAssigned(
        Consumer<String, String> one, int partitionsOfOne, Consumer<String, String> other, int partitionsOfOther)
        throws Exception {
        Run.await("the assignment", () -> {
            one.poll(Duration.ofMillis(20));
            other.poll(Duration.ofMillis(20));
            return one.assignment().size() == partitionsOfOne && other.assignment().size() == partitionsOfOther;
        });
    }
}
