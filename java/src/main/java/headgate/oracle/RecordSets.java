package headgate.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Utils;

/** Record sets: bytes to batches and records, checksums included, and one batch from its records. */
final class RecordSets {
    private RecordSets() {}

    static ObjectNode decode(JsonNode item, ObjectNode reply) {
        reply.set("batches", tree(Messages.binary(item.get("bytes")), reply.arrayNode()));
        return reply;
    }

    static ArrayNode tree(byte[] bytes, ArrayNode batches) {
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
            batch.ensureValid();
            ObjectNode node = batches.addObject();
            node.put("base_offset", batch.baseOffset());
            node.put("last_offset", batch.lastOffset());
            node.put("partition_leader_epoch", batch.partitionLeaderEpoch());
            node.put("magic", batch.magic());
            node.put("compression", batch.compressionType().name);
            node.put("timestamp_type", batch.timestampType().name);
            node.put("max_timestamp", batch.maxTimestamp());
            node.put("producer_id", batch.producerId());
            node.put("producer_epoch", batch.producerEpoch());
            node.put("base_sequence", batch.baseSequence());
            node.put("transactional", batch.isTransactional());
            node.put("control", batch.isControlBatch());
            ArrayNode records = node.putArray("records");
            for (Record each : batch) {
                ObjectNode record = records.addObject();
                record.put("offset", each.offset());
                record.put("timestamp", each.timestamp());
                record.put("key", Utils.toNullableArray(each.key()));
                record.put("value", Utils.toNullableArray(each.value()));
                ArrayNode headers = record.putArray("headers");
                for (Header header : each.headers()) {
                    headers.addObject().put("key", header.key()).put("value", header.value());
                }
            }
        }
        return batches;
    }

    /** Item: compression, base_offset, producer_id, producer_epoch, base_sequence, transactional, leader epoch and records. */
    static ObjectNode encode(JsonNode item, ObjectNode reply) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
                ByteBuffer.allocate(1024),
                RecordBatch.MAGIC_VALUE_V2,
                Compression.of(CompressionType.forName(item.get("compression").asText())).build(),
                TimestampType.forName(item.path("timestamp_type").asText("CreateTime")),
                item.path("base_offset").asLong(),
                item.path("append_time").asLong(RecordBatch.NO_TIMESTAMP),
                item.path("producer_id").asLong(RecordBatch.NO_PRODUCER_ID),
                (short) item.path("producer_epoch").asInt(RecordBatch.NO_PRODUCER_EPOCH),
                item.path("base_sequence").asInt(RecordBatch.NO_SEQUENCE),
                item.path("transactional").asBoolean(),
                item.path("partition_leader_epoch").asInt(RecordBatch.NO_PARTITION_LEADER_EPOCH));
        for (JsonNode record : item.get("records")) {
            builder.append(new SimpleRecord(
                    record.get("timestamp").asLong(), optional(record, "key"), optional(record, "value"), headers(record)));
        }
        reply.put("bytes", Utils.toArray(builder.build().buffer()));
        return reply;
    }

    private static Header[] headers(JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.path("headers")) {
            headers.add(new RecordHeader(header.get("key").asText(), optional(header, "value")));
        }
        return headers.toArray(new Header[0]);
    }

    private static byte[] optional(JsonNode node, String name) {
        return node.path(name).isTextual() ? Messages.binary(node.get(name)) : null;
    }
}
