package headgate.members;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BiConsumer;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescription;

/**
 * What a member shares with its consumer. The consumer writes here what the coordinator answers, so this is where it
 * can be watched without touching the consumer; and this is where a member gets an epoch other than 0.
 */
final class MemberData extends StreamsRebalanceData {
    private final BiConsumer<String, String> happened;
    private final int epoch;
    private final AtomicLong heartbeats = new AtomicLong();
    private final AtomicReference<String> statuses = new AtomicReference<>("[]");

    MemberData(JsonNode call, Map<String, Subtopology> subtopologies, BiConsumer<String, String> happened) {
        this(call, subtopologies, happened, new Offsets());
    }

    private MemberData(
        JsonNode call, Map<String, Subtopology> subtopologies, BiConsumer<String, String> happened, Offsets offsets) {
        super(processId(call), Optional.empty(), Optional.empty(), subtopologies, Map.of(), offsets, offsets);
        this.happened = happened;
        this.epoch = call.path("epoch").asInt(0);
        offsets.of = this;
        if (call.hasNonNull("description")) {
            setWireTopologyDescription(Descriptions.wire(call.get("description")));
        }
    }

    private static UUID processId(JsonNode call) {
        return call.hasNonNull("process") ? UUID.fromString(call.get("process").asText()) : UUID.randomUUID();
    }

    long heartbeats() {
        return heartbeats.get();
    }

    @Override
    public int topologyEpoch() {
        return epoch;
    }

    /** The first thing that every answer to a heartbeat sets, but for the answer to a leave. */
    @Override
    public void setHeartbeatIntervalMs(int heartbeatIntervalMs) {
        super.setHeartbeatIntervalMs(heartbeatIntervalMs);
        heartbeats.incrementAndGet();
    }

    @Override
    public void setStatuses(List<StreamsGroupHeartbeatResponseData.Status> now) {
        super.setStatuses(now);
        String text = now.stream().map(status -> (int) status.statusCode()).sorted().toList().toString();
        if (!statuses.getAndSet(text).equals(text)) {
            happened.accept("statuses", text);
        }
    }

    /** Set by each heartbeat that asks, and unset by a push that has ended. */
    @Override
    public void setTopologyPushRequired(boolean required) {
        super.setTopologyPushRequired(required);
        if (required) {
            happened.accept("asked", "");
        }
    }

    /** Without a description the consumer looks here only when a heartbeat asks for one, and then lets it be. */
    @Override
    public TopologyDescription wireTopologyDescription() {
        TopologyDescription description = super.wireTopologyDescription();
        if (description == null) {
            happened.accept("asked", "there is none");
        }
        return description;
    }

    /** An offset for each task that the member has: a member that processes sends some with its heartbeats. */
    private static final class Offsets implements Supplier<Map<TaskId, Long>> {
        private MemberData of;

        @Override
        public Map<TaskId, Long> get() {
            Map<TaskId, Long> offsets = new HashMap<>();
            of.reconciledAssignment().activeTasks().forEach(task -> offsets.put(task, 1L));
            return offsets;
        }
    }
}
