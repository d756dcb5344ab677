"""Moves spooled dead letters to their topics as soon as these accept them; only the leader does.

- The dead letters of a lane are written in order, and one batch of a topic is in flight at a time.
- A lane whose dead letters fail does not delay others: its first dead letter alone is tried, by the writer's own
  retries about once a second, until it is written.
- A dead letter is written first and removed from the spool (a tombstone) after that. A leader that is killed in between
  leaves duplicates, and so do two leaders for a moment; nothing is lost.
- A dead letter that cannot be moved is parked: its record in the spool is written again with the reason. Parked ones
  are tried once a minute.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.base.tasks import TaskSet
from headgate.share_groups.dead_letter_reports import DeadLetterReports
from headgate.share_groups.dead_letter_writer import DeadLetterWriter, WriteFailure, WriteFailureCause
from headgate.share_groups.model.dead_letter_ranges import offset_ranges
from headgate.share_groups.model.dead_letter_records import COPY_PROBLEM
from headgate.share_groups.model.group_state import ShareStates
from headgate.share_groups.share_metrics import ShareMeter
from headgate.share_groups.spool.model.index import SpoolIndex, SpoolPlace
from headgate.share_groups.spool.model.records import LetterIdentity, SpooledLetter, SpoolLane
from headgate.share_groups.spool.readers import SpoolReader
from headgate.share_groups.spool.removals import SpoolRemovals
from headgate.share_groups.spool.writer import SpoolWriter

log = structlog.get_logger()

_TICK_S: Final = 1.0
_PAUSE_S: Final = 0.02  # between rounds: records of the spool come in batches
_BATCH_LETTERS: Final = 1_000  # read at once
_WRITE_LETTERS: Final = 250  # written at once: more would delay clients
_BATCH_BYTES: Final = 1024 * 1024
_SLOTS: Final = 4  # batches in memory
_MAX_UNREMOVED: Final = 5_000  # moved, and not read as removed: more are not moved before
_MAX_PROBES, _TOPIC_PROBES = 64, 4
_WRITE_S, _PROBE_S = 2.0, 10.0
_UNREAD_S: Final = 5.0  # until a partition of the spool that could not be read is tried again
_PARKED_S: Final = 60.0
_PARKED_LETTERS: Final = 100
_PARK_S: Final = 5.0
_REPORT_AGAIN_MS: Final = 15_000  # deadlines before a term: the last leader may not have reported them
_WAITS: Final = "it waits in the spool"
_TOO_LARGE: Final = "too large for its topic, also without the copy of its record"
_NO_TOPIC: Final = "its topic does not exist, and is not configured for any group"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolClients:
    """`replayed` is set while the index has all of the spool: not before its end was reached, or reached again."""

    letters: DeadLetterWriter
    spool: SpoolWriter
    reader: SpoolReader
    replayed: asyncio.Event


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


Found = Sequence[tuple[SpoolPlace, SpooledLetter]]


class SpoolMover:
    """Runs after `open`; it moves dead letters from `start` to `stop`, the term of a leader."""

    def __init__(
        self, *, index: SpoolIndex, states: ShareStates, clock: Clock, meter: ShareMeter, reports: DeadLetterReports
    ) -> None:
        self._index = index
        self._states = states
        self._clock = clock
        self._meter = meter
        self._reports = reports
        self._clients: SpoolClients | None = None
        self._tasks = TaskSet(self._on_failure)
        self._changed = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []  # for a change of the index
        self._slots = asyncio.Semaphore(_SLOTS)
        self._topics: dict[str, _Topic] = {}
        self._probes = 0  # in all topics
        self._removals = SpoolRemovals(index, clock)
        self._unread: dict[int, float] = {}  # partitions of the spool, and when they are tried again
        self._problems: dict[str, str] = {}  # the last failure of each topic
        self._parked_at = -math.inf
        self._is_retrying = False  # the parked ones
        self._is_leading = False
        self._is_new_term = True
        self._skipped: dict[str, int] = {}  # parked ones that are still too large, by topic
        self._reported_s = 0  # deadlines before this second are reported

    def open(self, clients: SpoolClients) -> None:
        self._clients = clients
        self._removals.open(clients.spool)

    def wake(self) -> None:
        """The index has changed."""
        self._changed.set()
        waiters, self._waiters = self._waiters, []
        for one in waiters:
            if not one.done():
                one.set_result(None)

    @property
    def is_replayed(self) -> bool:
        """Whether the spool was read to its end."""
        return self._clients is not None and self._clients.replayed.is_set()

    def start(self) -> None:
        self._is_leading = self._is_new_term = True
        self._changed.set()

    async def stop(self) -> None:
        """End all work; what was written and not removed yet is moved again by the next leader."""
        self._is_leading = False
        await self._tasks.cancel_all()
        for kept in (self._topics, self._problems, self._skipped, self._unread):
            kept.clear()
        self._removals.clear()
        self._probes, self._is_retrying, self._parked_at = 0, False, -math.inf  # a task may not have begun
        if self._clients is not None:
            await self._clients.reader.close()

    def _on_failure(self, failure: BaseException) -> None:
        self._meter.failures += 1
        log.error("task of the share groups failed", exc_info=failure)

    @property
    def _opened(self) -> SpoolClients:
        if self._clients is None:
            raise ClusterError("the spool is not open")
        return self._clients

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
            self._is_new_term = True  # it is read again, with deadlines that were reported
            return
        now, now_ms = self._clock.monotonic(), self._clock.epoch_ms()
        if not self._is_leading or self._is_new_term:
            self._index.drop_expired(now_ms - _REPORT_AGAIN_MS)
        if not self._is_leading:
            return
        self._is_new_term = False
        while (expired := self._index.take_expired(now_ms)) is not None:
            self._report_expired(expired)
            await asyncio.sleep(0)
        self._reported_s = now_ms // 1000
        self._tasks.spawn(self._removals.repeat())
        targets = self._index.targets()
        for target in targets:
            self._serve(target, self._topics.setdefault(target, _Topic()), now)
        for target in self._topics.keys() - set(targets):
            if self._topics[target].is_idle:
                del self._topics[target]
                self._problems.pop(target, None)
        if now >= self._parked_at + _PARKED_S and not self._is_retrying and self._index.parked_targets():
            self._parked_at, self._is_retrying = now, True
            self._tasks.spawn(self._retry_parked())

    def _report_expired(self, places: Sequence[SpoolPlace]) -> None:
        expired: dict[tuple[SpoolLane, str], list[int]] = {}
        for one in places:
            if not self._removals.covers(one):
                expired.setdefault((one.lane, one.target), []).append(one.offset)
        for (lane, target), offsets in expired.items():
            reason = self._problems.get(target, _WAITS)
            ranges = offset_ranges(sorted(offsets))
            self._reports.add_failed(lane, ranges, dlq_topic=target, reason=reason, is_spooled=True)

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

    def _pick(self, target: str, topic: _Topic, *, most: int = _BATCH_LETTERS) -> list[SpoolPlace]:
        """The next dead letters of the lanes that do not fail, in the order of each."""
        picked: dict[LetterIdentity, SpoolPlace] = {}
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
                if taken == share or self._is_unread(place):
                    break
                if len(picked) == most or (picked and size + place.size > _BATCH_BYTES):
                    return list(picked.values())
                picked[place.identity] = place
                size += place.size
                taken += 1
        return list(picked.values())

    def _is_unread(self, place: SpoolPlace) -> bool:
        return self._unread.get(place.spool_partition, 0) > self._clock.monotonic()

    def _first(self, target: str, lane: SpoolLane) -> SpoolPlace | None:
        """The next dead letter of a lane."""
        return next((one for one in self._index.waiting(target, lane) if not self._removals.covers(one)), None)

    def _may_read(self, target: str, lane: SpoolLane) -> bool:
        first = self._first(target, lane)
        return first is None or not self._is_unread(first)

    async def _move(self, target: str, topic: _Topic) -> None:
        try:
            while True:
                async with self._slots:
                    batch = self._pick(target, topic)  # not before: what can be read may have changed meanwhile
                    if not batch:
                        return
                    topic.served += 1
                    found, missing = await self._read(batch)
                    failing: dict[SpoolLane, None] = {}
                    for begin in range(0, len(found), _WRITE_LETTERS):
                        some = [one for one in found[begin : begin + _WRITE_LETTERS] if one[1].lane not in failing]
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
            if self._is_unread(first):  # another probe tries its partition
                return
            found, _ = await self._read([first])
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

    async def _read(self, places: Sequence[SpoolPlace]) -> tuple[Found, dict[SpoolLane, None]]:
        """The dead letters, those of a lane up to the first that could not be read; and the lanes of such ones."""
        partitions = {one.spool_partition for one in places}
        again_at = self._clock.monotonic() + _UNREAD_S
        self._unread |= dict.fromkeys(self._unread.keys() & partitions, again_at)  # one read at a time tries them again
        read = await self._opened.reader.read(places)
        for one in partitions - read.unread:
            self._unread.pop(one, None)
        self._unread |= dict.fromkeys(read.unread, self._clock.monotonic() + _UNREAD_S)
        found: list[tuple[SpoolPlace, SpooledLetter]] = []
        missing: dict[SpoolLane, None] = {}
        for place in places:
            letter = read.letters.get((place.spool_partition, place.spool_offset))
            if letter is None:
                missing[place.lane] = None
            elif place.lane not in missing:
                found.append((place, letter))
        return found, missing

    async def _write_or_park(self, target: str, topic: _Topic, found: Found) -> dict[SpoolLane, None]:
        """Returns the lanes that failed."""
        if topic.is_gone and await self._is_gone(target):
            return await self._park(found, _NO_TOPIC)
        topic.is_gone = False
        return await self._write(target, topic, found, _WRITE_S)

    async def _write(self, target: str, topic: _Topic, found: Found, deadline_s: float) -> dict[SpoolLane, None]:
        """Write the dead letters, and park those that are too large; returns the lanes that failed."""
        failing: dict[SpoolLane, None] = {}
        too_large: list[tuple[SpoolPlace, SpooledLetter]] = []
        is_missing = False
        self._problems.pop(target, None)
        for (place, letter), failure in zip(found, await self._attempt(target, found, deadline_s), strict=True):
            if failure is None:
                continue
            if failure.cause is WriteFailureCause.TOO_LARGE:
                too_large.append((place, letter))
            else:
                failing[letter.lane] = None
                self._problems[target] = failure.text
                is_missing = failure.cause is WriteFailureCause.NO_TOPIC
        if failing:
            topic.is_gone = is_missing and not self._is_configured(target)
        return failing | await self._park(too_large, _TOO_LARGE)

    async def _attempt(self, target: str, found: Found, deadline_s: float) -> list[WriteFailure | None]:
        """Write the dead letters, and those that are too large once more without the copies of their records."""
        writer = self._opened.letters
        letters = [letter for _, letter in found]
        results = await writer.write(target, letters, deadline_s, self._on_late)
        shrunk = {
            number: _without_copy(letters[number], failure.text)
            for number, failure in enumerate(results)
            if failure is not None and failure.cause is WriteFailureCause.TOO_LARGE and _has_copy(letters[number])
        }
        if shrunk:
            again = await writer.write(target, list(shrunk.values()), deadline_s, self._on_late)
            for number, failure in zip(shrunk, again, strict=True):
                results[number] = failure
        self._finish([one for one, failure in zip(letters, results, strict=True) if failure is None])
        return results

    def _is_configured(self, target: str) -> bool:
        states = self._states
        return any(states.of(group).settings.dlq_topic == target for group in states.groups())

    async def _is_gone(self, target: str) -> bool:
        if self._is_configured(target):
            return False
        try:
            info = await self._opened.letters.describe_topic(target)
        except ClusterError:
            return False
        return info.partitions == 0 and info.problem is None

    # --- moved ones

    def _on_late(self, letter: SpooledLetter) -> None:
        """It was written after the deadline of its attempt."""
        self._finish([letter])

    def _finish(self, letters: Sequence[SpooledLetter]) -> None:
        """Remove dead letters from the spool that are in their topic now."""
        for one in letters:
            self._meter.count(self._meter.moved, one.group, 1)
            if one.deadline // 1000 < self._reported_s:  # only what was reported as missing arrives late
                self._reports.add_late(one.identity)
        if letters:
            self._removals.add(letters)
            self._tasks.spawn(self._removals.remove([one.identity for one in letters]))

    # --- parked ones

    async def _park(self, found: Found, reason: str) -> dict[SpoolLane, None]:
        """Write their records again, with the reason; returns the lanes of those that could not be written."""
        fresh = [(place, letter) for place, letter in found if place.parked is None]
        written: list[tuple[int, int]] = []
        failing: dict[SpoolLane, None] = {}
        parked: list[SpooledLetter] = []
        for partition in {place.spool_partition for place, _ in fresh}:
            letters = [replace(one, parked=reason) for place, one in fresh if place.spool_partition == partition]
            results = await self._opened.spool.write(
                letters, _PARK_S, on_written=lambda _, *place: written.append(place), partition=partition
            )
            for one, failure in zip(letters, results, strict=True):
                if failure is None:
                    parked.append(one)
                else:
                    failing[one.lane] = None
        if parked:
            self._reports.on_parked(parked, reason)
        await self._until(lambda: all(self._index.has_read(*place) for place in written))
        return failing

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Return when the index has what was written, or after a few seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARK_S):
                while not condition():
                    change = asyncio.get_running_loop().create_future()
                    self._waiters.append(change)
                    await change

    async def _retry_parked(self) -> None:
        try:
            for target in self._index.parked_targets():
                await self._retry_parked_of(target)
        finally:
            self._is_retrying = False

    async def _retry_parked_of(self, target: str) -> None:
        """Try a few of them; when one is written, try the rest at once."""
        skip = self._skipped.pop(target, 0)
        if not self._index.parked(target, skip, 1):
            skip = 0
        while places := [
            one for one in self._index.parked(target, skip, _PARKED_LETTERS) if not self._removals.covers(one)
        ]:
            async with self._slots:
                found, _ = await self._read(_within(places))
                if not found or await self._is_gone(target):
                    return
                results = await self._attempt(target, found, _WRITE_S)
            if any(one is not None and one.cause is not WriteFailureCause.TOO_LARGE for one in results):
                return
            skip += len(results) - results.count(None)
            if None not in results:  # all are still too large: the next ones are tried the next time
                self._skipped[target] = skip
                return
            moved = [place for (place, _), failure in zip(found, results, strict=True) if failure is None]
            await self._until(partial(self._are_removed, moved))

    def _are_removed(self, places: Sequence[SpoolPlace]) -> bool:
        return not any(self._index.places(one.identity) for one in places)


def _has_copy(letter: SpooledLetter) -> bool:
    return letter.key is not None or letter.value is not None


def _without_copy(letter: SpooledLetter, why: str) -> SpooledLetter:
    return replace(letter, key=None, value=None, headers=(*letter.headers, (COPY_PROBLEM, why.encode())))


def _within(places: Sequence[SpoolPlace]) -> list[SpoolPlace]:
    """The first of them that are not too much for the memory."""
    sizes = accumulate(one.size for one in places)
    return [one for one, size in zip(places, sizes, strict=True) if one is places[0] or size <= _BATCH_BYTES]
