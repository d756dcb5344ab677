package headgate.sharing;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One share consumer in a thread of its own.
 *
 * <p>What it does with a record is the record's {@link Verdict}; how that reaches the broker is the client's own doing,
 * by the mode and the kind of commit that it was given.
 */
final class ShareMember {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final Duration CLOSING = Duration.ofSeconds(10);

    private final String name;
    private final List<String> topics = new ArrayList<>();
    private final boolean explicit;
    private final String commit;
    private final int percent;
    private final Verdict unlucky;
    private final boolean each;
    private final long workMs;
    private final Main.Lines lines;
    private final KafkaShareConsumer<byte[], byte[]> consumer;
    private final Set<String> renewed = new HashSet<>();
    private final Semaphore going = new Semaphore(0);
    private final Thread thread;
    private final AtomicLong records = new AtomicLong();
    private final AtomicLong again = new AtomicLong();
    private final AtomicLong answered = new AtomicLong();
    private final AtomicLong refused = new AtomicLong();

    private final Random chance;

    private volatile Downstream downstream = Downstream.WORKS;
    private volatile boolean ending;

    /** What the member calls for each record: so many percent of the attempts fail, whatever the record is. */
    record Downstream(int failingPercent, Verdict onFailure) {
        static final Downstream WORKS = new Downstream(0, Verdict.REJECT);
    }

    ShareMember(String name, JsonNode call, Main.Lines lines) {
        this.name = name;
        this.lines = lines;
        call.get("topics").forEach(topic -> topics.add(topic.asText()));
        this.explicit = call.path("mode").asText("explicit").equals("explicit");
        this.commit = call.path("commit").asText("none");
        this.percent = call.path("rejects_percent").asInt(0);
        this.unlucky = call.path("releases").asBoolean(false) ? Verdict.RELEASE : Verdict.REJECT;
        this.each = call.path("each").asBoolean(false);
        this.workMs = call.path("work_ms").asLong(0);
        this.consumer = new KafkaShareConsumer<>(settings(call), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        this.thread = new Thread(this::live, "member-" + name);
        this.chance = new Random(name.hashCode());
    }

    private Map<String, Object> settings(JsonNode call) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("client.id", name);
        settings.put("fetch.max.wait.ms", "200");
        settings.put("share.acknowledgement.mode", explicit ? "explicit" : "implicit");
        call.get("settings").properties()
            .forEach(setting -> settings.put(setting.getKey(), setting.getValue().asText()));
        settings.put("group.id", call.get("group").asText());
        return settings;
    }

    void start() {
        thread.setDaemon(true);
        thread.start();
    }

    /** Whoever hangs on a record goes on. */
    void go() {
        going.release();
    }

    void setDownstream(Downstream changed) {
        downstream = changed;
    }

    /** Acknowledges what it has in hand, leaves its group, and returns when it has ended. */
    void close() throws InterruptedException {
        ending = true;
        going.release(1000);
        thread.join(PATIENCE.multipliedBy(2).toMillis());
        if (thread.isAlive()) {
            throw new IllegalStateException(name + " does not end");
        }
    }

    boolean isAlive() {
        return thread.isAlive();
    }

    ObjectNode seen(ObjectNode into) {
        return into.put("alive", thread.isAlive()).put("records", records.get()).put("again", again.get())
            .put("answered", answered.get()).put("refused", refused.get());
    }

    private void live() {
        try {
            consumer.setAcknowledgementCommitCallback(this::onAnswer);
            consumer.subscribe(topics);
            String last = "";
            while (!ending) {
                String error = turn();
                if (!error.isEmpty() && !error.equals(last)) {
                    lines.event(name, "error", line -> line.put("text", error));
                }
                last = error;
            }
        } catch (RuntimeException error) {
            lines.event(name, "error", line -> line.put("text", error.toString()));
        } finally {
            leave();
        }
    }

