"""StreamsGroupTopologyDescriptionUpdate: checked as a broker checks it, then stored.

One rule: nothing reaches the store before the broker has vouched for the caller: that its principal may READ the group
and that it is a member. A successful heartbeat of this member on this connection has said both already; otherwise the
broker is asked now. What it says about itself (14, 15, 16) is passed on, so that the client comes again.
"""

from typing import Final

from headgate.base.errors import ClusterError
from headgate.facts import topology
from headgate.facts.topology import Description, content_hash
from headgate.proxy.decoding import SMALL_BYTES, run_off_loop
from headgate.proxy.interceptor import Answer, Interceptor, OnRequest, RequestFrame, Session
from headgate.proxy.rights import ABOUT_ITSELF, GROUP_AUTHORIZATION_FAILED, Right, Rights
from headgate.topologies.asking import ask
from headgate.topologies.model import push_checks
from headgate.topologies.model.group_life import NONE
from headgate.topologies.model.push_checks import Push, Refused
from headgate.topologies.service import TopologyService
from headgate.topologies.versions import PUSH
from headgate.wire import heads
from headgate.wire.codec import decode, encode
from headgate.wire.messages.streams import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from headgate.wire.primitives import Buffer

COORDINATOR_LOAD_IN_PROGRESS: Final = 14
COORDINATOR_NOT_AVAILABLE: Final = 15
_VERSION: Final = 0
_BEGINNING_BYTES: Final = 64 * 1024  # of a push that is too large
_STORED: Final = Refused(0, "")


class PushInterceptor(Interceptor[None]):
    """Answers every push itself; the broker does not have the call."""

    api_keys = frozenset((PUSH,))
    fail_closed = True
    truncated_bytes = _BEGINNING_BYTES

    def __init__(self, service: TopologyService, rights: Rights, *, max_bytes: int) -> None:
        self._service = service
        self._rights = rights
        self.max_bytes = max_bytes

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[None]:
        group, member, epoch = heads.streams_member(request.body)
        push = Push(group=group, member=member, topology_epoch=epoch)
        return Answer(self._answer(push, request, session))

    async def _answer(self, push: Push, request: RequestFrame, session: Session) -> bytes:
        outcome = await self._handle(push, request, session)
        self._service.meter.pushes[outcome.error_code] += 1
        answer = StreamsGroupTopologyDescriptionUpdateResponse(
            error_code=outcome.error_code, error_message=outcome.text or None
        )
        return encode(answer, _VERSION)

    async def _handle(self, push: Push, request: RequestFrame, session: Session) -> Refused:
        service = self._service
        is_member = service.proves(session.number, push.group, push.member)
        if not is_member and (refused := await self._may_read(push, session)) is not None:
            return refused
        has_store = service.has_store and service.selects(push.group)
        refused = push_checks.before_the_group(push, store=has_store)
        if refused is None and not service.is_ready:
            refused = Refused(COORDINATOR_LOAD_IN_PROGRESS, "Topology descriptions are not available yet.")
        if refused is None:
            refused = await self._against_the_group(push, session, is_member=is_member)
        if refused is not None:
            return refused
        if request.is_truncated:
            return await self._too_large(push, request)
        return await self._store(push, request.body)

    async def _may_read(self, push: Push, session: Session) -> Refused | None:
        try:
            code = await self._rights.ask(session, Right.READ, push.group)
        except ClusterError as problem:
            return Refused(COORDINATOR_NOT_AVAILABLE, str(problem))
        if code == GROUP_AUTHORIZATION_FAILED or code in ABOUT_ITSELF:
            return Refused(code, "")
        return None

    async def _against_the_group(self, push: Push, session: Session, *, is_member: bool) -> Refused | None:
        """As the coordinator has it: what heartbeats told, or else a describe."""
        current = self._service.groups.life(push.group).current_epoch
        if is_member and current != NONE:
            return push_checks.against_the_group(push, found=True, is_member=True, current_epoch=current)
        try:
            group = await ask(session, push.group)
        except ClusterError as problem:
            return Refused(COORDINATOR_NOT_AVAILABLE, str(problem))
        if group.error_code and not group.is_gone:
            return Refused(group.error_code, group.error_message or "")
        self._service.groups.on_described(
            push.group, error_code=group.error_code, topology_epoch=group.topology_epoch, members=group.members
        )
        return push_checks.against_the_group(
            push,
            found=not group.is_gone,
            is_member=push.member in group.members,
            current_epoch=NONE if group.topology_epoch is None else group.topology_epoch,
        )

    async def _too_large(self, push: Push, request: RequestFrame) -> Refused:
        """The store would never take it. Or the broker had not yet said who this is: now it has, so it comes again."""
        if request.size <= self.max_bytes:
            return Refused(COORDINATOR_LOAD_IN_PROGRESS, "Send it again: the connection was new.")
        text = f"The topology description has {request.size} bytes, and {self.max_bytes} are taken."
        failed = await self._service.refuse(push.group, push.member, push.topology_epoch, text)
        return Refused(push_checks.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, failed.text)

    async def _store(self, push: Push, body: Buffer) -> Refused:
        read = await run_off_loop(lambda: _read(body)) if len(body) > SMALL_BYTES else _read(body)
        if isinstance(read, topology.Refusal):
            return Refused(push_checks.INVALID_REQUEST, read.text)
        description, content = read
        failed = await self._service.push(push.group, push.member, push.topology_epoch, description, content)
        if failed is None:
            return _STORED
        return Refused(push_checks.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, failed.text)


def _read(body: Buffer) -> tuple[Description, str] | topology.Refusal:
    """The description and its hash; `WireError` when these bytes are none."""
    request = decode(StreamsGroupTopologyDescriptionUpdateRequest, _VERSION, body)
    description = topology.from_wire(request.topology_description)
    return description if isinstance(description, topology.Refusal) else (description, content_hash(description))
