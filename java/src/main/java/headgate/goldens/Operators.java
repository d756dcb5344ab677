package headgate.goldens;

import static headgate.goldens.Shapes.TEXT;
import static headgate.goldens.Shapes.read;
import static headgate.goldens.Shapes.texts;
import static headgate.goldens.Shapes.write;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Printed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.state.Stores;

/** Stateless operators, sources, sinks, branches, repartitions and plain tables of the DSL. */
final class Operators {
    private Operators() {}

    static Map<String, Shapes.Shape> shapes() {
        Map<String, Shapes.Shape> all = new TreeMap<>();
        all.put("pipe", b -> b.stream("in", read()).to("out", write()));
        all.put("filter-not", b -> b.stream("in", read()).filterNot((k, v) -> v == null).to("out", write()));
        all.put("map-values", b -> b.stream("in", read()).mapValues(v -> v + "!").to("out", write()));
        all.put("map", b -> b.stream("in", read()).map(KeyValue::pair).to("out", write()));
        all.put("flat-map", b -> b.stream("in", read())
            .flatMap((k, v) -> List.of(KeyValue.pair(v, k))).to("out", write()));
        all.put("flat-map-values", b -> b.stream("in", read())
            .flatMapValues(v -> List.of(v.split(" "))).to("out", write()));
        all.put("peek-foreach", b -> b.stream("in", read()).peek((k, v) -> { }).foreach((k, v) -> { }));
        all.put("print", b -> b.stream("in", read()).print(Printed.toSysOut()));
        all.put("select-key", b -> b.stream("in", read()).selectKey((k, v) -> v).to("out", write()));
        all.put("named-chain", b -> b.stream("in", Consumed.with(TEXT, TEXT).withName("orders-in"))
            .filter((k, v) -> v != null, Named.as("drop-empty"))
            .mapValues(v -> v.trim(), Named.as("trim"))
            .to("out", Produced.with(TEXT, TEXT).withName("orders-out")));
        all.put("two-topics", b -> b.stream(List.of("in-b", "in-a"), read()).to("out", write()));
        all.put("pattern-source", b -> b.stream(Pattern.compile("in-.*"), read()).to("out", write()));
        all.put("pattern-and-topic", b -> {
            b.stream(Pattern.compile("logs\\.(eu|us)\\..+"), read()).to("logs", write());
            b.stream("in", read()).to("out", write());
        });
        all.put("dynamic-sink", b -> b.stream("in", read()).to(new Shapes.Router(), write()));
        all.put("two-pipes", b -> {
            b.stream("a", read()).to("x", write());
            b.stream("b", read()).to("y", write());
        });
        all.put("fan-out", b -> {
            KStream<String, String> in = b.stream("in", read());
            in.filter((k, v) -> v.isEmpty()).to("empty", write());
            in.filterNot((k, v) -> v.isEmpty()).mapValues(v -> v).to("full", write());
        });
        all.put("merge", b -> b.stream("a", read()).merge(b.stream("b", read())).to("out", write()));
        all.put("diamond", b -> {
            KStream<String, String> in = b.stream("in", read());
            in.mapValues(v -> v).merge(in.filter((k, v) -> true)).to("out", write());
        });
        all.put("branches", b -> {
            Map<String, KStream<String, String>> branches = b.stream("in", read()).split()
                .branch((k, v) -> v.isEmpty()).branch((k, v) -> v.length() > 9).defaultBranch();
            int number = 0;
            for (KStream<String, String> branch : branches.values()) {
                branch.to("out-" + number++, write());
            }
        });
        all.put("named-branches", b -> b.stream("in", read()).split(Named.as("by-size-"))
            .branch((k, v) -> v.length() < 9, Branched.withConsumer(small -> small.to("small", write()), "small"))
            .defaultBranch(Branched.withConsumer(large -> large.to("large", write()), "large")));
        all.put("repartition", b -> b.stream("in", read())
            .repartition(Repartitioned.with(TEXT, TEXT)).to("out", write()));
        all.put("repartition-named", b -> b.stream("in", read())
            .repartition(Repartitioned.with(TEXT, TEXT).withName("by-user").withNumberOfPartitions(4))
            .to("out", write()));
        all.put("repartition-twice", b -> b.stream("in", read())
            .repartition(Repartitioned.with(TEXT, TEXT).withName("first")).mapValues(v -> v)
            .repartition(Repartitioned.with(TEXT, TEXT).withName("second")).to("out", write()));
        all.put("table", b -> b.table("in", read()).toStream().to("out", write()));
        all.put("table-named-store", b -> b.table("in", read(), texts("users")).toStream().to("out", write()));
        all.put("table-only", b -> b.table("in", read(), texts("users")));
        all.put("table-filter", b -> b.table("in", read())
            .filter((k, v) -> v != null, texts("present")).toStream().to("out", write()));
        all.put("table-map-values", b -> b.table("in", read()).mapValues(v -> v.trim()).toStream().to("out", write()));
        all.put("table-suppress", b -> b.table("in", read())
            .suppress(Suppressed.untilTimeLimit(java.time.Duration.ofSeconds(5), Suppressed.BufferConfig.maxRecords(9)))
            .toStream().to("out", write()));
        all.put("to-table", b -> b.stream("in", read()).toTable(texts("latest")).toStream().to("out", write()));
        all.put("to-table-repartitioned", b -> b.stream("in", read()).selectKey((k, v) -> v)
            .toTable(texts("latest")).toStream().to("out", write()));
        all.put("global-table-alone", b -> b.globalTable("countries", read(), texts("countries-store")));
        all.put("two-global-tables", b -> {
            b.globalTable("countries", read());
            b.globalTable("cities", read());
            b.stream("in", read()).to("out", write());
        });
        all.put("processed", b -> {
            b.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("seen"), TEXT, TEXT));
            b.stream("in", read()).process(ProcessorApi.Forward::new, Named.as("deduplicate"), "seen")
                .to("out", write());
        });
        all.put("process-values", b -> {
            b.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("seen"), TEXT, TEXT));
            b.stream("in", read()).processValues(ProcessorApi.Fixed::new, "seen").to("out", write());
        });
        all.put("transform-values", b -> {
            b.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("notes"), TEXT, TEXT));
            b.table("in", read()).transformValues(ProcessorApi.Upper::new, "notes").toStream().to("out", write());
        });
        return all;
    }
}
