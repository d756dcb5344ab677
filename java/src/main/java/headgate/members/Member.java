package headgate.members;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.internals.AsyncKafkaConsumer;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.Assignment;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.Subtopology;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.TaskId;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceListener;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One member of a streams group: the consumer that Kafka Streams 4.4 would run, in a thread of its own.
 *
 * <p>It takes its tasks and reads its topics, and does nothing with what it reads. How it joins, how often it sends a
 * heartbeat, and what it does when it is asked for its description is the client's own doing.
 */
final class Member implements StreamsRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Duration LEAVING = Duration.ofSeconds(5);

    private final String name;
    private final String group;
    private final boolean commits;
    private final Events events;
    private final MemberData data;
    private final Set<String> topics = new HashSet<>();
    private final AsyncKafkaConsumer<byte[], byte[]> consumer;
    private final Thread thread;

    private volatile GroupMembershipOperation end;
    private volatile String memberId = "";
    private volatile int memberEpoch = -1;
    private volatile long records;

    Member(String name, JsonNode call, Events events) {
        this.name = name;
        this.group = call.get("group").asText();
        this.commits = call.path("commits").asBoolean(false);
        this.events = events;
        Map<String, Subtopology> subtopologies = Subtopologies.of(call.get("subtopologies"));
        for (Subtopology subtopology : subtopologies.values()) {
            topics.addAll(subtopology.sourceTopics());
            topics.addAll(subtopology.repartitionSourceTopics().keySet());
        }
        this.data = new MemberData(call, subtopologies, this::happened);
        this.consumer = new AsyncKafkaConsumer<>(
            new ConsumerConfig(settings(call.get("settings"))),
            new ByteArrayDeserializer(),
            new ByteArrayDeserializer(),
            Optional.of(data));
        this.thread = new Thread(this::live, "member-" + name);
    }

    private Map<String, Object> settings(JsonNode own) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("client.id", name);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", "100");
        // Otherwise a missing source topic is made by the member that misses it.
        settings.put("allow.auto.create.topics", "false");
        own.properties().forEach(setting -> settings.put(setting.getKey(), setting.getValue().asText()));
        settings.put("group.id", group);
        settings.put("group.protocol", "consumer");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return settings;
    }

    void start() {
        thread.setDaemon(true);
        thread.start();
    }

    /** Says goodbye to the group, and returns when the member has ended. */
    void leave() throws InterruptedException {
        end(GroupMembershipOperation.LEAVE_GROUP);
    }

    /** Ends without a word: the group finds out when the session times out. */
    void vanish() throws InterruptedException {
        end(GroupMembershipOperation.REMAIN_IN_GROUP);
    }

    private void end(GroupMembershipOperation how) throws InterruptedException {
        end = how;
        thread.join(LEAVING.multipliedBy(3).toMillis());
        if (thread.isAlive()) {
            throw new IllegalStateException(name + " does not end");
        }
    }

    boolean isAlive() {
        return thread.isAlive();
    }

    /** What stands before each text that its consumer logs, whatever the name of its group holds. */
    String logPrefix() {
        return "clientId=" + name + ", groupId=" + group + "] ";
    }

    ObjectNode seen(ObjectNode into) {
        into.put("group", group).put("member_id", memberId).put("member_epoch", memberEpoch);
        into.put("process_id", data.processId().toString());
        into.put("alive", thread.isAlive()).put("heartbeats", data.heartbeats()).put("records", records);
        into.put("heartbeat_interval_ms", data.heartbeatIntervalMs()).put("push_required", data.topologyPushRequired());
        names(into.putArray("tasks"), data.reconciledAssignment().activeTasks());
        return into;
    }

    private void live() {
        try {
            consumer.subscribe(topics, this);
            String lastError = "";
            while (end == null) {
                String error = poll();
                if (!error.isEmpty() && !error.equals(lastError)) {
                    happened("error", error);
                }
                lastError = error;
            }
        } catch (RuntimeException error) {
            happened("error", error.toString());
        } finally {
            close();
        }
    }

    private String poll() {
        try {
            int count = consumer.poll(POLL).count();
            records += count;
            if (count > 0 && commits) {
                consumer.commitSync();
            }
            remember();
            return "";
        } catch (RuntimeException error) {
            LockSupport.parkNanos(POLL.toNanos());
            return error.toString();
        }
    }

    /** Who this member is in its group: known before its tasks are reported, so that a test that saw them can ask. */
    private void remember() {
        memberId = consumer.groupMetadata().memberId();
        memberEpoch = consumer.groupMetadata().generationId();
    }

    private void close() {
        GroupMembershipOperation how = end == null ? GroupMembershipOperation.DEFAULT : end;
        Duration patience = how == GroupMembershipOperation.REMAIN_IN_GROUP ? Duration.ZERO : LEAVING;
        try {
            consumer.close(CloseOptions.timeout(patience).withGroupMembershipOperation(how));
        } catch (RuntimeException error) {
            happened("error", error.toString());
        }
        happened("closed", "");
    }

    @Override
    public void onTasksAssigned(Assignment assignment) {
        remember();
        data.setReconciledAssignment(assignment);
        events.happened(name, "assigned", line -> {
            names(line.putArray("tasks"), assignment.activeTasks());
            line.put("ready", assignment.isGroupReady());
        });
    }

    @Override
    public void onTasksRevoked(Set<TaskId> tasks) {
        Assignment held = data.reconciledAssignment();
        Set<TaskId> kept = new HashSet<>(held.activeTasks());
        kept.removeAll(tasks);
        data.setReconciledAssignment(
            new Assignment(kept, held.standbyTasks(), held.warmupTasks(), held.isGroupReady()));
        events.happened(name, "revoked", line -> names(line.putArray("tasks"), tasks));
    }

    @Override
    public void onAllTasksLost() {
        data.setReconciledAssignment(Assignment.EMPTY);
        happened("lost", "");
    }

    /** From the member's own threads, the client's included. */
    void happened(String event, String text) {
        events.happened(name, event, line -> line.put("text", text));
    }

    private static void names(ArrayNode into, Set<TaskId> tasks) {
        new TreeSet<>(tasks).forEach(task -> into.add(task.subtopologyId() + "_" + task.partitionId()));
    }
}
