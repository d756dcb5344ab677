"""Reports of dead letters that are missing, arrived late, were parked, or are void: log, event and metric.

Only a record that the broker has archived is reported as missing its dead letter. Reports of one partition are made
together, once a second: an unavailable topic must not fill the log. Events of late arrivals can be written at once.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from headgate.share_groups.fact_outbox import FactOutbox
from headgate.share_groups.model.dead_letter_records import (
    DeadLetterRange,
    OffsetRanges,
    offset_ranges,
    ranges_text,
    record_count,
    topic_id_text,
)
from headgate.share_groups.share_metrics import ShareMeter
from headgate.share_groups.spool.model.records import DeadLetterIdentity, SpooledDeadLetter, SpoolLane

log = structlog.get_logger()

_MAX_LOGGED: Final = 100  # partitions of one second
_MAX_EVENT_RANGES: Final = 1_000
_REPORT_S: Final = 1.0


@dataclass(slots=True)
class _UnreportedFailures:
    """Failures of one lane since the last report; with the first reason and the first member."""

    dlq_topic: str | None
    reason: str
    member: str | None
    offsets: list[tuple[int, int]] = field(default_factory=list)


class DeadLetterReports:
    """`known_name` is the name of a topic id, as far as this worker knows it."""

    def __init__(self, *, outbox: FactOutbox, meter: ShareMeter, known_name: Callable[[bytes], str | None]) -> None:
        self._outbox = outbox
        self._meter = meter
        self._known_name = known_name
        self._late: dict[SpoolLane, list[int]] = {}  # to be logged
        self._late_events: dict[SpoolLane, list[int]] = {}  # those of them whose events are not queued yet
        self._failed: dict[tuple[SpoolLane, bool], _UnreportedFailures] = {}  # by lane, and whether it is in the spool

    def add_failed(
        self,
        lane: SpoolLane,
        offsets: OffsetRanges,
        *,
        dlq_topic: str | None,
        reason: str,
        member: str | None = None,
        is_spooled: bool = False,
    ) -> None:
        """Report records that were archived, and whose dead letters are not in their topic in time."""
        self._meter.count(self._meter.write_timeouts, lane.group, record_count(offsets))
        self._schedule()
        failures = self._failed.setdefault((lane, is_spooled), _UnreportedFailures(dlq_topic, reason, member))
        failures.offsets.extend(offsets)

    def add_late(self, dead_letter: DeadLetterIdentity) -> None:
        """Report a dead letter that was reported as missing and arrived all the same."""
        self._log_late_soon(dead_letter)
        self._late_events.setdefault(SpoolLane(*dead_letter[:3]), []).append(dead_letter[3])

    async def report_late(self, dead_letters: Sequence[DeadLetterIdentity]) -> bool:
        """Report such dead letters, and wait until their events are written; False when one was lost."""
        lanes: dict[SpoolLane, list[int]] = {}
        for one in dead_letters:
            self._log_late_soon(one)
            lanes.setdefault(SpoolLane(*one[:3]), []).append(one[3])
        for lane in lanes:
            if (failures := self._failed.pop((lane, True), None)) is not None:  # they were missing before
                self._log_failed(lane, failures, is_spooled=True)
                self._put_failed(lane, failures, is_spooled=True)
        details = ((lane, detail) for lane, offsets in lanes.items() for detail in self._late_details(lane, offsets))
        deliveries = (self._outbox.deliver_event("late_write", lane.group, detail) for lane, detail in details)
        return all(await asyncio.gather(*deliveries))

    def _log_late_soon(self, dead_letter: DeadLetterIdentity) -> None:
        self._meter.late_writes += 1
        self._schedule()
        self._late.setdefault(SpoolLane(*dead_letter[:3]), []).append(dead_letter[3])

    def report_withdrawn(self, some: DeadLetterRange, offsets: OffsetRanges, why: Mapping[str, object]) -> None:
        """Report dead letters of records that were not archived, or may not have been: readers must not count them."""
        self._meter.withdrawn += record_count(offsets)
        group, member, topic_id, partition = some.key
        detail = {
            "topic_id": topic_id_text(topic_id),
            "partition": partition,
            "offsets": [list(found) for found in offsets],
            "member": member,
            **why,
        }
        self._outbox.put_event("dead_letter_withdrawn", group, detail)

    def on_parked(self, dead_letters: Sequence[SpooledDeadLetter], reason: str) -> None:
        """Log that these were parked together; they are of one topic."""
        parked: dict[SpoolLane, list[int]] = {}
        for one in dead_letters:
            parked.setdefault(one.lane, []).append(one.offset)
        for lane, offsets in list(parked.items())[:_MAX_LOGGED]:
            log.warning(
                "dead letters were parked in the spool",
                group=lane.group,
                topic=self._name(lane),
                partition=lane.partition,
                offsets=ranges_text(offset_ranges(sorted(offsets))),
                dlq_topic=dead_letters[0].target,
                reason=reason,
            )

    def _schedule(self) -> None:
        if not self._late and not self._failed:
            asyncio.get_running_loop().call_later(_REPORT_S, self.report)

    def report(self) -> None:
        """Log and queue events for all failures and late arrivals since the last report."""
        failed, self._failed = self._failed, {}
        for number, ((lane, is_spooled), failures) in enumerate(failed.items()):
            if number < _MAX_LOGGED:  # events and the metric cover the rest
                self._log_failed(lane, failures, is_spooled=is_spooled)
            self._put_failed(lane, failures, is_spooled=is_spooled)
        late, self._late = self._late, {}
        for lane, offsets in list(late.items())[:_MAX_LOGGED]:
            log.info(
                "dead letters arrived late",
                group=lane.group,
                topic=self._name(lane),
                partition=lane.partition,
                offsets=ranges_text(offset_ranges(sorted(set(offsets)))),
            )
        events, self._late_events = self._late_events, {}
        for lane, offsets in events.items():
            for detail in self._late_details(lane, offsets):
                self._outbox.put_event("late_write", lane.group, detail)

    def _log_failed(self, lane: SpoolLane, failures: _UnreportedFailures, *, is_spooled: bool) -> None:
        what = {
            "group": lane.group,
            "topic": self._name(lane),
            "partition": lane.partition,
            "offsets": ranges_text(tuple(sorted(failures.offsets))),
            "dlq_topic": failures.dlq_topic,
            "reason": failures.reason,
        }
        if is_spooled:
            log.warning("a dead letter was not written in time, it stays in the spool", **what)
        else:
            log.warning("a dead letter was not written in time, its record is archived without one", **what)

    def _put_failed(self, lane: SpoolLane, failures: _UnreportedFailures, *, is_spooled: bool) -> None:
        offsets = tuple(sorted(failures.offsets))
        for begin in range(0, len(offsets), _MAX_EVENT_RANGES):
            detail = {
                **self._detail(lane, offsets[begin : begin + _MAX_EVENT_RANGES]),
                "dlq_topic": failures.dlq_topic,
                "reason": failures.reason,
                "member": failures.member,
                "spooled": is_spooled,
            }
            self._outbox.put_event("write_timeout", lane.group, detail)

    def _late_details(self, lane: SpoolLane, offsets: Sequence[int]) -> Iterator[dict[str, object]]:
        found = offset_ranges(sorted(set(offsets)))
        for begin in range(0, len(found), _MAX_EVENT_RANGES):
            yield self._detail(lane, found[begin : begin + _MAX_EVENT_RANGES])

    def _name(self, lane: SpoolLane) -> str:
        return self._known_name(lane.topic_id) or topic_id_text(lane.topic_id)

    def _detail(self, lane: SpoolLane, offsets: OffsetRanges) -> dict[str, object]:
        return {
            "topic": self._name(lane),
            "topic_id": topic_id_text(lane.topic_id),
            "partition": lane.partition,
            "offsets": [list(one) for one in offsets],
        }
