"""Deliveries and acknowledgements of one worker, from the acquired records to the broker's response.

A disposition is counted when the broker answered error code 0 for its partition, and not before. A dead letter is
written before its REJECT is forwarded; if the broker then refuses it, an event withdraws the dead letter, because its
record will be delivered again. A 4.3.1 broker names every partition whose acknowledgements it processed (observed): one
that it does not name is not acknowledged.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Final
from weakref import WeakKeyDictionary

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError, WireError
from headgate.base.tasks import TaskSet
from headgate.facts import DispositionsCounted
from headgate.proxy.interceptor import Session
from headgate.share_groups.broker_configs import DeliveryLimits
from headgate.share_groups.dead_letter_delivery import MAX_OFFSETS, DeadLetterDelivery
from headgate.share_groups.deferred_acks import LAST_EPOCH, DeferredAck, DeferredAcks, SessionKey, TopicPartitionKey
from headgate.share_groups.model.dead_letter_records import (
    Cause,
    DeadLetterOutcome,
    DeadLetterRange,
    PartitionKey,
    record_count,
)
from headgate.share_groups.model.delivery_ledger import (
    AckRun,
    AckType,
    DeliveryLedger,
    DispositionKind,
    Dispositions,
    HeldKey,
    Holder,
)
from headgate.share_groups.model.group_configs import GroupSettings
from headgate.share_groups.model.group_state import ShareStates
from headgate.share_groups.share_metrics import ShareMeter
from headgate.wire.primitives import Buffer, read_uvarint
from headgate.wire.share_requests import Acquired, ShareFetchSummary, ShareRequest

_MAX_ACQUIRED_RANGES: Final = 1_000_000
KEPT_S: Final = 3600.0  # after the end of its lock, which renewals move at the broker and not here
_EXPIRE_S: Final = 60.0
_LOCK_MARGIN_S: Final = 2.0  # of a lock: the acknowledgement has to reach the broker
_MIN_HOLD_S: Final = 0.1
# For many dead letters that are being written: topic and spool bound the time for which they are not.
MAX_HOLD_S: Final = 10.0
# Offsets that the client is not known to hold: of one request, and of a connection's requests in a second.
MAX_UNKNOWN_OFFSETS: Final = 2_000
_TOO_MANY_UNKNOWN: Final = f"more than {MAX_UNKNOWN_OFFSETS} records were rejected that the client is not known to hold"
_MAY_NOT_READ: Final = "the client is not known to hold the record, nor to have READ on its topic"
_FAILED: Final = "writing the dead letters failed unexpectedly"
_TOO_MANY: Final = f"more than {MAX_OFFSETS} records were rejected at once"
# A record acquired through another gateway or before a restart counts only before the first trip of its group.
_UNKNOWN_GENERATION: Final = 0
_KINDS: Final[Mapping[int, DispositionKind]] = {
    AckType.ACCEPT: DispositionKind.ACCEPTED,
    AckType.RELEASE: DispositionKind.RELEASED,
    AckType.REJECT: DispositionKind.REJECTED,
}


@dataclass(slots=True, eq=False)
class PartitionAcknowledgements:
    """The acknowledgements of one partition, and what became of its dead letters.

    `rejected` gets dead letters; `unwritten` is rejected too, and gets none for the reason that stands with it.
    `unlisted` is what is rejected beyond all bounds: it is looked up only if the broker accepts it.
    `is_added`: the client itself acknowledges nothing in this partition.
    """

    key: PartitionKey
    held: HeldKey
    runs: tuple[AckRun, ...] = ()
    deferred: list[DeferredAck] = field(default_factory=list)
    rejected: list[DeadLetterRange] = field(default_factory=list)
    unwritten: list[tuple[DeadLetterRange, str]] = field(default_factory=list)
    unlisted: list[tuple[int, int]] = field(default_factory=list)
    outcomes: list[tuple[DeadLetterRange, DeadLetterOutcome]] = field(default_factory=list)
    is_added: bool = False

    @property
    def ascending_runs(self) -> list[list[AckRun]]:
        """The runs in sequences that ascend: a single one, unless the client mixes up its offsets."""
        found: list[list[AckRun]] = []
        end: float = math.inf
        for run in self.runs:
            if run[0] <= end:
                found.append([])
            found[-1].append(run)
            end = run[1]
        return found

    def take_expired(self, now: float) -> list[DeferredAck]:
        """Remove and return the deferred acknowledgements whose locks may have ended, with their outcomes."""
        expired = [one for one in self.deferred if one.until <= now]
        ranges = [one.range for one in expired]
        self.deferred = [one for one in self.deferred if one.until > now]
        self.outcomes = [found for found in self.outcomes if found[0] not in ranges]
        return expired


@dataclass(slots=True, eq=False)
class RequestAcks:
    """All acknowledgements of one ShareFetch or ShareAcknowledge, with the group's settings when it arrived.

    `forget`: partitions that are in it only for deferred acknowledgements and are not in the member's session any more.
    """

    group: str
    holder: Holder
    settings: GroupSettings
    partitions: dict[TopicPartitionKey, PartitionAcknowledgements]
    forget: frozenset[TopicPartitionKey] = frozenset()

    @property
    def member(self) -> str:
        return self.holder.member

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

    def fail_missing(self, why: str) -> None:
        """Set an outcome without dead letters for each range that has none."""
        for one in self.partitions.values():
            known = [some for some, _ in one.outcomes]
            ranges = (*one.rejected, *(deferred.range for deferred in one.deferred))
            one.outcomes += [(some, some.failed(why)) for some in ranges if some not in known]


class AcknowledgementTracker:
    """Knows what the members of this worker hold, and follows each acknowledgement to the broker's response."""

    def __init__(
        self,
        *,
        states: ShareStates,
        limits: DeliveryLimits,
        dead_letters: DeadLetterDelivery,
        tasks: TaskSet,
        clock: Clock,
        meter: ShareMeter,
    ) -> None:
        self._states = states
        self._limits = limits
        self._dead_letters = dead_letters
        self._tasks = tasks
        self._clock = clock
        self._meter = meter
        self._deferred = DeferredAcks()
        self._dispositions = Dispositions()
        self._ledger = DeliveryLedger(_MAX_ACQUIRED_RANGES)
        self._expire_at = 0.0
        self._unknown_offsets: WeakKeyDictionary[Session, tuple[int, int]] = WeakKeyDictionary()  # second, number

    @property
    def acquired_ranges(self) -> int:
        return len(self._ledger)

    @property
    def lost(self) -> int:
        """Records that could not be counted, because too many rows were waiting."""
        return self._dispositions.lost

    def drain(self, before_second: int) -> list[DispositionsCounted]:
        """Remove and return the counts of all seconds before this one."""
        return self._dispositions.drain(
            before_second, at=self._clock.epoch_ms(), topic_name=self._dead_letters.known_name
        )

    def now(self) -> float:
        return self._clock.monotonic()

    # --- the request

    def follow_session(self, share: ShareRequest, session: Session) -> None:
        """Note which partitions a ShareFetch adds to the member's session and which it removes."""
        if self._deferred:
            self._deferred.follow((session.number, share.group or "", share.member or ""), share)

    def read(
        self,
        share: ShareRequest,
        runs: Mapping[TopicPartitionKey, tuple[AckRun, ...]],
        owner: str | int,
        session: Session,
        *,
        carries_deferred: bool,
    ) -> RequestAcks:
        """The client's acknowledgements, and the member's deferred ones if the request can carry them."""
        group, holder = share.group or "", Holder(share.member or "", owner)
        partitions = {
            place: PartitionAcknowledgements((group, holder.member, *place), (group, holder, *place), found)
            for place, found in runs.items()
        }
        forget: frozenset[TopicPartitionKey] = frozenset()
        if carries_deferred and self._deferred:
            key = (session.number, group, holder.member)
            is_last = share.session_epoch == LAST_EPOCH
            left = self._deferred.left(key)
            for deferred in self._take_deferred(key, is_last=is_last):
                place = deferred.range.key[2:]
                if place not in partitions:
                    key_of, held = (group, holder.member, *place), (group, holder, *place)
                    partitions[place] = PartitionAcknowledgements(key_of, held, is_added=True)
                partitions[place].deferred.append(deferred)
            forget = frozenset() if is_last else left & {place for place, one in partitions.items() if one.is_added}
        request = RequestAcks(group, holder, self._states.of(group).settings, partitions, forget)
        if request.settings.dlq_topic is not None:
            self._find_rejected(request, session)
        return request

    def _take_deferred(self, key: SessionKey, *, is_last: bool) -> list[DeferredAck]:
        taken, expired = self._deferred.take(key, self._clock.monotonic(), is_last=is_last)
        for one in expired:
            self._withdraw_deferred(one)
        return taken

    def _find_rejected(self, request: RequestAcks, session: Session) -> None:
        left, left_unknown = MAX_OFFSETS, self._unknown_left(session)
        before = left_unknown
        for one in request.partitions.values():
            for first, last, ack in one.runs:
                if ack is not AckType.REJECT:
                    continue
                if left <= 0 or (left_unknown <= 0 and not self._ledger.has_any(one.held)):
                    one.unlisted.append((first, last))
                    continue
                for some in self._rejected_ranges(one, first, last):
                    room = min(left, left_unknown) if some.is_unknown else left
                    if some.size > room:
                        rest = some._replace(first=some.first + room)
                        one.unwritten.append((rest, _TOO_MANY_UNKNOWN if some.is_unknown else _TOO_MANY))
                    number = min(some.size, room)
                    if number:
                        one.rejected.append(some._replace(last=some.first + number - 1))
                        left -= number
                        left_unknown -= number if some.is_unknown else 0
        if left_unknown < before:
            second = int(self._clock.monotonic())
            self._unknown_offsets[session] = (second, MAX_UNKNOWN_OFFSETS - left_unknown)

    def _rejected_ranges(self, one: PartitionAcknowledgements, first: int, last: int) -> list[DeadLetterRange]:
        """The offsets by their history; a broker acquires by batches, often of one record, so neighbours are joined."""
        found: list[DeadLetterRange] = []
        for known in self._ledger.lookup(one.held, first, last):
            generation = known.generation or _UNKNOWN_GENERATION
            if found and found[-1][3:5] == (known.delivery_count, generation):
                found[-1] = found[-1]._replace(last=known.last)
            else:
                some = DeadLetterRange(
                    one.key, known.first, known.last, known.delivery_count, generation, Cause.REJECTED
                )
                found.append(some)
        return found

    def _unknown_left(self, session: Session) -> int:
        """The number of offsets, not known to be held by this client, that may get dead letters in this second."""
        second, number = self._unknown_offsets.get(session, (0, 0))
        return MAX_UNKNOWN_OFFSETS - number if second == int(self._clock.monotonic()) else MAX_UNKNOWN_OFFSETS

    def hold_s(self, request: RequestAcks) -> float:
        """The time that the request may wait for its dead letters: after that one of its locks may have ended."""
        locks = [deferred.until for one in request.partitions.values() for deferred in one.deferred]
        for one in request.partitions.values():
            known = chain.from_iterable(self._ledger.overlapping(one.held, some) for some in one.ascending_runs)
            locks += {held.locked_until - _LOCK_MARGIN_S for held in known if held.locked_until is not None}
        return self._hold_s(locks)

    def _hold_s(self, ends: Iterable[float]) -> float:
        """Locks that have ended do not count: if they were not renewed, the broker refuses what they are for."""
        now = self._clock.monotonic()
        return max(_MIN_HOLD_S, min([MAX_HOLD_S, *(end - now for end in ends if end + _LOCK_MARGIN_S > now)]))

    async def write_dead_letters(self, request: RequestAcks, session: Session, hold_s: float) -> None:
        """Write the dead letters of all that the request rejects; their outcomes are in `request` afterwards.

        It runs to its end also when the client disconnects: the dead letters that are written by then are withdrawn.
        """
        writing = self._tasks.spawn(self._write(request, session, hold_s))
        try:
            await asyncio.wait({writing})
        except asyncio.CancelledError:
            writing.add_done_callback(lambda _: self.withdraw(request, {"outcome": "not sent"}))
            raise
        if writing.cancelled() or writing.exception() is not None:
            request.fail_missing(_FAILED)

    async def _write(self, request: RequestAcks, session: Session, hold_s: float) -> None:
        await self._drop_unreadable(request, session)
        until = self._clock.monotonic() + hold_s
        rejected = request.rejected
        if rejected:
            outcomes = await self._dead_letters.write(request.settings, rejected, session, self._left(until))
            for one, outcome in zip(rejected, outcomes, strict=True):
                request.partitions[one.key[2:]].outcomes.append((one, outcome))
        for partition in request.partitions.values():
            for deferred in partition.deferred:
                partition.outcomes.append((deferred.range, await deferred.outcome(self._left(until))))

    async def _drop_unreadable(self, request: RequestAcks, session: Session) -> None:
        """Drop rejected records that the client is not known to hold and may not read: they get no dead letters.

        The broker refuses the others. It handles the request only after this question, so that the hold begins later.
        """
        partitions = {
            place: one for place, one in request.partitions.items() if any(some.is_unknown for some in one.rejected)
        }
        if not partitions:
            return
        readable: Collection[bytes] = ()
        with suppress(ClusterError, WireError):
            readable = await self._dead_letters.readable_topics({topic_id for topic_id, _ in partitions}, session)
        for (topic_id, _), one in partitions.items():
            if topic_id not in readable:
                one.unwritten += [(some, _MAY_NOT_READ) for some in one.rejected if some.is_unknown]
                one.rejected = [some for some in one.rejected if not some.is_unknown]

    def _left(self, until: float) -> float:
        return max(0.0, until - self._clock.monotonic())

    def drop_expired(self, request: RequestAcks) -> None:
        """Take deferred acknowledgements out whose locks may have ended, immediately before the request is forwarded.

        One acknowledgement without a lock voids all others of its partition at the broker, also the client's own.
        """
        now = self._clock.monotonic()
        for place, one in list(request.partitions.items()):
            expired = one.take_expired(now)
            for deferred in expired:
                self._withdraw_deferred(deferred)
            if expired and one.is_added and not one.deferred:
                del request.partitions[place]
                request.forget -= {place}

    def on_close(self, session: Session) -> None:
        """A client's connection ended: the broker makes available what its members hold."""
        for deferred in self._deferred.close(session.number):
            self._withdraw_deferred(deferred)

    # --- the response

    def settle(
        self, request: RequestAcks, codes: Mapping[TopicPartitionKey, int], error_code: int, *, is_last: bool
    ) -> None:
        """Count what the broker accepted: `error_code` is of the whole response, `is_last`: it ends the session."""
        second = self._clock.epoch_ms() // 1000
        for key, one in request.partitions.items():
            code = error_code or codes.get(key)
            if code is None:
                self._withdraw(one.outcomes, {"outcome": "not answered"})
            elif code:
                self._withdraw(one.outcomes, {"outcome": "refused", "error_code": code})
            else:
                self._count(request.settings, one, second)
        if is_last and not error_code:
            self._ledger.forget_holder(request.group, request.holder)

    def _count(self, settings: GroupSettings, one: PartitionAcknowledgements, second: int) -> None:
        """The broker has accepted the acknowledgements of this partition: what is rejected is archived now."""
        ledger, count, key, held = self._ledger, self._dispositions.count, one.key, one.held
        for first, last in one.unlisted:
            ranges = self._rejected_ranges(one, first, last)
            one.unwritten += [(some, _TOO_MANY_UNKNOWN if some.is_unknown else _TOO_MANY) for some in ranges]
        for runs in one.ascending_runs:
            ended = [run for run in runs if run[2] is not AckType.RENEW]
            for (ack, delivery_count, generation), number in ledger.take(held, ended).items():
                kind = _KINDS.get(ack)
                if kind is not None:
                    count(key, generation or _UNKNOWN_GENERATION, second, kind, number, delivery_count)
        for deferred in one.deferred:
            over = deferred.range
            count(key, over.generation, second, DispositionKind.OVER_LIMIT, over.size, over.delivery_count)
        written: Counter[tuple[int, int | None]] = Counter()
        for some, outcome in (*one.outcomes, *((some, some.failed(why)) for some, why in one.unwritten)):
            written[some.generation, some.delivery_count] += record_count(outcome.written)
            if outcome.failed:
                self._dead_letters.report_failed(settings, some, outcome)
                number = record_count(outcome.failed)
                count(key, some.generation, second, DispositionKind.WRITE_TIMEOUT, number, some.delivery_count)
        for (generation, delivery_count), number in written.items():
            if number:
                count(key, generation, second, DispositionKind.DEAD_LETTERED, number, delivery_count)

    def withdraw(self, request: RequestAcks, why: Mapping[str, object]) -> None:
        """Declare all dead letters of the request void: their records were not archived, or that is not known."""
        self._withdraw(request.outcomes, why)

    def _withdraw_deferred(self, deferred: DeferredAck) -> None:
        """Declare its dead letter void: its REJECT is not sent, so that its record will be delivered again."""
        deferred.call_when_written(lambda outcome: self._withdraw([(deferred.range, outcome)], {"outcome": "not sent"}))

    def _withdraw(
        self, outcomes: Iterable[tuple[DeadLetterRange, DeadLetterOutcome]], why: Mapping[str, object]
    ) -> None:
        for some, outcome in outcomes:
            if outcome.written:
                self._dead_letters.reports.report_withdrawn(some, outcome.written, why)

    # --- acquired records

    def acquire(
        self,
        request: RequestAcks,
        body: Buffer,
        answer: ShareFetchSummary,
        generation: int,
        session: Session,
        *,
        sent_at: float,
    ) -> dict[int, list[Acquired]]:
        """Record what the member acquired, and defer the rejection of what is over the limit.

        The locks began when the broker had received the request, or later, but how long ago the response came is not
        known: this process may have been stopped since. So they are counted from `sent_at`, when it was forwarded.
        Returns the ranges that the member may get, for each partition (by index) of which it may not get all.
        """
        self._drop_expired()
        state = self._states.of(request.group)
        limit = self._limits.effective(state)
        kept: dict[int, list[Acquired]] = {}
        over_limit: list[DeadLetterRange] = []
        locked_until = sent_at + answer.lock_timeout_ms / 1000
        for index, one in enumerate(answer.partitions):
            if not one.acquired:
                continue
            key = (request.group, request.member, one.topic_id, one.partition)
            if state.settings.copy_record:
                _, begin = read_uvarint(body, one.records[0])
                records = memoryview(body)[begin : one.records[1]]
                self._dead_letters.keep_records(request.group, one.topic_id, one.partition, records)
            held = (request.group, request.holder, one.topic_id, one.partition)
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
                    self._ledger.acquire(held, *found, generation, locked_until)
            if len(left) < len(one.acquired):
                kept[index] = left
        if over_limit:
            self._defer(over_limit, state.settings, locked_until - _LOCK_MARGIN_S, session)
        return kept

    def _drop_expired(self) -> None:
        """Forget what killed members held; some of it at each response, while there is more."""
        now = self._clock.monotonic()
        if now >= self._expire_at and not self._ledger.drop_expired(now - KEPT_S):
            self._expire_at = now + _EXPIRE_S

    def _defer(
        self, over_limit: Sequence[DeadLetterRange], settings: GroupSettings, until: float, session: Session
    ) -> None:
        """Write the dead letters of one response; their REJECTs are added to the member's next request."""
        self._meter.stripped += sum(one.size for one in over_limit)
        if until <= self._clock.monotonic():
            return  # too late already: the broker delivers the records again
        writing = self._tasks.spawn(self._dead_letters.write(settings, over_limit, session, self._hold_s([until])))
        for index, one in enumerate(over_limit):
            for dropped in self._deferred.add((session.number, *one.key[:2]), DeferredAck(one, until, writing, index)):
                self._withdraw_deferred(dropped)
