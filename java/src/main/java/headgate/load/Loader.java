package headgate.load;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * A load generator that speaks Kafka's bytes: the same frame again and again, answers thrown away after a look.
 *
 * <pre>
 *   java headgate.load.Loader call=produce to=127.0.0.1:9093 topic=t records=62 size=1024 connections=4 depth=5 seconds=2
 *   java headgate.load.Loader        one run for each such line on standard input, in one warm process
 * </pre>
 *
 * `call` is produce, fetch (`topic_id`, `max_bytes`), heartbeat, api_versions (with `reconnect=1`: connections a
 * second; with `rate` that many calls a second instead of as many as are answered), `open` (idle connections that stay until the next line) or `close`. Each run prints one line of JSON, with
 * CPU seconds of the processes in `pids`, of the loader itself and of the whole machine; a run that cannot be made
 * prints {"failed": "why"}.
 */
public final class Loader {
    private Run idle;

    private Loader() {}

    public static void main(String[] args) throws Exception {
        Loader loader = new Loader();
        if (args.length > 0) {
            System.out.println(loader.run(List.of(args)));
            return;
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(loader.run(List.of(line.trim().split(" +"))));
        }
    }

    private String run(List<String> given) {
        try {
            Words words = new Words(given);
            if (idle != null) {
                idle.close();
                idle = null;
            }
            return switch (words.text("call")) {
                case "open" -> open(words.with("call", "api_versions"));
                case "close" -> "{}";
                default -> measure(words);
            };
        } catch (Exception failure) {
            return "{\"failed\":\"" + failure.toString().replaceAll("[^ -~]|[\"\\\\]", "?") + "\"}";
        }
    }

    private static String measure(Words words) throws Exception {
        try (Run run = new Run(words)) {
            run.measure();
            return run.meter().json();
        }
    }

    private String open(Words words) throws Exception {
        idle = new Run(words);
        idle.open();
        return "{\"open\":" + words.number("connections", 1) + "}";
    }
}
