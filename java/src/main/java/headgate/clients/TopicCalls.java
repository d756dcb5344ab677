package headgate.clients;

import static headgate.clients.Run.expect;
import static headgate.clients.Run.refused;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConfigEntry.ConfigSource;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicaAssignmentException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.LogDirNotFoundException;
import org.apache.kafka.common.errors.NoReassignmentInProgressException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Admin calls about topics: their lives, their partitions and their configs. */
final class TopicCalls {
    /** Where a value comes from that was set for the resource itself. */
    private static final Set<ConfigSource> OWN = Set.of(
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigSource.DYNAMIC_GROUP_CONFIG,
        ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG);

    private TopicCalls() {}

    static void topics(Run run) throws Exception {
        String plain = run.topic("plain");
        String compacted = run.topic("compacted");
        String placed = run.topic("placed");
        try (Admin admin = run.admin()) {
            NewTopic asked = new NewTopic(plain, 3, (short) 1);
            expect(admin.createTopics(List.of(asked), new CreateTopicsOptions().validateOnly(true)).all());
            run.create(
                admin,
                asked,
                new NewTopic(compacted, 1, (short) 1)
                    .configs(Map.of("cleanup.policy", "compact", "retention.ms", "1000")),
                new NewTopic(placed, Map.of(0, List.of(0), 1, List.of(0))),
                new NewTopic(run.topic("defaults"), Optional.empty(), Optional.empty()));
            refused(TopicExistsException.class, admin.createTopics(List.of(asked)).all());
            refused(InvalidTopicException.class, admin.createTopics(List.of(new NewTopic("a b", 1, (short) 1))).all());
            refused(
                InvalidReplicationFactorException.class,
                admin.createTopics(List.of(new NewTopic(run.topic("wide"), 1, (short) 9))).all());
            refused(
                InvalidConfigurationException.class,
                admin.createTopics(
                    List.of(new NewTopic(run.topic("odd"), 1, (short) 1).configs(Map.of("retention.ms", "soon"))))
                    .all());

            expect(admin.listTopics().names());
            expect(admin.listTopics(new ListTopicsOptions().listInternal(true)).listings());
            Uuid id = expect(admin.describeTopics(List.of(plain, compacted)).allTopicNames()).get(plain).topicId();
            DescribeTopicsOptions rights = new DescribeTopicsOptions().includeAuthorizedOperations(true);
            expect(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)), rights).allTopicIds());
            refused(
                UnknownTopicOrPartitionException.class,
                admin.describeTopics(List.of(run.topic("nowhere"))).allTopicNames());
            refused(
                UnknownTopicIdException.class,
                admin.describeTopics(TopicCollection.ofTopicIds(List.of(new Uuid(7, 7)))).allTopicIds());
            // More topics than one answer holds when the limit is one: the call goes on with a cursor.
            expect(admin.describeTopics(
                List.of(plain, compacted, placed), new DescribeTopicsOptions().partitionSizeLimitPerResponse(1))
                .allTopicNames());

            refused(
                UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of(run.topic("nowhere"))).all());
            expect(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all());
            run.delete(admin, compacted, placed, run.topic("defaults"));
        }
    }

    static void partitions(Run run) throws Exception {
        String topic = run.topic("partitions");
        TopicPartition first = new TopicPartition(topic, 0);
        try (Admin admin = run.admin()) {
            run.create(admin, new NewTopic(topic, 1, (short) 1));
            run.send("producer", topic, 0, Run.values(5));

            Map<TopicPartition, OffsetSpec> specs = new LinkedHashMap<>();
            for (OffsetSpec spec : List.of(
                OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(), OffsetSpec.earliestLocal(),
                OffsetSpec.forTimestamp(0))) {
                specs.put(first, spec);
                expect(admin.listOffsets(specs).all());
            }
            expect(admin.listOffsets(
                Map.of(first, OffsetSpec.latest()), new ListOffsetsOptions(IsolationLevel.READ_COMMITTED)).all());
            expect(admin.describeProducers(List.of(first)).all());

            expect(admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(2))).all());
            refused(
                OffsetOutOfRangeException.class,
                admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(99))).all());
            expect(admin.listOffsets(Map.of(first, OffsetSpec.earliest())).all());

            expect(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all());
            run.awaitTopics(List.of(new NewTopic(topic, 3, (short) 1)));
            refused(
                InvalidPartitionsException.class,
                admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all());

            Throwable notElected =
                expect(admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).partitions()).get(first).orElseThrow();
            if (!(notElected instanceof ElectionNotNeededException)) {
                throw new IllegalStateException(notElected);
            }
            expect(admin.listPartitionReassignments().reassignments());
            refused(
                NoReassignmentInProgressException.class,
                admin.alterPartitionReassignments(Map.of(first, Optional.empty())).all());
            refused(
                InvalidReplicaAssignmentException.class,
                admin.alterPartitionReassignments(
                    Map.of(first, Optional.of(new NewPartitionReassignment(List.of(77))))).all());
            expect(admin.alterPartitionReassignments(
                Map.of(first, Optional.of(new NewPartitionReassignment(List.of(0))))).all());

            expect(admin.describeLogDirs(List.of(0)).allDescriptions());
            TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, 0);
            expect(admin.describeReplicaLogDirs(List.of(replica)).all());
            refused(
                LogDirNotFoundException.class, admin.alterReplicaLogDirs(Map.of(replica, "/nowhere/at/all")).all());
            run.delete(admin, topic);
        }
    }

    static void configs(Run run) throws Exception {
        String topic = run.topic("configs");
        ConfigResource ofTopic = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        ConfigResource ofBroker = new ConfigResource(ConfigResource.Type.BROKER, "0");
        ConfigResource ofAllBrokers = new ConfigResource(ConfigResource.Type.BROKER, "");
        ConfigResource ofLogger = new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "0");
        ConfigResource ofGroup = new ConfigResource(ConfigResource.Type.GROUP, run.name() + "-group");
        ConfigResource ofMetrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, run.name() + "-metrics");
        try (Admin admin = run.admin()) {
            run.create(admin, new NewTopic(topic, 1, (short) 1));
            alter(run, admin, ofTopic, OpType.SET, "retention.ms", "3600000");
            alter(run, admin, ofTopic, OpType.APPEND, "cleanup.policy", "compact");
            alter(run, admin, ofTopic, OpType.SUBTRACT, "cleanup.policy", "delete");
            refused(InvalidConfigurationException.class, altered(admin, ofTopic, OpType.SET, "retention.ms", "soon"));
            refused(InvalidConfigurationException.class, altered(admin, ofTopic, OpType.SET, "no.such.config", "1"));
            expect(admin.incrementalAlterConfigs(
                Map.of(ofTopic, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "1"), OpType.SET))),
                new AlterConfigsOptions().validateOnly(true)).all());
            expect(admin.describeConfigs(
                List.of(ofTopic), new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true)).all());
            alter(run, admin, ofTopic, OpType.DELETE, "retention.ms", null);
            expect(admin.describeConfigs(List.of(ofTopic)).all());

            expect(admin.describeConfigs(List.of(ofBroker)).all());
            expect(admin.describeConfigs(List.of(ofAllBrokers)).all());
            alter(run, admin, ofLogger, OpType.SET, "kafka.server.KafkaApis", "WARN");
            alter(run, admin, ofLogger, OpType.DELETE, "kafka.server.KafkaApis", null);

            alter(run, admin, ofGroup, OpType.SET, "share.auto.offset.reset", "earliest");
            alter(run, admin, ofGroup, OpType.SET, "consumer.session.timeout.ms", "50000");
            refused(InvalidConfigurationException.class, altered(admin, ofGroup, OpType.SET, "headgate.odd", "1"));
            expect(admin.describeConfigs(List.of(ofGroup)).all());

            alter(run, admin, ofMetrics, OpType.SET, "interval.ms", "60000");
            expect(admin.describeConfigs(List.of(ofMetrics)).all());
            expect(admin.listConfigResources().all());
            for (ConfigResource.Type type : List.of(ConfigResource.Type.GROUP, ConfigResource.Type.CLIENT_METRICS)) {
                expect(admin.listConfigResources(Set.of(type), new ListConfigResourcesOptions()).all());
            }

            alter(run, admin, ofMetrics, OpType.DELETE, "interval.ms", null);
            alter(run, admin, ofGroup, OpType.DELETE, "share.auto.offset.reset", null);
            alter(run, admin, ofGroup, OpType.DELETE, "consumer.session.timeout.ms", null);
            run.delete(admin, topic);
            refused(UnknownTopicOrPartitionException.class, admin.describeConfigs(List.of(ofTopic)).all());
        }
    }

    /** Alters a config and waits until the broker goes by it: the controller answers before. */
    static void alter(Run run, Admin admin, ConfigResource resource, OpType type, String key, String value)
        throws Exception {
        expect(altered(admin, resource, type, key, value));
        if (resource.type() == ConfigResource.Type.BROKER_LOGGER) {
            return;
        }
        try (Admin waiting = run.admin("wait")) {
            Run.await(key + " of " + resource.name(), () -> {
                ConfigEntry seen = expect(waiting.describeConfigs(List.of(resource)).all()).get(resource).get(key);
                return switch (type) {
                    case DELETE -> seen == null || !OWN.contains(seen.source());
                    case SUBTRACT -> seen != null && !List.of(seen.value().split(",")).contains(value);
                    default -> seen != null && OWN.contains(seen.source())
                        && List.of(seen.value().split(",")).contains(value);
                };
            });
        }
    }

    private static Future<Void> altered(
        Admin admin, ConfigResource resource, OpType type, String key, String value) {
        return admin.incrementalAlterConfigs(
            Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry(key, value), type)))).all();
    }
}
