"""Follows which member of a Streams group has which tasks, and writes the changes to `headgate.tasks`.

The broker describes a group on the connection of one of its members, with that member's rights: some time after a
heartbeat that changes something, again until the group is stable, because of heartbeats of version 0 only joins and
leaves are read, and then every `REFRESH_S`. Hosts and lags come from the members' own heartbeats: behind a
gateway the broker sees the gateway's address, and before Kafka 4.4 it has no lags.

Invariants: no heartbeat waits for this. A member ends by its own leave or by a description without it, never because
it is silent: it may be connected to another gateway. A group without a connected member is left to `lost_groups`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import ReferenceType, ref

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import HeadgateError
from headgate.base.log_throttle import LogThrottle
from headgate.facts import MemberTasksEnded, MemberTasksObserved
from headgate.kafka.group_admin import STABLE
from headgate.proxy.interceptor import Session
from headgate.topologies.model.push_gate import HeartbeatResult, MemberHeartbeat
from headgate.topologies.service import MAX_NAME, TopologyService
from headgate.topologies.tasks.group_tasks import LAGS_EVERY_S, Lags, TaskRecords
from headgate.topologies.tasks.lost_groups import DescribeAsService, LostGroups
from headgate.wire.messages.streams import StreamsGroupDescribeRequest

log = structlog.get_logger()

REFRESH_S: Final = 60.0
AFTER_CHANGE_S: Final = 1.0  # members join and get their tasks in several heartbeats
BETWEEN_S: Final = 5.0
# A description of a thousand members takes some tens of milliseconds: a thousandth of the time at most.
SECONDS_PER_MEMBER: Final = 0.1
RETRY_S: Final = 30.0
MOST_UNSTABLE: Final = 12  # descriptions in quick succession of a group that does not become stable
MAX_GROUPS: Final = 10_000
MAX_HEARD: Final = 50_000  # members of all groups
_TICK_S: Final = 1.0
_AT_ONCE: Final = 8
_WRITTEN_AT_ONCE: Final = 100
_DESCRIBE_TIMEOUT_S: Final = 10.0
_VERSION: Final = 0
_LEAVES: Final = -1  # with -2 a static member goes that will be back, and keeps its tasks


@dataclass(slots=True)
class _Heard:
    """What a member's own heartbeats say."""

    host: str
    lags: Lags | None = None
    lags_at: float = float("-inf")


@dataclass(slots=True)
class _Watched:
    """One group; `session` is of one of its members."""

    session: "ReferenceType[Session]"
    due: float
    described_at: float = float("-inf")
    size: int = 0
    unstable: int = 0  # descriptions since it was stable
    members: dict[str, _Heard] = field(default_factory=dict)


