package headgate.clients;

import static headgate.clients.Run.expect;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.common.config.ConfigResource;

/** Share consumers: acknowledgement by the next poll, and by hand. */
final class Sharing {
    private static final int RECORDS = 8;

    private Sharing() {}

    static void implicit(Run run) throws Exception {
        shared(run, Map.of("share.acknowledgement.mode", "implicit"), consumer -> {
            Run.poll(consumer, RECORDS);
            consumer.commitSync();
        });
    }

    static void explicit(Run run) throws Exception {
        Map<String, Object> settings = Map.of("share.acknowledgement.mode", "explicit", "max.poll.records", "100");
        shared(run, settings, consumer -> {
            AtomicInteger answered = new AtomicInteger();
            consumer.setAcknowledgementCommitCallback((offsets, error) -> answered.incrementAndGet());
            List<ConsumerRecord<String, String>> released = new ArrayList<>();
            int seen = 0;
            while (seen < RECORDS) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    AcknowledgeType type = typeOf(record.offset());
                    consumer.acknowledge(record, type);
                    if (type == AcknowledgeType.RELEASE) {
                        released.add(record);
                    }
                    seen++;
                }
                consumer.commitSync();
            }
            // What was released comes again, is renewed once and then accepted.
            List<ConsumerRecord<String, String>> again = Run.poll(consumer, 1);
            if (again.size() < released.size()) {
                throw new IllegalStateException("released records came apart: " + again.size());
            }
            again.forEach(record -> consumer.acknowledge(record, AcknowledgeType.RENEW));
            consumer.commitSync();
            List<ConsumerRecord<String, String>> renewed = Run.poll(consumer, released.size());
            renewed.forEach(record -> consumer.acknowledge(record, AcknowledgeType.ACCEPT));
            consumer.commitAsync();
            Run.await("the commit", () -> {
                consumer.poll(Duration.ofMillis(20));
                return answered.get() >= 3;
            });
        });
    }

    private static AcknowledgeType typeOf(long offset) {
        if (offset % 4 == 1) {
            return AcknowledgeType.RELEASE;
        }
        return offset % 4 == 3 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT;
    }

    @FunctionalInterface
    private interface Use {
        void of(ShareConsumer<String, String> consumer) throws Exception;
    }

    private static void shared(Run run, Map<String, Object> settings, Use use) throws Exception {
        String topic = run.topic("shared");
        String group = run.name() + "-share";
        ConfigResource config = new ConfigResource(ConfigResource.Type.GROUP, group);
        try (Admin admin = run.admin()) {
            run.create(admin, new NewTopic(topic, 1, (short) 1));
            TopicCalls.alter(run, admin, config, OpType.SET, "share.auto.offset.reset", "earliest");
            run.send("producer", topic, 0, Run.values(RECORDS));
            try (ShareConsumer<String, String> consumer = run.shareConsumer("member", group, settings)) {
                consumer.subscribe(List.of(topic));
                use.of(consumer);
            }
            Run.await("an empty group", () -> GroupCalls.isEmpty(run, group));
            expect(admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec())).all());
            expect(admin.deleteShareGroups(List.of(group)).all());
            TopicCalls.alter(run, admin, config, OpType.DELETE, "share.auto.offset.reset", null);
            run.delete(admin, topic);
        }
    }
}
