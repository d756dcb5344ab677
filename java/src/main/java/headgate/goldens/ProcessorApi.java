package headgate.goldens;

import static headgate.goldens.Shapes.TEXT;

import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** Topologies that are put together node by node, with names that only their author knows. */
final class ProcessorApi {
    private ProcessorApi() {}

    static final class Forward extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(Record<String, String> record) {
            context().forward(record);
        }
    }

    static final class Fill extends ContextualProcessor<String, String, Void, Void> {
        @Override
        public void process(Record<String, String> record) {}
    }

    static final class Fixed extends ContextualFixedKeyProcessor<String, String, String> {
        @Override
        public void process(FixedKeyRecord<String, String> record) {
            context().forward(record);
        }
    }

    static final class Upper implements ValueTransformerWithKey<String, String, String> {
        @Override
        public void init(ProcessorContext context) {}

        @Override
        public String transform(String key, String value) {
            return value;
        }

        @Override
        public void close() {}
    }

    private static StoreBuilder<KeyValueStore<String, String>> store(String name) {
        return Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(name), TEXT, TEXT);
    }

    private static Topology globalStore(Topology topology, String name) {
        return topology.addGlobalStore(store(name).withLoggingDisabled(), name + "-source", new StringDeserializer(),
            new StringDeserializer(), name + "-topic", name + "-fill", Fill::new);
    }

    static Map<String, Topology> topologies() {
        Map<String, Topology> all = new TreeMap<>();
        all.put("papi-empty", new Topology());
        all.put("papi-source-only", new Topology().addSource("in", "orders"));
        all.put("papi-pipe", new Topology().addSource("in", "orders").addSink("out", "done", "in"));
        all.put("papi-chain", new Topology().addSource("in", "orders").addProcessor("first", Forward::new, "in")
            .addProcessor("second", Forward::new, "first").addSink("out", "done", "second"));
        all.put("papi-store", new Topology().addSource("in", "orders").addProcessor("count", Forward::new, "in")
            .addStateStore(store("counts"), "count").addSink("out", "done", "count"));
        all.put("papi-shared-store", new Topology().addSource("a-in", "a").addSource("b-in", "b")
            .addProcessor("a-join", Forward::new, "a-in").addProcessor("b-join", Forward::new, "b-in")
            .addStateStore(store("both"), "a-join", "b-join").addSink("out", "done", "a-join", "b-join"));
        all.put("papi-many-stores", new Topology().addSource("in", "orders").addProcessor("all", Forward::new, "in")
            .addStateStore(store("one"), "all").addStateStore(store("two"), "all").addStateStore(store("three"), "all"));
        all.put("papi-pattern", new Topology().addSource("in", Pattern.compile("orders-[0-9]+"))
            .addSink("out", "done", "in"));
        all.put("papi-dynamic-sink", new Topology().addSource("in", "orders")
            .addSink("out", new Shapes.Router(), new StringSerializer(), new StringSerializer(), "in"));
        all.put("papi-two-parents", new Topology().addSource("a", "ta").addSource("b", "tb")
            .addProcessor("both", Forward::new, "a", "b").addSink("x", "tx", "both").addSink("y", "ty", "both"));
        all.put("papi-three-parts", new Topology().addSource("a", "ta").addSink("x", "tx", "a")
            .addSource("b", "tb").addSink("y", "ty", "b").addSource("c", "tc").addSink("z", "tz", "c"));
        all.put("papi-global", globalStore(new Topology(), "prices").addSource("in", "orders")
            .addProcessor("price", Forward::new, "in").addSink("out", "priced", "price"));
        all.put("papi-two-global", globalStore(globalStore(new Topology(), "prices"), "taxes")
            .addSource("in", "orders").addSink("out", "done", "in"));
        all.put("papi-odd-names", new Topology().addSource("in (topics: [x])", "orders")
            .addProcessor("a, b", Forward::new, "in (topics: [x])").addProcessor("a", Forward::new, "in (topics: [x])")
            .addProcessor("größe €", Forward::new, "a, b", "a").addStateStore(store("s-1"), "größe €")
            .addSink("out", "done", "größe €"));
        Topology wide = new Topology().addSource("in", "orders");
        for (int number = 0; number < 20; number++) {
            wide.addProcessor("worker-" + number, Forward::new, "in").addSink("out-" + number, "t" + number,
                "worker-" + number);
        }
        all.put("papi-wide", wide);
        return all;
    }
}
