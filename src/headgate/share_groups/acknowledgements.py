"""Deliveries and acknowledgements of one worker, from the acquired records to the broker's response.

A disposition is counted when the broker answered error code 0 for its partition, and not before. A dead letter is
written before its REJECT is forwarded; if the broker then refuses it, an event withdraws the dead letter, because its
record will be delivered again. A 4.3.1 broker names every partition whose acknowledgements it processed (observed): one
that it does not name is not acknowledged.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.base.clock import Clock
from headgate.base.tasks import TaskSet
from headgate.facts import DispositionsCounted
from headgate.proxy.interceptor import Session
from headgate.share_groups.broker_configs import DeliveryLimits
from headgate.share_groups.dead_letter_delivery import MAX_OFFSETS, DeadLetterDelivery
from headgate.share_groups.deferred_acks import DeferredAck, DeferredAcks, TopicPartitionKey
from headgate.share_groups.fact_outbox import FactOutbox
from headgate.share_groups.model.dead_letter_ranges import DeadLetterOutcome, DeadLetterRange, record_count
from headgate.share_groups.model.dead_letter_records import Cause, topic_id_text
from headgate.share_groups.model.delivery_ledger import AcquiredRange, AcquisitionLocks, DeliveryLedger, PartitionKey
from headgate.share_groups.model.dispositions import AckRun, AckType, DispositionKind, Dispositions
from headgate.share_groups.model.group_configs import GroupSettings
from headgate.share_groups.model.group_state import ShareStates
from headgate.share_groups.share_metrics import ShareMeter
from headgate.wire.primitives import Buffer, read_uvarint
from headgate.wire.share_requests import Acquired, ShareFetchSummary, ShareRequest

LAST_EPOCH: Final = -1
_MAX_LOCKS: Final = 100_000
_MAX_ACQUIRED_RANGES: Final = 1_000_000
_LOCK_MARGIN_S: Final = 2.0  # of a lock: the acknowledgement has to reach the broker
_MIN_HOLD_S: Final = 0.1
# For many dead letters that are being written: topic and spool bound the time for which they are not.
MAX_HOLD_S: Final = 10.0
# A record acquired through another gateway or before a restart counts only before the first trip of its group.
_UNKNOWN_GENERATION: Final = 0
_PENDING: Final = "it was still being written when its member acknowledged for the last time"
_TOO_MANY: Final = f"more than {MAX_OFFSETS} records were rejected at once"
_KINDS: Final = {
    AckType.ACCEPT: DispositionKind.ACCEPTED,
    AckType.RELEASE: DispositionKind.RELEASED,
    AckType.REJECT: DispositionKind.REJECTED,
}


@dataclass(slots=True, eq=False)
class PartitionAcknowledgements:
    """The acknowledgements of one partition, and what became of its dead letters.

    `rejected` gets dead letters; `over_bound` is rejected too, and too many for the dead letters of one request.
    `is_added`: the client itself acknowledges nothing in this partition.
    """

    key: PartitionKey
    runs: tuple[AckRun, ...] = ()
    deferred: list[DeferredAck] = field(default_factory=list)
    rejected: list[DeadLetterRange] = field(default_factory=list)
    over_bound: list[DeadLetterRange] = field(default_factory=list)
    outcomes: list[tuple[DeadLetterRange, DeadLetterOutcome]] = field(default_factory=list)
    is_added: bool = False


@dataclass(slots=True, eq=False)
class RequestAcks:
    """All acknowledgements of one ShareFetch or ShareAcknowledge, with the group's settings when it arrived."""

    group: str
    member: str
    settings: GroupSettings
    partitions: dict[TopicPartitionKey, PartitionAcknowledgements]

    @property
    def rejected(self) -> list[DeadLetterRange]:
        return [one for partition in self.partitions.values() for one in partition.rejected]

    @property
    def deferred_ranges(self) -> dict[TopicPartitionKey, list[tuple[int, int]]]:
        return {
            key: [(one.range.first, one.range.last) for one in partition.deferred]
            for key, partition in self.partitions.items()
            if partition.deferred
        }

    @property
    def added(self) -> set[TopicPartitionKey]:
        return {key for key, partition in self.partitions.items() if partition.is_added}

    @property
    def outcomes(self) -> Iterable[tuple[DeadLetterRange, DeadLetterOutcome]]:
        for partition in self.partitions.values():
            yield from partition.outcomes