    private void leave() {
        try {
            consumer.close(CLOSING);
        } catch (RuntimeException error) {
            lines.event(name, "error", line -> line.put("text", error.toString()));
        }
        lines.event(name, "closed", line -> {});
    }

    private String turn() {
        try {
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(POLL);
            if (!polled.isEmpty()) {
                take(polled);
                commit(polled.count());
            }
            return "";
        } catch (RuntimeException error) {
            LockSupport.parkNanos(POLL.toNanos());
            return error.toString();
        }
    }

    private void take(ConsumerRecords<byte[], byte[]> polled) {
        List<Verdict> verdicts = new ArrayList<>(polled.count());
        boolean hangs = false;
        long repeated = 0;
        for (ConsumerRecord<byte[], byte[]> record : polled) {
            verdicts.add(verdict(record));
            hangs |= Verdict.hangs(record);
            repeated += record.deliveryCount().orElse((short) 1) > 1 ? 1 : 0;
        }
        records.addAndGet(polled.count());
        again.addAndGet(repeated);
        say(polled, verdicts, repeated);
        if (workMs > 0) {
            LockSupport.parkNanos(workMs * 1_000_000);
        }
        if (hangs) {
            lines.event(name, "hanging", line -> {});
            going.acquireUninterruptibly();
        }
        if (explicit) {
            int place = 0;
            for (ConsumerRecord<byte[], byte[]> record : polled) {
                consumer.acknowledge(record, AcknowledgeType.valueOf(verdicts.get(place++).name()));
            }
        }
    }

    /** A record that was renewed is polled again, and is accepted then. */
    private Verdict verdict(ConsumerRecord<byte[], byte[]> record) {
        Downstream called = downstream;
        if (chance.nextInt(100) < called.failingPercent()) {
            return called.onFailure();
        }
        Verdict verdict = Verdict.of(record, percent, unlucky);
        if (verdict != Verdict.RENEW) {
            return verdict;
        }
        String place = record.topic() + "/" + record.partition() + "/" + record.offset();
        if (renewed.remove(place)) {
            return Verdict.ACCEPT;
        }
        renewed.add(place);
        return Verdict.RENEW;
    }

    private void commit(int count) {
        switch (commit) {
            case "sync" -> commitSync(count);
            case "async" -> consumer.commitAsync();
            default -> {}
        }
    }

    /** Reports how long the application waited for its commit, also when the commit fails. */
    private void commitSync(int count) {
        long began = System.nanoTime();
        try {
            consumer.commitSync(PATIENCE);
        } finally {
            long tookMs = (System.nanoTime() - began) / 1_000_000;
            lines.event(name, "committed", line -> line.put("count", count).put("took_ms", tookMs));
        }
    }

    private void say(ConsumerRecords<byte[], byte[]> polled, List<Verdict> verdicts, long repeated) {
        lines.event(name, "polled", line -> {
            line.put("count", polled.count()).put("again", repeated);
            if (!each) {
                return;
            }
            ArrayNode all = line.putArray("records");
            int place = 0;
            for (ConsumerRecord<byte[], byte[]> record : polled) {
                all.addArray().add(record.topic()).add(record.partition()).add(record.offset())
                    .add(record.deliveryCount().orElse((short) 0))
                    .add(verdicts.get(place++).name().toLowerCase(Locale.ROOT));
            }
        });
    }

    private void onAnswer(Map<TopicIdPartition, Set<Long>> offsets, Exception error) {
        int count = offsets.values().stream().mapToInt(Set::size).sum();
        (error == null ? answered : refused).addAndGet(count);
        if (error == null && !each) {
            return;
        }
        lines.event(name, error == null ? "answered" : "refused", line -> {
            line.put("count", count).put("text", error == null ? "" : error.getClass().getSimpleName());
            ArrayNode all = line.putArray("offsets");
            offsets.forEach((partition, ones) -> ones.forEach(
                offset -> all.addArray().add(partition.topic()).add(partition.partition()).add(offset)));
        });
    }
}
