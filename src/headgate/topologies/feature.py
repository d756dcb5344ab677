"""`[topologies]` as a feature of the gateway: its interceptors, and the periodic cleanup (KIP-1331, 6).

The gateway is no coordinator and does not see a group end. So the cleanup describes the groups with a stored
description as the service account, and a group that is not found in two cycles running is gone. Any other response
proves nothing, including one that the account may not describe the group. One worker cleans up for all. After each
cycle it removes records that are not needed any more (`retention.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import structlog

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import HeadgateError
from headgate.kafka.group_admin import GroupOutline
from headgate.plugin import TransientFailure
from headgate.proxy.features import Feature
from headgate.proxy.interceptor import Interceptor, Versions
from headgate.proxy.principals import Principals
from headgate.proxy.rights import Rights
from headgate.topologies.delete_interceptor import ClassicJoinInterceptor, DeleteGroupsInterceptor
from headgate.topologies.describe_interceptor import DescribeInterceptor
from headgate.topologies.group_statuses import GroupStatuses
from headgate.topologies.heartbeat_interceptor import WRITE_TIMEOUT_S, HeartbeatInterceptor
from headgate.topologies.mismatch_reporter import MismatchReporter
from headgate.topologies.older_clients.assignment_recorder import AssignmentRecorder
from headgate.topologies.older_clients.classic_interceptor import ClassicStreamsInterceptor
from headgate.topologies.pasted_versions import PastedVersions
from headgate.topologies.push_interceptor import PushInterceptor
from headgate.topologies.retention import Retention
from headgate.topologies.service import TopologyService
from headgate.topologies.streams_api import HIDDEN
from headgate.topologies.tasks.classic_tasks import ClassicTasks
from headgate.topologies.tasks.task_watch import TaskWatch
from headgate.topologies.topology_metrics import FAMILIES
from headgate.wire.errors import ErrorCode

log = structlog.get_logger()

_BATCH: Final = 100
_ROUND_S: Final = 300.0

DescribeGroups = Callable[[Sequence[str]], Awaitable[Mapping[str, GroupOutline]]]


class HideInterceptor(Interceptor[None]):
    """`owner = "off"`: hides from clients the versions with which they could push or read a description."""

    def version_limits(self, broker: Versions) -> Mapping[int, int]:  # noqa: ARG002
        return HIDDEN


class HiddenTopologies(Feature):
    interceptors = (HideInterceptor(),)


class Cleanup:
    """Deletes the descriptions of groups that are gone; `describe` responds for the groups that it could describe.

    `describe_any` also finds classic groups: partial descriptions may be of one.
    """

    def __init__(
        self,
        service: TopologyService,
        describe: DescribeGroups,
        *,
        interval_s: float,
        retention: Retention | None = None,
        assignments: AssignmentRecorder | None = None,
        describe_any: DescribeGroups | None = None,
    ) -> None:
        self._service = service
        self._describe = describe
        self._describe_any = describe_any or describe
        self._interval_s = interval_s
        self._retention = retention
        self._assignments = assignments

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if self._service.is_ready:
                await self.cycle()
                await self.remove_records()

    async def cycle(self) -> None:
        """One cycle over all groups; it counts when it was not cut short."""
        groups = self._service.groups_to_clean_up()
        for start in range(0, len(groups), _BATCH):
            try:
                described = await self._describe(groups[start : start + _BATCH])
            except (HeadgateError, OSError) as problem:  # also a file of the service account
                log.warning("topology cleanup cycle ended: groups cannot be described", problem=str(problem))
                return
            for group in described.values():
                await self._service.on_cleanup_described(group)
        self._service.metrics.cleanup_cycles += 1
        await self._clean_up_assignments()

    async def _clean_up_assignments(self) -> None:
        if self._assignments is None:
            return
        try:
            await self._assignments.clean_up(self._describe_any)
        except (HeadgateError, OSError, TransientFailure) as problem:
            log.warning("topology cleanup cycle ended: groups cannot be described", problem=str(problem))

    async def remove_records(self) -> None:
        """One round of the retention; a failure leaves the rest to the next round."""
        if self._retention is None:
            return
        try:
            async with asyncio.timeout(_ROUND_S):
                await self._remove_records(self._retention)
        except (HeadgateError, OSError) as problem:  # also a timeout
            log.warning("topology records were not removed", problem=str(problem) or f"not done in {_ROUND_S:g} s")

    async def _remove_records(self, retention: Retention) -> None:
        retention.begin_round()
        await retention.remove_oldest_versions()
        candidates = await retention.candidates()
        for start in range(0, len(candidates), _BATCH):
            for group in (await self._describe_any(candidates[start : start + _BATCH])).values():
                if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                    await retention.remove_deleted(group.group)


class TopologyFeature(Feature):
    """`owner = "gateway"`: the gateway stores descriptions. `describe` is for the cleanup, None without one."""

    families = FAMILIES

    def __init__(
        self,
        service: TopologyService,
        *,
        max_bytes: int,
        describe: DescribeGroups | None = None,
        describe_any: DescribeGroups | None = None,
        cleanup_interval_s: float = 600.0,
        retention: Retention | None = None,
        write_timeout_s: float = WRITE_TIMEOUT_S,
        worker: int = 0,
        clock: Clock | None = None,
        principals: Principals | None = None,
        watch_tasks: bool = False,
        describe_lost: DescribeGroups | None = None,
    ) -> None:
        """`describe_lost` is for members that end with their group (`tasks/lost_groups.py`), in every worker."""
        self._service = service
        clock = clock or SystemClock()
        statuses = GroupStatuses(service, clock, worker=worker)
        rights = Rights(clock)
        self.assignments = AssignmentRecorder(service, clock=clock)
        self.mismatches = MismatchReporter(service, clock=clock)
        self._tasks = TaskWatch(service, clock, describe_lost) if watch_tasks else None
        self._classic_tasks = ClassicTasks(service, clock, describe_lost) if watch_tasks else None
        self.interceptors = (
            HeartbeatInterceptor(
                service, self.assignments, self.mismatches, self._tasks, write_timeout_s=write_timeout_s
            ),
            PushInterceptor(
                service,
                rights,
                statuses,
                PastedVersions(service, clock),
                self.mismatches,
                principals=principals,
                max_bytes=max_bytes,
            ),
            DescribeInterceptor(service, clock, statuses),
            DeleteGroupsInterceptor(service, rights, self.assignments, clock),
            ClassicJoinInterceptor(service, rights),
            ClassicStreamsInterceptor(service, self.assignments, self._classic_tasks),
        )
        self._cleanup = (
            None
            if describe is None
            else Cleanup(
                service,
                describe,
                interval_s=cleanup_interval_s,
                retention=retention,
                assignments=self.assignments,
                describe_any=describe_any,
            )
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._service.running():
            if self._service.has_store:
                self._service.keep_running(self.assignments.run)
                self._service.keep_running(self.mismatches.run)
                if self._tasks is not None:
                    self._service.keep_running(self._tasks.run)
                for tasks in (self._tasks, self._classic_tasks):
                    if tasks is not None and tasks.lost is not None:
                        self._service.keep_running(tasks.lost.run)
            if self._cleanup is not None and self._service.has_store:
                self._service.keep_running(self._cleanup.run)
            yield

    def samples(self) -> Mapping[tuple[str, tuple[str, ...]], float]:
        return {**self._service.samples(), **self.mismatches.samples()}

    def problems(self) -> Mapping[str, str]:
        return self._service.problems()

    def details(self) -> Mapping[str, str]:
        return self._service.details()
