"""Reads the group, the acknowledgements and the acquired ranges of ShareFetch and ShareAcknowledge.

Records are never read or copied: a response is walked over its lengths, and taking acquired ranges out is a splice.
Invariant: as `primitives`, never trust a length; every failure is a `WireError`, and nothing is made for a count before
the bytes for it are known to be there.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple

from headgate.base.errors import WireError
from headgate.wire.primitives import Buffer, read_uvarint, skip_tags, write_uvarint

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_HEAD: Final = Struct(">iiii")  # ShareSessionEpoch, MaxWaitMs, MinBytes, MaxBytes
_RANGE: Final = Struct(">qq")
_ACQUIRED: Final = Struct(">qqh")
_LEAST_BATCH: Final = 18  # two offsets, a length, a tag section
_LEAST_ACQUIRED: Final = 19
_LEAST_PARTITION: Final = 6
_LEAST_TOPIC: Final = 18
_MOST_TAGS: Final = 16  # of one struct; Kafka's own have none here
_SHORT: Final = 0x7F


class AckBatch(NamedTuple):
    """A range and its types: one for all of it, or one for each offset."""

    first: int
    last: int
    types: bytes


class PartitionAcks(NamedTuple):
    topic_id: bytes
    partition: int
    batches: tuple[AckBatch, ...]


class ShareRequest(NamedTuple):
    """A ShareFetch or ShareAcknowledge request; `max_wait_ms` is 0 in the latter.

    `named` are all partitions of a ShareFetch, also those without acknowledgements; `forgotten` leave its session.
    """

    group: str | None
    member: str | None
    session_epoch: int
    max_wait_ms: int
    acks: tuple[PartitionAcks, ...]
    named: frozenset[tuple[bytes, int]] = frozenset()
    forgotten: frozenset[tuple[bytes, int]] = frozenset()


class Acquired(NamedTuple):
    first: int
    last: int
    delivery_count: int


class Fetched(NamedTuple):
    """One partition of a ShareFetch answer; `records` and `ranges` are where those fields lie in the body."""

    topic_id: bytes
    partition: int
    error_code: int
    acknowledge_error_code: int
    records: tuple[int, int]
    ranges: tuple[int, int]
    acquired: tuple[Acquired, ...]


class ShareFetchSummary(NamedTuple):
    error_code: int
    lock_timeout_ms: int
    partitions: tuple[Fetched, ...]


class ShareAcknowledgeSummary(NamedTuple):
    """`partitions` pairs (topic id, partition) with the error code."""

    error_code: int
    partitions: tuple[tuple[bytes, int, int], ...]


def group_bytes(view: Buffer, pos: int, end: int) -> bytes | None:
    """GroupId of the request whose body begins at `pos`; None when that takes a closer look."""
    if pos >= end:
        return None
    size = view[pos]  # of the name and one more
    if size > _SHORT or not size or pos + size > end:
        return None
    return bytes(view[pos + 1 : pos + size])


def group_name(body: Buffer) -> str | None:
    """GroupId of a ShareFetch or ShareAcknowledge request, without a look at the rest."""
    return _Cursor(body).string()


def read_fetch(body: Buffer, version: int) -> ShareRequest:
    """A ShareFetch request of version 1 or 2."""
    reader = _Cursor(body)
    group, member = reader.string(), reader.string()
    epoch, max_wait_ms, _, _ = reader.unpack(_HEAD)
    reader.skip(4 + 4 + (2 if version >= 2 else 0))  # MaxRecords, BatchSize, ShareAcquireMode, IsRenewAck
    acks, named = reader.acks()
    return ShareRequest(group, member, epoch, max_wait_ms, acks, named, reader.forgotten())


def read_acknowledge(body: Buffer, version: int) -> ShareRequest:
    """A ShareAcknowledge request of version 1 or 2."""
    reader = _Cursor(body)
    group, member = reader.string(), reader.string()
    (epoch,) = reader.unpack(_I32)
    if version >= 2:
        reader.skip(1)  # IsRenewAck
    acks, _ = reader.acks()
    return ShareRequest(group, member, epoch, 0, acks)


def without_bytes(body: Buffer) -> bytes:
    """The ShareFetch with MaxBytes 0: its acknowledgements hold, and nothing is acquired."""
    return _with_number(body, 3, 0)


def with_wait(body: Buffer, max_wait_ms: int) -> bytes:
    """The ShareFetch with another MaxWaitMs."""
    return _with_number(body, 1, max_wait_ms)


def _with_number(body: Buffer, place: int, value: int) -> bytes:
    """The ShareFetch with another value at this place of `_HEAD`."""
    reader = _Cursor(body)
    reader.skip_text()  # GroupId
    reader.skip_text()  # MemberId
    at = reader.pos + place * _I32.size
    reader.skip(_HEAD.size)
    return b"".join((body[:at], _I32.pack(value), body[at + _I32.size :]))


def read_fetch_response(body: Buffer, version: int) -> ShareFetchSummary:
    """The response to a ShareFetch of version 1 or 2."""
    reader = _Cursor(body)
    reader.skip(4)  # ThrottleTimeMs
    (error_code,) = reader.unpack(_I16)
    reader.skip_text()
    lock_ms = reader.unpack(_I32)[0] if version >= 1 else 0
    partitions: list[Fetched] = []
    for _ in range(reader.count(_LEAST_TOPIC)):
        topic_id = reader.take(16)
        partitions.extend(_fetched(reader, topic_id) for _ in range(reader.count(_LEAST_PARTITION)))
        reader.tags()
    return ShareFetchSummary(error_code, lock_ms, tuple(partitions))


def _fetched(reader: "_Cursor", topic_id: bytes) -> Fetched:
    (partition,) = reader.unpack(_I32)
    (error_code,) = reader.unpack(_I16)
    reader.skip_text()
    (acknowledge_error_code,) = reader.unpack(_I16)
    reader.skip_text()
    reader.skip(8)  # CurrentLeader
    reader.tags()
    records_at = reader.pos
    reader.skip_text()  # as long as a text is: a compact length and bytes
    ranges_at = reader.pos
    acquired = []
    for _ in range(reader.count(_LEAST_ACQUIRED)):
        acquired.append(Acquired(*reader.unpack(_ACQUIRED)))
        reader.tags()
    ranges = (ranges_at, reader.pos)
    reader.tags()
    records = (records_at, ranges_at)
    return Fetched(topic_id, partition, error_code, acknowledge_error_code, records, ranges, tuple(acquired))


def stripped(body: Buffer, kept: Mapping[int, Sequence[Acquired]], answer: ShareFetchSummary) -> bytes:
    """The response with other acquired ranges; `kept` has them by the index of their partition in the response.

    A partition that keeps none has no records either: the client is not to see what it does not hold.
    """
    parts: list[Buffer] = []
    copied = 0
    for index in sorted(kept):
        fetched, ranges = answer.partitions[index], kept[index]
        if not ranges:
            parts += (body[copied : fetched.records[0]], b"\x01")
            copied = fetched.records[1]
        parts.append(body[copied : fetched.ranges[0]])
        parts.append(write_uvarint(len(ranges) + 1))
        parts += (_ACQUIRED.pack(*one) + b"\x00" for one in ranges)
        copied = fetched.ranges[1]
    parts.append(body[copied:])
    return b"".join(parts)


def read_acknowledge_response(body: Buffer, version: int) -> ShareAcknowledgeSummary:
    """The response to a ShareAcknowledge of version 1 or 2."""
    reader = _Cursor(body)
    reader.skip(4)  # ThrottleTimeMs
    (error_code,) = reader.unpack(_I16)
    reader.skip_text()
    if version >= 2:
        reader.skip(4)  # AcquisitionLockTimeoutMs
    partitions: list[tuple[bytes, int, int]] = []
    for _ in range(reader.count(_LEAST_TOPIC)):
        topic_id = reader.take(16)
        for _ in range(reader.count(_LEAST_PARTITION)):
            (partition,) = reader.unpack(_I32)
            (code,) = reader.unpack(_I16)
            reader.skip_text()
            reader.skip(8)  # CurrentLeader
            reader.tags()
            reader.tags()
            partitions.append((topic_id, partition, code))
        reader.tags()
    return ShareAcknowledgeSummary(error_code, tuple(partitions))


class _Cursor:
    """A cursor over a flexible message."""

    __slots__ = ("buf", "end", "pos")

    def __init__(self, buf: Buffer) -> None:
        self.buf = buf
        self.end = len(buf)
        self.pos = 0

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        try:
            values = layout.unpack_from(self.buf, self.pos)
        except StructError:
            raise WireError("the message ends inside a number") from None
        self.pos += layout.size
        return values

    def skip(self, size: int) -> None:
        self.pos += size
        if self.pos > self.end:
            raise WireError("the message ends inside a field")

    def take(self, size: int) -> bytes:
        begin = self.pos
        self.skip(size)
        return bytes(self.buf[begin : self.pos])

    def count(self, least: int) -> int:
        """The length of an array whose elements have `least` bytes or more; a null array has none."""
        count, self.pos = read_uvarint(self.buf, self.pos)
        if (count - 1) * least > self.end - self.pos:
            raise WireError(f"an array of {count - 1} elements in {self.end - self.pos} bytes")
        return max(0, count - 1)

    def string(self) -> str | None:
        size, self.pos = read_uvarint(self.buf, self.pos)
        if not size:
            return None
        try:
            return self.take(size - 1).decode()
        except UnicodeDecodeError:
            raise WireError("a name that is not UTF-8") from None

    def skip_text(self) -> None:
        size, self.pos = read_uvarint(self.buf, self.pos)
        if size:
            self.skip(size - 1)

    def tags(self) -> None:
        if self.pos < self.end and not self.buf[self.pos]:  # nearly always
            self.pos += 1
            return
        self.pos = skip_tags(self.buf, self.pos, self.end, most=_MOST_TAGS)

    def acks(self) -> tuple[tuple[PartitionAcks, ...], frozenset[tuple[bytes, int]]]:
        """Topics of a request: those partitions of them that acknowledge something, and all of them.

        Of a partition that is named twice a 4.3.1 broker applies what comes last, also when that is nothing (seen).
        """
        found: dict[tuple[bytes, int], tuple[AckBatch, ...]] = {}
        named: list[tuple[bytes, int]] = []
        for _ in range(self.count(_LEAST_TOPIC)):
            topic_id = self.take(16)
            for _ in range(self.count(_LEAST_PARTITION)):
                (partition,) = self.unpack(_I32)
                batches = []
                for _ in range(self.count(_LEAST_BATCH)):
                    first, last = self.unpack(_RANGE)
                    types = self.take(self.count(1))
                    self.tags()
                    batches.append(AckBatch(first, last, types))
                self.tags()
                named.append((topic_id, partition))
                if batches or (topic_id, partition) in found:
                    found[topic_id, partition] = tuple(batches)
            self.tags()
        return tuple(PartitionAcks(*place, batches) for place, batches in found.items() if batches), frozenset(named)

    def forgotten(self) -> frozenset[tuple[bytes, int]]:
        """ForgottenTopicsData of a ShareFetch."""
        found: list[tuple[bytes, int]] = []
        for _ in range(self.count(_LEAST_TOPIC)):
            topic_id = self.take(16)
            found.extend((topic_id, self.unpack(_I32)[0]) for _ in range(self.count(_I32.size)))
            self.tags()
        return frozenset(found)
