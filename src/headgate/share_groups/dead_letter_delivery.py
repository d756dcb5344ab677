"""Dead letters of one worker: from offsets that must not be delivered again to records in the group's topic.

A request waits `hold_max_ms` at most for the dead-letter topic, and not at all while that topic is known to fail. What
is not in the topic by then goes to the spool, from which the leader moves it. Nothing here holds a request beyond the
deadline that it is given, and nothing is reported here but late arrivals: whether the record of a missing dead letter
was archived is known when the broker has answered.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.base.tasks import TaskSet
from headgate.proxy.interceptor import Session
from headgate.share_groups.dead_letter_reports import DeadLetterReports
from headgate.share_groups.dead_letter_writer import DeadLetterWriter, WriteFailure, WriteFailureCause
from headgate.share_groups.fact_outbox import FactOutbox
from headgate.share_groups.late_arrivals import LateArrivals
from headgate.share_groups.model.dead_letter_records import (
    DeadLetter,
    DeadLetterChunk,
    DeadLetterOutcome,
    DeadLetterRange,
    DeadLetterSource,
    Numbered,
    RecordCopy,
    chunks,
    offset_ranges,
    record_count,
    topic_id_text,
)
from headgate.share_groups.model.group_configs import GroupSettings
from headgate.share_groups.record_lookup import RecordLookup
from headgate.share_groups.share_metrics import ShareMeter
from headgate.share_groups.spool.model.records import (
    DeadLetterIdentity,
    SpooledDeadLetter,
    SpoolLane,
    SpoolSequence,
    SpoolView,
)
from headgate.share_groups.spool.model.routes import SpoolRoutes
from headgate.share_groups.spool.writer import SpoolWriter
from headgate.wire.primitives import Buffer

log = structlog.get_logger()

MAX_OFFSETS: Final = 10_000  # of one request; by default a broker lets a member hold 2,000 of a partition
_BATCH: Final = 200
_COPY_BATCH: Final = 20  # looked up together: each may be as large as its topic allows
_BATCH_BYTES: Final = 4 * 1024 * 1024
_SLOW_S: Final = 0.05  # of a look-up: what is ready is then written without waiting for more
_DRAIN_POLL_S: Final = 0.005

_MAX_REPLAY_S: Final = 10.0

_MAX_RESERVE_S: Final = 2.0  # of the time of a request: for topic and spool, whatever the look-ups take

_LATE_COPY: Final = RecordCopy(problem="the record could not be read in time")
_NO_METADATA: Final = WriteFailure(WriteFailureCause.UNREACHABLE, "no metadata of the topic came")
_NOT_OPEN: Final = "share groups are not available"
_FAILING: Final = frozenset(
    {WriteFailureCause.UNREACHABLE, WriteFailureCause.NO_TOPIC, WriteFailureCause.NOT_ALLOWED}
)  # of the whole topic


class _Fate(Enum):
    """The outcome of a dead letter that was not in its topic when the wait for it ended."""

    WAITING = auto()
    SPOOLED = auto()
    LOST = auto()
    ARRIVED = auto()  # in its topic after all


@dataclass(slots=True, eq=False)
class _Delivery:
    """The dead letters of one call; `hold_s` is what is left of the wait for their topic.

    `failed` has, for each range, the offsets whose dead letters are in neither topic nor spool, and why.
    """

    settings: GroupSettings
    topic: str
    session: Session
    until: float
    hold_s: float
    failed: list[dict[int, str]]
    names: dict[bytes, str] = field(default_factory=dict)  # each is requested once
    max_message_bytes: int | None = None  # of the dead-letter topic, once it is known


class DeadLetterDelivery:
    """Writes dead letters to their topic or to the spool, but not before `open`, when the service has its writers.

    Until `is_replayed` it is not known which lanes have dead letters in the spool.
    """

    def __init__(
        self,
        *,
        view: SpoolView,
        is_replayed: Callable[[], bool],
        hold_max_s: float,
        outbox: FactOutbox,
        tasks: TaskSet,
        clock: Clock,
        meter: ShareMeter,
    ) -> None:
        self._hold_max_s = hold_max_s
        self._is_replayed = is_replayed
        self._opened_at = 0.0
        self._tasks = tasks
        self._clock = clock
        self._meter = meter
        self._records = RecordLookup()
        self._writer: DeadLetterWriter | None = None
        self._spool: SpoolWriter | None = None
        self._routes = SpoolRoutes(view)
        self._throttle = LogThrottle(clock.monotonic)
        self._sequence = SpoolSequence()
        self._arrived: list[DeadLetterIdentity] = []  # in their topics after they were spooled
        self._cluster = ""
        self.reports = DeadLetterReports(outbox=outbox, meter=meter, known_name=self.known_name)
        self._late = LateArrivals(self.reports, remove=self._remove_from_spool, clock=clock, tasks=tasks)

    def open(self, writer: DeadLetterWriter, spool: SpoolWriter, cluster: str) -> None:
        self._writer = writer
        self._spool = spool
        self._cluster = cluster
        self._opened_at = self._clock.monotonic()

    def keep_records(self, group: str, topic_id: bytes, partition: int, records: Buffer) -> None:
        """Keep the records of a response: a dead letter can have a copy of one."""
        self._records.keep(group, topic_id, partition, records)

    async def readable_topics(self, topic_ids: Collection[bytes], session: Session) -> Collection[bytes]:
        return await self._records.readable_topics(topic_ids, session)

    def known_name(self, topic_id: bytes) -> str | None:
        return self._records.known_name(topic_id)

    def report_failed(self, settings: GroupSettings, some: DeadLetterRange, outcome: DeadLetterOutcome) -> None:
        """Report records that the broker archived without their dead letters."""
        if outcome.failed:
            group, member, topic_id, partition = some.key
            lane = SpoolLane(group, topic_id, partition)
            self.reports.add_failed(
                lane, outcome.failed, dlq_topic=settings.dlq_topic, reason=outcome.reason, member=member
            )

    async def write(
        self, settings: GroupSettings, ranges: Sequence[DeadLetterRange], session: Session, deadline_s: float
    ) -> list[DeadLetterOutcome]:
        """The outcome of each range of one group, in order; raises nothing but `CancelledError`."""
        topic = settings.dlq_topic
        assert topic is not None
        until = self._clock.monotonic() + deadline_s
        one = _Delivery(settings, topic, session, until, self._hold_max_s, [{} for _ in ranges])
        reserve_s = min(_MAX_RESERVE_S, deadline_s / 2)
        ready: list[Numbered] = []
        size = 0  # of the copies among them
        at_once, kept_batch = (_COPY_BATCH, self._records.kept_batch) if settings.copy_record else (_BATCH, None)
        for chunk in chunks(ranges, at_once, kept_batch):
            copies: Mapping[int, RecordCopy] = {}
            is_slow = False
            if settings.copy_record or not self._is_named(one, chunk):
                began = self._clock.monotonic()
                try:
                    async with asyncio.timeout(max(0.0, self._left_s(one) - reserve_s)):
                        copies = await self._look_up(one, chunk)
                except TimeoutError:
                    one.names.setdefault(chunk.topic_id, topic_id_text(chunk.topic_id))
                    copies = dict.fromkeys(chunk.offsets, _LATE_COPY) if settings.copy_record else {}
                is_slow = settings.copy_record and self._clock.monotonic() - began > _SLOW_S
            name = one.names[chunk.topic_id]
            ready += chunk.dead_letters(copies, cluster=self._cluster, topic=name, at=self._clock.epoch_ms())
            size += sum(len(copy.key or b"") + len(copy.value or b"") for copy in copies.values())
            if len(ready) >= _BATCH or size >= _BATCH_BYTES or is_slow:
                await self._write_some(one, ready)
                ready, size = [], 0
        await self._write_some(one, ready)
        outcomes = [_outcome(some, lost) for some, lost in zip(ranges, one.failed, strict=True)]
        written = sum(record_count(outcome.written) for outcome in outcomes)
        if ranges:
            self._meter.count(self._meter.dead_letters, ranges[0].key[0], written)
        return outcomes

    def _is_named(self, one: _Delivery, chunk: DeadLetterChunk) -> bool:
        """Whether the topic's name is known without a request."""
        if chunk.topic_id not in one.names:
            name = self._records.shown_name(chunk.topic_id, one.session, is_held=chunk.is_held)
            if name is None:
                return False
            one.names[chunk.topic_id] = name
        return True

    async def _look_up(self, one: _Delivery, chunk: DeadLetterChunk) -> Mapping[int, RecordCopy]:
        """The topic's name, into `names`, and copies of the records if the group wants them."""
        group, _, topic_id, partition = chunk.key
        if topic_id not in one.names:
            one.names[topic_id] = await self._records.topic_name(topic_id, one.session, is_held=chunk.is_held)
        if not one.settings.copy_record:
            return {}
        return await self._records.copies(
            group,
            topic_id,
            partition,
            chunk.offsets,
            one.session,
            max_message_bytes=await self._max_message_bytes(one),
            is_held=chunk.is_held,
        )

    async def _max_message_bytes(self, one: _Delivery) -> int | None:
        """The dead-letter topic's limit; None when it is not known. A failing topic is not asked for it."""
        if one.max_message_bytes is not None:
            return one.max_message_bytes
        if self._writer is None or self._routes.is_failing(one.topic):
            return None
        began, hold_s = self._clock.monotonic(), one.hold_s
        try:
            async with asyncio.timeout(hold_s):
                one.max_message_bytes = (await self._writer.describe_topic(one.topic)).max_message_bytes
                return one.max_message_bytes
        except ClusterError:
            return None
        except TimeoutError:
            self._judge(one.topic, [_NO_METADATA], hold_s)  # nothing is left of the wait for a write to do so
            return None
        finally:
            one.hold_s = max(0.0, hold_s - (self._clock.monotonic() - began))

    def _left_s(self, one: _Delivery) -> float:
        return max(0.0, one.until - self._clock.monotonic())

    # --- topic or spool

    async def _write_some(self, one: _Delivery, some: Sequence[Numbered]) -> None:
        """Write to the topic, and to the spool what does not go there or is not there in time."""
        if not some:
            return
        if self._writer is None or self._spool is None:
            for index, dead_letter in some:
                one.failed[index][dead_letter.offset] = _NOT_OPEN
            return
        direct: Sequence[Numbered] = ()
        now = self._clock.monotonic()
        # A spool that cannot be read must not keep dead letters from their topics.
        is_known = self._is_replayed() or now - self._opened_at > _MAX_REPLAY_S
        if is_known and self._routes.may_try(one.topic, now):
            sources = {dead_letter.source for _, dead_letter in some}
            await self._until_drained(one, {_lane(source) for source in sources})
            behind = {source for source in sources if self._routes.has_dead_letters(_lane(source))}
            direct = [numbered for numbered in some if numbered[1].source not in behind] if behind else some
            left = [_Unwritten(*numbered) for numbered in some if numbered[1].source in behind] if behind else []
        else:
            left = [_Unwritten(*numbered) for numbered in some]
        fates: dict[DeadLetterIdentity, _Fate] = {}
        left += await self._write_to_topic(one, self._writer, direct, fates)
        await self._write_to_spool(one, self._spool, left, fates)

    async def _until_drained(self, one: _Delivery, lanes: Collection[SpoolLane]) -> None:
        """Wait while the leader moves the last dead letters of these lanes; half of the time is for the topic."""
        lanes = [lane for lane in lanes if self._routes.has_dead_letters(lane) and self._routes.is_draining(lane)]
        if not lanes:
            return
        began = self._clock.monotonic()
        until = began + min(one.hold_s, self._left_s(one) / 2) / 2
        while lanes and self._clock.monotonic() < until:
            await asyncio.sleep(_DRAIN_POLL_S)
            lanes = [lane for lane in lanes if self._routes.has_dead_letters(lane)]
        for lane in lanes:
            self._routes.stop_waiting(lane)
        one.hold_s = max(0.0, one.hold_s - (self._clock.monotonic() - began))

    async def _write_to_topic(
        self, one: _Delivery, writer: DeadLetterWriter, some: Sequence[Numbered], fates: dict[DeadLetterIdentity, _Fate]
    ) -> "list[_Unwritten]":
        """Write to the topic, a dead letter that is too large once more without its copy; returns the others."""
        if not some or one.hold_s <= 0:
            return [_Unwritten(*numbered) for numbered in some]
        began = self._clock.monotonic()
        hold_s = min(one.hold_s, self._left_s(one) / 2)  # where the lock ends soon, half of the time is the spool's
        results = await writer.write(
            one.topic,
            [dead_letter for _, dead_letter in some],
            hold_s,
            lambda dead_letter: self._on_late(one, dead_letter, fates),
        )
        one.hold_s = max(0.0, one.hold_s - (self._clock.monotonic() - began))
        left: list[_Unwritten] = []
        bare: list[Numbered] = []
        for (index, dead_letter), failure in zip(some, results, strict=True):
            if failure is None:
                continue
            is_too_large = failure.cause is WriteFailureCause.TOO_LARGE
            if is_too_large and (dead_letter.key is not None or dead_letter.value is not None):
                bare.append((index, replace(dead_letter, key=None, value=None, copy_problem=failure.text)))
            else:
                left.append(_Unwritten(index, dead_letter, failure.text if is_too_large else None))
        self._judge(one.topic, results, hold_s)
        return left + await self._write_to_topic(one, writer, bare, fates)

    def _judge(self, topic: str, results: Sequence[WriteFailure | None], hold_s: float) -> None:
        """Remember whether the topic accepts dead letters; a wait that was cut short says nothing about it."""
        failures = [one for one in results if one is not None and one.cause in _FAILING]
        if failures and (hold_s >= self._hold_max_s / 2 or failures[0].cause is not WriteFailureCause.UNREACHABLE):
            if self._routes.mark_failing(topic, self._clock.monotonic()) and self._throttle.allows("failing", topic):
                log.warning("dead letters go to the spool", dlq_topic=topic, reason=failures[0].text)
        elif not failures and None in results:
            self._routes.mark_healthy(topic)

    async def _write_to_spool(
        self, one: _Delivery, spool: SpoolWriter, some: "Sequence[_Unwritten]", fates: dict[DeadLetterIdentity, _Fate]
    ) -> None:
        """Write to the spool; a dead letter that reaches its topic meanwhile is removed from the spool again."""
        dead_letters: list[tuple[int, SpooledDeadLetter]] = []
        for unwritten in some:
            dead_letter = self._spooled(one, unwritten)
            if fates.get(dead_letter.identity) is _Fate.ARRIVED:
                continue
            refusal = self._routes.refusal(dead_letter)
            if refusal is None:
                self._routes.begin(dead_letter)
                dead_letters.append((unwritten.index, dead_letter))
            else:
                one.failed[unwritten.index][dead_letter.offset] = refusal
                fates[dead_letter.identity] = _Fate.LOST
        if not dead_letters:
            return
        try:
            results = await spool.write(
                [dead_letter for _, dead_letter in dead_letters],
                self._left_s(one),
                on_written=self._routes.confirm,
                on_late=lambda dead_letter, partition, offset: self._on_late_in_spool(
                    dead_letter, partition, offset, fates
                ),
            )
        finally:
            for _, dead_letter in dead_letters:
                self._routes.end(dead_letter)
        for (index, dead_letter), failure in zip(dead_letters, results, strict=True):
            if fates.get(dead_letter.identity) is _Fate.ARRIVED:
                if failure is None:
                    self._remove_later(dead_letter.identity)
            elif failure is None:
                fates[dead_letter.identity] = _Fate.SPOOLED
            else:
                fates[dead_letter.identity] = _Fate.LOST
                one.failed[index][dead_letter.offset] = failure.text

    # --- late arrivals

    def _on_late(self, one: _Delivery, dead_letter: DeadLetter, fates: dict[DeadLetterIdentity, _Fate]) -> None:
        """A dead letter is in its topic after the wait for it ended: it must not be moved there once more."""
        self._routes.mark_healthy(one.topic)
        fate = fates.get(dead_letter.identity)
        fates[dead_letter.identity] = _Fate.ARRIVED
        if fate is _Fate.LOST:
            self.reports.add_late(dead_letter.identity)
        elif fate is _Fate.SPOOLED:
            if self._clock.epoch_ms() > dead_letter.source.at + one.settings.write_timeout_ms:
                self._late.add([dead_letter.identity])
            else:
                self._remove_later(dead_letter.identity)

    def _on_late_in_spool(
        self, dead_letter: SpooledDeadLetter, partition: int, offset: int, fates: dict[DeadLetterIdentity, _Fate]
    ) -> None:
        self._routes.confirm(dead_letter, partition, offset)
        if fates.get(dead_letter.identity) is _Fate.ARRIVED:
            self._remove_later(dead_letter.identity)
        else:
            fates[dead_letter.identity] = _Fate.SPOOLED
            self.reports.add_late(dead_letter.identity)

    def _remove_later(self, dead_letter: DeadLetterIdentity) -> None:
        """Delivery reports come by the hundred: their tombstones are written together."""
        self._arrived.append(dead_letter)
        if len(self._arrived) == 1:
            self._tasks.spawn(self._remove())

    async def _remove(self) -> None:
        """If a tombstone fails, nothing is lost: its dead letter is written twice, as any may be."""
        arrived, self._arrived = self._arrived, []
        await self._remove_from_spool(arrived)

    async def _remove_from_spool(self, dead_letters: Sequence[DeadLetterIdentity]) -> None:
        assert self._spool is not None
        await self._spool.remove(dead_letters)

    # --- records

    def _spooled(self, one: _Delivery, unwritten: "_Unwritten") -> SpooledDeadLetter:
        dead_letter, source = unwritten.dead_letter, unwritten.dead_letter.source
        return SpooledDeadLetter(
            group=source.group,
            topic_id=source.topic_id,
            partition=source.partition,
            offset=dead_letter.offset,
            key=dead_letter.key,
            value=dead_letter.value,
            headers=tuple(dead_letter.headers),
            target=one.topic,
            deadline=source.at + one.settings.write_timeout_ms,
            sequence=self._sequence.next(self._clock.epoch_ms()),
            parked=unwritten.parked,
        )


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """A dead letter for the spool; `parked` is the reason why its topic will not take it."""

    index: int
    dead_letter: DeadLetter
    parked: str | None = None


def _lane(source: DeadLetterSource) -> SpoolLane:
    return SpoolLane(source.group, source.topic_id, source.partition)


def _outcome(some: DeadLetterRange, failed: Mapping[int, str]) -> DeadLetterOutcome:
    if not failed:
        return DeadLetterOutcome(((some.first, some.last),), ())
    written = offset_ranges(offset for offset in range(some.first, some.last + 1) if offset not in failed)
    return DeadLetterOutcome(written, offset_ranges(sorted(failed)), next(iter(failed.values())))
