package headgate.clients;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What a scenario is given: where to connect, and a name that no other test uses.
 *
 * <p>Every client has a client id of its own, fixed by the scenario, because recordings are compared by it. A scenario
 * leaves nothing behind, so that its second run meets the cluster that its first run met.
 */
record Run(String bootstrap, String name, Map<String, String> options) {
    static final long DEADLINE_MS = 30_000;
    /** A broker takes the calls of a connection one by one, and all others wait for a fetch that finds nothing. */
    static final String FETCH_WAIT_MS = "100";

    String topic(String what) {
        return name + "." + what;
    }

    int number(String option) {
        return Integer.parseInt(options.get(option));
    }

    Admin admin() {
        return admin("admin");
    }

    Admin admin(String clientId) {
        return Admin.create(settings(clientId, Map.of()));
    }

    Producer<String, String> producer(String clientId, Map<String, Object> own) {
        return new KafkaProducer<>(settings(clientId, own), new StringSerializer(), new StringSerializer());
    }

    /** A consumer that commits only when told to. */
    Consumer<String, String> consumer(String clientId, String group, Map<String, Object> own) {
        Map<String, Object> settings = settings(clientId, own);
        settings.putIfAbsent("auto.offset.reset", "earliest");
        settings.putIfAbsent("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", FETCH_WAIT_MS);
        if (group != null) {
            settings.put("group.id", group);
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    ShareConsumer<String, String> shareConsumer(String clientId, String group, Map<String, Object> own) {
        Map<String, Object> settings = settings(clientId, own);
        settings.put("group.id", group);
        settings.put("fetch.max.wait.ms", FETCH_WAIT_MS);
        return new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private Map<String, Object> settings(String clientId, Map<String, Object> own) {
        Map<String, Object> settings = new HashMap<>(own);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", clientId);
        return settings;
    }

    /** Creates topics and waits until the broker serves them; the wait has a client id of its own. */
    void create(Admin admin, NewTopic... topics) throws Exception {
        expect(admin.createTopics(List.of(topics)).all());
        awaitTopics(List.of(topics));
    }

    void awaitTopics(Collection<NewTopic> topics) throws Exception {
        try (Admin waiting = admin("wait")) {
            for (NewTopic topic : topics) {
                await("topic " + topic.name(), () -> isServed(waiting, topic));
            }
        }
    }

    /** A topic is served when its leaders answer, which is later than when metadata names them. */
    private static boolean isServed(Admin admin, NewTopic topic) throws Exception {
        TopicDescription seen = described(admin, topic.name());
        if (seen == null
            || seen.partitions().size() < Math.max(1, topic.numPartitions())
            || seen.partitions().stream().anyMatch(partition -> partition.leader() == null)) {
            return false;
        }
        for (TopicPartitionInfo partition : seen.partitions()) {
            TopicPartition one = new TopicPartition(topic.name(), partition.partition());
            expect(admin.listOffsets(Map.of(one, OffsetSpec.latest())).all());
        }
        return true;
    }

    private static TopicDescription described(Admin admin, String topic) throws Exception {
        try {
            return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                return null;
            }
            throw error;
        }
    }

    void delete(Admin admin, String... topics) throws Exception {
        expect(admin.deleteTopics(List.of(topics)).all());
        try (Admin waiting = admin("wait")) {
            for (String topic : topics) {
                await("the end of " + topic, () -> described(waiting, topic) == null);
            }
        }
    }

    /** Sends values one by one, each acknowledged before the next and a millisecond younger, whatever the timing. */
    void send(String clientId, String topic, int partition, Collection<String> values) throws Exception {
        long timestamp = System.currentTimeMillis();
        try (Producer<String, String> producer = producer(clientId, Map.of("acks", "all"))) {
            for (String value : values) {
                expect(producer.send(new ProducerRecord<>(topic, partition, timestamp++, "k-" + value, value)));
            }
        }
    }

    static ProducerRecord<String, String> record(String topic, int partition, String key, String value) {
        ProducerRecord<String, String> record = new ProducerRecord<>(topic, partition, key, value);
        record.headers().add("origin", "headgate".getBytes(StandardCharsets.UTF_8));
        return record;
    }

    static List<String> values(int count) {
        List<String> values = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            values.add("v" + number);
        }
        return values;
    }

    /** Polls until this many records have come. */
    static List<ConsumerRecord<String, String>> poll(Consumer<String, String> consumer, int count) throws Exception {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        await(count + " records", () -> {
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
            return records.size() >= count;
        });
        return records;
    }

    static List<ConsumerRecord<String, String>> poll(ShareConsumer<String, String> consumer, int count)
        throws Exception {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        await(count + " records", () -> {
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
            return records.size() >= count;
        });
        return records;
    }

    /** The result of a call that must succeed. */
    static <T> T expect(Future<T> call) throws Exception {
        return call.get(DEADLINE_MS, TimeUnit.MILLISECONDS);
    }

    /** A call that must fail, and with this very error: a scenario that fails by mistake compares nothing. */
    static void refused(Class<? extends Throwable> error, Future<?> call) throws Exception {
        try {
            call.get(DEADLINE_MS, TimeUnit.MILLISECONDS);
        } catch (ExecutionException failure) {
            if (error.isInstance(failure.getCause())) {
                return;
            }
            throw failure;
        }
        throw new IllegalStateException("the call succeeded; expected was " + error.getSimpleName());
    }

    static void await(String what, Callable<Boolean> reached) throws Exception {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(DEADLINE_MS);
        while (!reached.call()) {
            if (System.nanoTime() > until) {
                throw new IllegalStateException("waited " + DEADLINE_MS + " ms for " + what);
            }
            Thread.sleep(20);
        }
    }
}
