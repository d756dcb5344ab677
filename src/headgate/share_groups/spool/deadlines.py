"""Reports dead letters that were not moved to their topic by their deadline; for the leader.

A dead letter is reported as missing, and as late only after that (`late_arrivals`). Some seconds after a report the
leader writes to the spool up to when deadlines are reported. So the next leader reports all others, however long there
was no leader, and those of the last seconds again.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from headgate.share_groups.dead_letter_reports import DeadLetterReports
from headgate.share_groups.model.dead_letter_records import offset_ranges
from headgate.share_groups.spool.model.index import SpoolIndex, SpoolPlace
from headgate.share_groups.spool.model.records import SpooledDeadLetter, SpoolLane
from headgate.share_groups.spool.removals import SpoolRemovals
from headgate.share_groups.spool.writer import SpoolWriter

_MARK_AFTER_MS: Final = 5_000  # by then the events of the reports are written
_REPORT_AGAIN_MS: Final = 15_000  # deadlines before a term, where no leader has written up to when they are reported
_MAX_UNREPORTED_MS: Final = 3_600_000  # deadlines that are kept for the next leader
_WAITS: Final = "it waits in the spool"


class SpoolDeadlines:
    """`begin_term` precedes the reports of a leader, and of a spool that is read again."""

    def __init__(self, *, index: SpoolIndex, removals: SpoolRemovals, reports: DeadLetterReports) -> None:
        self._index = index
        self._removals = removals
        self._reports = reports
        self._is_new_term = True
        self._reported_s = 0  # deadlines before this second are reported
        self._has_unmarked = False  # deadlines were reported, and the spool does not say so yet
        self._mark_ms: int | None = None  # what the spool is going to say: deadlines are reported up to this time
        self._spool: SpoolWriter | None = None
        self._problems: dict[str, str] = {}  # the last failure of each topic

    def open(self, spool: SpoolWriter) -> None:
        self._spool = spool

    def begin_term(self) -> None:
        self._is_new_term = True

    def clear(self) -> None:
        self._problems.clear()
        self._has_unmarked = False
        self._mark_ms = None

    def set_problem(self, target: str, problem: str | None) -> None:
        """Why dead letters of this topic wait; None when it is not known."""
        if problem is None:
            self._problems.pop(target, None)
        else:
            self._problems[target] = problem

    def drop_reported(self, now_ms: int) -> None:
        """Leave out the deadlines that the leader, or the last one, has reported."""
        known_ms = max(self._index.reported_until, 1000 * self._reported_s)
        until_ms = known_ms or now_ms - _REPORT_AGAIN_MS
        self._index.drop_expired(min(now_ms, max(until_ms, now_ms - _MAX_UNREPORTED_MS)))

    async def report(self, now_ms: int) -> None:
        """Report all deadlines up to now that are not reported yet."""
        if self._is_new_term:
            self.drop_reported(now_ms)
            if not self._index.reported_until and self._spool is not None:
                self._spool.mark_reported(now_ms - _REPORT_AGAIN_MS)
        self._is_new_term = False
        while (expired := self._index.take_expired(now_ms)) is not None:
            self._report(expired)
            self._has_unmarked = True
            await asyncio.sleep(0)
        self._reported_s = now_ms // 1000
        self._mark(now_ms)

    def _mark(self, now_ms: int) -> None:
        """Write to the spool up to when deadlines are reported, a while after they were, and only if there were any."""
        if self._mark_ms is not None and now_ms >= self._mark_ms + _MARK_AFTER_MS:
            if self._spool is not None:
                self._spool.mark_reported(self._mark_ms)
            self._mark_ms = None
        if self._mark_ms is None and self._has_unmarked:
            self._mark_ms = now_ms
            self._has_unmarked = False

    def _report(self, places: Sequence[SpoolPlace]) -> None:
        expired: dict[tuple[SpoolLane, str], list[int]] = {}
        for one in places:
            if not self._removals.covers(one):
                expired.setdefault((one.lane, one.target), []).append(one.offset)
        for (lane, target), offsets in expired.items():
            reason = self._problems.get(target, _WAITS)
            ranges = offset_ranges(sorted(offsets))
            self._reports.add_failed(lane, ranges, dlq_topic=target, reason=reason, is_spooled=True)

    def has_reported(self, dead_letter: SpooledDeadLetter) -> bool:
        """Whether it was reported as missing, by this leader or by an earlier one."""
        return dead_letter.deadline // 1000 < self._reported_s
