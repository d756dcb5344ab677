"""Removes late dead letters from the spool after their late arrival was reported.

A dead letter that was reported as missing, and is in its topic now, stays in the spool until its event is in the topic
of events: if this worker ends before, the next leader finds it there, and reports it. The wait is bounded, and left out
for a minute after one that failed, so that an unavailable topic of events does not stop the spool.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

import structlog

from headgate.base.clock import Clock
from headgate.base.tasks import TaskSet
from headgate.share_groups.dead_letter_reports import DeadLetterReports
from headgate.share_groups.spool.model.records import DeadLetterIdentity

log = structlog.get_logger()

_REPORT_S: Final = 9.0  # less than until `SpoolRemovals` removes a moved dead letter once more
_UNAVAILABLE_S: Final = 60.0


class LateArrivals:
    """Reports dead letters that arrived late: those that arrive while a report is written share the next one."""

    def __init__(
        self,
        reports: DeadLetterReports,
        *,
        remove: Callable[[Sequence[DeadLetterIdentity]], Coroutine[Any, Any, None]],
        clock: Clock,
        tasks: TaskSet,
    ) -> None:
        self._reports = reports
        self._remove = remove
        self._clock = clock
        self._tasks = tasks
        self._arrived: list[DeadLetterIdentity] = []
        self._is_reporting = False
        self._waits_from = -math.inf  # until then reports are not waited for

    def clear(self) -> None:
        """Called when the tasks were cancelled: one of them may not have begun."""
        self._arrived.clear()
        self._is_reporting = False

    def add(self, dead_letters: Iterable[DeadLetterIdentity]) -> None:
        """Report these, which are in their topics, as late, and then remove them from the spool."""
        self._arrived.extend(dead_letters)
        if self._arrived and not self._is_reporting:
            self._is_reporting = True
            self._tasks.spawn(self._report_all())

    async def _report_all(self) -> None:
        try:
            while self._arrived:
                arrived, self._arrived = self._arrived, []
                await self._report(arrived)
                self._tasks.spawn(self._remove(arrived))
        finally:
            self._is_reporting = False

    async def _report(self, dead_letters: list[DeadLetterIdentity]) -> None:
        """Return when the events are written, or when that took too long."""
        if self._clock.monotonic() < self._waits_from:
            for one in dead_letters:
                self._reports.add_late(one)
            return
        try:
            async with asyncio.timeout(_REPORT_S):
                is_written = await self._reports.report_late(dead_letters)
        except TimeoutError:
            is_written = False
        if not is_written:
            self._waits_from = self._clock.monotonic() + _UNAVAILABLE_S
            log.warning(
                "late dead letters were removed from the spool before their events were written",
                number=len(dead_letters),
            )
