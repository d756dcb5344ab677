"""A member of a streams group that joins, keeps its heartbeats going, takes its tasks, and pushes its description.

It processes nothing: it is the part of a Streams client that talks to the group's coordinator, for applications of
other languages to be seen like Java ones. One connection, one request at a time.
"""

import asyncio
import logging
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from headgate.base.errors import ClusterError
from headgate.client.topology_push import PushResult, TopologyPush
from headgate.facts.topology import Description
from headgate.kafka.connections import BrokerConnection, Connections, Dialler, UnsupportedError
from headgate.kafka.group_admin import GroupError, find_coordinators, group_error
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.streams import (
    HeartbeatTopology,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)

_JOIN, _LEAVE = 0, -1
_FIRST_INTERVAL_S = 0.5
_RETRY_S = 0.2
_REBALANCE_TIMEOUT_MS = 60_000
_REJOIN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_PASSING = frozenset({
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
})  # fmt: skip

log = logging.getLogger(__name__)


class StreamsMember:
    """One member: `run` it until `stop`, which leaves the group. When `run` is cancelled it ends without leaving.

    `topology` is what the coordinator assigns tasks by, `description` what operators see. A push that fails never
    ends the member.
    """

    def __init__(
        self,
        dialler: Dialler,
        group: str,
        *,
        topology: HeartbeatTopology,
        description: Description | None,
        process_id: str | None = None,
    ) -> None:
        self._dialler = dialler
        self._group = group
        self._topology = topology
        self._process_id = process_id or str(uuid.uuid4())
        self._push = TopologyPush(group, description, topology_epoch=topology.epoch)
        self._tasks: Sequence[TaskIds] = ()
        self._interval_s = _FIRST_INTERVAL_S
        self.member_id = str(uuid.uuid4())
        self.member_epoch = _JOIN
        self.pushed = asyncio.Event()  # set when a description was stored
        self._stopped = asyncio.Event()

    @property
    def tasks(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The active tasks: a sub-topology and its partitions."""
        return tuple((one.subtopology_id, tuple(one.partitions)) for one in self._tasks)

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> None:
        """Stay in the group, through changes of its coordinator.

        `ClusterError` when the coordinator refuses the member for a reason that does not pass, for instance an ACL.
        """
        while not self._stopped.is_set():
            try:
                async with Connections(self._dialler) as connections:
                    await self._on_coordinator(await self._coordinator(connections))
            except _Lost as lost:
                log.info("group %s: %s", self._group, lost)
                await self._sleep(_RETRY_S)

    async def _coordinator(self, connections: Connections) -> BrokerConnection:
        try:
            found = (await find_coordinators(connections, [self._group]))[self._group]
            if isinstance(found, GroupError):
                _raise(found)
            return await connections.to(found.address)
        except UnsupportedError:
            raise
        except ClusterError as failure:
            raise _Lost(str(failure)) from None

    async def _on_coordinator(self, link: BrokerConnection) -> None:
        while not self._stopped.is_set():
            await self._beat(link)
            await self._push_if_due(link)
            await self._sleep(self._pause_s())
        if self.member_epoch != _JOIN:
            await _ask(link, self._heartbeat(_LEAVE, whole=False))

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)

    async def _beat(self, link: BrokerConnection) -> None:
        joins = self.member_epoch == _JOIN
        response = await _ask(link, self._heartbeat(self.member_epoch, whole=joins))
        if response.error_code in _REJOIN:
            self.member_epoch, self._tasks = _JOIN, ()
        elif response.error_code:
            _raise(group_error(response.error_code, response.error_message))
        else:
            self._take(response)

    def _heartbeat(self, epoch: int, *, whole: bool) -> StreamsGroupHeartbeatRequest:
        """A join says everything, a later heartbeat only which tasks the member has."""
        return StreamsGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS if whole else -1,
            topology=self._topology if whole else None,
            process_id=self._process_id if whole else None,
            active_tasks=tuple(self._tasks),
            standby_tasks=(),
            warmup_tasks=(),
        )

    def _take(self, response: StreamsGroupHeartbeatResponse) -> None:
        self.member_id, self.member_epoch = response.member_id, response.member_epoch
        self._interval_s = max(response.heartbeat_interval_ms, 1) / 1000
        if response.active_tasks is not None:
            self._tasks = response.active_tasks
        self._push.on_heartbeat(response)

    async def _push_if_due(self, link: BrokerConnection) -> None:
        clock = asyncio.get_running_loop().time
        request = self._push.next_request(clock(), member_id=self.member_id)
        if request is None:
            return
        try:
            response = await link.ask(request, lowest=0, highest=0)
        except UnsupportedError as failure:
            outcome, message = self._push.on_unsupported(clock()), str(failure)
        except ClusterError as failure:
            outcome, message = self._push.on_disconnect(clock()), str(failure)
        else:
            outcome = self._push.on_response(clock(), response)
            message = group_error(response.error_code, response.error_message).text if response.error_code else ""
        if outcome is PushResult.FIND_COORDINATOR:
            raise _Lost(message)
        if outcome is PushResult.STORED:
            self.pushed.set()
        level = logging.WARNING if outcome is PushResult.REFUSED else logging.INFO
        log.log(level, "group %s: push of the topology description: %s %s", self._group, outcome.value, message)

    def _pause_s(self) -> float:
        wait_s = self._push.wait_s(asyncio.get_running_loop().time())
        return self._interval_s if wait_s is None else min(self._interval_s, max(wait_s, 0.01))


class _Lost(Exception):  # noqa: N818 - no error: the coordinator is looked for again
    """The coordinator does not answer, or is another one."""


async def _ask(link: BrokerConnection, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
    try:
        return await link.ask(request, lowest=0, highest=1)
    except UnsupportedError:
        raise
    except ClusterError as failure:
        raise _Lost(str(failure)) from None


def _raise(error: GroupError) -> NoReturn:
    raise (_Lost if error.code in _PASSING else ClusterError)(error.text)
