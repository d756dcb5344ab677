"""The end of a group: DeleteGroups, and a classic member that joins what was a Streams group.

One rule: the store is touched only when the broker would delete the group: the caller may, and the group is Empty or
gone. Then the store first, the group after, so that a retry converges. Everything else is the broker's to refuse.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from headgate.base.errors import ClusterError, WireError
from headgate.base.ids import ApiVersion
from headgate.proxy.interceptor import (
    Answer,
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    OnResponse,
    Outcome,
    Prefilter,
    RequestFrame,
    ResponseFrame,
    Rewritten,
    Session,
)
from headgate.proxy.rights import GROUP_AUTHORIZATION_FAILED, Right, Rights
from headgate.topologies.asking import ask
from headgate.topologies.model.push_checks import GROUP_DELETION_FAILED
from headgate.topologies.model.streams_groups import ClassicJoin
from headgate.topologies.service import LONGEST_NAME, TopologyService
from headgate.topologies.versions import DELETE_GROUPS, JOIN_GROUP, sent
from headgate.wire import heads
from headgate.wire.codec import decode, encode
from headgate.wire.messages.groups import (
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    JoinGroupRequest,
    JoinGroupResponse,
)
from headgate.wire.primitives import Buffer

UNKNOWN_SERVER_ERROR: Final = -1
REBALANCE_IN_PROGRESS: Final = 27
COORDINATOR_NOT_AVAILABLE: Final = 15
_FIRST_WITH_MESSAGE: Final = 3
_LONGEST_S: Final = 600.0  # each step of each group has a deadline of its own
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class _Asked:
    """The version that the client used, and the groups that the broker was not asked to delete."""

    version: int
    kept: tuple[DeletedGroup, ...] = ()


class DeleteInterceptor(Interceptor[_Asked]):
    """A batch without any description passes as it came."""

    api_keys = frozenset((DELETE_GROUPS,))
    fail_closed = True
    max_bytes = 256 * 1024  # of group names
    max_response_bytes = 1024 * 1024

    def __init__(self, service: TopologyService, rights: Rights) -> None:
        self._service = service
        self._rights = rights

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[_Asked]:
        version = request.api_version
        message = decode(DeleteGroupsRequest, version, request.body)
        described = [group for group in dict.fromkeys(message.groups_names) if self._service.must_delete(group)]
        if described:
            return Hold(self._delete(message, version, described, session), _LONGEST_S)
        if version <= sent(session.broker_versions(), DELETE_GROUPS, version):
            known = any(map(self._service.knows, message.groups_names))
            return Forward(_Asked(version) if known else None)
        return _passed(message, version, session)

    async def _delete(
        self, message: DeleteGroupsRequest, version: int, described: list[str], session: Session
    ) -> Outcome[_Asked]:
        turns = asyncio.Semaphore(_AT_ONCE)  # so that deadlines begin when a group's turn comes

        async def delete(group: str) -> DeletedGroup | None:
            async with turns:
                return await self._delete_one(group, version, session)

        results = await asyncio.gather(*map(delete, described))
        kept = tuple(result for result in results if result is not None)
        names = {one.group_id for one in kept}
        left = tuple(group for group in message.groups_names if group not in names)
        if not left:
            return Answer(encode(DeleteGroupsResponse(results=kept), version))
        return _passed(replace(message, groups_names=left), version, session, kept)

    async def _delete_one(self, group: str, version: int, session: Session) -> DeletedGroup | None:
        """Delete what is stored of a group; a result when the group must stay for that."""
        try:
            if await self._rights.ask(session, Right.DELETE, group) == GROUP_AUTHORIZATION_FAILED:
                return None
            found = await ask(session, group)
        except ClusterError:
            # Nothing is known, and were the broker to delete it now, its description would be left.
            return DeletedGroup(group_id=group, error_code=COORDINATOR_NOT_AVAILABLE)
        if not (found.is_empty or found.is_gone):
            return None
        failed = await self._service.delete(group)
        if failed is None:
            return None
        if version < _FIRST_WITH_MESSAGE:
            return DeletedGroup(group_id=group, error_code=UNKNOWN_SERVER_ERROR)
        return DeletedGroup(group_id=group, error_code=GROUP_DELETION_FAILED, error_message=failed.text)

    def on_response(self, response: ResponseFrame, context: _Asked, session: Session) -> OnResponse:  # noqa: ARG002
        message = decode(DeleteGroupsResponse, response.api_version, response.body)
        for result in message.results:
            if result.error_code == 0:
                self._service.on_deleted(result.group_id)
        if response.api_version == context.version and not context.kept:
            return Forward()
        return Rewritten(encode(replace(message, results=(*message.results, *context.kept)), context.version))


def _passed(
    message: DeleteGroupsRequest, version: int, session: Session, kept: tuple[DeletedGroup, ...] = ()
) -> Rewritten[_Asked]:
    to_broker = sent(session.broker_versions(), DELETE_GROUPS, version)
    return Rewritten(encode(message, to_broker), context=_Asked(version, kept), api_version=to_broker)


_LONGEST_GROUP: Final = LONGEST_NAME * 4 + 8  # in UTF-8, with its length


class ClassicJoinInterceptor(Interceptor[None]):
    """A JoinGroup of a group of which a topology is stored; every other one passes as it came."""

    api_keys = frozenset((JOIN_GROUP,))

    def __init__(self, service: TopologyService, rights: Rights) -> None:
        self._service = service
        self._rights = rights

    def prefilter(self, api_version: ApiVersion) -> Prefilter:
        """Only its first field matters, so a JoinGroup of whatever size passes unopened."""

        def concerns_us(view: Buffer, pos: int, end: int) -> bool:
            try:
                group = heads.joined_group(view[pos : min(end, pos + _LONGEST_GROUP)], api_version)
            except WireError:
                return False  # a name that no group of ours has, or no request at all: the broker's business
            return self._service.must_delete(group)

        return concerns_us

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[None]:
        group = heads.joined_group(request.body, request.api_version)
        if not self._service.must_delete(group):
            return Forward()
        return Hold(self._join(group, request, session), _LONGEST_S)

    async def _join(self, group: str, request: RequestFrame, session: Session) -> Outcome[None]:
        service = self._service
        try:
            if await self._rights.ask(session, Right.READ, group) == GROUP_AUTHORIZATION_FAILED:
                return Forward()
            found = await ask(session, group)
        except ClusterError:
            return Forward()
        if not found.is_empty:
            return Forward()
        match service.classic_join(group):
            case ClassicJoin.FORWARD:
                return Forward()
            case ClassicJoin.DELETE_FIRST if await service.delete(group) is None:
                return Forward()
            case ClassicJoin.DELETE_FIRST:
                service.classic_join_failed(group)
        return Answer(_come_again(request))


def _come_again(request: RequestFrame) -> bytes:
    message = decode(JoinGroupRequest, request.api_version, request.body)
    refused = JoinGroupResponse(
        error_code=REBALANCE_IN_PROGRESS, protocol_name="", leader="", member_id=message.member_id
    )
    return encode(refused, request.api_version)
