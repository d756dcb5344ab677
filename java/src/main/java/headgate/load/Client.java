package headgate.load;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import org.apache.kafka.common.network.PlaintextTransportLayer;
import org.apache.kafka.common.network.SslTransportLayer;
import org.apache.kafka.common.network.TransportLayer;

/**
 * One connection that keeps up to `depth` calls in flight and throws the answers away, after a look at their
 * correlation id and error code. Not safe for threads: the one that selects owns it.
 */
final class Client {
    private static final int LARGE = 4096;
    private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);
    // Shared: a read is consumed before the next one begins.
    private static final ByteBuffer RECEIVED = ByteBuffer.allocateDirect(256 * 1024);

    private final Call call;
    private final Meter meter;
    private final TransportLayer wire;
    private final ByteBuffer request;
    private final long[] sentAt;
    private final byte[] prefix = new byte[4];
    private final byte[] head = new byte[Call.LOOKED_AT];
    private final long opened = System.nanoTime();
    private final boolean timesConnect;
    boolean waits; // for its turn, when calls are paced
    private boolean connected;
    private int sent;
    private int answered;
    private int prefixRead;
    private int headRead;
    private int frameBytes;
    private int left;

    /** With `timesConnect` the first call is timed from the beginning of the connection. */
    Client(
        Selector selector, InetSocketAddress address, Tls tls, Call call, int depth, Meter meter, boolean timesConnect)
        throws IOException {
        this.call = call;
        this.timesConnect = timesConnect;
        this.meter = meter;
        this.sentAt = new long[depth];
        // A direct buffer saves a copy of each large request; for short-lived connections it costs more than that.
        int size = call.frame().limit();
        this.request = (size > LARGE ? ByteBuffer.allocateDirect(size) : ByteBuffer.allocate(size))
            .put(call.frame().duplicate());
        SocketChannel channel = SocketChannel.open();
        channel.configureBlocking(false);
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        SelectionKey key = channel.register(selector, SelectionKey.OP_CONNECT, this);
        this.wire = tls == null
            ? new PlaintextTransportLayer(key)
            : SslTransportLayer.create(address.toString(), key, tls.engine(), Tls.NOBODY_ASKS);
        if (channel.connect(address)) {
            onConnectable(); // on loopback it may be there at once, and then no key is ever selected for it
        }
    }

    boolean ready() {
        return connected && wire.ready();
    }

    int inFlight() {
        return sent - answered;
    }

    int answered() {
        return answered;
    }

    /** Do what the selected key allows, short of sending new calls. */
    void onSelected() throws IOException {
        if (!ready()) {
            onConnectable();
            return;
        }
        if (wire.selectionKey().isWritable()) {
            wire.write(request.hasRemaining() && sent > 0 ? request : NOTHING);
            wantWritable();
        }
        if (wire.selectionKey().isReadable()) {
            receive();
        }
    }

    private void onConnectable() throws IOException {
        if (!connected) {
            connected = wire.finishConnect();
        }
        if (connected && !wire.ready()) {
            wire.handshake();
        }
    }

    /** Fill the pipe. */
    void send() throws IOException {
        while (inFlight() < sentAt.length && !isWriting()) {
            request.clear();
            request.putInt(Call.CORRELATION_AT, sent);
            sentAt[sent % sentAt.length] = timesConnect && sent == 0 ? opened : System.nanoTime();
            sent++;
            wire.write(request);
        }
        wantWritable();
    }

    /** End with a reset, so that thousands of short connections leave no TIME_WAIT on this side. */
    void reset() {
        try {
            wire.socketChannel().setOption(StandardSocketOptions.SO_LINGER, 0);
            wire.selectionKey().cancel();
            wire.socketChannel().close();
        } catch (IOException closedAlready) {
            meter.failed(closedAlready.toString());
        }
    }

    private boolean isWriting() {
        return sent > 0 && request.hasRemaining() || wire.hasPendingWrites();
    }

    private void wantWritable() {
        if (isWriting()) {
            wire.addInterestOps(SelectionKey.OP_WRITE);
        } else {
            wire.removeInterestOps(SelectionKey.OP_WRITE);
        }
    }

    private void receive() throws IOException {
        int received;
        do {
            RECEIVED.clear();
            received = wire.read(RECEIVED);
            if (received < 0) {
                throw new EOFException("closed by the peer with " + inFlight() + " calls in flight");
            }
            consume(RECEIVED.flip());
        } while (received == RECEIVED.capacity() || received > 0 && wire.hasBytesBuffered());
    }

    private void consume(ByteBuffer in) {
        while (in.hasRemaining()) {
            if (left == 0) {
                prefix[prefixRead++] = in.get();
                if (prefixRead == prefix.length) {
                    frameBytes = left = ByteBuffer.wrap(prefix).getInt();
                    prefixRead = headRead = 0;
                }
                continue;
            }
            int looked = Math.min(Math.min(head.length - headRead, left), in.remaining());
            in.get(head, headRead, looked);
            headRead += looked;
            int skipped = Math.min(left - looked, in.remaining());
            in.position(in.position() + skipped);
            left -= looked + skipped;
            if (left == 0) {
                onAnswer();
            }
        }
    }

    private void onAnswer() {
        ByteBuffer answer = ByteBuffer.wrap(head);
        if (answer.getInt(0) != answered) {
            meter.failed("correlation id " + answer.getInt(0) + ", expected " + answered);
        } else if (headRead < call.errorAt() + 2 || answer.getShort(call.errorAt()) != 0) {
            meter.failed("error code " + answer.getShort(call.errorAt()) + " in an answer of " + frameBytes + " bytes");
        }
        long taken = System.nanoTime() - sentAt[answered % sentAt.length];
        answered++;
        meter.answered(taken, call.countsAnswer() ? frameBytes : request.capacity());
    }
}
