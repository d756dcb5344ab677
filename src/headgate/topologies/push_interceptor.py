"""StreamsGroupTopologyDescriptionUpdate: checked as a broker checks it, then stored.

Invariant: no push reaches the store before the broker has proven its sender: that its principal may READ the group and
that it is a member. A successful heartbeat of this member on this connection has proven both; otherwise the broker is
asked now. Its own coordinator errors (14, 15, 16) are passed on, so that the client retries.

A request without a member may be a version to keep (`pasted_versions`). Then only the right can be proven.
"""

from typing import Final

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiKey
from headgate.facts.topology import Description, content_hash
from headgate.proxy.decoding import SMALL_BYTES, run_off_loop
from headgate.proxy.interceptor import Answer, Interceptor, OnRequest, RequestFrame, Session
from headgate.proxy.principals import Principals
from headgate.proxy.rights import COORDINATOR_ERRORS, GroupRight, Rights
from headgate.topologies.group_statuses import GroupStatuses
from headgate.topologies.mismatch_reporter import MismatchReporter
from headgate.topologies.model import push_gate
from headgate.topologies.model.group_state import NONE
from headgate.topologies.model.push_gate import Push, PushRejection
from headgate.topologies.pasted_versions import Paste, PastedVersions, read_paste, response_tag
from headgate.topologies.service import TopologyService
from headgate.topologies.streams_api import describe_group
from headgate.topologies.wire_descriptions import Refusal, from_wire
from headgate.wire import group_requests
from headgate.wire.codec import decode, encode
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.streams import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from headgate.wire.primitives import Buffer

_VERSION: Final = 0
_TRUNCATED_BYTES: Final = 64 * 1024  # what is read of a push that is too large


class PushInterceptor(Interceptor[None]):
    """Answers every push itself; a 4.3 broker does not have the API."""

    api_keys = frozenset((ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,))
    fail_closed = True
    truncated_bytes = _TRUNCATED_BYTES

    def __init__(
        self,
        service: TopologyService,
        rights: Rights,
        statuses: GroupStatuses,
        pasted: PastedVersions,
        mismatches: MismatchReporter,
        *,
        principals: Principals | None = None,
        max_bytes: int,
    ) -> None:
        self._service = service
        self._mismatches = mismatches
        self._statuses = statuses
        self._rights = rights
        self._pasted = pasted
        self._principals = principals
        self.max_bytes = max_bytes

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[None]:
        group, member, epoch = group_requests.streams_member(request.body)
        push = Push(group=group, member=member, topology_epoch=epoch)
        return Answer(self._respond(push, request, session))

    async def _respond(self, push: Push, request: RequestFrame, session: Session) -> bytes:
        if not push.member and (response := await self._on_paste(push, request, session)) is not None:
            return response
        rejection = await self._check(push, session)
        is_checked = rejection is None
        if is_checked:
            rejection = await (
                self._on_truncated(push, request) if request.is_truncated else self._store(push, request.body)
            )
        code, text = (0, "") if rejection is None else (rejection.error_code, rejection.text)
        self._service.count_push(code)
        if is_checked:
            self._statuses.record_push(push, code)
        return _response(session, code, text)

    async def _check(self, push: Push, session: Session) -> PushRejection | None:
        service = self._service
        is_proven = service.is_proven(session, push)
        if not is_proven and (rejection := await self._check_read(push, session)) is not None:
            return rejection
        has_store = service.has_store and service.is_selected(push.group)
        rejection = push_gate.check_request(push, has_store=has_store)
        if rejection is not None:
            return rejection
        if not service.is_ready:
            return PushRejection(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Topology descriptions are not available yet.")
        current = service.current_epoch(push.group)
        if is_proven and current != NONE:
            return push_gate.check_group(push, is_found=True, is_member=True, current_epoch=current)
        return await self._check_described(push, session)

    async def _check_read(self, push: Push, session: Session) -> PushRejection | None:
        try:
            code = await self._rights.ask(session, GroupRight.READ, push.group)
        except ClusterError as problem:
            return PushRejection(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(problem))
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED or code in COORDINATOR_ERRORS:
            return PushRejection(code, "")
        return None

    async def _check_described(self, push: Push, session: Session) -> PushRejection | None:
        """Check the push against the group as the broker describes it now."""
        try:
            group = await describe_group(session, push.group)
        except ClusterError as problem:
            return PushRejection(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(problem))
        is_found = group.error_code != ErrorCode.GROUP_ID_NOT_FOUND
        if group.error_code and is_found:
            return PushRejection(group.error_code, group.error_text or "")
        self._service.on_described(group)
        return push_gate.check_group(
            push,
            is_found=is_found,
            is_member=push.member in group.member_ids,
            current_epoch=NONE if group.topology_epoch is None else group.topology_epoch,
        )

    async def _on_paste(self, push: Push, request: RequestFrame, session: Session) -> bytes | None:
        """The response to a request without a member; None when it is an invalid push."""
        if (rejection := await self._check_read(push, session)) is not None:
            return _response(session, rejection.error_code, rejection.text)
        if request.is_truncated:
            code, text = _too_large(request, self.max_bytes)
            return _response(session, code, text, (response_tag(),))
        by = None if self._principals is None else self._principals.principal_of(session)
        body, client_id = request.body, request.client_id

        def read() -> Paste | PushRejection | None:
            message = decode(StreamsGroupTopologyDescriptionUpdateRequest, _VERSION, body)
            return read_paste(message, push, by=by, client_id=client_id)

        found = await run_off_loop(read) if len(body) > SMALL_BYTES else read()
        if found is None:
            return None
        kept = await self._pasted.keep(found) if isinstance(found, Paste) else found
        if isinstance(kept, PushRejection):
            return _response(session, kept.error_code, kept.text, (response_tag(),))
        return _response(session, 0, "", (response_tag(kept),))

    async def _on_truncated(self, push: Push, request: RequestFrame) -> PushRejection:
        """Too large for any store; or it came before the broker knew the client, and now it may be sent again."""
        code, text = _too_large(request, self.max_bytes)
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return PushRejection(code, text)
        failure = await self._service.reject_permanently(push, text)
        return PushRejection(ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, failure.text)

    async def _store(self, push: Push, body: Buffer) -> PushRejection | None:
        read = await run_off_loop(lambda: _read(body)) if len(body) > SMALL_BYTES else _read(body)
        if isinstance(read, Refusal):
            return PushRejection(ErrorCode.INVALID_REQUEST, read.text)
        failure = await self._service.push(push, *read)
        if failure is None:
            self._mismatches.on_pushed(push.group, push.member, read[1])
        return (
            None
            if failure is None
            else PushRejection(ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, failure.text)
        )


def _too_large(request: RequestFrame, max_bytes: int) -> tuple[int, str]:
    """The error code and the text for a request that was not read whole."""
    if request.size <= max_bytes:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Send it again: the connection was new."
    text = f"The topology description has {request.size} bytes, and {max_bytes} are taken."
    return ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, text


def _response(session: Session, code: int, text: str, tags: tuple[tuple[int, bytes], ...] = ()) -> bytes:
    response = StreamsGroupTopologyDescriptionUpdateResponse(
        throttle_time_ms=session.throttle_ms, error_code=code, error_message=text or None, unknown_tags=tags
    )
    return encode(response, _VERSION)


def _read(body: Buffer) -> tuple[Description, str] | Refusal:
    """The description and its hash; `WireError` when the bytes are no push."""
    request = decode(StreamsGroupTopologyDescriptionUpdateRequest, _VERSION, body)
    description = from_wire(request.topology_description)
    return description if isinstance(description, Refusal) else (description, content_hash(description))
