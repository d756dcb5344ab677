"""The short way of calls that are like those that were looked at: compare, add, done.

A Produce is familiar by its beginning, from the client id up to the first topic; one topic a call is then as exact as a
close look, but for records, of which every 1024th call is a sample. A Fetch is familiar by the one topic in its answer.
Of calls with several topics most pass unseen, and what they carried is shared out by the next that is looked at: at
least one a second, and one in four times as many as there are topics.

One rule: this is on the path of every call. Nothing here may grow with what clients send but by what is bounded.
"""

from collections.abc import Callable
from struct import Struct
from time import monotonic
from typing import Final

from headgate.activity.model.intervals import Interval
from headgate.proxy.interceptor import Familiar
from headgate.wire.topic_use import Form

_CLIENT_ID_AT: Final = 12  # in a request's frame: behind size, key, version and correlation id
_SAMPLED: Final = 1024
_UNSEEN_S: Final = 1.0
_UNSEEN_A_TOPIC: Final = 4
_MOST_UNSEEN: Final = 512
_MOST_SETS: Final = 4  # of several topics: by their number
_MOST_KNOWN: Final = 256  # of one connection
_PARTITION: Final = 40  # about what a partition without records takes in a Fetch answer
_I32: Final = Struct(">i").unpack_from
_I16: Final = Struct(">h").unpack_from

Touch = Callable[[Interval], None]


class _OneTopic(Familiar):
    """Calls of one connection to one topic; also who waits for their answers."""

    __slots__ = ("_error_at", "_interval", "_touch", "left", "sent")

    def __init__(self, interval: Interval, error_at: int, touch: Touch) -> None:
        self._interval = interval
        self._error_at = error_at + 1  # the lower byte: no error of Kafka's has a zero there
        self._touch = touch
        self.sent = 0
        self.left = _SAMPLED

    def answered(self, view: memoryview, pos: int, end: int, length: int) -> None:  # noqa: ARG002
        at = pos + self._error_at
        if at < end and view[at]:
            self.sent = 0  # the first partition did not take it
            return
        interval = self._interval
        interval.bytes += self.sent
        self.sent = 0
        self.left -= 1
        if not interval.touched:
            self._touch(interval)


class _ManyTopics(Familiar):
    """Calls of several topics, of which most are not looked at."""

    __slots__ = ("_left", "_until", "unseen")

    def __init__(self) -> None:
        self._left = 0
        self._until = 0.0
        self.unseen = 0  # bytes

    def rest(self, topics: int) -> None:
        self._left = min(_MOST_UNSEEN, _UNSEEN_A_TOPIC * topics)
        self._until = monotonic() + _UNSEEN_S

    def sends(self, length: int) -> "_ManyTopics | None":
        if not self._left or monotonic() > self._until:
            return None
        self._left -= 1
        self.unseen += length
        return self

    def answered(self, view: memoryview, pos: int, end: int, length: int) -> None:
        """Nothing: it is not looked at."""


class ProduceFamiliar(Familiar):
    """The Produce calls of one connection."""

    __slots__ = ("_calls", "_many", "_size", "_touch", "version")

    def __init__(self, version: int, touch: Touch) -> None:
        self.version = version
        self._touch = touch
        # By their beginning. All have one length, as they do with topic ids; names of another length start it anew.
        self._size = 0
        self._calls: dict[bytes, _OneTopic] = {}
        self._many: dict[bytes, _ManyTopics] = {}

    def asked(self, view: memoryview, pos: int, end: int, length: int) -> Familiar | None:
        begin = pos + _CLIENT_ID_AT
        behind = begin + self._size
        if behind <= end:
            call = self._calls.get(view[begin:behind].tobytes())
            if call is not None:
                if call.left <= 0:
                    call.left = _SAMPLED
                    return None
                call.sent += length
                return call
        return self._asked_for_many(view, begin, end, length) if self._many else None

    def _asked_for_many(self, view: memoryview, begin: int, end: int, length: int) -> Familiar | None:
        for prefix, call in self._many.items():
            if begin + len(prefix) <= end and view[begin : begin + len(prefix)] == prefix:
                return call.sends(length)
        return None

    def learn(self, prefix: bytes, interval: Interval, error_at: int) -> None:
        """Calls that begin so are of this interval."""
        if len(prefix) != self._size or len(self._calls) >= _MOST_KNOWN:
            self._calls.clear()
            self._size = len(prefix)
        if prefix not in self._calls:
            self._calls[prefix] = _OneTopic(interval, error_at, self._touch)

    def learn_many(self, prefix: bytes, topics: int) -> None:
        """Calls that begin so have several topics: let some pass."""
        if prefix not in self._many and len(self._many) >= _MOST_SETS:
            self._many.clear()
        self._many.setdefault(prefix, _ManyTopics()).rest(topics)

    def unseen(self, prefix: bytes | None) -> int:
        """The bytes of calls that begin so and were let pass since the last time."""
        known = None if prefix is None else self._many.get(prefix)
        if known is None:
            return 0
        size, known.unseen = known.unseen, 0
        return size