class TaskWatch:
    """One for each worker; `run` describes the groups of the members that are connected to it."""

    def __init__(self, service: TopologyService, clock: Clock, describe: DescribeAsService | None = None) -> None:
        """`describe` asks as the service account."""
        self._service = service
        self._clock = clock
        self._records = TaskRecords()
        self.lost = None if describe is None else LostGroups(service, clock, self._records, describe)
        self._throttle = LogThrottle(clock.monotonic)
        self._groups: OrderedDict[str, _Watched] = OrderedDict()
        self.heard = 0  # members of all groups, at most MAX_HEARD
        self._left: list[MemberTasksEnded] = []

    def wants_lags(self, group: str, member: str) -> bool:
        """Whether the offsets in a heartbeat of this member are worth reading."""
        watched = self._groups.get(group)
        heard = None if watched is None else watched.members.get(member)
        return heard is not None and self._clock.monotonic() - heard.lags_at >= LAGS_EVERY_S

    def on_heartbeat(
        self,
        session: Session,
        heartbeat: MemberHeartbeat,
        result: HeartbeatResult,
        *,
        is_change: bool,
        lags: Lags | None = None,
    ) -> None:
        """The broker accepted or rejected a heartbeat; an internal error costs no member its response."""
        try:
            self._on_heartbeat(session, heartbeat, result, is_change=is_change, lags=lags)
        except Exception:
            if self._throttle.allows("failed", ""):
                log.exception("tasks of a member were not recorded, heartbeat response sent", group=heartbeat.group)

    def _on_heartbeat(
        self,
        session: Session,
        heartbeat: MemberHeartbeat,
        result: HeartbeatResult,
        *,
        is_change: bool,
        lags: Lags | None,
    ) -> None:
        group, member = heartbeat.group, heartbeat.member
        if result.error_code or not member or len(member) > MAX_NAME or not self._service.is_selected(group):
            return
        now = self._clock.monotonic()
        watched = self._groups.get(group)
        if watched is None:
            watched = self._groups[group] = _Watched(ref(session), now + AFTER_CHANGE_S)
            if self.lost is not None:
                self.lost.remove(group)
            while len(self._groups) > MAX_GROUPS:
                self._drop(next(iter(self._groups)))
        elif watched.session() is None:
            watched.session = ref(session)
        if heartbeat.member_epoch == _LEAVES:
            self._on_left(watched, group, member)
        else:
            self._hear(watched, member, session.peer, lags, now)
        if is_change or heartbeat.is_join or heartbeat.is_leave:
            watched.unstable = 0
            watched.due = min(watched.due, max(now + AFTER_CHANGE_S, watched.described_at + _pause(watched, BETWEEN_S)))

    def _hear(self, watched: _Watched, member: str, host: str, lags: Lags | None, now: float) -> None:
        heard = watched.members.get(member)
        if heard is None:
            if self.heard >= MAX_HEARD:
                return
            self.heard += 1
            heard = watched.members[member] = _Heard(host)
        heard.host = host
        if lags is not None:
            heard.lags, heard.lags_at = lags, now

    def _on_left(self, watched: _Watched, group: str, member: str) -> None:
        self.heard -= watched.members.pop(member, None) is not None
        if (ended := self._records.on_left(group, member)) is not None:
            self._left.append(ended)

    def _drop(self, group: str) -> None:
        self.heard -= len(self._groups.pop(group).members)
        if self.lost is not None:
            self.lost.add(group)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            await self.refresh_due()

    async def refresh_due(self) -> None:
        """Write which members have left, then describe the groups that are due."""
        if self._service.resources is None:
            return
        left, self._left = self._left, []
        await self._write(left)
        now = self._clock.monotonic()
        due = [group for group, watched in self._groups.items() if watched.due <= now]
        for start in range(0, len(due), _AT_ONCE):
            await asyncio.gather(*map(self._refresh, due[start : start + _AT_ONCE]))

    async def _refresh(self, group: str) -> None:
        watched = self._groups.get(group)
        session = None if watched is None else watched.session()
        if watched is None or session is None:  # the next heartbeat of a member brings another
            if watched is not None:
                self._drop(group)
            return
        watched.due = self._clock.monotonic() + RETRY_S
        request = StreamsGroupDescribeRequest(group_ids=(group,))
        try:
            response = await session.call(request, _VERSION, deadline=_DESCRIBE_TIMEOUT_S)
        except HeadgateError:  # the connection ended, or the broker is slow
            return
        if self._groups.get(group) is not watched:  # left out meanwhile, with its members
            return
        described = next((one for one in response.groups if one.group_id == group and not one.error_code), None)
        if described is None:
            return
        now = self._clock.monotonic()
        watched.described_at, watched.size = now, len(described.members)
        watched.unstable = 0 if described.group_state == STABLE else watched.unstable + 1
        soon = 0 < watched.unstable <= MOST_UNSTABLE
        watched.due = now + _pause(watched, BETWEEN_S if soon else REFRESH_S)
        names = {member.member_id for member in described.members}
        for member in watched.members.keys() - names:
            del watched.members[member]
            self.heard -= 1
        heard = watched.members
        records = self._records.on_described(
            described,
            at=self._clock.epoch_ms(),
            now=now,
            hosts={member: one.host for member, one in heard.items()},
            lags={member: one.lags for member, one in heard.items() if one.lags is not None},
        )
        await self._write(records)

    async def _write(self, records: Sequence[MemberTasksObserved | MemberTasksEnded]) -> None:
        """Write records; a group of which one is not written is written whole the next time."""
        resources = self._service.resources
        if resources is None or resources.write_tasks is None:
            return
        for start in range(0, len(records), _WRITTEN_AT_ONCE):
            part = records[start : start + _WRITTEN_AT_ONCE]
            results = await asyncio.gather(*map(resources.write_tasks, part), return_exceptions=True)
            for record, failure in zip(part, results, strict=True):
                if isinstance(failure, HeadgateError):
                    self._records.forget(record.group)
                    if self._throttle.allows("tasks", record.group):
                        log.warning("tasks of a Streams group not written", group=record.group, problem=str(failure))
                elif isinstance(failure, BaseException):
                    raise failure


def _pause(watched: _Watched, least_s: float) -> float:
    """The time between two descriptions of the group."""
    return max(least_s, watched.size * SECONDS_PER_MEMBER)
