"""The end of a group: DeleteGroups, and a classic member that joins what was a Streams group.

Invariant: the store is called only when the broker would delete the group: the client may, and the group is Empty or
gone. First the store, then the group, so that a retry converges. A client without the right, and a group that has
members, are for the broker to reject. While the group's state is unknown, or the store has not been opened, the request
is not forwarded: the broker might delete the group, and its description would stay.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError, WireError
from headgate.base.ids import ApiKey, ApiVersion
from headgate.kafka.group_admin import EMPTY, group_error
from headgate.proxy.interceptor import (
    Answer,
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    OnResponse,
    Outcome,
    Oversize,
    Prefilter,
    RequestFrame,
    ResponseFrame,
    Rewritten,
    Session,
)
from headgate.proxy.rights import COORDINATOR_ERRORS, GroupRight, Rights
from headgate.topologies.model.streams_groups import ClassicJoin
from headgate.topologies.older_clients.assignment_recorder import AssignmentRecorder
from headgate.topologies.service import MAX_NAME_BYTES, TopologyService
from headgate.topologies.streams_api import broker_version, group_state, with_throttle
from headgate.wire import group_requests
from headgate.wire.codec import decode, encode
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.groups import (
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    JoinGroupRequest,
    JoinGroupResponse,
)

_FIRST_WITH_MESSAGE: Final = 3
_TIMEOUT_S: Final = 600.0  # each step of each group has a deadline of its own
_AT_ONCE: Final = 16
_BEGIN_S: Final = 60.0  # then the groups that are left get COORDINATOR_LOAD_IN_PROGRESS; clients wait no longer


@dataclass(frozen=True, slots=True)
class _DeleteContext:
    """The client's version, and the results of groups that were not sent to the broker."""

    version: int
    results: tuple[DeletedGroup, ...] = ()


