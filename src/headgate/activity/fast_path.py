"""The fast paths of Produce, Fetch and heartbeats: requests like those parsed before are only compared and added up.

A Produce is recognized by its first bytes, from the client id up to the first topic. With one topic the count of
bytes is exact, and every 1024th request is parsed, to sample its records. A Fetch is recognized by the one topic in
its response. Of requests with several topics most are skipped, and their bytes are divided among the topics of the
next one that is parsed: at least one a second, and one in four times as many as there are topics. A heartbeat is
recognized by all of its bytes behind the correlation id. One accepted response a minute is parsed; of responses that
refuse it only the error code is read.

Invariant: this runs for every request, and everything that it keeps is bounded.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from headgate.activity.model.intervals import Interval
from headgate.proxy.interceptor import UNWATCHED, FastPath
from headgate.wire.topic_use import TopicLayout

_CLIENT_ID_AT: Final = 12  # in a request: after size, key, version and correlation id
_SAMPLE_EVERY: Final = 1024  # requests
_MOST_SKIPPED_S: Final = 1.0
_SKIPPED_PER_TOPIC: Final = 4
_MOST_SKIPPED: Final = 512
_MOST_MULTI_TOPIC: Final = 4  # prefixes of one connection
_MOST_TOPICS: Final = 256  # of one connection
_LONGEST_HEARTBEAT: Final = 512  # bytes: those with topic subscriptions may be longer, and are rare
_MOST_HEARTBEATS: Final = 16  # of one connection and version
HEARTBEAT_S: Final = 60.0
_PARTITION_BYTES: Final = 40  # about the size of a partition without records in a Fetch response
_I32: Final = Struct(">i").unpack_from
_I16: Final = Struct(">h").unpack_from

Touch = Callable[[Interval], None]
Now = Callable[[], float]  # monotonic seconds


class _SingleTopicRequests(FastPath):
    """The Produce requests of one connection to one topic; it also receives their responses."""

    __slots__ = ("_error_at", "_interval", "_touch", "left", "sent")

    def __init__(self, interval: Interval, error_at: int, touch: Touch) -> None:
        self._interval = interval
        self._error_at = error_at + 1  # the lower byte: it is not zero in any of Kafka's error codes
        self._touch = touch
        self.sent: list[int] = []  # bytes of each request that is under way; responses have the same order
        self.left = _SAMPLE_EVERY

    def on_response(self, view: memoryview, pos: int, end: int, length: int) -> None:  # noqa: ARG002
        sent = self.sent.pop(0)
        at = pos + self._error_at
        if at < end and view[at]:
            return  # the first partition refused it
        interval = self._interval
        interval.bytes += sent
        self.left -= 1
        if not interval.touched:
            self._touch(interval)


class _MultiTopicRequests(FastPath):
    """The requests of one connection with several topics, most of which are skipped."""

    __slots__ = ("_left", "_now", "_skipped", "_until")

    def __init__(self, now: Now) -> None:
        self._now = now
        self._left = 0
        self._until = 0.0
        self._skipped = 0  # bytes

    def learn_topics(self, count: int) -> None:
        """Skip some of the next requests, depending on the number of topics."""
        self._left = min(_MOST_SKIPPED, _SKIPPED_PER_TOPIC * count)
        self._until = self._now() + _MOST_SKIPPED_S

    def take_skipped(self) -> int:
        """The bytes that were skipped since the last call."""
        size, self._skipped = self._skipped, 0
        return size

    def skip(self, length: int) -> FastPath | None:
        """Skip a request; None if it has to be parsed."""
        if not self._left or self._now() > self._until:
            return None
        self._left -= 1
        self._skipped += length
        return UNWATCHED


class ProduceFastPath(FastPath):
    """The Produce requests of one connection."""

    covers_prefilter = True  # the transactional id is compared, and acks
    __slots__ = ("_multi", "_now", "_prefix_size", "_single", "_touch", "version")

    def __init__(self, version: int, touch: Touch, now: Now) -> None:
        self.version = version
        self._now = now
        self._touch = touch
        # By prefix. All have one length, as they have with topic ids; a prefix of another length clears the table.
        self._prefix_size = 0
        self._single: dict[bytes, _SingleTopicRequests] = {}
        self._multi: dict[bytes, _MultiTopicRequests] = {}

    def on_request(self, view: memoryview, pos: int, end: int, length: int) -> FastPath | None:
        begin = pos + _CLIENT_ID_AT
        behind = begin + self._prefix_size
        if end > pos + 4 + length:  # noqa: PLR1730 - quicker than `min`, for every request
            end = pos + 4 + length  # what follows is another request
        if behind <= end:
            call = self._single.get(view[begin:behind].tobytes())
            if call is not None:
                if call.left <= 0:
                    call.left = _SAMPLE_EVERY
                    return None
                call.sent.append(length)
                return call
        return self._asked_multi(view, begin, end, length) if self._multi else None

    def _asked_multi(self, view: memoryview, begin: int, end: int, length: int) -> FastPath | None:
        for prefix, call in self._multi.items():
            if begin + len(prefix) <= end and view[begin : begin + len(prefix)] == prefix:
                return call.skip(length)
        return None

    def learn(self, prefix: bytes, interval: Interval, error_at: int) -> None:
        """Requests with this prefix belong to the interval."""
        if len(prefix) != self._prefix_size or len(self._single) >= _MOST_TOPICS:
            self._single.clear()
            self._prefix_size = len(prefix)
        if prefix not in self._single:
            self._single[prefix] = _SingleTopicRequests(interval, error_at, self._touch)

    def learn_multi(self, prefix: bytes, topics: int) -> None:
        """Requests with this prefix have several topics."""
        if prefix not in self._multi and len(self._multi) >= _MOST_MULTI_TOPIC:
            self._multi.clear()
        self._multi.setdefault(prefix, _MultiTopicRequests(self._now)).learn_topics(topics)

    def take_skipped(self, prefix: bytes | None) -> int:
        """The bytes of requests with this prefix that were skipped since the last call."""
        known = None if prefix is None else self._multi.get(prefix)
        return 0 if known is None else known.take_skipped()


class FetchFastPath(_MultiTopicRequests):
    """The Fetch requests of one connection."""

    __slots__ = ("_by_id", "_client_id", "_count_at", "_empty", "_flexible", "_known", "_parse", "_touch")

    def __init__(
        self,
        form: TopicLayout,
        client_id: str | None,
        parse: "Callable[[FetchFastPath], object]",
        touch: Touch,
        now: Now,
    ) -> None:
        """`parse` returns the context of a response that has to be parsed."""
        super().__init__(now)
        text = b"" if client_id is None else client_id.encode(errors="replace")
        self._client_id = b"\xff\xff" if client_id is None else len(text).to_bytes(2, "big") + text
        self._by_id = form.by_id
        self._flexible = form.flexible
        self._count_at = 8 + form.flexible + form.head
        self._empty = self._count_at - 4 + (2 if form.flexible else 4)  # the length of a response without topics
        self._parse = parse
        self._touch = touch
        self._known: dict[bytes, Interval] = {}

    def on_request(self, view: memoryview, pos: int, end: int, length: int) -> "FetchFastPath | None":  # noqa: ARG002
        begin = pos + _CLIENT_ID_AT
        behind = begin + len(self._client_id)
        return self if behind <= end and view[begin:behind].tobytes() == self._client_id else None

    def on_response(self, view: memoryview, pos: int, end: int, length: int) -> object | None:
        if length <= self._empty:
            return None
        at = pos + self._count_at
        if self._by_id and at + 18 <= end and view[at] == 2:
            interval = self._known.get(view[at + 1 : at + 17].tobytes())
            if interval is None:
                return self._parse(self)
            size = length - self._empty - 16 - _PARTITION_BYTES * (view[at + 17] - 1)
            if size > _PARTITION_BYTES:
                interval.bytes += size
                if not interval.touched:
                    self._touch(interval)
            return None
        return self._answered_other(view, at, end, length)

    def _answered_other(self, view: memoryview, at: int, end: int, length: int) -> object | None:
        """Several topics, or topics by name."""
        if not self._by_id and (found := self._named(view, at, end)) is not None:
            interval, partitions = found
            size = length - self._empty - _PARTITION_BYTES * partitions
            if size > _PARTITION_BYTES:
                interval.bytes += size
                if not interval.touched:
                    self._touch(interval)
            return None
        if self._left and self._now() <= self._until:
            self._left -= 1
            self._skipped += length
            return None
        return self._parse(self)

    def _named(self, view: memoryview, at: int, end: int) -> tuple[Interval, int] | None:
        """The interval of the one topic in the response, and its number of partitions; None: it has to be parsed."""
        if at + 8 > end:
            return None
        if self._flexible:
            if view[at] != 2 or view[at + 1] >= 0x80:
                return None
            begin, behind = at + 2, at + 1 + view[at + 1]
        else:
            if _I32(view, at)[0] != 1:
                return None
            begin = at + 6
            behind = begin + max(0, _I16(view, at + 4)[0])
        if behind + 4 > end:
            return None
        interval = self._known.get(bytes(view[begin:behind]))
        if interval is None:
            return None
        return interval, view[behind] - 1 if self._flexible else _I32(view, behind)[0]

    def learn(self, topic: bytes, interval: Interval) -> None:
        if len(self._known) >= _MOST_TOPICS:
            self._known.clear()
        self._known[topic] = interval


class _RepeatedHeartbeat(FastPath):
    """The heartbeats of one connection with the same bytes; it also receives their responses.

    Only a parsed response is a use, and a response with tagged fields in its header or without an error code is none:
    whatever is read here at the place of the code may leave a use out, but never count one.
    """

    __slots__ = ("_error_at", "_now", "_parse", "until")

    def __init__(self, now: Now, error_at: int, parse: Callable[[], object]) -> None:
        self._now = now
        self._error_at = error_at
        self._parse = parse
        self.until = float("-inf")  # until when the broker's acceptance is known

    def on_response(self, view: memoryview, pos: int, end: int, length: int) -> object | None:  # noqa: ARG002
        at = pos + self._error_at
        if at + 1 < end and (view[at] or view[at + 1]):
            return None  # refused
        return None if self._now() <= self.until else self._parse()


class HeartbeatFastPath(FastPath):
    """The heartbeats of one connection in one version.

    A member repeats the same bytes until its epoch, its subscription or its assignment changes. For a minute after the
    broker has accepted them, they and their responses tell nothing new, not even an error: it is no use of the group.
    Otherwise only the error code of the response is read, and a response that accepts them is parsed.
    """

    covers_prefilter = True  # all bytes of the request are compared
    __slots__ = ("_error_at", "_known", "_now")

    def __init__(self, now: Now, error_at: int) -> None:
        """`error_at` is where the error code stands in a response whose header has no tagged fields."""
        self._now = now
        self._error_at = error_at
        self._known: dict[bytes, _RepeatedHeartbeat] = {}

    def on_request(self, view: memoryview, pos: int, end: int, length: int) -> FastPath | None:
        behind = pos + 4 + length
        if length > _LONGEST_HEARTBEAT or behind > end:
            return None
        known = self._known.get(view[pos + _CLIENT_ID_AT : behind].tobytes())
        return UNWATCHED if known is not None and self._now() <= known.until else known

    def learn(self, repeated: bytes, parse: Callable[[], object], *, accepted: bool) -> None:
        """The broker has answered a heartbeat with these bytes behind its correlation id.

        `parse` returns the context of a response that has to be parsed.
        """
        if _CLIENT_ID_AT - 4 + len(repeated) > _LONGEST_HEARTBEAT:
            return
        known = self._known.get(repeated)
        if known is None:
            if len(self._known) >= _MOST_HEARTBEATS:
                del self._known[next(iter(self._known))]
            known = self._known[repeated] = _RepeatedHeartbeat(self._now, self._error_at, parse)
        if accepted:
            known.until = self._now() + HEARTBEAT_S
