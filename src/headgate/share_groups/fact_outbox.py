"""Queues counts and events of share groups for their topics: adding one never waits and never fails.

Counts and events have a queue each, so that a flood of one never drops the other, and within a queue every group has an
equal share: a group loses facts only while its own waiting facts exceed that share. Decisions are never queued here.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import uuid4

import structlog

from headgate.base.clock import Clock
from headgate.facts import DispositionsCounted, EventHappened, JsonText
from headgate.facts.observations import EventName
from headgate.kafka.fact_writer import FactWriter

log = structlog.get_logger()

SHARE_GROUP: Final = "share_group"  # the subject kind of events
MAX_WAITING_BYTES: Final = 32 * 1024 * 1024  # of each queue
_FACT_BYTES: Final = 600  # memory of a fact beside its texts
_BATCH: Final = 500
_PUT_BATCH: Final = 1_000  # counts that are queued in one turn of the event loop
_FLUSH_S: Final = 2.0

QueuedFact = DispositionsCounted | EventHappened


class FairQueue:
    """A bounded queue that takes from one group after the other; the facts of a group stay in their order.

    When it is full, a group with less than its share of the bytes gets room from the group with the most.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._groups: dict[str, deque[tuple[int, QueuedFact]]] = {}  # in the order in which they are taken from
        self._bytes_of: dict[str, int] = {}
        self._bytes = 0
        self._length = 0
        self.lost = 0

    def __len__(self) -> int:
        return self._length

    def put(self, group: str, fact: QueuedFact, size: int) -> list[QueuedFact]:
        """Add a fact; returns those that found no room: this one, or others."""
        share = self._max_bytes // (len(self._groups) + (group not in self._groups))
        if self._bytes + size > self._max_bytes and self._bytes_of.get(group, 0) + size > share:
            self.lost += 1
            return [fact]
        self._groups.setdefault(group, deque()).append((size, fact))
        self._add(group, 1, size)
        dropped: list[QueuedFact] = []
        while self._bytes > self._max_bytes:
            largest = max(self._bytes_of, key=self._bytes_of.__getitem__)
            freed, last = self._groups[largest].pop()
            dropped.append(last)
            self.lost += 1
            self._add(largest, -1, -freed)
        return dropped

    def take(self, most: int) -> list[QueuedFact]:
        """Remove and return at most this many."""
        taken: list[QueuedFact] = []
        while self._groups and len(taken) < most:
            group = next(iter(self._groups))
            waiting = self._groups.pop(group)
            self._groups[group] = waiting
            size, fact = waiting.popleft()
            taken.append(fact)
            self._add(group, -1, -size)
        return taken

    def _add(self, group: str, number: int, size: int) -> None:
        self._length += number
        self._bytes += size
        self._bytes_of[group] = self._bytes_of.get(group, 0) + size
        if not self._groups[group]:
            del self._groups[group], self._bytes_of[group]


class FactOutbox:
    """A fact that finds no room, or that the cluster does not accept, is lost and counted in `lost`."""

    def __init__(self, clock: Clock, *, max_bytes: int = MAX_WAITING_BYTES) -> None:
        self._clock = clock
        self._counts = FairQueue(max_bytes)
        self._events = FairQueue(max_bytes)
        self._queues = {self._counts: asyncio.Event(), self._events: asyncio.Event()}
        self._waiters: dict[str, asyncio.Future[bool]] = {}  # by the id of an event
        self._failed = 0

    @property
    def lost(self) -> int:
        return self._failed + sum(queue.lost for queue in self._queues)

    def put_counts(self, fact: DispositionsCounted) -> None:
        self._put(self._counts, fact.group, fact, _FACT_BYTES)

    async def put_counts_of_seconds(self, drain: Callable[[int], Iterable[DispositionsCounted]]) -> None:
        """Queue the counts of each second that has ended, until cancelled; `drain` removes those before a second."""
        while True:
            await asyncio.sleep(1.0)
            counted = deque(drain(self._clock.epoch_ms() // 1000))
            try:
                while counted:
                    for _ in range(min(_PUT_BATCH, len(counted))):
                        self.put_counts(counted.popleft())
                    await asyncio.sleep(0)
            finally:
                for fact in counted:
                    self.put_counts(fact)

    def put_event(self, event: EventName, group: str, detail: Mapping[str, object], *, by: str | None = None) -> None:
        """Queue an event of this group for operators."""
        self._put_event(self._event(event, group, detail, by))

    def deliver_event(self, event: EventName, group: str, detail: Mapping[str, object]) -> asyncio.Future[bool]:
        """Queue an event; the future is True when the event is in its topic, and False when it was lost.

        The event is queued before this returns: a caller that stops waiting has reported it all the same.
        """
        fact = self._event(event, group, detail, None)
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiter.add_done_callback(lambda _: self._waiters.pop(fact.id, None))
        self._waiters[fact.id] = waiter
        self._put_event(fact)
        return waiter

    def _event(self, event: EventName, group: str, detail: Mapping[str, object], by: str | None) -> EventHappened:
        return EventHappened(
            at=self._clock.epoch_ms(),
            subject_kind=SHARE_GROUP,
            subject=group,
            id=uuid4().hex,
            event=event,
            by=by,
            detail=JsonText.of(dict(detail)),
        )

    def _put_event(self, fact: EventHappened) -> None:
        self._put(self._events, fact.subject, fact, _FACT_BYTES + len(fact.detail.text))

    def _put(self, queue: FairQueue, group: str, fact: QueuedFact, size: int) -> None:
        for dropped in queue.put(group, fact, size):
            self._settle(dropped, is_written=False)
        self._queues[queue].set()

    def _settle(self, fact: QueuedFact, *, is_written: bool) -> None:
        waiter = self._waiters.pop(fact.id, None) if isinstance(fact, EventHappened) else None
        if waiter is not None and not waiter.done():
            waiter.set_result(is_written)

    async def run(self, writer: FactWriter) -> None:
        """Write queued facts until cancelled; a topic that is unavailable delays only its own queue."""
        async with asyncio.TaskGroup() as tasks:
            for queue, filled in self._queues.items():
                tasks.create_task(self._run(queue, filled, writer))

    async def _run(self, queue: FairQueue, filled: asyncio.Event, writer: FactWriter) -> None:
        while True:
            await filled.wait()
            await self._write_some(queue, writer)
            if not queue:
                filled.clear()

    async def flush(self, writer: FactWriter) -> None:
        """Write the rest before the service ends, for two seconds at most."""
        try:
            async with asyncio.timeout(_FLUSH_S), asyncio.TaskGroup() as tasks:
                for queue in self._queues:
                    tasks.create_task(self._flush(queue, writer))
        except TimeoutError:
            self._failed += sum(len(queue) for queue in self._queues)

    async def _flush(self, queue: FairQueue, writer: FactWriter) -> None:
        while queue:
            await self._write_some(queue, writer)

    async def _write_some(self, queue: FairQueue, writer: FactWriter) -> None:
        writing = queue.take(_BATCH)
        outcomes = await asyncio.gather(*(writer.write(fact) for fact in writing), return_exceptions=True)
        for fact, outcome in zip(writing, outcomes, strict=True):
            self._settle(fact, is_written=not isinstance(outcome, BaseException))
        failures = [one for one in outcomes if isinstance(one, BaseException)]
        if failures:
            self._failed += len(failures)
            # Any exception: later facts are written all the same.
            log.warning(
                "records about share groups could not be written", number=len(failures), problem=repr(failures[0])
            )
