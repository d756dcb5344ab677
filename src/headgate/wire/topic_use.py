"""Reads which topics a Produce, Fetch or ShareFetch used from the beginning of the request and the response.

`ResponseUsage` is fed the pieces of a response while they pass and adds up, by topic, what it says was used: bytes of
records that are no control batches, or partitions that took what was produced. Records are skipped by length.

Invariant: memory does not depend on the frame. What must be seen at once (a partition's fixed fields, a name, a batch's
header) is waited for in a few kept bytes; anything longer is skipped, and a layout that no client or broker sends
ends the walk with a `WireError`. It must never decode a record.
"""

from collections.abc import Generator
from functools import cache
from struct import Struct
from typing import Final, NamedTuple

from headgate.base.errors import WireError
from headgate.base.ids import ApiKey
from headgate.wire.primitives import Buffer, read_uvarint

# Plain integers: they are compared for each part of a response.
PRODUCE: Final = int(ApiKey.PRODUCE)
FETCH: Final = int(ApiKey.FETCH)
SHARE_FETCH: Final = int(ApiKey.SHARE_FETCH)
_I16: Final = Struct(">h").unpack_from
_I32: Final = Struct(">i").unpack_from
_BATCH: Final = Struct(">qiibIhi").unpack_from  # up to LastOffsetDelta
_BATCH_BYTES: Final = 27
_BATCH_PREFIX: Final = 12  # BaseOffset and BatchLength, which the length does not count
_CONTROL: Final = 0x20
_LONGEST_NAME: Final = 1024  # of topics; Kafka's have 249 bytes
_LONGEST_VARINT: Final = 5
# A walk takes microseconds for each of these, and a response of nothing else must not keep the event loop.
_MOST_PARTITIONS: Final = 2000  # then the rest of the response is not looked at
_MOST_LISTED: Final = 1000
_MOST_TAGS: Final = 16


class ProduceStart(NamedTuple):
    """How a Produce request begins; `topic` is a name or an id, if there is one topic only.

    `end` is where it ends in the body. `records` is how many records the first batch has, if its header is here.
    """

    transactional_id: bytes | None
    topics: int
    topic: bytes | None
    end: int
    records: int | None
    partitions: int


def produce_start(body: Buffer, version: int) -> ProduceStart | None:
    """The beginning of the request, as far as it is here; None when that is not far enough."""
    flexible, by_id = version >= 9, version >= 13
    try:
        transactional_id, at = _text(body, 0, flexible=flexible) if version >= 3 else (None, 0)
        topics, at = _count(body, at + 6, flexible=flexible)  # behind Acks and TimeoutMs
        if topics != 1:
            return ProduceStart(transactional_id, topics, None, at, None, 0)
        if by_id:
            topic: bytes | None = bytes(body[at : at + 16])
            at += 16
        else:
            topic, at = _text(body, at, flexible=flexible)
        if topic is None or at > len(body):
            return None
        partitions, records = _first_batch(body, at, flexible=flexible)
    except (WireError, IndexError):
        return None
    return ProduceStart(transactional_id, topics, topic, at, records, partitions)


def _first_batch(body: Buffer, at: int, *, flexible: bool) -> tuple[int, int | None]:
    """The number of partitions, and of records in the first one's batch; 0 and None when they are not here."""
    try:
        partitions, at = _count(body, at, flexible=flexible)
        size, at = _count(body, at + 4, flexible=flexible)
    except (WireError, IndexError):
        return 0, None
    if size < _BATCH_BYTES or at + _BATCH_BYTES > len(body):
        return partitions, None
    last = int(_BATCH(body, at)[6])
    return partitions, last + 1 if 0 <= last < size else None


def _text(body: Buffer, at: int, *, flexible: bool) -> tuple[bytes | None, int]:
    if flexible:
        size, at = read_uvarint(body, at)
        size -= 1
    else:
        size, at = _short(body, at)
    if size > _LONGEST_NAME:
        raise WireError(f"a name of {size} bytes")
    end = at + max(0, size)
    if end > len(body):
        raise WireError("the name is not all here")
    return (bytes(body[at:end]) if size >= 0 else None), end


