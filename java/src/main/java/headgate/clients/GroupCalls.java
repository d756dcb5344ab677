package headgate.clients;

import static headgate.clients.Run.expect;
import static headgate.clients.Run.refused;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;

/** Admin calls about groups of every type, with living members and without. */
final class GroupCalls {
    private GroupCalls() {}

    static void consumerGroups(Run run) throws Exception {
        String topic = run.topic("groups");
        String classic = run.name() + "-classic";
        String modern = run.name() + "-consumer";
        String simple = run.name() + "-simple";
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = run.admin();
            Consumer<String, String> first =
                run.consumer("classic", classic, Map.of("group.protocol", "classic", "group.instance.id", "static-1"));
            Consumer<String, String> second = run.consumer("modern", modern, Map.of("group.protocol", "consumer"))) {
            run.create(admin, new NewTopic(topic, 2, (short) 1));
            run.send("producer", topic, 0, Run.values(3));
            for (Consumer<String, String> consumer : List.of(first, second)) {
                consumer.subscribe(List.of(topic));
                Run.poll(consumer, 3);
                consumer.commitSync();
            }
            expect(admin.alterConsumerGroupOffsets(simple, Map.of(partition, new OffsetAndMetadata(1, "noted"))).all());

            listings(admin);
            DescribeConsumerGroupsOptions rights =
                new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true);
            expect(admin.describeConsumerGroups(List.of(classic), rights).all());
            expect(admin.describeConsumerGroups(List.of(modern), rights).all());
            expect(admin.describeConsumerGroups(List.of(simple)).all());
            expect(admin.describeClassicGroups(List.of(classic)).all());
            refused(GroupIdNotFoundException.class, admin.describeConsumerGroups(List.of(run.name() + "-none")).all());
            refused(GroupIdNotFoundException.class, admin.describeClassicGroups(List.of(modern)).all());

            expect(admin.listConsumerGroupOffsets(simple).partitionsToOffsetAndMetadata());
            expect(admin.listConsumerGroupOffsets(
                Map.of(
                    classic, new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(partition)),
                    modern, new ListConsumerGroupOffsetsSpec()),
                new ListConsumerGroupOffsetsOptions().requireStable(true)).all());
            refused(GroupNotEmptyException.class, admin.deleteConsumerGroups(List.of(classic)).all());
            refused(GroupNotEmptyException.class, admin.deleteConsumerGroups(List.of(modern)).all());
            refused(
                GroupSubscribedToTopicException.class,
                admin.deleteConsumerGroupOffsets(modern, Set.of(partition)).all());
            expect(admin.removeMembersFromConsumerGroup(
                classic, new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("static-1")))).all());
        }
        try (Admin admin = run.admin("cleaner")) {
            expect(admin.deleteConsumerGroupOffsets(simple, Set.of(partition)).all());
            expect(admin.describeConsumerGroups(List.of(modern)).all());
            expect(admin.deleteConsumerGroups(List.of(modern)).all());
            expect(admin.deleteConsumerGroups(List.of(classic)).all());
            refused(GroupIdNotFoundException.class, admin.deleteConsumerGroups(List.of(run.name() + "-none")).all());
            run.delete(admin, topic);
            sweep(admin, simple);
        }
    }

    /** Deletes a group of any type; one without offsets and members may be gone already. */
    static void sweep(Admin admin, String group) throws Exception {
        try {
            expect(admin.deleteConsumerGroups(List.of(group)).all());
        } catch (ExecutionException gone) {
            if (!(gone.getCause() instanceof GroupIdNotFoundException)) {
                throw gone;
            }
        }
    }

    private static void listings(Admin admin) throws Exception {
        expect(admin.listGroups().all());
        expect(admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.CLASSIC))).all());
        expect(admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER))).all());
        expect(admin.listGroups(new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE))).all());
        expect(admin.listGroups(ListGroupsOptions.forShareGroups()).all());
        expect(admin.listGroups(ListGroupsOptions.forStreamsGroups()).all());
    }

    static void shareGroups(Run run) throws Exception {
        String topic = run.topic("shared");
        String group = run.name() + "-share";
        TopicPartition partition = new TopicPartition(topic, 0);
        ConfigResource config = new ConfigResource(ConfigResource.Type.GROUP, group);
        try (Admin admin = run.admin()) {
            run.create(admin, new NewTopic(topic, 1, (short) 1));
            TopicCalls.alter(run, admin, config, OpType.SET, "share.auto.offset.reset", "earliest");
            run.send("producer", topic, 0, Run.values(4));
            try (ShareConsumer<String, String> member = run.shareConsumer("member", group, Map.of())) {
                member.subscribe(List.of(topic));
                Run.poll(member, 4);
                expect(admin.describeShareGroups(List.of(group)).all());
                expect(admin.listGroups(ListGroupsOptions.forShareGroups()).all());
                refused(GroupNotEmptyException.class, admin.deleteShareGroups(List.of(group)).all());
                refused(GroupNotEmptyException.class, admin.alterShareGroupOffsets(group, Map.of(partition, 0L)).all());
            }
            Run.await("an empty group", () -> isEmpty(run, group));
            expect(admin.describeShareGroups(List.of(group)).all());
            expect(admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec())).all());
            expect(admin.alterShareGroupOffsets(group, Map.of(partition, 1L)).all());
            expect(admin.listShareGroupOffsets(
                Map.of(group, new ListShareGroupOffsetsSpec().topicPartitions(List.of(partition)))).all());
            expect(admin.deleteShareGroupOffsets(group, Set.of(topic)).all());
            expect(admin.deleteShareGroups(List.of(group)).all());
            refused(GroupIdNotFoundException.class, admin.describeShareGroups(List.of(group)).all());
            TopicCalls.alter(run, admin, config, OpType.DELETE, "share.auto.offset.reset", null);
            run.delete(admin, topic);
        }
    }

    static boolean isEmpty(Run run, String shareGroup) throws Exception {
        try (Admin waiting = run.admin("wait")) {
            return expect(waiting.describeShareGroups(List.of(shareGroup)).all()).get(shareGroup).members().isEmpty();
        }
    }
}
