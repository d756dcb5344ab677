package headgate.load;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.message.FindCoordinatorRequestData;
import org.apache.kafka.common.message.FindCoordinatorResponseData;
import org.apache.kafka.common.message.JoinGroupRequestData;
import org.apache.kafka.common.message.JoinGroupResponseData;
import org.apache.kafka.common.message.SyncGroupRequestData;
import org.apache.kafka.common.message.SyncGroupResponseData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.FindCoordinatorRequest;
import org.apache.kafka.common.requests.JoinGroupRequest;
import org.apache.kafka.common.requests.SyncGroupRequest;

/**
 * Members of consumer groups (classic protocol), one in each group, whose heartbeats the coordinator accepts. They join
 * before a run, on connections of their own, and end with their session.
 */
final class Members implements AutoCloseable {
    private static final short FIND_VERSION = 4;
    private static final short VERSION = 3; // of JoinGroup and SyncGroup: the member id comes with the first response
    private static final int FLEXIBLE_HEADER = 5;
    private static final int PLAIN_HEADER = 4;
    private static final int SESSION_MS = 60_000;
    private static final long FIND_NANOS = 20_000_000_000L;
    private static int made; // groups of earlier runs may still have members

    private final Socket socket;
    private final DataInputStream in;
    private final DataOutputStream out;

    private Members(InetSocketAddress address, Tls tls) throws IOException {
        socket = tls == null ? new Socket(address.getAddress(), address.getPort()) : tls.socket(address);
        socket.setTcpNoDelay(true);
        in = new DataInputStream(socket.getInputStream());
        out = new DataOutputStream(socket.getOutputStream());
    }

    /** At least `count` heartbeats; number i is of a member whose coordinator is at address i modulo their number. */
    static List<Call> join(List<InetSocketAddress> addresses, Tls tls, int count) throws Exception {
        int rounds = (count + addresses.size() - 1) / addresses.size();
        Call[] calls = new Call[rounds * addresses.size()];
        for (int node = 0; node < addresses.size(); node++) {
            try (Members members = new Members(addresses.get(node), tls)) {
                Deque<String> groups = new ArrayDeque<>();
                for (int round = 0; round < rounds; round++) {
                    while (groups.isEmpty()) {
                        groups.addAll(members.coordinatedBy(node));
                    }
                    calls[round * addresses.size() + node] = members.joinOne(groups.remove());
                }
            }
        }
        return List.of(calls);
    }

    /** New groups of this node; the first request may have to wait until the topic of the coordinators is created. */
    private List<String> coordinatedBy(int node) throws Exception {
        List<String> names = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            names.add("bench-" + made++);
        }
        var request = new FindCoordinatorRequest.Builder(
            new FindCoordinatorRequestData().setKeyType((byte) 0).setCoordinatorKeys(names)).build(FIND_VERSION);
        for (long deadline = System.nanoTime() + FIND_NANOS; ; Thread.sleep(100)) {
            var found = new FindCoordinatorResponseData(call(ApiKeys.FIND_COORDINATOR, request, FLEXIBLE_HEADER), FIND_VERSION);
            if (found.coordinators().stream().allMatch(one -> one.errorCode() == 0)) {
                return found.coordinators().stream().filter(one -> one.nodeId() == node)
                    .map(FindCoordinatorResponseData.Coordinator::key).toList();
            }
            if (System.nanoTime() > deadline) {
                throw new IOException("no coordinator: " + found);
            }
        }
    }

    private Call joinOne(String group) throws Exception {
        ByteBuffer subscription = ConsumerProtocol.serializeSubscription(new Subscription(List.of("bench-read")));
        var protocols = new JoinGroupRequestData.JoinGroupRequestProtocolCollection();
        protocols.add(new JoinGroupRequestData.JoinGroupRequestProtocol().setName("range").setMetadata(bytes(subscription)));
        var join = new JoinGroupRequestData().setGroupId(group).setSessionTimeoutMs(SESSION_MS)
            .setRebalanceTimeoutMs(SESSION_MS).setMemberId("").setProtocolType("consumer").setProtocols(protocols);
        JoinGroupResponseData joined;
        do { // a coordinator that has just been elected loads first
            joined = new JoinGroupResponseData(
                call(ApiKeys.JOIN_GROUP, new JoinGroupRequest(join, VERSION), PLAIN_HEADER), VERSION);
        } while (joined.errorCode() == Errors.COORDINATOR_LOAD_IN_PROGRESS.code());
        check(joined.errorCode(), "JoinGroup");
        var assignment = ConsumerProtocol.serializeAssignment(new Assignment(List.of()));
        var sync = new SyncGroupRequestData().setGroupId(group).setGenerationId(joined.generationId())
            .setMemberId(joined.memberId()).setAssignments(List.of(new SyncGroupRequestData.SyncGroupRequestAssignment()
                .setMemberId(joined.memberId()).setAssignment(bytes(assignment))));
        var synced = new SyncGroupResponseData(
            call(ApiKeys.SYNC_GROUP, new SyncGroupRequest.Builder(sync).build(VERSION), PLAIN_HEADER), VERSION);
        check(synced.errorCode(), "SyncGroup");
        return Call.heartbeat(group, joined.generationId(), joined.memberId());
    }

    private ByteBufferAccessor call(ApiKeys key, AbstractRequest request, int header) throws IOException {
        ByteBuffer frame = Call.frame(key, request);
        byte[] sent = new byte[frame.remaining()];
        frame.get(sent);
        out.write(sent);
        byte[] received = new byte[in.readInt()];
        in.readFully(received);
        return new ByteBufferAccessor(ByteBuffer.wrap(received).position(header));
    }

    private static void check(short code, String api) throws IOException {
        if (code != 0) {
            throw new IOException(api + " failed: " + Errors.forCode(code));
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] content = new byte[buffer.remaining()];
        buffer.get(content);
        return content;
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