def _short(body: Buffer, at: int) -> tuple[int, int]:
    if at + 2 > len(body):
        raise WireError("the length is not all here")
    return int(_I16(body, at)[0]), at + 2


def _count(body: Buffer, at: int, *, flexible: bool) -> tuple[int, int]:
    if flexible:
        count, at = read_uvarint(body, at)
        return count - 1, at
    if at + 4 > len(body):
        raise WireError("the count is not all here")
    return int(_I32(body, at)[0]), at + 4


class TopicLayout(NamedTuple):
    """How one version of a response lies on the wire."""

    api_key: int
    flexible: bool
    by_id: bool
    head: int  # bytes before the topics, without the header; a nullable text stands in a ShareFetch's
    fixed: int  # bytes of a partition before what varies in length
    behind: int  # bytes between the aborted transactions and the records, or behind the head's text
    has_list: bool  # aborted transactions, or errors of records


@cache
def topic_layout(api_key: int, version: int) -> TopicLayout:
    if api_key == PRODUCE:
        # Index, ErrorCode, BaseOffset, LogAppendTimeMs, LogStartOffset; RecordErrors and ErrorMessage.
        fixed = 4 + 2 + 8 + (8 if version >= 2 else 0) + (8 if version >= 5 else 0)
        return TopicLayout(api_key, version >= 9, version >= 13, 0, fixed, 0, version >= 8)
    if api_key == FETCH:
        # PartitionIndex, ErrorCode, HighWatermark, LastStableOffset, LogStartOffset; PreferredReadReplica.
        head = (4 if version >= 1 else 0) + (6 if version >= 7 else 0)
        fixed = 4 + 2 + 8 + (8 if version >= 4 else 0) + (8 if version >= 5 else 0)
        return TopicLayout(api_key, version >= 12, version >= 13, head, fixed, 4 if version >= 11 else 0, version >= 4)
    # ThrottleTimeMs, ErrorCode; AcquisitionLockTimeoutMs; PartitionIndex, ErrorCode.
    return TopicLayout(api_key, True, True, 6, 6, 4 if version >= 1 else 0, False)