class FetchFamiliar(Familiar):
    """The Fetch calls of one connection."""

    __slots__ = (
        "_by_id",
        "_client_id",
        "_count_at",
        "_empty",
        "_flexible",
        "_known",
        "_left",
        "_look",
        "_touch",
        "_unseen",
        "_until",
    )

    def __init__(
        self, form: Form, client_id: str | None, look: "Callable[[FetchFamiliar], object]", touch: Touch
    ) -> None:
        """`look` makes the context of a closer look."""
        text = b"" if client_id is None else client_id.encode(errors="replace")
        self._client_id = b"\xff\xff" if client_id is None else len(text).to_bytes(2, "big") + text
        self._by_id = form.by_id
        self._flexible = form.flexible
        self._count_at = 8 + form.flexible + form.head
        self._empty = self._count_at - 4 + (2 if form.flexible else 4)  # an answer without topics, without its size
        self._look = look
        self._touch = touch
        self._known: dict[bytes, Interval] = {}
        self._left = 0
        self._until = 0.0
        self._unseen = 0

    def asked(self, view: memoryview, pos: int, end: int, length: int) -> "FetchFamiliar | None":  # noqa: ARG002
        begin = pos + _CLIENT_ID_AT
        behind = begin + len(self._client_id)
        return self if behind <= end and view[begin:behind].tobytes() == self._client_id else None

    def answered(self, view: memoryview, pos: int, end: int, length: int) -> object | None:
        if length <= self._empty:
            return None
        at = pos + self._count_at
        if self._by_id and at + 18 <= end and view[at] == 2:
            interval = self._known.get(view[at + 1 : at + 17].tobytes())
            if interval is None:
                return self._look(self)
            size = length - self._empty - 16 - _PARTITION * (view[at + 17] - 1)
            if size > _PARTITION:
                interval.bytes += size
                if not interval.touched:
                    self._touch(interval)
            return None
        return self._answered_otherwise(view, at, end, length)

    def _answered_otherwise(self, view: memoryview, at: int, end: int, length: int) -> object | None:
        """Several topics, or topics by name."""
        if not self._by_id and (found := self._named(view, at, end)) is not None:
            interval, partitions = found
            size = length - self._empty - _PARTITION * partitions
            if size > _PARTITION:
                interval.bytes += size
                if not interval.touched:
                    self._touch(interval)
            return None
        if self._left and monotonic() <= self._until:
            self._left -= 1
            self._unseen += length
            return None
        return self._look(self)

    def _named(self, view: memoryview, at: int, end: int) -> tuple[Interval, int] | None:
        """The interval of the one topic in the answer, and how many partitions of it there are; None: look closer."""
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
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[topic] = interval

    def learn_many(self, topics: int) -> None:
        """Answers have several topics: let some pass."""
        self._left = min(_MOST_UNSEEN, _UNSEEN_A_TOPIC * topics)
        self._until = monotonic() + _UNSEEN_S

    def unseen(self) -> int:
        size, self._unseen = self._unseen, 0
        return size
