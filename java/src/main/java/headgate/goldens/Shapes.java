package headgate.goldens;

import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.TopologyDescription;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.RecordContext;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.TopicNameExtractor;
import org.apache.kafka.streams.state.KeyValueStore;

/** What all shapes share: a shape adds its operators to a builder, and all keys and values are texts. */
final class Shapes {
    static final Serde<String> TEXT = Serdes.String();

    private Shapes() {}

    @FunctionalInterface
    interface Shape {
        void build(StreamsBuilder builder);
    }

    static TopologyDescription describe(Shape shape, boolean optimized) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "app");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:9092");
        String level = optimized ? StreamsConfig.OPTIMIZE : StreamsConfig.NO_OPTIMIZATION;
        properties.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, level);
        StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(properties)));
        shape.build(builder);
        return builder.build(properties).describe();
    }

    static Consumed<String, String> read() {
        return Consumed.with(TEXT, TEXT);
    }

    static Produced<String, String> write() {
        return Produced.with(TEXT, TEXT);
    }

    static Grouped<String, String> grouped() {
        return Grouped.with(TEXT, TEXT);
    }

    static Grouped<String, String> grouped(String name) {
        return Grouped.with(name, TEXT, TEXT);
    }

    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> texts(String name) {
        return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name)
            .withKeySerde(TEXT)
            .withValueSerde(TEXT);
    }

    static <S extends StateStore> Materialized<String, Long, S> counts(String name) {
        return Materialized.<String, Long, S>as(name).withKeySerde(TEXT).withValueSerde(Serdes.Long());
    }

    /** An extractor whose text is the same in each run, where Java's own ends in an address. */
    static final class Router implements TopicNameExtractor<String, String> {
        @Override
        public String extract(String key, String value, RecordContext context) {
            return value;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Router;
        }

        @Override
        public int hashCode() {
            return 0x5ca1ab1e;
        }
    }
}