class ResponseUsage:
    """One response's walk; `used` is by topic name or id, `topics` how many the response lists, used or not."""

    __slots__ = ("_buf", "_end", "_form", "_left", "_partitions", "_pos", "_walk", "is_done", "topics", "used")

    def __init__(self, layout: TopicLayout) -> None:
        self._form = layout
        self._buf: Buffer = b""  # what is here and not walked
        self._pos = self._end = 0
        self._left = 8  # of the frame behind `_pos`, once its size is known
        self.used: dict[bytes, int] = {}
        self.topics = 0
        self.is_done = False
        self._partitions = 0
        self._walk = self._steps()

    def feed(self, piece: memoryview) -> bool:
        """The next piece, header included: whether it ends the walk. An empty one, or one behind the end, does not."""
        if self.is_done:
            return False
        self._buf = bytes(self._buf) + bytes(piece) if self._buf else piece
        self._end = len(self._buf)
        try:
            if self._pos < self._end:
                next(self._walk)
        except StopIteration:
            self.is_done = True
        # The piece is gone after this call. What was jumped over may reach past it.
        self._buf = b"" if self.is_done else bytes(self._buf[self._pos :])
        self._pos = max(0, self._pos - self._end)
        return self.is_done

    # A walk yields when it needs more than is here. `_short_of` says so; `_jump` needs nothing of what it passes.

    def _short_of(self, size: int) -> bool:
        if size > self._left:
            raise WireError("the response ends before its last field")
        return self._end - self._pos < size

    def _jump(self, size: int) -> None:
        if size > self._left:
            raise WireError("a length inside the response reaches past its end")
        self._pos += size
        self._left -= size

    def _steps(self) -> Generator[None, None, None]:
        form = self._form
        while self._short_of(8):
            yield
        self._left = 4 + int(_I32(self._buf, self._pos)[0])
        self._jump(8)
        if form.flexible:
            yield from self._tags()
        self._jump(form.head)
        if form.api_key == SHARE_FETCH:
            yield from self._string()
            self._jump(form.behind)
        topics = yield from self._length()
        self.topics = max(0, topics)
        for _ in range(topics):
            topic = yield from self._topic()
            for _ in range((yield from self._length())):
                self._partitions += 1
                if self._partitions > _MOST_PARTITIONS:
                    return
                size = yield from self._partition()
                if size:
                    self.used[topic] = self.used.get(topic, 0) + size
            if form.flexible:
                yield from self._tags()

    def _partition(self) -> Generator[None, None, int]:
        """Walks one partition of a response; returns the bytes of its records, or 1 if it accepted a Produce."""
        form = self._form
        while self._short_of(6):
            yield
        (error,) = _I16(self._buf, self._pos + 4)
        self._jump(form.fixed)
        if form.api_key == SHARE_FETCH:
            size = yield from self._share_partition()
        else:
            if form.has_list:
                yield from self._list()
            if form.api_key == PRODUCE:
                if form.has_list:
                    yield from self._string()
                size = 1
            else:
                self._jump(form.behind)
                size = yield from self._records()
        if form.flexible:
            yield from self._tags()
        return 0 if error else size

    def _share_partition(self) -> Generator[None, None, int]:
        yield from self._string()  # ErrorMessage
        self._jump(2)  # AcknowledgeErrorCode
        yield from self._string()
        self._jump(8)  # CurrentLeader
        yield from self._tags()
        size = yield from self._records()
        for _ in range(_bounded((yield from self._length()), _MOST_LISTED)):
            self._jump(8 + 8 + 2)
            yield from self._tags()
        return size

    def _records(self) -> Generator[None, None, int]:
        """How many of the bytes are batches of records, judged by the first that is no control batch."""
        size = left = max(0, (yield from self._length()))
        while left >= _BATCH_BYTES:
            while self._short_of(_BATCH_BYTES):
                yield
            _, length, _, _, _, attributes, _ = _BATCH(self._buf, self._pos)
            if not attributes & _CONTROL:
                break
            control = min(left, _BATCH_PREFIX + max(length, _BATCH_BYTES))
            self._jump(control)
            size -= control
            left -= control
        self._jump(left)
        return size if left >= _BATCH_BYTES else 0

    def _list(self) -> Generator[None, None, None]:
        """Aborted transactions of a Fetch, or errors of single records of a Produce."""
        for _ in range(_bounded((yield from self._length()), _MOST_LISTED)):
            if self._form.api_key == FETCH:
                self._jump(16)
            else:
                self._jump(4)
                yield from self._string()
            if self._form.flexible:
                yield from self._tags()

    def _topic(self) -> Generator[None, None, bytes]:
        if self._form.by_id:
            size = 16
        elif self._form.flexible:
            size = yield from self._length()
        else:
            size = yield from self._short_length()
        if not 0 <= size <= _LONGEST_NAME:
            raise WireError(f"a topic name of {size} bytes")
        while self._short_of(size):
            yield
        topic = bytes(self._buf[self._pos : self._pos + size])
        self._jump(size)
        return topic

    def _string(self) -> Generator[None, None, None]:
        size = (yield from self._length()) if self._form.flexible else (yield from self._short_length())
        self._jump(max(0, size))

    def _short_length(self) -> Generator[None, None, int]:
        while self._short_of(2):
            yield
        (length,) = _I16(self._buf, self._pos)
        self._jump(2)
        return int(length)

    def _length(self) -> Generator[None, None, int]:
        """A count or a length: -1 for null."""
        if not self._form.flexible:
            while self._short_of(4):
                yield
            (length,) = _I32(self._buf, self._pos)
            self._jump(4)
            return int(length)
        return (yield from self._varint()) - 1

    def _varint(self) -> Generator[None, None, int]:
        value = shift = 0
        while shift < 7 * _LONGEST_VARINT:
            while self._short_of(1):
                yield
            byte = self._buf[self._pos]
            self._jump(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise WireError("a varint of more than five bytes")

    def _tags(self) -> Generator[None, None, None]:
        for _ in range(_bounded((yield from self._varint()), _MOST_TAGS)):
            yield from self._varint()
            self._jump((yield from self._varint()))


def _bounded(count: int, most: int) -> int:
    if count > most:
        raise WireError(f"{count} elements where Kafka has {most} at most")
    return count
