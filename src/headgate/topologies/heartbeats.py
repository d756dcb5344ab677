"""StreamsGroupHeartbeat: version 1 is carried to a broker of version 0 and back, and its member perhaps asked.

One rule: whatever becomes of the question, the heartbeat gets its answer. Version 0 passes byte for byte: of it only
joins are looked at, since a newcomer puts in doubt what is stored whether it can push or not.

A join that puts something in doubt is answered when the doubt is written, or could not be in a second: who is answered
joins no more, so behind the answer a worker that dies would take the doubt along.
"""

import asyncio
from dataclasses import replace
from typing import Final

import structlog

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiVersion
from headgate.proxy.decoding import SMALL_BYTES, run_off_loop
from headgate.proxy.interceptor import (
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    OnResponse,
    Prefilter,
    RequestFrame,
    ResponseFrame,
    ResponseOutcome,
    Rewritten,
    Session,
)
from headgate.topologies import asking
from headgate.topologies.model.push_gate import HeartbeatAnswer, HeartbeatRequest
from headgate.topologies.service import NOT_ASKED, Describe, Noted, TopologyService
from headgate.topologies.versions import (
    HEARTBEAT,
    Versions,
    added,
    beat_down,
    beaten_up,
    heartbeat_down,
    heartbeat_up,
    sent,
)
from headgate.wire import heads
from headgate.wire.codec import decode, encode
from headgate.wire.messages.streams import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from headgate.wire.primitives import Buffer

log = structlog.get_logger()

DOUBT_S: Final = 1.0
_MARGIN_S: Final = 60.0


class HeartbeatInterceptor(Interceptor[HeartbeatRequest]):
    """Announces what the gateway adds, and sees every heartbeat of version 1."""

    api_keys = frozenset((HEARTBEAT,))
    # An answer of version 0 must not reach a client that asked in version 1.
    fail_closed = True
    max_bytes = 1024 * 1024  # of a thousand sub-topologies with long names a join has half of it
    max_response_bytes = 8 * 1024 * 1024

    def __init__(self, service: TopologyService) -> None:
        self._service = service

    def added_versions(self, broker: Versions) -> Versions:
        return added(broker)

    def on_close(self, session: Session) -> None:
        self._service.on_close(session.number)

    def prefilter(self, api_version: ApiVersion) -> Prefilter | None:
        return heads.joins if api_version == 0 else None

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[HeartbeatRequest]:
        version = request.api_version
        to_broker = sent(session.broker_versions(), HEARTBEAT, version)
        if to_broker != version:
            body = bytes(request.body)
            beat = heads.beat(body)
            if beat is not None:
                context = HeartbeatRequest(
                    api_version=version, group=beat.group, member=beat.member, member_epoch=beat.epoch
                )
                return Rewritten(beat_down(body, beat), context, to_broker)
        if len(request.body) > SMALL_BYTES:
            return Hold(run_off_loop(lambda: _opened(bytes(request.body), version, to_broker)), _MARGIN_S)
        return _opened(request.body, version, to_broker)

    def on_response(self, response: ResponseFrame, context: HeartbeatRequest, session: Session) -> OnResponse:
        if response.api_version == 0 and context.api_version == 1:
            body = bytes(response.body)
            beaten = heads.beaten(body)
            if beaten is not None:
                noted = self._note(context, HeartbeatAnswer(error_code=beaten.error_code), session)
                return _behind(noted, Rewritten(beaten_up(body, beaten, ask=noted.ask)))
        if len(response.body) > SMALL_BYTES:
            return Hold(self._answered_aside(response, context, session), DOUBT_S + _MARGIN_S)
        message = decode(StreamsGroupHeartbeatResponse, response.api_version, response.body)
        noted = self._note(context, _seen(message), session)
        return _behind(noted, _answered(message, response.api_version, context, ask=noted.ask))

    async def _answered_aside(
        self, response: ResponseFrame, request: HeartbeatRequest, session: Session
    ) -> ResponseOutcome:
        version = response.api_version
        message = await run_off_loop(lambda: decode(StreamsGroupHeartbeatResponse, version, response.body))
        noted = self._note(request, _seen(message), session)
        if noted.doubt is not None:
            await asyncio.wait((noted.doubt,), timeout=DOUBT_S)
        return await run_off_loop(lambda: _answered(message, version, request, ask=noted.ask))

    def _note(self, request: HeartbeatRequest, answer: HeartbeatAnswer, session: Session) -> Noted:
        """Whether the member is asked; a defect of ours never costs it its heartbeat."""
        try:
            return self._service.on_heartbeat(session.number, request, answer, self._describe(session))
        except Exception:
            self._service.meter.gate_failures += 1
            if self._service.meter.gate_failures == 1:
                log.exception("topology gate failed, heartbeat answered", group=request.group)
            return NOT_ASKED

    def _describe(self, session: Session) -> Describe:
        async def describe(group: str) -> None:
            """Ask on the member's own connection for the epoch that nobody told."""
            try:
                found = await asking.ask(session, group)
            except ClusterError:
                return  # asked again in half a minute
            self._service.groups.on_described(
                group, error_code=found.error_code, topology_epoch=found.topology_epoch, members=found.members
            )

        return describe


def _opened(
    body: Buffer, version: ApiVersion, to_broker: ApiVersion
) -> Forward[HeartbeatRequest] | Rewritten[HeartbeatRequest]:
    """A heartbeat that says something new, in the broker's version."""
    message = decode(StreamsGroupHeartbeatRequest, version, body)
    seen = HeartbeatRequest(
        api_version=version,
        group=message.group_id,
        member=message.member_id,
        member_epoch=message.member_epoch,
        process=message.process_id,
        topology_epoch=None if message.topology is None else message.topology.epoch,
    )
    if to_broker == version:
        return Forward(context=seen)
    return Rewritten(encode(heartbeat_down(message), to_broker), context=seen, api_version=to_broker)


def _seen(message: StreamsGroupHeartbeatResponse) -> HeartbeatAnswer:
    statuses = tuple(one.status_code for one in message.status or ())
    return HeartbeatAnswer(error_code=message.error_code, status_codes=statuses)


def _answered(
    message: StreamsGroupHeartbeatResponse, version: int, request: HeartbeatRequest, *, ask: bool
) -> ResponseOutcome:
    """The broker's answer in the client's version, with our question in it."""
    if request.api_version == 0:
        return Forward()
    if version == 0:
        return Rewritten(encode(heartbeat_up(message, ask=ask), request.api_version))
    # The broker speaks version 1 and keeps no descriptions: the question is ours, the rest is its own.
    if message.topology_description_required == ask:
        return Forward()
    return Rewritten(encode(replace(message, topology_description_required=ask), request.api_version))


def _behind(noted: Noted, answer: ResponseOutcome) -> OnResponse:
    """The answer, or first the doubt and then the answer."""
    if noted.doubt is None:
        return answer
    return Hold(_when_written(noted.doubt, answer), DOUBT_S + _MARGIN_S)


async def _when_written(doubt: "asyncio.Task[None]", answer: ResponseOutcome) -> ResponseOutcome:
    await asyncio.wait((doubt,), timeout=DOUBT_S)
    return answer
