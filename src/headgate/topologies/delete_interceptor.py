"""The end of a group: DeleteGroups, and a classic member that joins what was a Streams group.

Invariant: the store is called only when the broker would delete the group: the client may, and the group is Empty or
gone. First the store, then the group, so that a retry converges. A client without the right, and a group that has
members, are for the broker to reject. While the group's state is unknown, or the store has not been opened, the request
is not forwarded: the broker might delete the group, and its description would stay.

Any client may name tens of thousands of groups: large messages are read off the event loop, and their groups looked at
in steps.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError, WireError
from headgate.base.ids import ApiKey, ApiVersion
from headgate.kafka.group_admin import EMPTY, group_error
from headgate.proxy.decoding import SMALL_BYTES, run_off_loop
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
    ResponseOutcome,
    Rewritten,
    Session,
    Versions,
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
_STEP: Final = 500  # groups that are looked at before other connections are served
T = TypeVar("T")


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
        if len(request.body) > SMALL_BYTES:
            return Hold(self._on_large_request(request, session), _TIMEOUT_S)
        version = request.api_version
        message = decode(DeleteGroupsRequest, version, request.body)
        described, is_known = self._find(message.groups_names, session)
        if described:
            return Hold(self._delete(message, version, described, session), _TIMEOUT_S)
        return _passed_on(message, version, session.broker_versions(), is_known=is_known)

    async def _on_large_request(self, request: RequestFrame, session: Session) -> Outcome[_DeleteContext]:
        version = request.api_version
        message = await run_off_loop(lambda: decode(DeleteGroupsRequest, version, request.body))
        described: dict[str, None] = {}
        is_known = False
        for names in _steps(message.groups_names):
            found, any_known = self._find(names, session)
            described |= dict.fromkeys(found)
            is_known |= any_known
            await asyncio.sleep(0)
        if described:
            return await self._delete(message, version, list(described), session)
        broker = session.broker_versions()
        return await run_off_loop(lambda: _passed_on(message, version, broker, is_known=is_known))

    def _find(self, names: Sequence[str], session: Session) -> tuple[list[str], bool]:
        """The groups that may have a stored description, and whether this worker knows any of the others."""
        service, described = self._service, []
        if service.is_ready or ApiKey.STREAMS_GROUP_DESCRIBE in session.broker_versions():
            described = [group for group in dict.fromkeys(names) if service.may_be_stored(group)]
        return described, any(service.is_known(one) or self._assignments.is_recorded(one) for one in names)

    async def _delete(
        self, message: DeleteGroupsRequest, version: int, described: Sequence[str], session: Session
    ) -> Outcome[_DeleteContext]:
        until = self._clock.monotonic() + _BEGIN_S
        waiting = iter(described)
        found: dict[str, DeletedGroup] = {}

        async def delete_some() -> None:
            for group in waiting:  # the deadlines of a group begin when it has its turn
                if self._clock.monotonic() > until:
                    found[group] = DeletedGroup(group_id=group, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                    await asyncio.sleep(0)
                elif (result := await self._delete_one(group, version, session)) is not None:
                    found[group] = result

        await asyncio.gather(*(delete_some() for _ in described[:_AT_ONCE]))
        results = tuple(found[group] for group in described if group in found)
        left = replace(message, groups_names=tuple(group for group in message.groups_names if group not in found))
        throttle_ms, broker = session.throttle_ms, session.broker_versions()
        if left.groups_names:
            return await run_off_loop(lambda: _forwarded(left, version, broker, results))
        response = DeleteGroupsResponse(throttle_time_ms=throttle_ms, results=results)
        return Answer(await run_off_loop(lambda: encode(response, version)))

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
        version = response.api_version
        if len(response.body) > SMALL_BYTES:
            return Hold(self._on_large_response(response, context, session), _TIMEOUT_S)
        message = decode(DeleteGroupsResponse, version, response.body)
        self._note_deleted(message.results)
        return _completed(message, version, context, session.throttle_ms)

    async def _on_large_response(
        self, response: ResponseFrame, context: _DeleteContext, session: Session
    ) -> ResponseOutcome:
        version = response.api_version
        message = await run_off_loop(lambda: decode(DeleteGroupsResponse, version, response.body))
        # To its end, also when the client disconnects: the groups are gone.
        await asyncio.shield(self._service.spawn(self._note_all_deleted(message.results)))
        throttle_ms = session.throttle_ms
        return await run_off_loop(lambda: _completed(message, version, context, throttle_ms))

    async def _note_all_deleted(self, results: Sequence[DeletedGroup]) -> None:
        for some in _steps(results):
            self._note_deleted(some)
            await asyncio.sleep(0)

    def _note_deleted(self, results: Sequence[DeletedGroup]) -> None:
        for result in results:
            if result.error_code == 0:
                self._service.on_deleted(result.group_id)
                self._assignments.on_deleted(result.group_id)


def _steps(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[begin : begin + _STEP] for begin in range(0, len(items), _STEP))


def _failed(group: str, version: int, text: str) -> DeletedGroup:
    if version < _FIRST_WITH_MESSAGE:
        return DeletedGroup(group_id=group, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    return DeletedGroup(group_id=group, error_code=ErrorCode.GROUP_DELETION_FAILED, error_message=text)


def _passed_on(
    message: DeleteGroupsRequest, version: int, broker: Versions, *, is_known: bool
) -> Forward[_DeleteContext] | Rewritten[_DeleteContext]:
    """No description has to be deleted first."""
    if version > broker_version(broker, ApiKey.DELETE_GROUPS, version):
        return _forwarded(message, version, broker)
    return Forward(_DeleteContext(version) if is_known else None)


def _forwarded(
    message: DeleteGroupsRequest, version: int, broker: Versions, results: tuple[DeletedGroup, ...] = ()
) -> Rewritten[_DeleteContext]:
    to_broker = broker_version(broker, ApiKey.DELETE_GROUPS, version)
    return Rewritten(encode(message, to_broker), context=_DeleteContext(version, results), api_version=to_broker)


def _completed(
    message: DeleteGroupsResponse, version: int, context: _DeleteContext, throttle_ms: int
) -> ResponseOutcome:
    """The response in the client's version, with the results of groups that were not sent to the broker."""
    if version == context.version and not context.results and not throttle_ms:
        return Forward()
    whole = replace(message, results=(*message.results, *context.results))
    return Rewritten(with_throttle(encode(whole, context.version), throttle_ms))


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
