"""Dead letters of one worker: from offsets that must not be delivered again to records in the group's topic.

Nothing here holds a request beyond the deadline that it is given. A dead letter that is not written by then is reported
(WARN, event, `DlqWriteTimeouts`) and abandoned; if it arrives all the same, that is reported too.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.proxy.interceptor import Session
from headgate.share_groups.dead_letter_writer import DeadLetterWriter, WriteFailure, WriteFailureCause
from headgate.share_groups.fact_outbox import FactOutbox
from headgate.share_groups.model.dead_letter_records import Cause, DeadLetter, topic_id_text
from headgate.share_groups.model.delivery_ledger import PartitionKey
from headgate.share_groups.model.group_configs import GroupSettings
from headgate.share_groups.model.group_state import ShareStates
from headgate.share_groups.record_lookup import RecordCopy, RecordLookup
from headgate.share_groups.share_metrics import ShareMeter
from headgate.wire.primitives import Buffer

log = structlog.get_logger()

MAX_OFFSETS: Final = 10_000  # of one request; by default a broker lets a member hold 2,000 of a partition
_BATCH: Final = 200
_COPY_BATCH: Final = 20  # looked up together: each may be as large as its topic allows
_BATCH_BYTES: Final = 4 * 1024 * 1024
_SLOW_S: Final = 0.05  # of a look-up: what is ready is then written without waiting for more
_MAX_LOGGED: Final = 100  # partitions of one second
_MAX_EVENT_RANGES: Final = 1_000
_REPORT_S: Final = 1.0

_NO_COPY: Final = RecordCopy()

OffsetRanges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRange:
    """Offsets of one partition that become dead letters; `delivery_count` is None when it is not known.

    `generation` is the one under which they were acquired.
    """

    key: PartitionKey
    first: int
    last: int
    delivery_count: int | None
    generation: int
    cause: Cause

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class DeadLetterOutcome:
    """The offsets of a `DeadLetterRange` whose dead letters were written, and those whose were not."""

    written: OffsetRanges
    failed: OffsetRanges


@dataclass(slots=True)
class _UnreportedFailures:
    """Failures of one partition since the last report; with the first reason and the first member."""

    dlq_topic: str | None
    reason: str
    member: str
    offsets: list[tuple[int, int]] = field(default_factory=list)


class DeadLetterDelivery:
    """Nothing can be written before `open`, when the service has its writer."""

    def __init__(self, *, states: ShareStates, outbox: FactOutbox, clock: Clock, meter: ShareMeter) -> None:
        self._states = states
        self._outbox = outbox
        self._clock = clock
        self._meter = meter
        self._records = RecordLookup()
        self._writer: DeadLetterWriter | None = None
        self._cluster = ""
        self._late: dict[tuple[str, str, int, bytes], list[int]] = {}
        self._failed: dict[tuple[str, bytes, int], _UnreportedFailures] = {}

    def open(self, writer: DeadLetterWriter, cluster: str) -> None:
        self._writer = writer
        self._cluster = cluster

    def keep_records(self, group: str, topic_id: bytes, partition: int, records: Buffer) -> None:
        """Keep the records of a response: a dead letter can have a copy of one."""
        self._records.keep(group, topic_id, partition, records)

    def known_name(self, topic_id: bytes) -> str | None:
        return self._records.known_name(topic_id)

    async def write(
        self, settings: GroupSettings, ranges: Sequence[DeadLetterRange], session: Session, deadline_s: float
    ) -> list[DeadLetterOutcome]:
        """The outcome of each range, in order; raises nothing but `CancelledError`."""
        now = self._clock.monotonic
        until = now() + deadline_s
        topic = settings.dlq_topic
        assert topic is not None
        at_once = _COPY_BATCH if settings.copy_record else _BATCH
        failed: list[dict[int, str]] = [{} for _ in ranges]
        ready: list[tuple[int, DeadLetter]] = []
        size = 0  # of the copies among them
        names: dict[bytes, str] = {}  # each is requested once
        copies: Mapping[int, RecordCopy] = {}
        for index, some in enumerate(ranges):
            for begin in range(some.first, some.last + 1, at_once):
                offsets = range(begin, min(begin + at_once, some.last + 1))
                is_slow = False
                if settings.copy_record or some.key[2] not in names:
                    began = now()
                    try:
                        async with asyncio.timeout(max(0.0, until - now())):
                            copies = await self._look_up(settings, names, some, offsets, session)
                    except TimeoutError:
                        failed[index].update(dict.fromkeys(offsets, "its record could not be looked up in time"))
                        continue
                    is_slow = settings.copy_record and now() - began > _SLOW_S
                name = names[some.key[2]]
                ready += (
                    (index, self._dead_letter(some, name, offset, copies.get(offset, _NO_COPY))) for offset in offsets
                )
                size += sum(len(one.key or b"") + len(one.value or b"") for one in copies.values())
                if len(ready) >= _BATCH or size >= _BATCH_BYTES or is_slow:
                    await self._write_some(topic, ready, failed, until)
                    ready, size = [], 0
        await self._write_some(topic, ready, failed, until)
        return [self._outcome(topic, some, lost) for some, lost in zip(ranges, failed, strict=True)]

    async def _look_up(
        self, settings: GroupSettings, names: dict[bytes, str], some: DeadLetterRange, offsets: range, session: Session
    ) -> Mapping[int, RecordCopy]:
        """The topic's name, into `names`, and copies of the records if the group wants them."""
        group, _, topic_id, partition = some.key
        is_held = some.delivery_count is not None
        if topic_id not in names:
            names[topic_id] = await self._records.topic_name(topic_id, session, is_held=is_held)
        if not settings.copy_record:
            return {}
        max_message_bytes = None
        if self._writer is not None:
            with suppress(ClusterError):
                max_message_bytes = (await self._writer.describe_topic(settings.dlq_topic or "")).max_message_bytes
        return await self._records.copies(
            group, topic_id, partition, offsets, session, max_message_bytes=max_message_bytes, is_held=is_held
        )

    async def _write_some(
        self, topic: str, some: Sequence[tuple[int, DeadLetter]], failed: Sequence[dict[int, str]], until: float
    ) -> None:
        """Write dead letters; those whose copies are too large for their topic once more, without the copies."""
        bare: list[tuple[int, DeadLetter]] = []
        results = await self._results(topic, [one for _, one in some], until)
        for (index, dead_letter), failure in zip(some, results, strict=True):
            if failure is None:
                continue
            has_copy = dead_letter.key is not None or dead_letter.value is not None
            if failure.cause is WriteFailureCause.TOO_LARGE and has_copy:
                bare.append((index, replace(dead_letter, key=None, value=None, copy_problem=failure.text)))
            else:
                failed[index][dead_letter.offset] = failure.text
        if bare:
            await self._write_some(topic, bare, failed, until)

    async def _results(self, topic: str, dead_letters: Sequence[DeadLetter], until: float) -> list[WriteFailure | None]:
        if self._writer is None:
            failure = WriteFailure(WriteFailureCause.UNREACHABLE, "share groups are not available")
            return [failure] * len(dead_letters)
        left_s = max(0.0, until - self._clock.monotonic())
        return await self._writer.write(topic, dead_letters, left_s, self._on_late)

    def _outcome(self, topic: str, some: DeadLetterRange, failed: Mapping[int, str]) -> DeadLetterOutcome:
        if not failed:
            outcome = DeadLetterOutcome(((some.first, some.last),), ())
        else:
            lost = offset_ranges(sorted(failed))
            written = offset_ranges(one for one in range(some.first, some.last + 1) if one not in failed)
            outcome = DeadLetterOutcome(written, lost)
            self._report_later(topic, some, lost, next(iter(failed.values())))
        self._meter.count(self._meter.dead_letters, some.key[0], some.count - len(failed))
        return outcome

    def skip(self, some: DeadLetterRange, why: str) -> None:
        """Report that no dead letter was attempted: the records are archived without."""
        topic = self._states.of(some.key[0]).settings.dlq_topic
        self._report_later(topic, some, ((some.first, some.last),), why)

    def _report_later(self, topic: str | None, some: DeadLetterRange, lost: OffsetRanges, why: str) -> None:
        """Report together with other failures of the partition: an unavailable topic must not fill the log."""
        group, member, topic_id, partition = some.key
        self._meter.count(self._meter.write_timeouts, group, record_count(lost))
        self._schedule_report()
        failures = self._failed.setdefault((group, topic_id, partition), _UnreportedFailures(topic, why, member))
        failures.offsets.extend(lost)

    def _report_failures(self) -> None:
        failed, self._failed = self._failed, {}
        for number, ((group, topic_id, partition), failures) in enumerate(failed.items()):
            name = self.known_name(topic_id) or topic_id_text(topic_id)
            offsets = tuple(sorted(failures.offsets))
            if number < _MAX_LOGGED:  # events and the metric cover the rest
                log.warning(
                    "a dead letter was not written in time, its record is archived without one",
                    group=group,
                    topic=name,
                    partition=partition,
                    offsets=ranges_text(offsets),
                    dlq_topic=failures.dlq_topic,
                    reason=failures.reason,
                )
            for begin in range(0, len(offsets), _MAX_EVENT_RANGES):
                detail = {
                    "topic": name,
                    "topic_id": topic_id_text(topic_id),
                    "partition": partition,
                    "offsets": [list(one) for one in offsets[begin : begin + _MAX_EVENT_RANGES]],
                    "dlq_topic": failures.dlq_topic,
                    "reason": failures.reason,
                    "member": failures.member,
                }
                self._outbox.put_event("write_timeout", group, detail)

    def _schedule_report(self) -> None:
        if not self._late and not self._failed:
            asyncio.get_running_loop().call_later(_REPORT_S, self.report)

    def report(self) -> None:
        """Log and queue events for all failures and late arrivals since the last report."""
        self._report_failures()
        self._report_late()

    def _dead_letter(self, some: DeadLetterRange, topic: str, offset: int, copy: RecordCopy) -> DeadLetter:
        group, member, topic_id, partition = some.key
        return DeadLetter(
            group=group,
            member=member,
            cluster=self._cluster,
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            offset=offset,
            delivery_count=some.delivery_count,
            cause=some.cause,
            at=self._clock.epoch_ms(),
            key=copy.key,
            value=copy.value,
            copy_problem=copy.problem,
        )

    def _on_late(self, one: DeadLetter) -> None:
        self._meter.late_writes += 1
        self._schedule_report()
        self._late.setdefault((one.group, one.topic, one.partition, one.topic_id), []).append(one.offset)

    def _report_late(self) -> None:
        late, self._late = self._late, {}
        for (group, topic, partition, topic_id), offsets in late.items():
            found = offset_ranges(sorted(offsets))
            text = ranges_text(found)
            log.info("dead letters arrived late", group=group, topic=topic, partition=partition, offsets=text)
            detail = {
                "topic": topic,
                "topic_id": topic_id_text(topic_id),
                "partition": partition,
                "offsets": [list(one) for one in found],
            }
            self._outbox.put_event("late_write", group, detail)


def record_count(found: OffsetRanges) -> int:
    return sum(last - first + 1 for first, last in found)


def offset_ranges(offsets: Iterable[int]) -> OffsetRanges:
    """Ascending offsets as ranges."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return tuple(found)


def ranges_text(found: OffsetRanges, limit: int = 20) -> str:
    """The ranges for a log line."""
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found[:limit])
    return text if len(found) <= limit else f"{text} and {len(found) - limit} more ranges"
