package headgate.members;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.StreamsGroupSubtopologyDescription;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.Subtopology;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.TopicInfo;

/** What the coordinator assigns by: the topics of each sub-topology, which a member sends when it joins. */
final class Subtopologies {
    private Subtopologies() {}

    static Map<String, Subtopology> of(JsonNode all) {
        Map<String, Subtopology> found = new HashMap<>();
        all.properties().forEach(entry -> found.put(entry.getKey(), one(entry.getValue())));
        return found;
    }

    private static Subtopology one(JsonNode from) {
        List<Set<String>> together = new ArrayList<>();
        from.path("copartitioned").forEach(topics -> together.add(names(topics)));
        return new Subtopology(
            names(from.path("sources")),
            names(from.path("repartition_sinks")),
            internal(from.path("repartition_sources")),
            internal(from.path("changelogs")),
            together);
    }

    /** Topics that the coordinator makes, by name; for 0 it finds a number of partitions or replicas by itself. */
    private static Map<String, TopicInfo> internal(JsonNode topics) {
        Map<String, TopicInfo> found = new HashMap<>();
        topics.properties().forEach(topic -> {
            JsonNode wanted = topic.getValue();
            int partitions = wanted.get("partitions").asInt();
            short replicas = (short) wanted.get("replicas").asInt();
            Map<String, String> configs = new HashMap<>();
            wanted.get("configs").properties().forEach(one -> configs.put(one.getKey(), one.getValue().asText()));
            found.put(
                topic.getKey(),
                new TopicInfo(
                    partitions > 0 ? Optional.of(partitions) : Optional.empty(),
                    replicas > 0 ? Optional.of(replicas) : Optional.empty(),
                    configs));
        });
        return found;
    }

    /** What the coordinator knows of a group's topology, in the form that {@link #of} takes: enough to join it. */
    static void read(Collection<StreamsGroupSubtopologyDescription> all, ObjectNode into) {
        for (StreamsGroupSubtopologyDescription from : all) {
            ObjectNode one = into.putObject(from.subtopologyId());
            from.sourceTopics().stream().sorted().forEach(one.putArray("sources")::add);
            from.repartitionSinkTopics().stream().sorted().forEach(one.putArray("repartition_sinks")::add);
            readInternal(from.repartitionSourceTopics(), one.putObject("repartition_sources"));
            readInternal(from.stateChangelogTopics(), one.putObject("changelogs"));
        }
    }

    private static void readInternal(
        Map<String, StreamsGroupSubtopologyDescription.TopicInfo> topics, ObjectNode into) {
        topics.forEach((topic, info) -> {
            ObjectNode one = into.putObject(topic);
            one.put("partitions", info.partitions()).put("replicas", info.replicationFactor());
            info.topicConfigs().forEach(one.putObject("configs")::put);
        });
    }

    private static Set<String> names(JsonNode list) {
        Set<String> names = new LinkedHashSet<>();
        list.forEach(name -> names.add(name.asText()));
        return names;
    }
}
