"""StreamsGroupHeartbeat: converted to the broker's version and back; the response may solicit a push.

Invariant: whatever happens to the solicitation, the heartbeat gets its response. Version 0 passes byte for byte. Only
its joins and leaves are decoded: a new member makes the stored description unconfirmed whether it can push or not, the
topology in its join is all that is known of a member that does not push (`older_clients`), and one that leaves
has no tasks any more (`tasks`).

The response to such a join waits until "unconfirmed" is written, for a second at most: a member that has its response
does not join again, so a worker that dies before the write would lose it.
"""

import asyncio
from dataclasses import replace
from typing import Final, NamedTuple

from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.decoding import SMALL_BYTES, run_off_loop
from headgate.proxy.interceptor import (
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    OnResponse,
    Oversize,
    Prefilter,
    RequestFrame,
    ResponseFrame,
    ResponseOutcome,
    Rewritten,
    Session,
    Versions,
)
from headgate.topologies.mismatch_reporter import MismatchReporter
from headgate.topologies.model.push_gate import HeartbeatResult, MemberHeartbeat
from headgate.topologies.older_clients.assignment_recorder import MAX_BYTES, AssignmentRecorder
from headgate.topologies.older_clients.assignment_topology import MemberTopology, member_topology
from headgate.topologies.service import HeartbeatHandled, TopologyService
from headgate.topologies.streams_api import (
    added_versions,
    broker_version,
    downgrade_heartbeat,
    downgrade_plain_heartbeat,
    upgrade_heartbeat,
    upgrade_plain_heartbeat,
    with_throttle,
)
from headgate.topologies.tasks.group_tasks import MAX_TASKS, Lags, lags_of
from headgate.topologies.tasks.task_watch import TaskWatch
from headgate.wire import group_requests
from headgate.wire.codec import decode, encode
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.streams import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from headgate.wire.primitives import Buffer

WRITE_TIMEOUT_S: Final = 1.0
_MARGIN_S: Final = 60.0
_TOPOLOGY_REFUSED: Final = "Topology updates are not supported yet."  # as a 4.3 broker says it
_NO_OFFSETS: Final = 2  # the size of two arrays that are null or empty


class SentHeartbeat(NamedTuple):
    """A request that waits for its response; `joined` is the topology in it, `lags` are those of the member's tasks."""

    heartbeat: MemberHeartbeat
    joined: MemberTopology | None = None
    lags: Lags | None = None


