"""Ends the tasks of members that died with their group, which no connected member can describe any more.

The service account asks the broker about such groups: when the sessions of their members are over, and then every
`EVERY_S`, until no member that was written is left or a member is connected again. A member that the broker does not
list has ended; one that it lists is connected elsewhere. A group that the account may not describe stays as it is.

Invariant: a record is forgotten only when its end is written.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import HeadgateError
from headgate.base.log_throttle import LogThrottle
from headgate.facts import MemberTasksEnded
from headgate.kafka.group_admin import GroupOutline
from headgate.topologies.model.group_members import SESSION_S
from headgate.topologies.service import TopologyService
from headgate.topologies.tasks.group_tasks import TaskRecords
from headgate.wire.errors import ErrorCode

log = structlog.get_logger()

EVERY_S: Final = 300.0
RETRY_S: Final = 30.0
_TICK_S: Final = 5.0
_BATCH: Final = 200

DescribeAsService = Callable[[Sequence[str]], Awaitable[Mapping[str, GroupOutline]]]


class LostGroups:
    """The groups of one worker; their members are those of `records`."""

    def __init__(
        self, service: TopologyService, clock: Clock, records: TaskRecords, describe: DescribeAsService
    ) -> None:
        self._service = service
        self._clock = clock
        self._records = records
        self._describe = describe
        self._throttle = LogThrottle(clock.monotonic)
        self._due: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._due)

    def add(self, group: str) -> None:
        """No member of the group is connected, as far as this worker knows."""
        if self._records.members(group):
            self._due[group] = self._clock.monotonic() + SESSION_S

    def remove(self, group: str) -> None:
        """A member of the group is connected."""
        self._due.pop(group, None)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            await self.check()

    async def check(self) -> None:
        """Describe the groups that are due, and write which of their members have ended."""
        now = self._clock.monotonic()
        due = [group for group, at in self._due.items() if at <= now][:_BATCH]
        if not due or self._service.resources is None:
            return
        self._put_off(due, EVERY_S)
        try:
            found = await self._describe(due)
        except (HeadgateError, OSError) as problem:  # also a file of the service account
            self._put_off(due, RETRY_S)
            if self._throttle.allows("not described", ""):
                log.warning("Streams groups without connected members cannot be described", problem=str(problem))
            return
        for group in due:
            outline = found.get(group)
            if group in self._due and outline is not None:
                await self._end_members(group, outline)

    async def _end_members(self, group: str, outline: GroupOutline) -> None:
        if outline.error_code not in {0, ErrorCode.GROUP_ID_NOT_FOUND}:
            return
        resources = self._service.resources
        if resources is None or resources.write_tasks is None:
            return
        alive = frozenset(outline.member_ids)
        for member in self._records.members(group):
            if member in alive:
                continue
            try:
                await resources.write_tasks(MemberTasksEnded(group=group, member=member))
            except HeadgateError as problem:
                self._put_off([group], RETRY_S)
                if self._throttle.allows("tasks", group):
                    log.warning("tasks of a Streams group not written", group=group, problem=str(problem))
                return
            self._records.on_left(group, member)
        if not self._records.members(group):
            self.remove(group)

    def _put_off(self, groups: Sequence[str], seconds: float) -> None:
        """Ask about these groups later, except those of which a member is connected again."""
        for group in groups:
            if group in self._due:
                self._due[group] = self._clock.monotonic() + seconds
