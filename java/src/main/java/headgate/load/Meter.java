package headgate.load;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;

/**
 * What one run has seen. Only what happens between {@link #begin} and {@link #end} counts, and CPU time is read at
 * exactly these two moments: set-up, handshakes and warm-up are in no figure.
 */
final class Meter {
    private static final double TICKS_A_SECOND = 100; // USER_HZ, the same on every Linux

    private final String[] pids;
    private final OperatingSystemMXBean own =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private final Map<String, Double> cpu = new LinkedHashMap<>();
    private long[] latencies = new long[1 << 16];
    private int calls;
    private long bytes;
    private long began;
    private long ended;
    private boolean running;
    private int errors;
    private String firstError = "";

    Meter(Words words) {
        String given = words.text("pids", "");
        pids = given.isEmpty() ? new String[0] : given.split(",");
    }

    void begin() throws IOException {
        readCpu(-1);
        running = true;
        began = System.nanoTime();
    }

    void end() throws IOException {
        ended = System.nanoTime();
        running = false;
        readCpu(1);
    }

    void answered(long nanos, long size) {
        if (!running) {
            return;
        }
        if (calls == latencies.length) {
            latencies = Arrays.copyOf(latencies, 2 * calls);
        }
        latencies[calls++] = nanos;
        bytes += size;
    }

    /** Errors count whenever they come: a run with errors is not a measurement. */
    void failed(String error) {
        if (errors++ == 0) {
            firstError = error;
        }
    }

    int calls() {
        return calls;
    }

    int errors() {
        return errors;
    }

    String firstError() {
        return firstError;
    }

    String json() {
        double seconds = (ended - began) / 1e9;
        Arrays.sort(latencies, 0, calls);
        StringBuilder shown = new StringBuilder();
        cpu.forEach((name, value) -> shown.append(shown.length() == 0 ? "" : ",")
            .append(String.format(Locale.ROOT, "\"%s\":%.4f", name, value)));
        return String.format(Locale.ROOT,
            "{\"calls\":%d,\"bytes\":%d,\"seconds\":%.6f,\"errors\":%d,\"first_error\":\"%s\","
                + "\"p50_us\":%.1f,\"p99_us\":%.1f,\"mean_us\":%.1f,\"cpu\":{%s}}",
            calls, bytes, seconds, errors, firstError.replaceAll("[^ -~]|[\"\\\\]", "?"),
            percentile(0.50), percentile(0.99), Arrays.stream(latencies, 0, calls).average().orElse(0) / 1e3, shown);
    }

    private double percentile(double share) {
        return calls == 0 ? 0 : latencies[(int) ((calls - 1) * share)] / 1e3;
    }

    private void readCpu(int sign) throws IOException {
        for (String pid : pids) {
            cpu.merge(pid, sign * ofProcess(pid), Double::sum);
        }
        cpu.merge("loader", sign * own.getProcessCpuTime() / 1e9, Double::sum);
        // user nice system idle iowait irq softirq steal
        String[] all = Files.readString(Path.of("/proc/stat")).lines().findFirst().orElseThrow().trim().split(" +");
        double busy = 0;
        for (int field : new int[] {1, 2, 3, 6, 7}) {
            busy += Long.parseLong(all[field]);
        }
        cpu.merge("machine", sign * busy / TICKS_A_SECOND, Double::sum);
        cpu.merge("stolen", sign * Long.parseLong(all[8]) / TICKS_A_SECOND, Double::sum);
    }

    /** utime + stime, and those of children that have ended; a process that has ended has no more to say. */
    private static double ofProcess(String pid) throws IOException {
        String stat;
        try {
            stat = Files.readString(Path.of("/proc", pid, "stat"));
        } catch (NoSuchFileException gone) {
            return 0;
        }
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        long ticks = 0;
        for (int field = 11; field <= 14; field++) {
            ticks += Long.parseLong(fields[field]);
        }
        return ticks / TICKS_A_SECOND;
    }
}
