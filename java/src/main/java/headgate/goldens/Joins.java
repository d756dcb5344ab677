package headgate.goldens;

import static headgate.goldens.Shapes.TEXT;
import static headgate.goldens.Shapes.read;
import static headgate.goldens.Shapes.texts;
import static headgate.goldens.Shapes.write;

import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;

/** Joins of streams, tables and global tables. */
final class Joins {
    private static final JoinWindows WINDOW = JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMinutes(5));
    private static final ValueJoiner<String, String, String> BOTH = (left, right) -> left + right;

    private Joins() {}

    private static StreamJoined<String, String, String> joined() {
        return StreamJoined.with(TEXT, TEXT, TEXT);
    }

    private static KStream<String, String> stream(StreamsBuilder builder, String topic) {
        return builder.stream(topic, read());
    }

    private static KTable<String, String> table(StreamsBuilder builder, String topic) {
        return builder.table(topic, read());
    }

    static Map<String, Shapes.Shape> shapes() {
        Map<String, Shapes.Shape> all = new TreeMap<>();
        all.put("join-streams", b -> stream(b, "a").join(stream(b, "b"), BOTH, WINDOW, joined()).to("out", write()));
        all.put("join-streams-left", b -> stream(b, "a")
            .leftJoin(stream(b, "b"), BOTH, WINDOW, joined()).to("out", write()));
        all.put("join-streams-outer", b -> stream(b, "a")
            .outerJoin(stream(b, "b"), BOTH, WINDOW, joined()).to("out", write()));
        all.put("join-streams-named", b -> stream(b, "a")
            .join(stream(b, "b"), BOTH, WINDOW, joined().withName("paired").withStoreName("pairs"))
            .to("out", write()));
        all.put("join-streams-rekeyed", b -> stream(b, "a").selectKey((k, v) -> v)
            .join(stream(b, "b").selectKey((k, v) -> v), BOTH, WINDOW, joined()).to("out", write()));
        all.put("join-self", b -> {
            KStream<String, String> in = stream(b, "a");
            in.join(in, BOTH, WINDOW, joined()).to("out", write());
        });
        all.put("join-stream-table", b -> stream(b, "a")
            .join(table(b, "t"), BOTH, Joined.with(TEXT, TEXT, TEXT)).to("out", write()));
        all.put("join-stream-table-left", b -> stream(b, "a")
            .leftJoin(table(b, "t"), BOTH, Joined.with(TEXT, TEXT, TEXT)).to("out", write()));
        all.put("join-stream-table-rekeyed", b -> stream(b, "a").selectKey((k, v) -> v)
            .join(table(b, "t"), BOTH, Joined.with(TEXT, TEXT, TEXT).withName("enriched")).to("out", write()));
        all.put("join-three-rekeyed", b -> {
            KStream<String, String> by = stream(b, "a").selectKey((k, v) -> v);
            by.join(stream(b, "b"), BOTH, WINDOW, joined()).to("ab", write());
            by.join(stream(b, "c"), BOTH, WINDOW, joined()).to("ac", write());
        });
        all.put("join-tables", b -> table(b, "a").join(table(b, "b"), BOTH).toStream().to("out", write()));
        all.put("join-tables-left", b -> table(b, "a").leftJoin(table(b, "b"), BOTH).toStream().to("out", write()));
        all.put("join-tables-outer", b -> table(b, "a")
            .outerJoin(table(b, "b"), BOTH, texts("either")).toStream().to("out", write()));
        all.put("join-tables-foreign-key", b -> table(b, "a")
            .join(table(b, "b"), (String value) -> value, BOTH, texts("owners")).toStream().to("out", write()));
        all.put("join-tables-foreign-key-named", b -> table(b, "a")
            .leftJoin(table(b, "b"), (String value) -> value, BOTH, TableJoined.as("owner"), texts("owners"))
            .toStream().to("out", write()));
        all.put("join-global", b -> {
            GlobalKTable<String, String> countries = b.globalTable("countries", read());
            stream(b, "in").join(countries, (k, v) -> v, BOTH).to("out", write());
        });
        all.put("join-global-left", b -> {
            GlobalKTable<String, String> countries = b.globalTable("countries", read(), texts("countries-store"));
            stream(b, "in").leftJoin(countries, (k, v) -> v, BOTH).to("out", write());
        });
        return all;
    }
}
