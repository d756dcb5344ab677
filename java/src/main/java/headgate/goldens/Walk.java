package headgate.goldens;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.streams.TopologyDescription;

/** A description as the JSON of a fact, from Java's objects and not from their text. */
final class Walk {
    private Walk() {}

    static Map<String, Object> description(TopologyDescription from) {
        List<Map<String, Object>> subtopologies = new ArrayList<>();
        from.subtopologies().stream()
            .sorted(Comparator.comparingInt(TopologyDescription.Subtopology::id))
            .forEach(one -> {
                List<Map<String, Object>> nodes = new ArrayList<>();
                one.nodes().forEach(node -> nodes.add(node(node)));
                subtopologies.add(object("id", String.valueOf(one.id()), "nodes", nodes));
            });
        List<Map<String, Object>> stores = new ArrayList<>();
        from.globalStores().stream()
            .sorted(Comparator.comparingInt(TopologyDescription.GlobalStore::id))
            .forEach(one -> stores.add(object("source", node(one.source()), "processor", node(one.processor()))));
        return object("subtopologies", subtopologies, "global_stores", stores);
    }

    private static Map<String, Object> node(TopologyDescription.Node from) {
        TreeSet<String> successors = new TreeSet<>();
        from.successors().forEach(one -> successors.add(one.name()));
        Map<String, Object> into;
        if (from instanceof TopologyDescription.Source source) {
            List<String> topics = source.topicSet() == null ? List.of() : List.copyOf(new TreeSet<>(source.topicSet()));
            String pattern = source.topicPattern() == null ? null : source.topicPattern().pattern();
            into = object("type", "source", "topics", topics);
            into.put("pattern", pattern);
        } else if (from instanceof TopologyDescription.Sink sink) {
            into = object("type", "sink", "topic", sink.topic());
        } else {
            into = object("type", "processor", "stores",
                List.copyOf(new TreeSet<>(((TopologyDescription.Processor) from).stores())));
        }
        into.put("name", from.name());
        into.put("successors", List.copyOf(successors));
        return into;
    }

    private static Map<String, Object> object(String first, Object one, String second, Object other) {
        Map<String, Object> object = new LinkedHashMap<>();
        object.put(first, one);
        object.put(second, other);
        return object;
    }
}
