package headgate.clients;

import static headgate.clients.Run.expect;

import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** A partition's leader moves from node to node under clients that still know the old one (KIP-951); three brokers. */
final class Leading {
    private static final List<List<Integer>> PLACES = List.of(List.of(1, 2, 0), List.of(2, 0, 1), List.of(0, 1, 2));

    private Leading() {}

    static void moves(Run run) throws Exception {
        String topic = run.topic("led");
        String shareGroup = run.name() + "-share";
        ConfigResource config = new ConfigResource(ConfigResource.Type.GROUP, shareGroup);
        try (Admin admin = run.admin()) {
            run.create(admin, new NewTopic(topic, Map.of(0, List.of(0, 1, 2))));
            TopicCalls.alter(run, admin, config, OpType.SET, "share.auto.offset.reset", "earliest");
            try (Producer<String, String> producer = run.producer("producer", Map.of("acks", "all"));
                Consumer<String, String> consumer =
                    run.consumer("consumer", run.name() + "-group", Map.of("group.protocol", "consumer"));
                ShareConsumer<String, String> member = run.shareConsumer("member", shareGroup, Map.of())) {
                consumer.subscribe(List.of(topic));
                member.subscribe(List.of(topic));
                everywhere(topic, "first", producer, consumer, member);
                for (List<Integer> replicas : PLACES) {
                    move(run, admin, new TopicPartition(topic, 0), replicas);
                    everywhere(topic, "on-" + replicas.get(0), producer, consumer, member);
                }
            }
            GroupCalls.sweep(admin, run.name() + "-group");
            GroupCalls.sweep(admin, shareGroup);
            TopicCalls.alter(run, admin, config, OpType.DELETE, "share.auto.offset.reset", null);
            run.delete(admin, topic);
        }
    }

    private static void everywhere(
        String topic, String value, Producer<String, String> producer, Consumer<String, String> consumer,
        ShareConsumer<String, String> member) throws Exception {
        expect(producer.send(Run.record(topic, 0, "k", value)));
        awaitValue(value, () -> consumer.poll(Duration.ofMillis(100)));
        awaitValue(value, () -> member.poll(Duration.ofMillis(100)));
    }

    private static void awaitValue(String value, Supplier<Iterable<ConsumerRecord<String, String>>> poll)
        throws Exception {
        Set<String> seen = new HashSet<>();
        Run.await("record " + value, () -> {
            poll.get().forEach(record -> seen.add(record.value()));
            return seen.contains(value);
        });
    }

    private static void move(Run run, Admin admin, TopicPartition partition, List<Integer> replicas) throws Exception {
        expect(admin.alterPartitionReassignments(
            Map.of(partition, Optional.of(new NewPartitionReassignment(replicas)))).all());
        try (Admin waiting = run.admin("wait")) {
            Run.await(
                "the order of replicas",
                () -> expect(waiting.listPartitionReassignments().reassignments()).isEmpty());
            expect(admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions());
            Run.await("leader " + replicas.get(0), () -> expect(waiting.describeTopics(List.of(partition.topic()))
                .allTopicNames()).get(partition.topic()).partitions().get(0).leader().id() == replicas.get(0));
        }
    }
}