class AcknowledgementTracker:
    """Knows what the members of this worker hold, and follows each acknowledgement to the broker's response."""

    def __init__(
        self,
        *,
        states: ShareStates,
        limits: DeliveryLimits,
        dead_letters: DeadLetterDelivery,
        outbox: FactOutbox,
        tasks: TaskSet,
        clock: Clock,
        meter: ShareMeter,
    ) -> None:
        self._states = states
        self._limits = limits
        self._dead_letters = dead_letters
        self._outbox = outbox
        self._tasks = tasks
        self._clock = clock
        self._meter = meter
        self._deferred = DeferredAcks()
        self._dispositions = Dispositions()
        self._ledger = DeliveryLedger(_MAX_ACQUIRED_RANGES)
        self._locks = AcquisitionLocks(_MAX_LOCKS)

    @property
    def acquired_ranges(self) -> int:
        return len(self._ledger)

    @property
    def lost(self) -> int:
        """Records that could not be counted, because too many rows were waiting."""
        return self._dispositions.lost

    def drain(self, before_second: int) -> list[DispositionsCounted]:
        return self._dispositions.drain(
            before_second, at=self._clock.epoch_ms(), topic_name=self._dead_letters.known_name
        )

    # --- the request

    def read(
        self, share: ShareRequest, runs: Mapping[TopicPartitionKey, tuple[AckRun, ...]], *, carries_deferred: bool
    ) -> RequestAcks:
        """The client's acknowledgements, and the member's deferred ones if the request can carry them."""
        group, member = share.group or "", share.member or ""
        partitions = {place: PartitionAcknowledgements((group, member, *place), found) for place, found in runs.items()}
        if carries_deferred and self._deferred:
            is_last = share.session_epoch == LAST_EPOCH
            for deferred in self._deferred.take(group, member, self._clock.monotonic(), is_last=is_last):
                key = deferred.range.key
                partitions.setdefault(key[2:], PartitionAcknowledgements(key, is_added=True)).deferred.append(deferred)
        request = RequestAcks(group, member, self._states.of(group).settings, partitions)
        if request.settings.dlq_topic is not None:
            self._find_rejected(request)
        return request

    def _find_rejected(self, request: RequestAcks) -> None:
        left = MAX_OFFSETS
        for one in request.partitions.values():
            for first, last, ack in one.runs:
                if ack is not AckType.REJECT:
                    continue
                for known in _join(self._ledger.lookup(one.key, first, last)):
                    end = min(known.last, known.first + left - 1)
                    if end >= known.first:
                        one.rejected.append(_dead_letter_range(one.key, known._replace(last=end)))
                        left -= end - known.first + 1
                    if end < known.last:
                        one.over_bound.append(_dead_letter_range(one.key, known._replace(first=end + 1)))

    def hold_s(self, request: RequestAcks) -> float:
        """How long the request may wait for its dead letters: after that its locks have expired."""
        return self._hold_s([one.key for one in request.partitions.values()])

    def _hold_s(self, keys: Iterable[PartitionKey]) -> float:
        now = self._clock.monotonic()
        locks = (left_s for key in keys if (left_s := self._locks.left_s(key, now)) is not None)
        return max(_MIN_HOLD_S, min([MAX_HOLD_S, *(left_s - _LOCK_MARGIN_S for left_s in locks)]))

    async def write_dead_letters(self, request: RequestAcks, session: Session, hold_s: float) -> None:
        """Write the dead letters of all that the request rejects; their outcomes are in `request` afterwards.

        It runs to its end also when the client disconnects: the dead letters that are written by then are withdrawn.
        """
        writing = self._tasks.spawn(self._write(request, session, self._clock.monotonic() + hold_s))
        try:
            await asyncio.wait({writing})
        except asyncio.CancelledError:
            writing.add_done_callback(lambda _: self.withdraw(request, {"outcome": "not sent"}))
            raise

    async def _write(self, request: RequestAcks, session: Session, until: float) -> None:
        rejected = request.rejected
        if rejected:
            outcomes = await self._dead_letters.write(request.settings, rejected, session, self._left(until))
            for one, outcome in zip(rejected, outcomes, strict=True):
                _add_outcome(request, one, outcome)
        for partition in request.partitions.values():
            for deferred in partition.deferred:
                partition.outcomes.append((deferred.range, await self._deferred_outcome(deferred, until)))

    async def _deferred_outcome(self, deferred: DeferredAck, until: float) -> DeadLetterOutcome:
        writing = deferred.writing
        await asyncio.wait({writing}, timeout=self._left(until))
        if writing.done() and not writing.cancelled() and writing.exception() is None:
            return writing.result()[deferred.index]
        return deferred.range.failed(_PENDING)

    def _left(self, until: float) -> float:
        return max(0.0, until - self._clock.monotonic())

    # --- the response

    def settle(
        self, request: RequestAcks, codes: Mapping[TopicPartitionKey, int], error_code: int, *, is_last: bool
    ) -> None:
        """Count what the broker accepted: `error_code` is of the whole response, `is_last`: it ends the session."""
        second = self._clock.epoch_ms() // 1000
        for key, one in request.partitions.items():
            code = error_code or codes.get(key)
            if code is None:
                self._withdraw(request.group, one.outcomes, {"outcome": "not answered"})
            elif code:
                self._withdraw(request.group, one.outcomes, {"outcome": "refused", "error_code": code})
            else:
                self._count(request.settings, one, second)
        if is_last and not error_code:
            self._ledger.forget_member(request.group, request.member)

    def _count(self, settings: GroupSettings, one: PartitionAcknowledgements, second: int) -> None:
        """The broker has accepted the acknowledgements of this partition: what is rejected is archived now."""
        ledger, count, key = self._ledger, self._dispositions.count, one.key
        for first, last, ack in one.runs:
            if ack is AckType.RENEW:
                continue
            kind = _KINDS.get(ack)
            if kind is not None:
                for known in ledger.lookup(key, first, last):
                    generation = _UNKNOWN_GENERATION if known.generation is None else known.generation
                    count(key, generation, second, kind, known.last - known.first + 1, known.delivery_count)
            ledger.settle(key, first, last)
        for deferred in one.deferred:
            some = deferred.range
            count(key, some.generation, second, DispositionKind.OVER_LIMIT, some.count, some.delivery_count)
        for some, outcome in (*one.outcomes, *((some, some.failed(_TOO_MANY)) for some in one.over_bound)):
            self._dead_letters.report_failed(settings, some, outcome)
            for kind, found in (
                (DispositionKind.DEAD_LETTERED, outcome.written),
                (DispositionKind.WRITE_TIMEOUT, outcome.failed),
            ):
                number = record_count(found)
                if number:
                    count(key, some.generation, second, kind, number, some.delivery_count)

    def withdraw(self, request: RequestAcks, why: Mapping[str, object]) -> None:
        """Declare all dead letters of the request void: their records were not archived, or that is not known."""
        self._withdraw(request.group, request.outcomes, why)

    def _withdraw(
        self, group: str, outcomes: Iterable[tuple[DeadLetterRange, DeadLetterOutcome]], why: Mapping[str, object]
    ) -> None:
        for some, outcome in outcomes:
            if not outcome.written:
                continue
            self._meter.withdrawn += record_count(outcome.written)
            _, member, topic_id, partition = some.key
            detail = {
                "topic_id": topic_id_text(topic_id),
                "partition": partition,
                "offsets": [list(found) for found in outcome.written],
                "member": member,
                **why,
            }
            self._outbox.put_event("dead_letter_withdrawn", group, detail)

    # --- acquired records

    def acquire(
        self, request: RequestAcks, body: Buffer, answer: ShareFetchSummary, generation: int, session: Session
    ) -> dict[int, list[Acquired]]:
        """Record what the member acquired, and defer the rejection of what is over the limit.

        Returns the ranges that the member may get, for each partition (by index) of which it may not get all.
        """
        state = self._states.of(request.group)
        limit = self._limits.effective(state)
        kept: dict[int, list[Acquired]] = {}
        over_limit: list[DeadLetterRange] = []
        for index, one in enumerate(answer.partitions):
            if not one.acquired:
                continue
            key = (request.group, request.member, one.topic_id, one.partition)
            if state.settings.copy_record:
                _, begin = read_uvarint(body, one.records[0])
                records = memoryview(body)[begin : one.records[1]]
                self._dead_letters.keep_records(request.group, one.topic_id, one.partition, records)
            self._locks.begin(key, answer.lock_timeout_ms / 1000, self._clock.monotonic())
            left: list[Acquired] = []
            for found in one.acquired:
                self._meter.acquired += found.last - found.first + 1
                if limit is not None and found.delivery_count > limit:
                    over_limit.append(
                        DeadLetterRange(
                            key=key,
                            first=found.first,
                            last=found.last,
                            delivery_count=found.delivery_count,
                            generation=generation,
                            cause=Cause.OVER_LIMIT,
                        )
                    )
                else:
                    left.append(found)
                    self._ledger.acquire(key, found.first, found.last, found.delivery_count, generation)
            if len(left) < len(one.acquired):
                kept[index] = left
        if over_limit:
            self._defer(over_limit, state.settings, answer.lock_timeout_ms, session)
        return kept

    def _defer(
        self, over_limit: Sequence[DeadLetterRange], settings: GroupSettings, lock_ms: int, session: Session
    ) -> None:
        """Write the dead letters of one response; their REJECTs are added to the member's next request."""
        hold_s = self._hold_s([one.key for one in over_limit])
        writing = self._tasks.spawn(self._dead_letters.write(settings, over_limit, session, hold_s))
        until = self._clock.monotonic() + lock_ms / 1000 - _LOCK_MARGIN_S
        for index, one in enumerate(over_limit):
            self._meter.stripped += one.count
            self._deferred.add(DeferredAck(one, until, writing, index))


def _add_outcome(request: RequestAcks, some: DeadLetterRange, outcome: DeadLetterOutcome) -> None:
    request.partitions[some.key[2:]].outcomes.append((some, outcome))


def _dead_letter_range(key: PartitionKey, known: AcquiredRange) -> DeadLetterRange:
    return DeadLetterRange(
        key=key,
        first=known.first,
        last=known.last,
        delivery_count=known.delivery_count,
        generation=_UNKNOWN_GENERATION if known.generation is None else known.generation,
        cause=Cause.REJECTED,
    )


def _join(found: Sequence[AcquiredRange]) -> Iterable[AcquiredRange]:
    """Neighbours with the same history as one range: a broker acquires by batches, often of one record."""
    last: AcquiredRange | None = None
    for one in found:
        if last is not None and last[2:] == one[2:]:
            last = last._replace(last=one.last)
        else:
            if last is not None:
                yield last
            last = one
    if last is not None:
        yield last
