package headgate.goldens;

import static headgate.goldens.Shapes.TEXT;
import static headgate.goldens.Shapes.counts;
import static headgate.goldens.Shapes.grouped;
import static headgate.goldens.Shapes.read;
import static headgate.goldens.Shapes.texts;
import static headgate.goldens.Shapes.write;

import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;

/** Groupings, windows, counts, reductions and co-groups. */
final class Aggregations {
    private static final TimeWindows MINUTES = TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1));

    private Aggregations() {}

    private static KStream<String, String> in(StreamsBuilder builder) {
        return builder.stream("in", read());
    }

    private static void out(KTable<String, Long> table) {
        table.toStream().mapValues(String::valueOf).to("out", write());
    }

    static Map<String, Shapes.Shape> shapes() {
        Map<String, Shapes.Shape> all = new TreeMap<>();
        all.put("count", b -> out(in(b).groupByKey(grouped()).count()));
        all.put("count-named-store", b -> out(in(b).groupByKey(grouped()).count(counts("totals"))));
        all.put("count-rekeyed", b -> out(in(b).groupBy((k, v) -> v, grouped()).count()));
        all.put("count-rekeyed-named", b -> out(in(b).groupBy((k, v) -> v, grouped("by-value"))
            .count(counts("totals"))));
        all.put("count-in-memory", b -> out(in(b).groupByKey(grouped()).count(Materialized.as("totals"))));
        all.put("two-counts-rekeyed", b -> {
            KStream<String, String> by = in(b).selectKey((k, v) -> v);
            out(by.groupByKey(grouped()).count());
            by.groupByKey(grouped()).reduce((one, other) -> other).toStream().to("last", write());
        });
        all.put("three-counts-rekeyed-named", b -> {
            KStream<String, String> by = in(b).selectKey((k, v) -> v);
            for (String name : new String[] {"first", "second", "third"}) {
                by.groupByKey(grouped(name)).count(counts(name + "-store")).toStream().mapValues(String::valueOf)
                    .to(name, write());
            }
        });
        all.put("count-and-filter-rekeyed", b -> {
            KStream<String, String> by = in(b).map((k, v) -> KeyValue.pair(v, k));
            by.filter((k, v) -> true).groupByKey(grouped()).count().toStream().mapValues(String::valueOf)
                .to("filtered", write());
            by.mapValues(v -> v.trim()).groupByKey(grouped()).count().toStream().mapValues(String::valueOf)
                .to("trimmed", write());
        });
        all.put("reduce", b -> in(b).groupByKey(grouped()).reduce((one, other) -> other, texts("last"))
            .toStream().to("out", write()));
        all.put("aggregate", b -> in(b).groupByKey(grouped()).aggregate(() -> "", (k, v, sum) -> sum + v, texts("sums"))
            .toStream().to("out", write()));
        all.put("tumbling", b -> in(b).groupByKey(grouped()).windowedBy(MINUTES).count(counts("a-minute"))
            .toStream((window, count) -> window.key()).mapValues(String::valueOf).to("out", write()));
        all.put("hopping", b -> in(b).groupByKey(grouped()).windowedBy(MINUTES.advanceBy(Duration.ofSeconds(10)))
            .count().toStream((window, count) -> window.key()).mapValues(String::valueOf).to("out", write()));
        all.put("sliding", b -> in(b).groupByKey(grouped())
            .windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(Duration.ofMinutes(1)))
            .count().toStream((window, count) -> window.key()).mapValues(String::valueOf).to("out", write()));
        all.put("session", b -> in(b).groupByKey(grouped())
            .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofMinutes(5)))
            .count().toStream((window, count) -> window.key()).mapValues(String::valueOf).to("out", write()));
        all.put("tumbling-suppressed", b -> in(b).groupByKey(grouped()).windowedBy(MINUTES).count(counts("a-minute"))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
            .toStream((window, count) -> window.key()).mapValues(String::valueOf).to("out", write()));
        all.put("tumbling-rekeyed", b -> in(b).groupBy((k, v) -> v, grouped("by-value")).windowedBy(MINUTES)
            .count(counts("a-minute")).toStream((window, count) -> window.key()).mapValues(String::valueOf)
            .to("out", write()));
        all.put("table-count", b -> out(b.table("in", read()).groupBy((k, v) -> KeyValue.pair(v, k), grouped())
            .count()));
        all.put("table-count-named", b -> out(b.table("in", read(), texts("users"))
            .groupBy((k, v) -> KeyValue.pair(v, k), grouped("by-country")).count(counts("a-country"))));
        all.put("cogroup", b -> in(b).groupByKey(grouped()).<String>cogroup((k, v, sum) -> sum + v)
            .cogroup(b.stream("more", read()).groupByKey(grouped()), (k, v, sum) -> v + sum)
            .aggregate(() -> "", texts("together")).toStream().to("out", write()));
        all.put("word-count", b -> b.stream("text", read())
            .flatMapValues(line -> java.util.List.of(line.split(" "))).groupBy((k, word) -> word, grouped())
            .count(counts("words")).toStream().mapValues(String::valueOf).to("counts", write()));
        all.put("join-of-counts", b -> {
            KTable<String, Long> left = in(b).groupBy((k, v) -> v, grouped("left")).count(counts("left-store"));
            KTable<String, Long> right = b.stream("more", read()).groupByKey(grouped()).count(counts("right-store"));
            left.join(right, (one, other) -> one + " " + other, Materialized.with(TEXT, TEXT))
                .toStream().to("out", write());
        });
        return all;
    }
}
