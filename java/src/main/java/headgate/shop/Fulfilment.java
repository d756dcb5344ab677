package headgate.shop;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

/**
 * A Streams application of the sample: orders that were paid within five minutes become shipments.
 *
 * <p>Orders have the customer as their key and payments the order, so that orders are repartitioned before the join. It
 * uses kafka-streams 4.3.1 as it is, which is too old to send its topology. The argument is a file of properties.
 */
public final class Fulfilment {
    private static final Duration PAID_WITHIN = Duration.ofMinutes(5);
    private static final Duration CLOSES_WITHIN = Duration.ofSeconds(2);
    private static final ObjectMapper JSON = new ObjectMapper();

    private Fulfilment() {}

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Properties settings = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]), StandardCharsets.UTF_8)) {
            settings.load(file);
        }
        KafkaStreams streams = new KafkaStreams(topology(), settings);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
                ended.countDown();
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(CLOSES_WITHIN)));
        streams.start();
        ended.await();
        // An application that has failed ends, so that its end is noticed.
        if (streams.state() == KafkaStreams.State.ERROR) {
            Runtime.getRuntime().halt(1);
        }
    }

    private static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<String, String> texts = Consumed.with(Serdes.String(), Serdes.String());
        KStream<String, String> payments = builder.stream("payments", texts);
        builder.stream("orders", texts)
            .selectKey((customer, order) -> field(order, "order"))
            .join(
                payments,
                Fulfilment::shipment,
                JoinWindows.ofTimeDifferenceWithNoGrace(PAID_WITHIN),
                StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String())
                    .withName("paid-orders")
                    .withStoreName("paid-orders"))
            .to("shipments", Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    private static String shipment(String order, String payment) {
        return "{\"order\": %s, \"customer\": \"%s\", \"method\": \"%s\"}"
            .formatted(field(order, "order"), field(order, "customer"), field(payment, "method"));
    }

    /** A field as text; empty for what any client may have written in place of an order or a payment. */
    private static String field(String json, String name) {
        try {
            JsonNode value = json == null ? null : JSON.readTree(json).get(name);
            return value == null ? "" : value.asText();
        } catch (JsonProcessingException notJson) {
            return "";
        }
    }
}
