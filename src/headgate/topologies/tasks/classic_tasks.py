"""Writes the tasks of members of classic Streams groups to `headgate.tasks`, like those of other members.

They change only by a rebalance, after which the leader's SyncGroup has those of all members. A member ends when a later
rebalance is without it, or, of a group whose last members have left, when the broker does not list it (`lost_groups`).
"""

import asyncio
import re
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import HeadgateError
from headgate.base.log_throttle import LogThrottle
from headgate.topologies.older_clients.classic_groups import ClassicGroup, ClassicMember
from headgate.topologies.service import MAX_NAME, TopologyService
from headgate.topologies.tasks.group_tasks import TaskRecords
from headgate.topologies.tasks.lost_groups import DescribeAsService, LostGroups
from headgate.wire.classic_streams import StreamsTask
from headgate.wire.messages.streams import Assignment, DescribedStreamsGroup, StreamsGroupMember, TaskIds

log = structlog.get_logger()

_MAX_HOSTS: Final = 50_000
_WRITTEN_AT_ONCE: Final = 100
_MEMBER_ID: Final = re.compile(r"(.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL)


class ClassicTasks:
    """One for each worker."""

    def __init__(self, service: TopologyService, clock: Clock, describe: DescribeAsService | None = None) -> None:
        """`describe` asks as the service account, about classic groups too."""
        self._service = service
        self._clock = clock
        self._throttle = LogThrottle(clock.monotonic)
        self._records = TaskRecords()
        self.lost = None if describe is None else LostGroups(service, clock, self._records, describe)
        # The addresses from which members have joined, the one that joined longest ago first.
        self._hosts: OrderedDict[tuple[str, str], str] = OrderedDict()

    def on_joined(self, group: str, member: str, host: str) -> None:
        """A member joined from this address."""
        if len(member) > MAX_NAME:
            return
        self._hosts[group, member] = host
        self._hosts.move_to_end((group, member))
        if len(self._hosts) > _MAX_HOSTS:
            self._hosts.popitem(last=False)

    async def write(self, group: str, found: ClassicGroup) -> None:
        """Write the members whose tasks have changed, and those that are gone."""
        resources = self._service.resources
        if resources is None or resources.write_tasks is None:
            return
        members = tuple(self._described(group, one) for one in found.members if _is_short(one))
        records = self._records.on_described(
            DescribedStreamsGroup(group_id=group, members=members),
            at=self._clock.epoch_ms(),
            now=self._clock.monotonic(),
            hosts={},
            lags={},
        )
        for start in range(0, len(records), _WRITTEN_AT_ONCE):
            part = records[start : start + _WRITTEN_AT_ONCE]
            results = await asyncio.gather(*map(resources.write_tasks, part), return_exceptions=True)
            for failure in results:
                if isinstance(failure, HeadgateError):
                    self._records.forget(group)  # the next rebalance writes them again
                    if self._throttle.allows("tasks", group):
                        log.warning("tasks of a Streams group not written", group=group, problem=str(failure))
                elif isinstance(failure, BaseException):
                    raise failure
        if self.lost is not None:
            self.lost.add(group)  # no heartbeat is seen of its members: the broker is asked now and then

    def _described(self, group: str, one: ClassicMember) -> StreamsGroupMember:
        name = _MEMBER_ID.fullmatch(one.member)
        return StreamsGroupMember(
            member_id=one.member,
            client_id="" if name is None else name[1],
            client_host=one.host or self._hosts.get((group, one.member), ""),
            process_id=one.process or "",
            assignment=Assignment(active_tasks=_task_ids(one.active), standby_tasks=_task_ids(one.standby)),
        )


def _is_short(one: ClassicMember) -> bool:
    return max(len(one.member), len(one.host or "")) <= MAX_NAME


def _task_ids(tasks: Iterable[StreamsTask]) -> tuple[TaskIds, ...]:
    partitions: defaultdict[str, list[int]] = defaultdict(list)
    for task in tasks:
        partitions[task.subtopology].append(task.partition)
    return tuple(TaskIds(subtopology_id=id_, partitions=tuple(found)) for id_, found in partitions.items())
