package headgate.clients;

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.config.ConfigResource;

/** Has a fresh cluster make its internal topics and load its coordinators, so that no compared run waits for them. */
final class Warming {
    private Warming() {}

    static void all(Run run) throws Exception {
        String topic = run.topic("warm");
        ConfigResource config = new ConfigResource(ConfigResource.Type.GROUP, run.name() + "-share");
        try (Admin admin = run.admin();
            Producer<String, String> producer = run.producer("producer", Map.of("transactional.id", run.name()));
            Consumer<String, String> consumer =
                run.consumer("consumer", run.name(), Map.of("group.protocol", "consumer"));
            ShareConsumer<String, String> member = run.shareConsumer("member", run.name() + "-share", Map.of())) {
            run.create(admin, new NewTopic(topic, 1, (short) 1));
            TopicCalls.alter(run, admin, config, OpType.SET, "share.auto.offset.reset", "earliest");
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(Run.record(topic, 0, "k", "v"));
            producer.commitTransaction();
            consumer.subscribe(List.of(topic));
            Run.poll(consumer, 1);
            consumer.commitSync();
            member.subscribe(List.of(topic));
            Run.poll(member, 1);
        }
        try (Admin admin = run.admin("cleaner")) {
            Run.await("an empty group", () -> GroupCalls.isEmpty(run, run.name() + "-share"));
            Run.expect(admin.deleteShareGroups(List.of(run.name() + "-share")).all());
            Run.expect(admin.deleteConsumerGroups(List.of(run.name())).all());
            TopicCalls.alter(run, admin, config, OpType.DELETE, "share.auto.offset.reset", null);
            run.delete(admin, topic);
        }
    }
}
