"""Intervals of use: who used which topic, in which direction, from when to when, and how many bytes.

A use is told at once when it is first seen, then after 1, 5 and 15 minutes, then every 15 minutes for as long as it
goes on; and when its last connection closes, or somebody else turns out to be behind it. What is told covers the time
since the last time, so the bytes of all tellings add up. An interval without use tells nothing and rests: the next use
is told at once.

One rule: the table is bounded. What does not fit any more is counted under `OTHER`, by topic, and so are uses of a
connection that changes its name too often. Nothing that was seen is lost but what closes quicker than it is taken,
which is counted. Pure: times come in as arguments.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from headgate.activity.model.identity import OTHER, ClientKey, Direction, Who

MOST_INTERVALS: Final = 600_000  # 10,000 clients with 50 topics each, and some more
MOST_CLOSED: Final = 20_000
DELAYS_S: Final = (60.0, 300.0, 900.0)
_SAMPLE_BYTES: Final = 1 << 30  # then older samples of a topic count half
_EVERYBODY: Final = ClientKey(None, None, "")


class TopicRef:
    """A topic as far as it is known: by id, by name, or by both; one object for each topic of a worker.

    The samples say how many bytes a record takes on the wire, so that records can be told without counting all.
    """

    __slots__ = ("id", "name", "sampled_bytes", "sampled_records")

    def __init__(self, *, name: str | None = None, topic_id: str | None = None) -> None:
        self.name = name
        self.id = topic_id
        self.sampled_bytes = 0
        self.sampled_records = 0

    def sample(self, records: int, size: int) -> None:
        self.sampled_records += records
        self.sampled_bytes += size
        if self.sampled_bytes > _SAMPLE_BYTES:
            self.sampled_records //= 2
            self.sampled_bytes //= 2

    def records_in(self, size: int) -> int | None:
        """About how many records so many bytes are; None when none were sampled."""
        return round(size * self.sampled_records / self.sampled_bytes) if self.sampled_bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is told of one interval: its use since it was last told."""

    who: Who
    client: ClientKey
    topic: TopicRef
    direction: Direction
    since_ms: int
    until_ms: int
    bytes: int
    records: int | None
    named: str | None
    software: tuple[str, str] | None


_Key = tuple[ClientKey, TopicRef, Direction, str | None]


class Interval:
    """One use that goes on; `refs` connections share it. `named` is the transactional id or share group of its calls.

    Who sees a call adds to `bytes` and hands the interval to `Intervals.used` once, until `touched` is reset.
    """

    __slots__ = (
        "bytes",
        "client",
        "direction",
        "due",
        "is_open",
        "is_waiting",
        "named",
        "refs",
        "since_ms",
        "software",
        "step",
        "topic",
        "touched",
        "until_ms",
        "who",
    )

    def __init__(self, client: ClientKey, topic: TopicRef, direction: Direction, named: str | None, who: Who) -> None:
        self.client = client
        self.topic = topic
        self.direction: Direction = direction
        self.named = named
        self.who = who
        self.software: tuple[str, str] | None = None
        self.refs = 0
        self.bytes = 0
        self.touched = False
        self.since_ms = 0  # 0: nothing that has not been told
        self.until_ms = 0
        self.step = 0  # how often it was told, up to the longest delay
        self.is_waiting = False  # for its turn, or for its delay to pass
        self.due = 0.0  # when that is; 0 while it waits for its turn, or for nothing
        self.is_open = True