class DeleteGroupsInterceptor(Interceptor[_DeleteContext]):
    """A batch without any description passes as it came."""

    api_keys = frozenset((ApiKey.DELETE_GROUPS,))
    fail_closed = True
    max_bytes = 256 * 1024  # of group names
    max_response_bytes = 1024 * 1024

    def __init__(self, service: TopologyService, rights: Rights, assignments: AssignmentRecorder, clock: Clock) -> None:
        self._service = service
        self._rights = rights
        self._assignments = assignments
        self._clock = clock

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[_DeleteContext]:
        version = request.api_version
        message = decode(DeleteGroupsRequest, version, request.body)
        described = []
        if self._service.is_ready or ApiKey.STREAMS_GROUP_DESCRIBE in session.broker_versions():
            described = [group for group in dict.fromkeys(message.groups_names) if self._service.may_be_stored(group)]
        if described:
            return Hold(self._delete(message, version, described, session), _TIMEOUT_S)
        if version <= broker_version(session.broker_versions(), ApiKey.DELETE_GROUPS, version):
            names = message.groups_names
            known = any(self._service.is_known(one) or self._assignments.is_recorded(one) for one in names)
            return Forward(_DeleteContext(version) if known else None)
        return _forwarded(message, version, session)

    async def _delete(
        self, message: DeleteGroupsRequest, version: int, described: list[str], session: Session
    ) -> Outcome[_DeleteContext]:
        waiting = iter(described)  # a task for each of thousands would keep the event loop
        until = self._clock.monotonic() + _BEGIN_S
        found: dict[str, DeletedGroup] = {}

        async def delete_some() -> None:
            for group in waiting:
                if self._clock.monotonic() > until:
                    result: DeletedGroup | None = DeletedGroup(
                        group_id=group, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                    )
                else:
                    result = await self._delete_one(group, version, session)
                if result is not None:
                    found[group] = result

        await asyncio.gather(*(delete_some() for _ in range(_AT_ONCE)))
        results = tuple(found[group] for group in described if group in found)
        left = tuple(group for group in message.groups_names if group not in found)
        if not left:
            return Answer(encode(DeleteGroupsResponse(throttle_time_ms=session.throttle_ms, results=results), version))
        return _forwarded(replace(message, groups_names=left), version, session, results)

    async def _delete_one(self, group: str, version: int, session: Session) -> DeletedGroup | None:
        """Delete the description of a group; a result when the group must not be deleted for now."""
        try:
            if await self._rights.ask(session, GroupRight.DELETE, group) == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                return None
            found = await group_state(session, group)
        except ClusterError:
            return DeletedGroup(group_id=group, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        is_gone = found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        if found.error_code in COORDINATOR_ERRORS:
            return DeletedGroup(group_id=group, error_code=found.error_code)
        if found.error_code and not is_gone:
            return _failed(group, version, f"The state of the group is unknown: {group_error(found.error_code).text}")
        if not is_gone and found.state != EMPTY:
            return None
        if is_gone and not self._service.is_ready:
            return None  # also groups of other types; a description that was left behind is for the cleanup
        failure = await self._service.delete(group)
        return None if failure is None else _failed(group, version, failure.text)

    def on_response(self, response: ResponseFrame, context: _DeleteContext, session: Session) -> OnResponse:
        message = decode(DeleteGroupsResponse, response.api_version, response.body)
        for result in message.results:
            if result.error_code == 0:
                self._service.on_deleted(result.group_id)
                self._assignments.on_deleted(result.group_id)
        throttle_ms = session.throttle_ms
        if response.api_version == context.version and not context.results and not throttle_ms:
            return Forward()
        whole = replace(message, results=(*message.results, *context.results))
        return Rewritten(with_throttle(encode(whole, context.version), throttle_ms))


def _failed(group: str, version: int, text: str) -> DeletedGroup:
    if version < _FIRST_WITH_MESSAGE:
        return DeletedGroup(group_id=group, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    return DeletedGroup(group_id=group, error_code=ErrorCode.GROUP_DELETION_FAILED, error_message=text)


def _forwarded(
    message: DeleteGroupsRequest, version: int, session: Session, results: tuple[DeletedGroup, ...] = ()
) -> Rewritten[_DeleteContext]:
    to_broker = broker_version(session.broker_versions(), ApiKey.DELETE_GROUPS, version)
    return Rewritten(encode(message, to_broker), context=_DeleteContext(version, results), api_version=to_broker)


class ClassicJoinInterceptor(Interceptor[None]):
    """Handles a JoinGroup for a group with a stored description; every other one passes as it came."""

    api_keys = frozenset((ApiKey.JOIN_GROUP,))

    def __init__(self, service: TopologyService, rights: Rights) -> None:
        self._service = service
        self._rights = rights

    def prefilter(self, api_version: ApiVersion) -> Prefilter:
        """Only the first field is read, so that a JoinGroup of any other group passes unopened."""
        return group_requests.begins_with_group(
            group_requests.joining_group, api_version, self._service.must_delete, longest=MAX_NAME_BYTES
        )

    def oversize(self, api_version: ApiVersion) -> Oversize:  # noqa: ARG002
        return Oversize.AWAIT_PROOF

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[None]:
        try:
            group = group_requests.joining_group(request.body, request.api_version)
        except WireError:
            return Forward()  # the broker rejects it
        if not self._service.must_delete(group):
            return Forward()
        return Hold(self._join(group, request, session), _TIMEOUT_S)

    async def _join(self, group: str, request: RequestFrame, session: Session) -> Outcome[None]:
        service = self._service
        try:
            if await self._rights.ask(session, GroupRight.READ, group) == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                return Forward()
            found = await group_state(session, group)
        except ClusterError:
            return Answer(_refusal(request, session, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if found.error_code in COORDINATOR_ERRORS:
            return Answer(_refusal(request, session, ErrorCode(found.error_code)))
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (not found.error_code and found.state != EMPTY):
            return Forward()
        if found.error_code:
            return Answer(_refusal(request, session, ErrorCode.REBALANCE_IN_PROGRESS))
        match service.classic_join(group):
            case ClassicJoin.FORWARD:
                return Forward()
            case ClassicJoin.DELETE_FIRST if await service.delete(group) is None:
                return Forward()
            case ClassicJoin.DELETE_FIRST:
                service.on_classic_join_failed(group)
        return Answer(_refusal(request, session, ErrorCode.REBALANCE_IN_PROGRESS))


def _refusal(request: RequestFrame, session: Session, code: ErrorCode) -> bytes:
    """A response with which the client joins again."""
    message = decode(JoinGroupRequest, request.api_version, request.body)
    response = JoinGroupResponse(
        throttle_time_ms=session.throttle_ms,
        error_code=code,
        protocol_name="",
        leader="",
        member_id=message.member_id,
    )
    return encode(response, request.api_version)
