package headgate.goldens;

import static headgate.goldens.Shapes.counts;
import static headgate.goldens.Shapes.grouped;
import static headgate.goldens.Shapes.read;
import static headgate.goldens.Shapes.texts;
import static headgate.goldens.Shapes.write;

import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Repartitioned;

/**
 * One application in several versions, each with one edit of the first: {@code orders-v1} and {@code orders-EDIT}.
 *
 * <p>The first version has thirty nodes. {@code stores} tells whether its stores and repartition topics have names.
 */
final class Versions {
    private Versions() {}

    private static final class Orders {
        boolean stores = true;
        boolean auditInFront;
        boolean renamedFilter;
        boolean withoutLoyalty;
        boolean repartitioned;
        String totals = "totals";
        String output = "totals";

        void build(StreamsBuilder builder) {
            KStream<String, String> orders = builder.stream("orders", read());
            if (auditInFront) {
                orders = orders.peek((key, value) -> { });
            }
            KStream<String, String> valid = orders.filter((key, value) -> value != null,
                    Named.as(renamedFilter ? "only-valid" : "valid"))
                .mapValues(value -> value.trim()).peek((key, value) -> { }).mapValues(value -> value + " ")
                .filterNot((key, value) -> value.isEmpty());
            valid.filter((key, value) -> value.startsWith("!")).mapValues(value -> value)
                .filterNot((key, value) -> value.endsWith("?")).peek((key, value) -> { }).to("urgent", write());
            KStream<String, String> enriched = valid
                .leftJoin(builder.table("customers", read(), texts("customers-store")), (order, who) -> order + who,
                    Joined.as("enrich"))
                .mapValues(value -> value.toLowerCase(java.util.Locale.ROOT)).peek((key, value) -> { });
            enriched.to("enriched-orders", write());
            if (!withoutLoyalty) {
                enriched.groupByKey(grouped()).reduce((one, other) -> other, texts("loyalty"))
                    .toStream().mapValues(value -> value).to("loyalty-points", write());
            }
            if (repartitioned) {
                enriched = enriched.repartition(Repartitioned.with(Shapes.TEXT, Shapes.TEXT).withName("spread"));
            }
            (stores
                ? enriched.groupBy((key, value) -> value, grouped("by-product")).count(counts(totals))
                : enriched.groupBy((key, value) -> value, grouped()).count())
                .toStream().mapValues(String::valueOf).peek((key, value) -> { }).to(output, write());
        }
    }

    private static Shapes.Shape orders(Consumer<Orders> edit) {
        return builder -> {
            Orders orders = new Orders();
            edit.accept(orders);
            orders.build(builder);
        };
    }

    static Map<String, Shapes.Shape> shapes() {
        Map<String, Shapes.Shape> all = new TreeMap<>();
        all.put("orders-v1", orders(edit -> { }));
        all.put("orders-operator-in-front", orders(edit -> edit.auditInFront = true));
        all.put("orders-filter-renamed", orders(edit -> edit.renamedFilter = true));
        all.put("orders-store-renamed", orders(edit -> edit.totals = "product-totals"));
        all.put("orders-store-gone", orders(edit -> edit.withoutLoyalty = true));
        all.put("orders-other-output", orders(edit -> edit.output = "product-totals"));
        all.put("orders-repartitioned", orders(edit -> edit.repartitioned = true));
        all.put("orders-unnamed", orders(edit -> edit.stores = false));
        all.put("orders-unnamed-operator-in-front", orders(edit -> {
            edit.stores = false;
            edit.auditInFront = true;
        }));
        return all;
    }
}
