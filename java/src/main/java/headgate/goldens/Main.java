package headgate.goldens;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.streams.TopologyDescription;

/**
 * Writes the golden topologies of the tests into a folder: for each shape the text that {@code Topology#describe()}
 * prints and the same description, walked object by object, as JSON.
 *
 * <p>A shape that the optimizer of Kafka Streams changes is written twice, the second time as NAME.optimized.
 */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws IOException {
        Path folder = Path.of(arguments[0]);
        Map<String, TopologyDescription> found = new TreeMap<>();
        Map<String, Shapes.Shape> shapes = new TreeMap<>();
        shapes.putAll(Operators.shapes());
        shapes.putAll(Joins.shapes());
        shapes.putAll(Aggregations.shapes());
        shapes.putAll(Versions.shapes());
        shapes.forEach((name, shape) -> {
            TopologyDescription plain = Shapes.describe(shape, false);
            TopologyDescription optimized = Shapes.describe(shape, true);
            found.put(name, plain);
            if (!plain.toString().equals(optimized.toString())) {
                found.put(name + ".optimized", optimized);
            }
        });
        ProcessorApi.topologies().forEach((name, topology) -> found.put(name, topology.describe()));
        Files.createDirectories(folder);
        ObjectMapper mapper = new ObjectMapper().enable(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS);
        for (Map.Entry<String, TopologyDescription> one : found.entrySet()) {
            Files.writeString(folder.resolve(one.getKey() + ".txt"), one.getValue().toString());
            String json = mapper.writeValueAsString(Walk.description(one.getValue()));
            Files.writeString(folder.resolve(one.getKey() + ".json"), json + "\n");
        }
        System.out.println(found.size() + " topologies in " + folder);
    }
}