class Intervals:
    """All uses of a worker."""

    def __init__(self, most: int = MOST_INTERVALS, most_closed: int = MOST_CLOSED) -> None:
        self._most = most
        self._most_closed = most_closed
        self._open: dict[_Key, Interval] = {}
        self._others: dict[tuple[TopicRef, Direction], Interval] = {}
        self._now: deque[Interval] = deque()  # told as soon as somebody takes it
        self._later: tuple[deque[tuple[float, Interval]], ...] = tuple(deque() for _ in DELAYS_S)
        self._closed: deque[Observed] = deque()
        self.lost = 0  # tellings
        self.overflows = 0  # uses that were put under `OTHER`

    def __len__(self) -> int:
        return len(self._open) + len(self._others)

    def __iter__(self) -> Iterator[Interval]:
        """Those that are told by themselves, as they are now."""
        return iter(tuple(self._open.values()))

    def open(
        self, client: ClientKey, topic: TopicRef, direction: Direction, who: Who, *, named: str | None = None
    ) -> Interval:
        """The interval of this use, for one more connection; `who` counts if it is new."""
        key = (client, topic, direction, named)
        interval = self._open.get(key)
        if interval is None:
            if len(self._open) >= self._most:
                return self.other(topic, direction)
            interval = self._open[key] = Interval(client, topic, direction, named, who)
        interval.refs += 1
        return interval

    def other(self, topic: TopicRef, direction: Direction) -> Interval:
        """Where a use goes that cannot be told by itself."""
        self.overflows += 1
        interval = self._others.get((topic, direction))
        if interval is None:
            interval = self._others[topic, direction] = Interval(_EVERYBODY, topic, direction, None, OTHER)
        interval.refs += 1
        return interval

    def used(self, intervals: Iterable[Interval], now_ms: int) -> None:
        """These were used since the last time; call it often, for it sets the times."""
        for interval in intervals:
            interval.touched = False
            if not interval.is_open:
                continue
            if not interval.since_ms:
                interval.since_ms = now_ms
            interval.until_ms = max(now_ms, interval.since_ms)  # a wall clock may go back
            if not interval.is_waiting:
                interval.is_waiting = True
                self._now.append(interval)

    def release(self, interval: Interval, now_ms: int) -> None:
        """A connection that used it has closed; with the last one the interval ends."""
        interval.refs -= 1
        if interval.refs > 0 or not interval.is_open:
            return
        if interval.touched:
            self.used((interval,), now_ms)
        interval.is_open = False
        if interval.who is OTHER:
            self._others.pop((interval.topic, interval.direction), None)
        else:
            self._open.pop((interval.client, interval.topic, interval.direction, interval.named), None)
        self._conclude(interval)

    def turned_out(self, interval: Interval, who: Who) -> bool:
        """Somebody is behind it; True when it is somebody else. What was used until now stays the former's."""
        if who == interval.who or interval.who is OTHER or not interval.is_open:
            return False
        self._conclude(interval)
        interval.who = who
        interval.step = 0
        if interval.due:
            interval.due = 0.0
            interval.is_waiting = False  # its next use is told at once
        return True

    def take(self, now: float, most: int) -> list[Observed]:
        """What is to be told now, and no more than `most`; what is left comes with the next call."""
        told: list[Observed] = []
        while self._closed and len(told) < most:
            told.append(self._closed.popleft())
        for later in self._later:
            while later and later[0][0] <= now:
                due, interval = later.popleft()
                if interval.due == due:
                    interval.due = 0.0
                    self._now.append(interval)
        for _ in range(len(self._now)):
            if len(told) >= most:
                break
            interval = self._now.popleft()
            interval.is_waiting = False
            if interval.is_open and interval.since_ms:
                told.append(_told(interval))
                interval.is_waiting = True
                interval.due = now + DELAYS_S[interval.step]
                self._later[interval.step].append((interval.due, interval))
                interval.step = min(interval.step + 1, len(DELAYS_S) - 1)
        return told

    def close_all(self, now_ms: int) -> None:
        """The worker ends: everything that has not been told is."""
        for interval in (*self._open.values(), *self._others.values()):
            interval.refs = 1
            self.release(interval, now_ms)

    def _conclude(self, interval: Interval) -> None:
        if not interval.since_ms:
            return
        if len(self._closed) >= self._most_closed:
            self.lost += 1
            _told(interval)
        else:
            self._closed.append(_told(interval))


def _told(interval: Interval) -> Observed:
    """The use since the last telling; the interval begins anew."""
    size, interval.bytes = interval.bytes, 0
    told = Observed(
        who=interval.who,
        client=interval.client,
        topic=interval.topic,
        direction=interval.direction,
        since_ms=interval.since_ms,
        until_ms=interval.until_ms,
        bytes=size,
        records=interval.topic.records_in(size) if interval.direction == "write" else None,
        named=interval.named,
        software=interval.software,
    )
    interval.since_ms = 0
    return told
