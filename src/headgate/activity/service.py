"""Writes the uses of a worker to `headgate.activity`: one task sets their times, one writes the facts.

Invariant: the data plane never waits for this. While the cluster accepts no facts, uses are added up in the tracker,
which is bounded. Reports of closed intervals above their bound and facts that the cluster refuses are lost, and
counted.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from headgate.activity.model.intervals import Interval, UsageReport
from headgate.activity.usage_tracker import UsageTracker
from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.base.tasks import TaskSet, retry, run_forever
from headgate.facts import ActivityObserved, Fact
from headgate.facts.observations import Software
from headgate.kafka.fact_writer import FactWriter

log = structlog.get_logger()

_RETRY_S: Final = 5.0
_SWEEP_S: Final = 1.0
_FACTS_PER_WRITE: Final = 50  # encoding one takes about 20 microseconds of the event loop
_RESOLVE_S: Final = 5.0
_SHUTDOWN_S: Final = 3.0
_CONNECTIONS_PER_STEP: Final = 50
_GROUP_KINDS: Final = frozenset(("streams", "share_group", "consumer_group"))


class ActivityService:
    """Reports the intervals of a `UsageTracker` while it is `running`."""

    def __init__(
        self,
        tracker: UsageTracker,
        clock: Clock,
        open_writer: Callable[[], Awaitable[FactWriter]],
        *,
        retry_s: float = _RETRY_S,
    ) -> None:
        self._tracker = tracker
        self._clock = clock
        self._open_writer = open_writer
        self._retry_s = retry_s
        self._tasks = TaskSet(_log_failure)
        self._changed = asyncio.Event()
        self._writer: FactWriter | None = None
        self._logged_write: str | None = None  # the last problem: it is logged again when it changes
        self._logged_lookup: str | None = None
        self.on_used: Callable[[Sequence[Interval]], None] = lambda _: None  # the intervals used in the last second
        self.written = 0
        self.lost = 0
        tracker.on_change = self._changed.set

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.spawn(self._sweep)
        self.spawn(self._write_reports)
        try:
            yield
        finally:
            try:
                await self._tasks.cancel_all()
            finally:
                await self._write_rest()

    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Start a task that ends with the service, and that is started again if it fails."""
        self._tasks.spawn(run_forever(work, pause_s=self._retry_s, on_failure=_log_failure))

    async def write(self, facts: Sequence[Fact]) -> None:
        """Write facts; those that cannot be written are counted as lost."""
        writer = self._writer
        if writer is None:
            self.lost += len(facts)
            return
        outcomes = await asyncio.gather(*map(writer.write, facts), return_exceptions=True)
        failures = [one for one in outcomes if isinstance(one, BaseException)]
        self.written += len(facts) - len(failures)
        self.lost += len(failures)
        problem = str(failures[0]) if failures else None
        if problem is not None and problem != self._logged_write:
            log.warning("activity records could not be written", problem=problem)
        self._logged_write = problem

    @property
    def is_writing(self) -> bool:
        return self._writer is not None

    async def _sweep(self) -> None:
        """Set the times of used intervals every second, and earlier if there is a new one."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_S):
                    await self._changed.wait()
            self._changed.clear()
            self.on_used(self._tracker.sweep())
            while self._tracker.identify_again(_CONNECTIONS_PER_STEP):  # noqa: ASYNC110 - lets the data plane run
                await asyncio.sleep(0)
            await asyncio.sleep(_SWEEP_S / 20)  # a hundred clients may start at the same time

    async def _write_reports(self) -> None:
        if self._writer is None:
            self._writer = await retry(
                self._open_writer,
                pause_s=self._retry_s,
                on_problem=lambda problem: log.warning("activity not written yet, retrying", problem=problem),
                errors=ClusterError,
            )
        while True:
            reports = self._tracker.intervals.take(self._clock.monotonic(), _FACTS_PER_WRITE)
            if reports:
                await self._write_resolved(reports)
            else:
                await asyncio.sleep(_SWEEP_S / 10)

    async def _write_resolved(self, reports: Sequence[UsageReport]) -> None:
        try:
            async with asyncio.timeout(_RESOLVE_S):
                await self._tracker.topics.resolve([one.topic for one in reports])
        except (ClusterError, TimeoutError) as failure:
            problem = str(failure) or f"no answer within {_RESOLVE_S:g} s"
            if problem != self._logged_lookup:
                log.warning("topic names not resolved", problem=problem)
            self._logged_lookup = problem
        at = self._clock.epoch_ms()
        await self.write([fact_of(one, at) for one in reports])

    async def _write_rest(self) -> None:
        """Report all open intervals at the end, for a few seconds at most."""
        self._tracker.sweep()
        self._tracker.intervals.close_all(self._clock.epoch_ms())
        writer = self._writer
        if writer is None:
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SHUTDOWN_S):
                    while reports := self._tracker.intervals.take(self._clock.monotonic(), _FACTS_PER_WRITE):
                        await self._write_resolved(reports)
        finally:
            self._writer = None
            await writer.close()


def _log_failure(failure: BaseException) -> None:
    log.error("activity task failed", exc_info=failure)


def fact_of(report: UsageReport, at: int) -> ActivityObserved:
    actor, software = report.actor, report.software
    return ActivityObserved(
        at=at,
        actor=actor,
        topic=report.topic.name,
        topic_id=report.topic.id,
        direction=report.direction,
        since=report.since_ms,
        until=report.until_ms,
        bytes=report.bytes,
        records=report.records,
        principal=report.client.principal,
        client_id=report.client.client_id,
        group=actor.name if actor.kind in _GROUP_KINDS else None,
        transactional_id=report.qualifier if report.direction == "write" else None,
        software=None if software is None else Software(name=software[0], version=software[1]),
        host=report.client.host or None,
    )
