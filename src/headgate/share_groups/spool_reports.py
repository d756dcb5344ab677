"""Reports about spooled dead letters: not in their topic by their deadline, arrived late, parked.

Each is reported by partition and second, not by dead letter: an outage must not fill the log.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog

from headgate.share_groups.fact_outbox import FactOutbox
from headgate.share_groups.model.dead_letter_ranges import offset_ranges, ranges_text
from headgate.share_groups.model.dead_letter_records import topic_id_text
from headgate.share_groups.model.spool_index import SpoolPlace
from headgate.share_groups.model.spool_records import SpooledLetter, SpoolLane
from headgate.share_groups.share_metrics import ShareMeter

log = structlog.get_logger()

_MAX_LOGGED: Final = 100  # partitions of one second
_MAX_EVENT_RANGES: Final = 1_000
_WAITS: Final = "it waits in the spool"

_By = tuple[SpoolLane, str]  # a lane and a topic


class SpoolReports:
    """Logs and queues events; `topic_name` finds the name of a topic id, as far as this worker knows it."""

    def __init__(self, *, meter: ShareMeter, outbox: FactOutbox, topic_name: Callable[[bytes], str | None]) -> None:
        self._meter = meter
        self._outbox = outbox
        self._topic_name = topic_name
        self._late: dict[_By, list[int]] = {}

    def on_expired(self, places: Iterable[SpoolPlace], problems: Mapping[str, str]) -> None:
        """The deadlines of these ended; `problems` has the last failure of each topic."""
        expired: dict[_By, list[int]] = {}
        for one in places:
            expired.setdefault((one.lane, one.target), []).append(one.offset)
        for number, ((lane, target), offsets) in enumerate(expired.items()):
            self._meter.count(self._meter.write_timeouts, lane.group, len(offsets))
            reason = problems.get(target, _WAITS)
            ranges = offset_ranges(sorted(offsets))
            if number < _MAX_LOGGED:  # events and the metric cover the rest
                log.warning(
                    "a dead letter was not written in time, it stays in the spool",
                    group=lane.group,
                    topic=self._name(lane),
                    partition=lane.partition,
                    offsets=ranges_text(ranges),
                    dlq_topic=target,
                    reason=reason,
                )
            for some in _cut(ranges):
                detail = self._detail(lane, some) | {"dlq_topic": target, "reason": reason, "spooled": True}
                self._outbox.put_event("write_timeout", lane.group, detail)

    def add_late(self, letter: SpooledLetter) -> None:
        """It reached its topic after its deadline; `report_late` reports it."""
        self._meter.late_writes += 1
        self._late.setdefault((letter.lane, letter.target), []).append(letter.offset)

    def report_late(self) -> None:
        late, self._late = self._late, {}
        for number, ((lane, target), offsets) in enumerate(late.items()):
            ranges = offset_ranges(sorted(set(offsets)))
            if number < _MAX_LOGGED:
                log.info(
                    "dead letters arrived late",
                    group=lane.group,
                    topic=self._name(lane),
                    partition=lane.partition,
                    offsets=ranges_text(ranges),
                )
            for some in _cut(ranges):
                self._outbox.put_event("late_write", lane.group, self._detail(lane, some) | {"dlq_topic": target})

    def on_parked(self, letters: Sequence[SpooledLetter], reason: str) -> None:
        """These were parked together: they are of one topic."""
        parked: dict[SpoolLane, list[int]] = {}
        for one in letters:
            parked.setdefault(one.lane, []).append(one.offset)
        for lane, offsets in list(parked.items())[:_MAX_LOGGED]:
            log.warning(
                "dead letters were parked in the spool",
                group=lane.group,
                topic=self._name(lane),
                partition=lane.partition,
                offsets=ranges_text(offset_ranges(sorted(offsets))),
                dlq_topic=letters[0].target,
                reason=reason,
            )

    def _name(self, lane: SpoolLane) -> str:
        return self._topic_name(lane.topic_id) or topic_id_text(lane.topic_id)

    def _detail(self, lane: SpoolLane, ranges: Sequence[tuple[int, int]]) -> dict[str, object]:
        return {
            "topic": self._name(lane),
            "topic_id": topic_id_text(lane.topic_id),
            "partition": lane.partition,
            "offsets": [list(one) for one in ranges],
        }


def _cut(ranges: Sequence[tuple[int, int]]) -> Iterable[Sequence[tuple[int, int]]]:
    return (ranges[begin : begin + _MAX_EVENT_RANGES] for begin in range(0, len(ranges), _MAX_EVENT_RANGES))
