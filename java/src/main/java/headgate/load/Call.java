package headgate.load;

import java.nio.ByteBuffer;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ApiVersionsRequestData;
import org.apache.kafka.common.message.FetchRequestData;
import org.apache.kafka.common.message.HeartbeatRequestData;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.ApiVersionsRequest;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.HeartbeatRequest;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.RequestHeader;

/**
 * One request that is sent again and again: its frame, and where the error code stands in an answer.
 *
 * @param frame size, header and body; the correlation id at {@link #CORRELATION_AT} is written before each send
 * @param errorAt offset of the error code behind the answer's size
 * @param countsAnswer whether the bytes that matter are those of the answer (Fetch) or of the request
 */
record Call(ByteBuffer frame, int errorAt, boolean countsAnswer) {
    /** Behind the size (4), the api key (2) and the api version (2). */
    static final int CORRELATION_AT = 8;

    /** As much of an answer as is looked at: no error code stands further back, and topic names here are short. */
    static final int LOOKED_AT = 64;

    private static final String CLIENT_ID = "loader";

    static Call of(String name, Words words, int partition) {
        return switch (name) {
            case "produce" -> produce(words, partition);
            case "fetch" -> fetch(words, partition);
            case "api_versions" -> apiVersions();
            default -> throw new IllegalArgumentException("no call is named " + name);
        };
    }

    private static Call produce(Words words, int partition) {
        String topic = words.text("topic");
        SimpleRecord[] records = new SimpleRecord[words.number("records", 1)];
        byte[] value = new byte[words.number("size", 1024)];
        for (int i = 0; i < value.length; i++) {
            value[i] = (byte) (i * 7 + 13);
        }
        long now = System.currentTimeMillis();
        for (int i = 0; i < records.length; i++) {
            records[i] = new SimpleRecord(now, value);
        }
        var data = new ProduceRequestData().setAcks((short) words.number("acks", -1)).setTimeoutMs(30_000);
        data.topicData().add(new ProduceRequestData.TopicProduceData().setName(topic).setPartitionData(List.of(
            new ProduceRequestData.PartitionProduceData().setIndex(partition)
                .setRecords(MemoryRecords.withRecords(Compression.NONE, records)))));
        // Header v1 (5), array of topics (1), name (1 + n), array of partitions (1), partition index (4).
        return new Call(frame(ApiKeys.PRODUCE, new ProduceRequest(data, (short) 11)), 12 + topic.length(), false);
    }

    /** Without a fetch session, always from offset 0: the broker answers out of its page cache. */
    private static Call fetch(Words words, int partition) {
        int bytes = words.number("max_bytes", 1 << 20);
        var data = new FetchRequestData().setMaxWaitMs(500).setMinBytes(1).setMaxBytes(bytes).setSessionEpoch(-1);
        data.topics().add(new FetchRequestData.FetchTopic().setTopicId(Uuid.fromString(words.text("topic_id")))
            .setPartitions(List.of(new FetchRequestData.FetchPartition().setPartition(partition).setFetchOffset(0)
                .setCurrentLeaderEpoch(-1).setPartitionMaxBytes(bytes))));
        // Header v1 (5), throttle time (4), error code (2), session id (4), array of topics (1), topic id (16),
        // array of partitions (1), partition index (4).
        return new Call(frame(ApiKeys.FETCH, new FetchRequest(data, (short) 17)), 37, true);
    }

    /** The heartbeat of a member of a consumer group. */
    static Call heartbeat(String group, int generation, String member) {
        var data = new HeartbeatRequestData().setGroupId(group).setGenerationId(generation).setMemberId(member);
        // Header v1 (5), throttle time (4).
        return new Call(frame(ApiKeys.HEARTBEAT, new HeartbeatRequest.Builder(data).build((short) 4)), 9, false);
    }

    private static Call apiVersions() {
        var request = new ApiVersionsRequest(new ApiVersionsRequestData(), (short) 0);
        return new Call(frame(ApiKeys.API_VERSIONS, request), 4, false);
    }

    static ByteBuffer frame(ApiKeys key, AbstractRequest request) {
        ByteBuffer body = request.serializeWithHeader(new RequestHeader(key, request.version(), CLIENT_ID, 0));
        ByteBuffer frame = ByteBuffer.allocateDirect(4 + body.remaining());
        return frame.putInt(body.remaining()).put(body).flip();
    }
}