class HeartbeatInterceptor(Interceptor[SentHeartbeat]):
    """Announces the versions that the gateway adds, and handles every heartbeat of version 1."""

    api_keys = frozenset((ApiKey.STREAMS_GROUP_HEARTBEAT,))
    # A response of version 0 must not reach a client that sent version 1.
    fail_closed = True
    max_bytes = 4 * 1024 * 1024  # a join with a thousand sub-topologies of long names has an eighth of it
    max_response_bytes = 8 * 1024 * 1024

    def __init__(
        self,
        service: TopologyService,
        assignments: AssignmentRecorder,
        mismatches: MismatchReporter,
        tasks: TaskWatch | None = None,
        *,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        self._service = service
        self._assignments = assignments
        self._mismatches = mismatches
        self._tasks = tasks
        self._write_timeout_s = write_timeout_s

    def added_versions(self, broker: Versions) -> Versions:
        return added_versions(broker)

    def on_close(self, session: Session) -> None:
        self._service.on_close(session)
        self._mismatches.on_close(session)

    def prefilter(self, api_version: ApiVersion) -> Prefilter | None:
        return group_requests.is_join_or_leave if api_version == 0 else None

    def oversize(self, api_version: ApiVersion) -> Oversize:
        """A join is the first request of a connection to the coordinator, so it waits for the proof.

        Version 0 needs no conversion; a new member whose join is over `max_bytes` makes nothing unconfirmed.
        """
        return Oversize.AWAIT_PROOF_OR_PASS if api_version == 0 else Oversize.AWAIT_PROOF

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[SentHeartbeat]:
        version = request.api_version
        to_broker = broker_version(session.broker_versions(), ApiKey.STREAMS_GROUP_HEARTBEAT, version)
        if to_broker != version:
            body = bytes(request.body)
            beat = group_requests.idle_heartbeat(body)
            if beat is not None:
                heartbeat = MemberHeartbeat(
                    api_version=version, group=beat.group, member=beat.member, member_epoch=beat.epoch
                )
                lags = self._lags(body, version, beat)
                return Rewritten(downgrade_plain_heartbeat(body, beat), SentHeartbeat(heartbeat, lags=lags), to_broker)
        if len(request.body) > SMALL_BYTES:
            return Hold(run_off_loop(lambda: _converted_request(bytes(request.body), version, to_broker)), _MARGIN_S)
        return _converted_request(request.body, version, to_broker)

    def on_response(self, response: ResponseFrame, context: SentHeartbeat, session: Session) -> OnResponse:
        heartbeat = context.heartbeat
        if response.api_version == 0 and heartbeat.api_version == 1:
            body = bytes(response.body)
            beaten = group_requests.idle_heartbeat_response(body)
            if beaten is not None:
                result = HeartbeatResult(error_code=beaten.error_code)
                handled = self._handle(session, context, result, is_change=False)
                upgraded = upgrade_plain_heartbeat(body, beaten, solicit=handled.solicit)
                return self._after_write(handled, _throttled(Rewritten(upgraded), session))
        if len(response.body) > SMALL_BYTES:
            return Hold(self._respond_off_loop(response, context, session), self._write_timeout_s + _MARGIN_S)
        message = decode(StreamsGroupHeartbeatResponse, response.api_version, response.body)
        handled = self._handle(session, context, _result(message), is_change=_has_tasks(message))
        converted = _converted_response(message, response.api_version, heartbeat, solicit=handled.solicit)
        return self._after_write(handled, _throttled(converted, session))

    def _lags(self, body: bytes, version: ApiVersion, beat: group_requests.IdleHeartbeat) -> Lags | None:
        """The lags in a heartbeat that changes nothing else; it is decoded for them once a minute."""
        begin, end = beat.offsets
        if self._tasks is None or end - begin <= _NO_OFFSETS or not self._tasks.wants_lags(beat.group, beat.member):
            return None
        return _lags_in(decode(StreamsGroupHeartbeatRequest, version, body))

    def _handle(
        self, session: Session, sent: SentHeartbeat, result: HeartbeatResult, *, is_change: bool
    ) -> HeartbeatHandled:
        if self._tasks is not None:
            self._tasks.on_heartbeat(session, sent.heartbeat, result, is_change=is_change, lags=sent.lags)
        handled = self._service.on_heartbeat(session, sent.heartbeat, result)
        if sent.joined is not None:
            self._assignments.on_join(sent.heartbeat, sent.joined, result)
            self._mismatches.on_join(session, sent.heartbeat, sent.joined, result)
        elif sent.heartbeat.is_leave and not result.error_code:
            self._mismatches.on_leave(sent.heartbeat)
        return handled

    async def _respond_off_loop(
        self, response: ResponseFrame, sent: SentHeartbeat, session: Session
    ) -> ResponseOutcome:
        version = response.api_version
        message = await run_off_loop(lambda: decode(StreamsGroupHeartbeatResponse, version, response.body))
        handled = self._handle(session, sent, _result(message), is_change=_has_tasks(message))
        if handled.write is not None:
            await asyncio.wait((handled.write,), timeout=self._write_timeout_s)
        converted = await run_off_loop(
            lambda: _converted_response(message, version, sent.heartbeat, solicit=handled.solicit)
        )
        return _throttled(converted, session)

    def _after_write(self, handled: HeartbeatHandled, response: ResponseOutcome) -> OnResponse:
        """The response, at once or when the write has ended."""
        if handled.write is None:
            return response
        return Hold(self._wait(handled.write, response), self._write_timeout_s + _MARGIN_S)

    async def _wait(self, write: "asyncio.Task[None]", response: ResponseOutcome) -> ResponseOutcome:
        await asyncio.wait((write,), timeout=self._write_timeout_s)
        return response


def _converted_request(
    body: Buffer, version: ApiVersion, to_broker: ApiVersion
) -> Forward[SentHeartbeat] | Rewritten[SentHeartbeat]:
    """A heartbeat that joins or changes something, in the broker's version."""
    message = decode(StreamsGroupHeartbeatRequest, version, body)
    heartbeat = MemberHeartbeat(
        api_version=version,
        group=message.group_id,
        member=message.member_id,
        member_epoch=message.member_epoch,
        process=message.process_id,
        topology_epoch=None if message.topology is None else message.topology.epoch,
    )
    sent = SentHeartbeat(heartbeat, _joined(message, len(body)), _lags_in(message))
    if to_broker == version:
        return Forward(context=sent)
    return Rewritten(encode(downgrade_heartbeat(message), to_broker), context=sent, api_version=to_broker)


def _joined(message: StreamsGroupHeartbeatRequest, size: int) -> MemberTopology | None:
    if message.topology is None or size > MAX_BYTES:
        return None
    endpoint = message.user_endpoint
    return member_topology(message.topology, size=size, host=None if endpoint is None else endpoint.host)


def _lags_in(message: StreamsGroupHeartbeatRequest) -> Lags | None:
    if message.task_offsets is None or message.task_end_offsets is None:
        return None
    return lags_of(message.task_offsets[:MAX_TASKS], message.task_end_offsets[:MAX_TASKS])


def _has_tasks(message: StreamsGroupHeartbeatResponse) -> bool:
    return any(tasks is not None for tasks in (message.active_tasks, message.standby_tasks, message.warmup_tasks))


def _result(message: StreamsGroupHeartbeatResponse) -> HeartbeatResult:
    statuses = tuple(one.status_code for one in message.status or ())
    is_refused = message.error_code == ErrorCode.INVALID_REQUEST and message.error_message == _TOPOLOGY_REFUSED
    return HeartbeatResult(error_code=message.error_code, status_codes=statuses, is_topology_refused=is_refused)


def _converted_response(
    message: StreamsGroupHeartbeatResponse, version: int, heartbeat: MemberHeartbeat, *, solicit: bool
) -> ResponseOutcome:
    """The broker's response in the client's version, with the gateway's TopologyDescriptionRequired."""
    if heartbeat.api_version == 0:
        return Forward()
    if version == 0:
        return Rewritten(encode(upgrade_heartbeat(message, solicit=solicit), heartbeat.api_version))
    # The broker has version 1 and stores no descriptions: only the flag is the gateway's.
    if message.topology_description_required == solicit:
        return Forward()
    return Rewritten(encode(replace(message, topology_description_required=solicit), heartbeat.api_version))


def _throttled(response: ResponseOutcome, session: Session) -> ResponseOutcome:
    """The response with the throttle time of the gateway's own requests, such as an earlier describe."""
    throttle_ms = session.throttle_ms
    if not throttle_ms or not isinstance(response, Rewritten):
        return response
    return replace(response, body=with_throttle(response.body, throttle_ms))
