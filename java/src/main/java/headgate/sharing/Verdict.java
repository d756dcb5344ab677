package headgate.sharing;

import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * What a member does with a record: it stands in the record, so that every member at every time does the same.
 *
 * <p>A value that begins with a letter and a colon says it: {@code A:} accept, {@code R:} reject, {@code L:} release
 * whenever it comes, {@code l:} release when it comes first, {@code N:} renew once and then accept, {@code H:} hang
 * until the member is told to go on, and then accept, {@code h:} the same and then reject. Of all others a share of
 * {@code percent}, chosen by the checksum of their keys, is rejected, or whatever {@code unlucky} says. The letter may
 * stand behind the id of a schema, as serializers of schema registries write it: a byte 0 and four of the id.
 */
enum Verdict {
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW;

    private static final int SCHEMA_BYTES = 5;

    static Verdict of(ConsumerRecord<byte[], byte[]> record, int percent, Verdict unlucky) {
        return switch (letter(record)) {
            case 'A', 'H' -> ACCEPT;
            case 'R', 'h' -> REJECT;
            case 'L' -> RELEASE;
            case 'l' -> record.deliveryCount().orElse((short) 1) > 1 ? ACCEPT : RELEASE;
            case 'N' -> RENEW;
            default -> isUnlucky(record.key(), percent) ? unlucky : ACCEPT;
        };
    }

    static boolean hangs(ConsumerRecord<byte[], byte[]> record) {
        return Character.toLowerCase(letter(record)) == 'h';
    }

    private static char letter(ConsumerRecord<byte[], byte[]> record) {
        byte[] value = record.value();
        int first = value != null && value.length > 0 && value[0] == 0 ? SCHEMA_BYTES : 0;
        return value != null && value.length > first + 1 && value[first + 1] == ':' ? (char) value[first] : ' ';
    }

    private static boolean isUnlucky(byte[] key, int percent) {
        if (percent == 0 || key == null) {
            return false;
        }
        CRC32 checksum = new CRC32();
        checksum.update(key);
        return checksum.getValue() % 100 < percent;
    }
}
