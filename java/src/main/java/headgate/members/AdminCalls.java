package headgate.members;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeStreamsGroupsOptions;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupMemberAssignment.TaskIds;
import org.apache.kafka.clients.admin.StreamsGroupMemberDescription;
import org.apache.kafka.common.KafkaFuture;

/** Admin of kafka-clients 4.4.0, a new one for each call: nothing that one call learnt helps or hurts the next. */
final class AdminCalls {
    private static final ObjectMapper JSON = new ObjectMapper();

    private AdminCalls() {}

    @FunctionalInterface
    private interface Reading<T> {
        void into(T value, ObjectNode answer);
    }

    static ObjectNode describe(JsonNode call) throws Exception {
        DescribeStreamsGroupsOptions options = new DescribeStreamsGroupsOptions()
            .includeTopologyDescription(call.get("topology").asBoolean())
            .includeAuthorizedOperations(call.path("operations").asBoolean(false));
        try (Admin admin = admin(call)) {
            return each(admin.describeStreamsGroups(groupsOf(call), options).describedGroups(), AdminCalls::group);
        }
    }

    static ObjectNode delete(JsonNode call) throws Exception {
        try (Admin admin = admin(call)) {
            return each(admin.deleteStreamsGroups(groupsOf(call)).deletedGroups(), (nothing, answer) -> {});
        }
    }

    static ObjectNode groups(JsonNode call) throws Exception {
        ObjectNode found = JSON.createObjectNode();
        try (Admin admin = admin(call)) {
            for (GroupListing group : admin.listGroups().all().get()) {
                found.putObject(group.groupId())
                    .put("type", group.type().map(Object::toString).orElse(""))
                    .put("state", group.groupState().map(Object::toString).orElse(""));
            }
        }
        return found;
    }

    private static Admin admin(JsonNode call) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("client.id", "members-admin");
        settings.put("default.api.timeout.ms", "15000");
        settings.put("request.timeout.ms", "10000");
        call.get("settings").properties()
            .forEach(setting -> settings.put(setting.getKey(), setting.getValue().asText()));
        return Admin.create(settings);
    }

    private static List<String> groupsOf(JsonNode call) {
        List<String> groups = new ArrayList<>();
        call.get("groups").forEach(group -> groups.add(group.asText()));
        return groups;
    }

    /** An answer for each group: what was read, or the error that this group got. */
    private static <T> ObjectNode each(Map<String, KafkaFuture<T>> futures, Reading<T> reading) throws Exception {
        ObjectNode answers = JSON.createObjectNode();
        for (Map.Entry<String, KafkaFuture<T>> future : futures.entrySet()) {
            ObjectNode answer = answers.putObject(future.getKey());
            try {
                reading.into(future.getValue().get(), answer);
            } catch (ExecutionException error) {
                answer.put("error", error.getCause().getClass().getSimpleName());
                answer.put("message", error.getCause().getMessage());
            }
        }
        return answers;
    }

    private static void group(StreamsGroupDescription group, ObjectNode answer) {
        answer.put("state", group.groupState().toString()).put("status", group.topologyDescriptionStatus().toString());
        answer.put("group_epoch", group.groupEpoch()).put("assignment_epoch", group.targetAssignmentEpoch());
        answer.put("topology_epoch", group.topologyEpoch()).put("coordinator", group.coordinator().id());
        answer.put("assignor", group.assignorName().orElse(null));
        Subtopologies.read(group.subtopologies(), answer.putObject("subtopologies"));
        ArrayNode operations = answer.putArray("operations");
        if (group.authorizedOperations() != null) {
            group.authorizedOperations().stream().map(Object::toString).sorted().forEach(operations::add);
        }
        ArrayNode members = answer.putArray("members");
        group.members().forEach(member -> member(member, members.addObject()));
        answer.putNull("description");
        group.topologyDescription().ifPresent(read -> Descriptions.read(read, answer.putObject("description")));
    }

    private static void member(StreamsGroupMemberDescription member, ObjectNode answer) {
        answer.put("member_id", member.memberId()).put("client_id", member.clientId());
        answer.put("member_epoch", member.memberEpoch()).put("topology_epoch", member.topologyEpoch());
        answer.put("process_id", member.processId());
        ArrayNode tasks = answer.putArray("tasks");
        for (TaskIds ids : member.assignment().activeTasks()) {
            ids.partitions().forEach(partition -> tasks.add(ids.subtopologyId() + "_" + partition));
        }
    }
}
