"""Moves spooled dead letters to their topics as soon as these accept them; only the leader does.

- The dead letters of a lane are written in order, and one batch of a topic is in flight at a time.
- A lane whose dead letters fail does not delay others: its first dead letter alone is tried, by the writer's own
  retries about once a second, until it is written.
- A dead letter that cannot be moved is parked (`parking`), so that its lane goes on.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.base.tasks import TaskSet
from headgate.share_groups.dead_letter_reports import DeadLetterReports
from headgate.share_groups.dead_letter_writer import WriteFailureCause
from headgate.share_groups.late_arrivals import LateArrivals
from headgate.share_groups.model.group_state import ShareStates
from headgate.share_groups.share_metrics import ShareMeter
from headgate.share_groups.spool.deadlines import SpoolDeadlines
from headgate.share_groups.spool.model.index import SpoolIndex, SpoolPlace
from headgate.share_groups.spool.model.records import DeadLetterIdentity, SpooledDeadLetter, SpoolLane
from headgate.share_groups.spool.parking import SpoolParking
from headgate.share_groups.spool.removals import SpoolRemovals
from headgate.share_groups.spool.transfer import BATCH_BYTES, WRITE_S, Found, SpoolClients, SpoolTransfer

log = structlog.get_logger()

_TICK_S: Final = 1.0
_PAUSE_S: Final = 0.02  # between rounds: records of the spool come in batches
_BATCH_DEAD_LETTERS: Final = 1_000  # read at once
_WRITE_DEAD_LETTERS: Final = 250  # written at once: more would delay clients
_MAX_UNREMOVED: Final = 5_000  # moved, and not read as removed: more are not moved before
_MAX_PROBES, _TOPIC_PROBES = 64, 4
_PROBE_S: Final = 10.0
_TOO_LARGE: Final = "too large for its topic, also without the copy of its record"
_NO_TOPIC: Final = "its topic does not exist, and is not configured for any group"


@dataclass(slots=True)
class _Topic:
    """The work for one topic; `failing` are the lanes whose first dead letter alone is tried, the next one first."""

    is_moving: bool = False
    is_gone: bool = False
    failing: dict[SpoolLane, None] = field(default_factory=dict)
    probed: set[SpoolLane] = field(default_factory=set)
    probe_at: float = 0.0
    served: int = 0  # lanes, so that all have their turn

    @property
    def is_idle(self) -> bool:
        return not self.is_moving and not self.probed


class SpoolMover:
    """Runs after `open`; it moves dead letters from `start` to `stop`, the term of a leader."""

    def __init__(
        self, *, index: SpoolIndex, states: ShareStates, clock: Clock, meter: ShareMeter, reports: DeadLetterReports
    ) -> None:
        self._index = index
        self._clock = clock
        self._meter = meter
        self._tasks = TaskSet(self._on_failure)
        self._changed = asyncio.Event()
        self._topics: dict[str, _Topic] = {}
        self._probes = 0  # in all topics
        self._is_leading = False
        self._removals = SpoolRemovals(index, clock)
        self._deadlines = SpoolDeadlines(index=index, removals=self._removals, reports=reports)
        self._late = LateArrivals(reports, remove=self._removals.remove, clock=clock, tasks=self._tasks)
        self._transfer = SpoolTransfer(
            states=states,
            removals=self._removals,
            deadlines=self._deadlines,
            late=self._late,
            clock=clock,
            meter=meter,
            tasks=self._tasks,
        )
        self._parking = SpoolParking(
            self._transfer, index=index, removals=self._removals, reports=reports, clock=clock, tasks=self._tasks
        )

    def open(self, clients: SpoolClients) -> None:
        self._transfer.open(clients)
        self._deadlines.open(clients.spool)

    def wake(self) -> None:
        """The index has changed."""
        self._changed.set()
        self._parking.wake()

    @property
    def is_replayed(self) -> bool:
        """Whether the spool was read to its end."""
        return self._transfer.is_replayed

    def start(self) -> None:
        self._is_leading = True
        self._deadlines.begin_term()
        self._changed.set()

    async def stop(self) -> None:
        """End all work; what was written and not removed yet is moved again by the next leader."""
        self._is_leading = False
        await self._tasks.cancel_all()
        self._probes = 0  # a task may not have begun
        self._topics.clear()
        self._deadlines.clear()
        self._removals.clear()
        self._late.clear()
        self._parking.clear()
        await self._transfer.stop()

    def _on_failure(self, failure: BaseException) -> None:
        self._meter.failures += 1
        log.error("task of the share groups failed", exc_info=failure)

    async def run(self) -> None:
        """Work whenever the index has changed, and at least once a second, until cancelled."""
        while True:
            self._changed.clear()
            try:
                await self.on_tick()
            except Exception as failure:  # noqa: BLE001 - the next round is tried all the same
                self._on_failure(failure)
                await asyncio.sleep(_TICK_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._changed.wait()
            await asyncio.sleep(_PAUSE_S)

    async def on_tick(self) -> None:
        """Begin all work that is due; none while the spool was not read to its end, for the order of the lanes."""
        if not self.is_replayed:
            self._deadlines.begin_term()  # it is read again, with deadlines that were reported
            return
        now, now_ms = self._clock.monotonic(), self._clock.epoch_ms()
        if not self._is_leading:
            self._deadlines.drop_reported(now_ms)
            return
        await self._deadlines.report(now_ms)
        self._tasks.spawn(self._removals.repeat())
        targets = self._index.targets()
        for target in targets:
            self._serve(target, self._topics.setdefault(target, _Topic()), now)
        for target in self._topics.keys() - set(targets):
            if self._topics[target].is_idle:
                del self._topics[target]
                self._deadlines.set_problem(target, None)
        self._parking.on_tick()

    # --- one topic

    def _serve(self, target: str, topic: _Topic, now: float) -> None:
        if not topic.is_moving and self._pick(target, topic, most=1):
            topic.is_moving = True
            self._tasks.spawn(self._move(target, topic))
        has_room = len(topic.probed) < _TOPIC_PROBES and self._probes < _MAX_PROBES
        if topic.failing and now >= topic.probe_at and has_room:
            topic.probe_at = now + _TICK_S
            lane = next((one for one in topic.failing if one not in topic.probed and self._may_read(target, one)), None)
            if lane is not None:
                topic.probed.add(lane)
                self._probes += 1
                self._tasks.spawn(self._probe(target, topic, lane))

    def _pick(self, target: str, topic: _Topic, *, most: int = _BATCH_DEAD_LETTERS) -> list[SpoolPlace]:
        """The next dead letters of the lanes that do not fail, in the order of each."""
        picked: dict[DeadLetterIdentity, SpoolPlace] = {}
        size = 0
        if len(self._removals) >= _MAX_UNREMOVED:
            return []
        lanes = self._index.lanes(target)
        begin = topic.served % len(lanes) if lanes else 0
        share = max(1, most // max(1, len(lanes) - len(topic.failing)))
        for lane in (*lanes[begin:], *lanes[:begin]):
            if lane in topic.failing:
                continue
            taken = 0
            for place in self._index.waiting(target, lane):
                if self._removals.covers(place) or place.identity in picked:
                    continue
                if taken == share or self._transfer.is_unread(place):
                    break
                if len(picked) == most or (picked and size + place.size > BATCH_BYTES):
                    return list(picked.values())
                picked[place.identity] = place
                size += place.size
                taken += 1
        return list(picked.values())

    def _first(self, target: str, lane: SpoolLane) -> SpoolPlace | None:
        """The next dead letter of a lane."""
        return next((one for one in self._index.waiting(target, lane) if not self._removals.covers(one)), None)

    def _may_read(self, target: str, lane: SpoolLane) -> bool:
        first = self._first(target, lane)
        return first is None or not self._transfer.is_unread(first)

    async def _move(self, target: str, topic: _Topic) -> None:
        try:
            while True:
                async with self._transfer.slots:
                    batch = self._pick(target, topic)  # not before: what can be read may have changed meanwhile
                    if not batch:
                        return
                    topic.served += 1
                    found, missing = await self._transfer.read(batch)
                    failing: dict[SpoolLane, None] = {}
                    for begin in range(0, len(found), _WRITE_DEAD_LETTERS):
                        some = [one for one in found[begin : begin + _WRITE_DEAD_LETTERS] if one[1].lane not in failing]
                        failing |= await self._write_or_park(target, topic, some)
                if failing or missing:
                    topic.failing |= failing | missing
                    topic.probe_at = self._clock.monotonic() + _TICK_S
        except Exception:
            topic.failing.update(dict.fromkeys(self._index.lanes(target)))
            topic.probe_at = self._clock.monotonic() + _TICK_S  # not at once again
            raise
        finally:
            topic.is_moving = False
            self._changed.set()

    async def _probe(self, target: str, topic: _Topic, lane: SpoolLane) -> None:
        """Try the first dead letter of a failing lane; when it is written, all lanes of the topic go on."""
        try:
            first = self._first(target, lane)
            if first is None:
                topic.failing.pop(lane, None)
                return
            if self._transfer.is_unread(first):  # another probe tries its partition
                return
            found, _ = await self._transfer.read([first])
            if not found or await self._write(target, topic, found, _PROBE_S):
                if topic.failing.pop(lane, lane) is None:  # the others have their turn first
                    topic.failing[lane] = None
            else:
                topic.failing.clear()
            if topic.is_gone:  # the lanes go on, to be parked
                topic.failing.clear()
        finally:
            topic.probed.discard(lane)
            self._probes -= 1
            self._changed.set()

    async def _write_or_park(self, target: str, topic: _Topic, found: Found) -> dict[SpoolLane, None]:
        """Returns the lanes that failed."""
        if topic.is_gone and await self._transfer.is_gone(target):
            return await self._parking.park(found, _NO_TOPIC)
        topic.is_gone = False
        return await self._write(target, topic, found, WRITE_S)

    async def _write(self, target: str, topic: _Topic, found: Found, deadline_s: float) -> dict[SpoolLane, None]:
        """Write the dead letters, and park those that are too large; returns the lanes that failed."""
        failing: dict[SpoolLane, None] = {}
        too_large: list[tuple[SpoolPlace, SpooledDeadLetter]] = []
        is_missing = False
        self._deadlines.set_problem(target, None)
        for (place, dead_letter), failure in zip(
            found, await self._transfer.write(target, found, deadline_s), strict=True
        ):
            if failure is None:
                continue
            if failure.cause is WriteFailureCause.TOO_LARGE:
                too_large.append((place, dead_letter))
            else:
                failing[dead_letter.lane] = None
                self._deadlines.set_problem(target, failure.text)
                is_missing = failure.cause is WriteFailureCause.NO_TOPIC
        if failing:
            topic.is_gone = is_missing and not self._transfer.is_configured(target)
        return failing | await self._parking.park(too_large, _TOO_LARGE)
