"""Writes record batches (magic 2): the gateway itself only reads them."""

import struct
from collections.abc import Sequence

import google_crc32c

from headgate.wire.compression import Compression, compress
from headgate.wire.records import HEADER_SIZE, MAGIC, WireRecord


def write_batch(
    records: Sequence[WireRecord],
    *,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """One batch of at least one record; the first one's offset and timestamp are the batch's own."""
    base_offset, base_time = records[0].offset, records[0].timestamp
    body = compress(compression, b"".join(_record_bytes(each, base_offset, base_time) for each in records))
    attributes = compression | (transactional and 0x10) | (control and 0x20)
    tail = struct.pack(
        ">hiqqqhii",
        attributes,
        records[-1].offset - base_offset,
        base_time,
        max(each.timestamp for each in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    length = HEADER_SIZE - 12 + len(body)
    crc = google_crc32c.value(tail + body)
    return struct.pack(">qiibI", base_offset, length, partition_leader_epoch, MAGIC, crc) + tail + body


def _record_bytes(record: WireRecord, base_offset: int, base_time: int) -> bytes:
    pieces = [b"\0", _varint(record.timestamp - base_time), _varint(record.offset - base_offset)]
    pieces += (_sized(record.key), _sized(record.value), _varint(len(record.headers)))
    for name, data in record.headers:
        pieces += (_sized(name.encode()), _sized(data))
    body = b"".join(pieces)
    return _varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """Zigzag: small numbers of either sign are short."""
    left = value << 1 if value >= 0 else ((-value) << 1) - 1
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
