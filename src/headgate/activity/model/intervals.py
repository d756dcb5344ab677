"""Intervals of use: which actor used which topic, in which direction, from when to when, and how many bytes.

A use is reported when it is first seen, then after 1, 5 and 15 minutes, then every 15 minutes while it lasts, when
its last connection closes, and when it is attributed to another actor. A report covers the time since the one before,
so that the bytes of all reports add up. An unused interval is not reported; its next use is reported immediately.

Invariant: the table is bounded. Uses that do not fit are added up under `OTHER` by topic, for a bounded number of
topics, and so are those of a connection that changes its client id too often. Reports of closed intervals above the
bound are dropped and counted. Times are arguments.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from headgate.activity.model.identity import OTHER, ClientKey
from headgate.facts import Actor
from headgate.facts.observations import Direction

MOST_INTERVALS: Final = 600_000  # 10,000 clients with 50 topics each, and a reserve
MOST_CLOSED: Final = 20_000
MOST_TOPICS_OF_OTHERS: Final = 65_536
DELAYS_S: Final = (60.0, 300.0, 900.0)
_SAMPLE_BYTES: Final = 1 << 30  # above this, older samples of a topic count half
_ALL_CLIENTS: Final = ClientKey(None, None, "")


@dataclass(slots=True, eq=False)
class TopicRef:
    """A topic of a worker, known by name, by id, or by both.

    The samples give the size of a record on the wire, from which the number of records is estimated.
    """

    name: str | None = None
    id: str | None = None
    lookups: int = 0  # of what is missing
    sampled_bytes: int = 0
    sampled_records: int = 0

    def sample(self, records: int, size: int) -> None:
        self.sampled_records += records
        self.sampled_bytes += size
        if self.sampled_bytes > _SAMPLE_BYTES:
            self.sampled_records //= 2
            self.sampled_bytes //= 2

    def records_in(self, size: int) -> int | None:
        """An estimate of the number of records; None without samples."""
        return round(size * self.sampled_records / self.sampled_bytes) if self.sampled_bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """The use of one interval since its last report."""

    actor: Actor
    client: ClientKey
    topic: TopicRef
    direction: Direction
    since_ms: int
    until_ms: int
    bytes: int
    records: int | None
    qualifier: str | None
    software: tuple[str, str] | None


_Key = tuple[ClientKey, TopicRef, Direction, str | None]


@dataclass(slots=True, eq=False)
class Interval:
    """The use of a topic, shared by `refs` connections; `qualifier` is its transactional id or share group.

    A request adds to `bytes`, and the interval is passed to `Intervals.mark_used` once, until `touched` is reset.
    """

    client: ClientKey
    topic: TopicRef
    direction: Direction
    qualifier: str | None
    actor: Actor
    software: tuple[str, str] | None = None
    refs: int = 0
    bytes: int = 0
    touched: bool = False
    since_ms: int = 0  # 0: no use since the last report
    until_ms: int = 0
    step: int = 0  # the index of the next delay
    is_waiting: bool = False  # for a report
    due: float = 0.0  # when a delayed report is due, else 0
    is_open: bool = True


class Intervals:
    """All uses of a worker."""

    def __init__(self, most: int = MOST_INTERVALS, most_closed: int = MOST_CLOSED) -> None:
        self._most = most
        self._most_topics = MOST_TOPICS_OF_OTHERS
        self._most_closed = most_closed
        self._open: dict[_Key, Interval] = {}
        self._others: dict[tuple[TopicRef, Direction], Interval] = {}
        self._rest = TopicRef()  # the topics that are above `_most_topics`
        self._now: deque[Interval] = deque()  # to be reported with the next `take`
        self._later: tuple[deque[tuple[float, Interval]], ...] = tuple(deque() for _ in DELAYS_S)
        self._closed: deque[UsageReport] = deque()
        self.lost = 0  # reports
        self.overflows = 0  # uses that are added up under `OTHER`

    def __len__(self) -> int:
        return len(self._open) + len(self._others)

    def __iter__(self) -> Iterator[Interval]:
        """The intervals that are reported individually."""
        return iter(tuple(self._open.values()))

    def open(
        self, client: ClientKey, topic: TopicRef, direction: Direction, actor: Actor, *, qualifier: str | None = None
    ) -> Interval:
        """The interval of this use, for one more connection; a new one is attributed to the actor."""
        key = (client, topic, direction, qualifier)
        interval = self._open.get(key)
        if interval is None:
            if len(self._open) >= self._most:
                return self.other(topic, direction)
            interval = self._open[key] = Interval(client, topic, direction, qualifier, actor)
        interval.refs += 1
        return interval

    def other(self, topic: TopicRef, direction: Direction) -> Interval:
        """The interval of uses that cannot be reported individually."""
        self.overflows += 1
        if len(self._others) >= self._most_topics and (topic, direction) not in self._others:
            topic = self._rest
        interval = self._others.get((topic, direction))
        if interval is None:
            interval = self._others[topic, direction] = Interval(_ALL_CLIENTS, topic, direction, None, OTHER)
        interval.refs += 1
        return interval

    def mark_used(self, intervals: Iterable[Interval], now_ms: int) -> None:
        """Set the times of intervals that were used since the last call."""
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
        """A connection has closed; the interval ends with its last one."""
        interval.refs -= 1
        if interval.refs > 0 or not interval.is_open:
            return
        if interval.touched:
            self.mark_used((interval,), now_ms)
        interval.is_open = False
        if interval.actor is OTHER:
            self._others.pop((interval.topic, interval.direction), None)
        else:
            self._open.pop((interval.client, interval.topic, interval.direction, interval.qualifier), None)
        self._close_span(interval)

    def attribute(self, interval: Interval, actor: Actor) -> bool:
        """Attribute later use to this actor; False if it was already. Earlier use is reported for the former one."""
        if actor == interval.actor or interval.actor is OTHER or not interval.is_open:
            return False
        self._close_span(interval)
        interval.actor = actor
        interval.step = 0
        if interval.due:
            interval.due = 0.0
            interval.is_waiting = False  # its next use is reported immediately
        return True

    def take(self, now: float, most: int) -> list[UsageReport]:
        """At most `most` of the reports that are due; the next call returns the rest."""
        reports: list[UsageReport] = []
        while self._closed and len(reports) < most:
            reports.append(self._closed.popleft())
        for later in self._later:
            while later and later[0][0] <= now:
                due, interval = later.popleft()
                if interval.due == due:
                    interval.due = 0.0
                    self._now.append(interval)
        for _ in range(len(self._now)):
            if len(reports) >= most:
                break
            interval = self._now.popleft()
            interval.is_waiting = False
            if interval.is_open and interval.since_ms:
                reports.append(_report(interval))
                interval.is_waiting = True
                interval.due = now + DELAYS_S[interval.step]
                self._later[interval.step].append((interval.due, interval))
                interval.step = min(interval.step + 1, len(DELAYS_S) - 1)
        return reports

    def close_all(self, now_ms: int) -> None:
        """End all intervals, at the end of the worker."""
        for interval in (*self._open.values(), *self._others.values()):
            interval.refs = 1
            self.release(interval, now_ms)

    def _close_span(self, interval: Interval) -> None:
        if not interval.since_ms:
            return
        if len(self._closed) >= self._most_closed:
            self.lost += 1
            _report(interval)
        else:
            self._closed.append(_report(interval))


def _report(interval: Interval) -> UsageReport:
    """The use since the last report; the interval starts again."""
    size, interval.bytes = interval.bytes, 0
    report = UsageReport(
        actor=interval.actor,
        client=interval.client,
        topic=interval.topic,
        direction=interval.direction,
        since_ms=interval.since_ms,
        until_ms=interval.until_ms,
        bytes=size,
        records=interval.topic.records_in(size) if interval.direction == "write" else None,
        qualifier=interval.qualifier,
        software=interval.software,
    )
    interval.since_ms = 0
    return report
