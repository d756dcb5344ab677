"""Record batches (magic 2), read lazily.

A record set is walked by batch headers alone; a batch is decompressed when its records are asked for, and then each
record is made when it is reached. Invariant: what a batch says of itself (sizes, counts, offsets) is checked against
the bytes that it has, and decompression is bounded by the caller's `max_bytes`. Offsets and timestamps in a batch are
deltas to its first record; here they are whole.

    batch   base offset i64, length i32, leader epoch i32, magic i8, crc32c u32, attributes i16, last offset delta i32,
            base time i64, max time i64, producer id i64, epoch i16, base sequence i32, count i32, records
    record  length, attributes i8, time delta, offset delta, key, value, header count, headers; zigzag varints
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, cast

from headgate.base.errors import WireError
from headgate.wire.compression import Compression, decompress
from headgate.wire.primitives import Buffer

MAGIC = 2
_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = _HEADER.size  # 61
_BEFORE_LENGTH = 12  # base offset and length: what the length does not count
_CRC_FROM = 21  # the checksum covers everything behind itself
LEAST_RECORD = 7  # length, attributes and five varints of one byte

_COMPRESSION_BITS = 0x07
_APPEND_TIME_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20


@cache
def _crc32c() -> Callable[[bytes], int]:
    """The checksum, with the first batch that is checked: the library takes 1 MB of a worker."""
    import google_crc32c  # noqa: PLC0415

    return cast("Callable[[bytes], int]", google_crc32c.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRecord:
    """One record; header keys may repeat, and their order counts."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch by its header; `raw` is all of its bytes, still compressed."""

    base_offset: int
    partition_leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    raw: memoryview

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def compression(self) -> Compression:
        try:
            return Compression(self.attributes & _COMPRESSION_BITS)
        except ValueError:
            raise WireError(f"record batch with compression {self.attributes & _COMPRESSION_BITS}") from None

    @property
    def has_append_time(self) -> bool:
        """The broker's clock set one timestamp for all records: `max_timestamp`."""
        return bool(self.attributes & _APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Holds markers of the broker, not records of a producer."""
        return bool(self.attributes & _CONTROL_BIT)

    def check_crc(self) -> None:
        """A `WireError` unless the bytes have the checksum that the header says."""
        found = _crc32c()(bytes(self.raw[_CRC_FROM:]))
        if found != self.crc:
            raise WireError(f"record batch at offset {self.base_offset}: checksum {found:#x} instead of {self.crc:#x}")

    def records(self, *, max_bytes: int) -> Iterator[WireRecord]:
        """The records one by one; decompressed, they may have `max_bytes`."""
        body = decompress(self.compression, bytes(self.raw[HEADER_SIZE:]), max_bytes)
        if self.record_count < 0 or self.record_count * LEAST_RECORD > len(body):
            raise WireError(f"record batch with {self.record_count} records in {len(body)} bytes")
        pos = 0
        for _ in range(self.record_count):
            try:
                record, pos = self._record(body, pos)
            except IndexError:
                raise WireError(f"record batch at offset {self.base_offset} ends inside a record") from None
            except UnicodeDecodeError:
                raise WireError(f"record batch at offset {self.base_offset}: header key that is not UTF-8") from None
            yield record
        if pos != len(body):
            raise WireError(f"record batch at offset {self.base_offset}: {len(body) - pos} bytes behind its records")

    def unpack(self, *, max_bytes: int) -> "UnpackedBatch":
        """The decompressed records, of at most `max_bytes`, and where each of them begins."""
        body = decompress(self.compression, bytes(self.raw[HEADER_SIZE:]), max_bytes)
        if self.record_count < 0 or self.record_count * LEAST_RECORD > len(body):
            raise WireError(f"record batch with {self.record_count} records in {len(body)} bytes")
        positions: list[int] = []
        pos, end = 0, len(body)
        try:
            for _ in range(self.record_count):
                positions.append(pos)
                size = body[pos]
                pos += 1
                if size > 0x7F:
                    byte = body[pos]
                    if byte > 0x7F:
                        size, pos = _read_varint(body, pos - 1)
                        size *= 2
                    else:
                        size = size & 0x7F | byte << 7
                        pos += 1
                pos += size >> 1
                if size & 1 or size < 0 or pos > end:
                    raise WireError(f"record of {size >> 1} bytes at {positions[-1]} of {end}")
            if pos != end:
                raise WireError(f"record batch at offset {self.base_offset}: {end - pos} bytes behind its records")
            if self.record_count == self.last_offset_delta + 1:
                return UnpackedBatch(self.base_offset, body, positions)
            # Compaction has removed records: only the records themselves have their offsets.
            return UnpackedBatch(self.base_offset, body, {_record_head(body, one)[0]: one for one in positions})
        except IndexError:
            raise WireError(f"record batch at offset {self.base_offset} ends inside a record") from None

    def _record(self, body: bytes, pos: int) -> tuple[WireRecord, int]:
        size, pos = _read_varint(body, pos)
        end = pos + size
        if size < 0 or end > len(body):
            raise WireError(f"record of {size} bytes, {len(body) - pos} left")
        time_delta, pos = _read_varint(body, pos + 1)  # behind the attributes, which have no use yet
        offset_delta, pos = _read_varint(body, pos)
        key, pos = _read_bytes(body, pos, end)
        value, pos = _read_bytes(body, pos, end)
        count, pos = _read_varint(body, pos)
        if not 0 <= count * 2 <= end - pos:
            raise WireError(f"record with {count} headers in {end - pos} bytes")
        headers = []
        for _ in range(count):
            name, pos = _read_bytes(body, pos, end)
            if name is None:
                raise WireError("record header without a key")
            data, pos = _read_bytes(body, pos, end)
            headers.append((name.decode(), data))
        if pos != end:
            raise WireError(f"record of {size} bytes with {end - pos} bytes unread")
        timestamp = self.max_timestamp if self.has_append_time else self.base_timestamp + time_delta
        record = WireRecord(
            offset=self.base_offset + offset_delta, timestamp=timestamp, key=key, value=value, headers=tuple(headers)
        )
        return record, pos


class UnpackedBatch(NamedTuple):
    """The records of a batch; `positions` are where they begin, by the difference of their offset to the first."""

    base_offset: int
    body: bytes
    positions: Sequence[int] | Mapping[int, int]

    def read(self, offset: int) -> tuple[bytes | None, bytes | None] | None:
        """The key and the value of one record; None when it is not in the batch."""
        delta = offset - self.base_offset
        try:
            pos = self.positions[delta] if delta >= 0 else None
        except LookupError:
            return None
        if pos is None:
            return None
        try:
            found, pos, end = _record_head(self.body, pos)
            key, pos = _read_bytes(self.body, pos, end)
            value, _ = _read_bytes(self.body, pos, end)
        except IndexError:
            raise WireError(f"record at offset {offset} ends inside a field") from None
        if found != delta:
            raise WireError(f"record at offset {self.base_offset + found} in the place of {offset}")
        return key, value


def _record_head(body: bytes, pos: int) -> tuple[int, int, int]:
    """The offset delta of the record at this position, where its key begins, and where it ends."""
    size, pos = _read_varint(body, pos)
    end = pos + size
    _, pos = _read_varint(body, pos + 1)  # the time, behind the attributes
    delta, pos = _read_varint(body, pos)
    return delta, pos, end


def last_offset(raw: Buffer) -> int:
    """The last offset of the first batch, read from its header alone."""
    header = _HEADER.unpack_from(raw, 0)
    return int(header[0] + header[6])


def batches(data: Buffer) -> Iterator[Batch]:
    """The batches of a record set by their headers; a batch that is cut off at the end, as in a Fetch, is left out."""
    view = memoryview(data)
    pos = 0
    while len(view) - pos >= HEADER_SIZE:
        base_offset, length, leader_epoch, magic, crc, *rest = _HEADER.unpack_from(view, pos)
        if magic != MAGIC:
            raise WireError(f"record batch with magic {magic}: only {MAGIC} is read, convert the topic's old messages")
        size = length + _BEFORE_LENGTH
        if size < HEADER_SIZE:
            raise WireError(f"record batch of {size} bytes, shorter than its header")
        if size > len(view) - pos:
            return
        attributes, last_delta, base_time, max_time, producer_id, producer_epoch, base_sequence, count = rest
        yield Batch(
            base_offset=base_offset,
            partition_leader_epoch=leader_epoch,
            crc=crc,
            attributes=attributes,
            last_offset_delta=last_delta,
            base_timestamp=base_time,
            max_timestamp=max_time,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=count,
            raw=view[pos : pos + size],
        )
        pos += size


def _read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """A zigzag number of 64 bits at most, and the position behind it."""
    byte = data[pos]
    pos += 1
    left, shift = byte & 0x7F, 7
    while byte > 0x7F:
        if shift > 63:
            raise WireError("varint longer than ten bytes")
        byte = data[pos]
        pos += 1
        left |= (byte & 0x7F) << shift
        shift += 7
    if left >> 64:
        raise WireError("varint over 64 bits")
    return (left >> 1) ^ -(left & 1), pos


def _read_bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    size, pos = _read_varint(data, pos)
    if size == -1:
        return None, pos
    if size < 0 or size > end - pos:
        raise WireError(f"{size} bytes announced, {end - pos} left in the record")
    return data[pos : pos + size], pos + size
