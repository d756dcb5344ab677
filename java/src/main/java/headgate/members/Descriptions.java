package headgate.members;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.StreamsGroupTopologyDescription;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescription;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionGlobalStore;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionNode;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionSubtopology;

/**
 * Descriptions as data: JSON to what a member pushes, and what Admin reads to JSON.
 *
 * <p>Nothing is checked and nothing is put in order on the way in, so that a test can push what no application would.
 * On the way out sets are sorted, because Admin has no order for them.
 */
final class Descriptions {
    private static final int SOURCE = 1;
    private static final int PROCESSOR = 2;
    private static final int SINK = 3;

    private Descriptions() {}

    static TopologyDescription wire(JsonNode from) {
        List<TopologyDescriptionSubtopology> subtopologies = new ArrayList<>();
        for (JsonNode subtopology : from.get("subtopologies")) {
            List<TopologyDescriptionNode> nodes = new ArrayList<>();
            subtopology.get("nodes").forEach(node -> nodes.add(wireNode(node)));
            subtopologies.add(new TopologyDescriptionSubtopology()
                .setSubtopologyId(subtopology.get("id").asText())
                .setNodes(nodes));
        }
        List<TopologyDescriptionGlobalStore> stores = new ArrayList<>();
        for (JsonNode store : from.get("global_stores")) {
            stores.add(new TopologyDescriptionGlobalStore()
                .setSource(wireNode(store.get("source")))
                .setProcessor(wireNode(store.get("processor"))));
        }
        return new TopologyDescription().setSubtopologies(subtopologies).setGlobalStores(stores);
    }

    private static TopologyDescriptionNode wireNode(JsonNode from) {
        JsonNode sink = from.get("sink_topic");
        return new TopologyDescriptionNode()
            .setName(from.get("name").asText())
            .setNodeType((byte) from.get("node_type").asInt())
            .setSourceTopics(names(from.get("source_topics")))
            .setSinkTopic(sink.isNull() ? null : sink.asText())
            .setStores(names(from.get("stores")))
            .setSuccessors(names(from.get("successors")));
    }

    private static List<String> names(JsonNode from) {
        List<String> names = new ArrayList<>();
        from.forEach(name -> names.add(name.asText()));
        return names;
    }

    static void read(StreamsGroupTopologyDescription from, ObjectNode into) {
        ArrayNode subtopologies = into.putArray("subtopologies");
        for (StreamsGroupTopologyDescription.Subtopology subtopology : from.subtopologies()) {
            ObjectNode one = subtopologies.addObject().put("id", subtopology.id());
            ArrayNode nodes = one.putArray("nodes");
            subtopology.nodes().forEach(node -> readNode(node, nodes.addObject()));
        }
        ArrayNode stores = into.putArray("global_stores");
        for (StreamsGroupTopologyDescription.GlobalStore store : from.globalStores()) {
            ObjectNode one = stores.addObject();
            readNode(store.source(), one.putObject("source"));
            readNode(store.processor(), one.putObject("processor"));
        }
    }

    private static void readNode(StreamsGroupTopologyDescription.Node from, ObjectNode into) {
        into.put("name", from.name());
        sorted(into.putArray("successors"), from.successors());
        sorted(into.putArray("predecessors"), from.predecessors());
        ArrayNode topics = into.putArray("source_topics");
        ArrayNode stores = into.putArray("stores");
        into.putNull("sink_topic");
        if (from instanceof StreamsGroupTopologyDescription.Source source) {
            into.put("node_type", SOURCE);
            sorted(topics, source.topics());
        } else if (from instanceof StreamsGroupTopologyDescription.Sink sink) {
            into.put("node_type", SINK).put("sink_topic", sink.topic().orElse(null));
        } else {
            into.put("node_type", PROCESSOR);
            sorted(stores, ((StreamsGroupTopologyDescription.Processor) from).stores());
        }
    }

    private static void sorted(ArrayNode into, Collection<String> names) {
        new TreeSet<>(names).forEach(into::add);
    }
}
