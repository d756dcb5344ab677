package headgate.load;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * One run on one thread: all connections are opened and used once, then calls go for `warm` seconds uncounted and for `seconds`
 * counted, then those in flight are waited for. With `reconnect=1` every connection makes one call and is replaced. With
 * `rate` that many calls begin in a second, on the connections in turn; without it each is repeated as it is answered.
 *
 * <p>Connection i goes to address i modulo their number, and so does its partition: partition p has node p as leader.
 * Heartbeats are those of members that join first ({@link Members}), of at most {@link #MOST_MEMBERS}.
 */
final class Run implements AutoCloseable {
    private static final long OPEN_NANOS = 30_000_000_000L;
    private static final long DRAIN_NANOS = 10_000_000_000L;
    private static final int MOST_ERRORS = 100;
    private static final int OPENING_AT_ONCE = 64;
    private static final int MOST_MEMBERS = 200;

    private enum Phase { WARM, COUNTED, DRAINING }

    private final Meter meter;
    private final Selector selector = Selector.open();
    private final Set<Client> clients = new HashSet<>();
    private final List<InetSocketAddress> addresses = new ArrayList<>();
    private final List<Call> calls = new ArrayList<>();
    private final Tls tls;
    private final int connections;
    private final int depth;
    private final int mostCalls;
    private final boolean reconnects;
    private final double rate;
    private final Deque<Client> waiting = new ArrayDeque<>();
    private final long warmNanos;
    private final long countedNanos;
    private int made;

    Run(Words words) throws Exception {
        meter = new Meter(words);
        String authority = words.text("tls_ca", "");
        tls = authority.isEmpty() ? null : new Tls(Path.of(authority));
        for (String address : words.text("to").split(",")) {
            int colon = address.lastIndexOf(':');
            int port = Integer.parseInt(address.substring(colon + 1));
            addresses.add(new InetSocketAddress(address.substring(0, colon), port));
        }
        connections = words.number("connections", 1);
        if (words.text("call").equals("heartbeat")) {
            calls.addAll(Members.join(addresses, tls, Math.min(connections, MOST_MEMBERS)));
        } else {
            for (int partition = 0; partition < addresses.size(); partition++) {
                calls.add(Call.of(words.text("call"), words, partition));
            }
        }
        depth = words.number("depth", 1);
        mostCalls = words.number("calls", Integer.MAX_VALUE);
        reconnects = words.number("reconnect", 0) == 1;
        rate = words.real("rate", 0);
        warmNanos = (long) (words.real("warm", 0) * 1e9);
        countedNanos = (long) (words.real("seconds", 1) * 1e9);
    }

    Meter meter() {
        return meter;
    }

    /** The whole of it; an error of a connection fails the run, since the figures would be of another load. */
    void measure() throws IOException {
        if (!reconnects) {
            open();
        }
        while (clients.size() < connections) {
            add();
        }
        long start = System.nanoTime();
        Phase phase = Phase.WARM;
        long paced = 0;
        for (Client client : clients) {
            if (client.ready()) {
                next(client);
            }
        }
        while (phase != Phase.DRAINING || !isQuiet()) {
            selector.select(rate > 0 ? 1 : 10);
            long now = System.nanoTime();
            for (; rate > 0 && phase != Phase.DRAINING && !waiting.isEmpty() && paced < rate * (now - start) / 1e9; paced++) {
                Client client = waiting.removeFirst();
                client.waits = false;
                client.send();
            }
            if (phase == Phase.WARM && now - start >= warmNanos) {
                phase = Phase.COUNTED;
                meter.begin();
            } else if (phase == Phase.COUNTED
                && (now - start >= warmNanos + countedNanos || meter.calls() >= mostCalls)) {
                phase = Phase.DRAINING;
                meter.end();
                start = now;
            } else if (phase == Phase.DRAINING && now - start > DRAIN_NANOS) {
                throw new IOException("calls are still unanswered after the end of the run");
            }
            serve(phase != Phase.DRAINING);
            if (meter.errors() > MOST_ERRORS) {
                throw new IOException("too many errors, the first: " + meter.firstError());
            }
        }
    }

    /**
     * Open every connection, a bounded number at a time, and see one call of each answered: a proxy may dial its broker
     * only then, and that is no part of any figure.
     */
    void open() throws IOException {
        long deadline = System.nanoTime() + OPEN_NANOS;
        int done = 0;
        while (done < connections) {
            while (clients.size() < connections && clients.size() < done + OPENING_AT_ONCE) {
                add();
            }
            selector.select(10);
            serve(false);
            done = 0;
            for (Client client : clients) {
                if (client.ready() && client.answered() + client.inFlight() == 0) {
                    client.send();
                }
                done += client.answered() > 0 ? 1 : 0;
            }
            if (System.nanoTime() > deadline) {
                throw new IOException(done + " of " + connections + " connections were there in time");
            }
        }
    }

    @Override
    public void close() throws IOException {
        clients.forEach(Client::reset);
        selector.close();
    }

    private Client add() throws IOException {
        int which = made++;
        InetSocketAddress address = addresses.get(which % addresses.size());
        Client client = new Client(selector, address, tls, calls.get(which % calls.size()), depth, meter, reconnects);
        clients.add(client);
        return client;
    }

    private void serve(boolean sending) throws IOException {
        Set<SelectionKey> selected = selector.selectedKeys();
        for (SelectionKey key : selected) {
            Client client = (Client) key.attachment();
            client.onSelected();
            if (reconnects && client.answered() == 1) {
                client.reset();
                clients.remove(client);
                client = sending ? add() : null;
            }
            if (sending && client.ready() && (rate == 0 || client.inFlight() == 0)) {
                next(client);
            }
        }
        selected.clear();
    }

    /** At once, or in its turn when calls are paced; a paced connection has one call in flight. */
    private void next(Client client) throws IOException {
        if (rate == 0) {
            client.send();
        } else if (!client.waits) {
            client.waits = true;
            waiting.addLast(client);
        }
    }

    private boolean isQuiet() {
        return clients.stream().allMatch(client -> client.inFlight() == 0);
    }
}
