"""ShareFetch and ShareAcknowledge on their way to the broker and back.

A request of a group that Headgate does not manage is not decoded and passes byte for byte. Of a managed group only the
name is read until the broker has shown that the client has READ on it: by a probe, and then by every response. Requests
with REJECTs wait while their dead letters are written, and no longer than their locks allow. Whatever fails, a paused
group acquires nothing.

Pausing uses a path that brokers have: with MaxBytes 0 they process acknowledgements and keep the session, and acquire
nothing. The response then waits as long as the broker's would have, or until the group is resumed; a response to
acknowledgements does not wait.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from headgate.base.errors import ClusterError, WireError
from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.decoding import DECODE_SECONDS, SMALL_BYTES, run_off_loop
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
    ResponseOutcome,
    Rewritten,
    Session,
)
from headgate.proxy.rights import GroupRight
from headgate.share_groups.acknowledgements import AcknowledgementTracker, RequestAcks
from headgate.share_groups.deferred_acks import FIRST_EPOCH, LAST_EPOCH, add_rejects, remove_partitions
from headgate.share_groups.model.delivery_ledger import AckRun, Holder, runs
from headgate.share_groups.service import ShareGroupService
from headgate.wire.codec import encode
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.share import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from headgate.wire.primitives import Buffer
from headgate.wire.share_requests import (
    ShareRequest,
    group_bytes,
    group_name,
    read_acknowledge,
    read_acknowledge_response,
    read_fetch,
    read_fetch_response,
    stripped,
    with_wait,
    without_bytes,
)

_MARGIN_S: Final = 10.0  # for what a hold does beside waiting for dead letters
# Longer waits are cut for groups with a dead-letter topic: locks are counted from the time at which the fetch was sent.
_MAX_WAIT_MS: Final = 5000
# The broker handles the request only after the probe in front of it, so that nothing is gained by not waiting for it.
_PROBE_S: Final = 60.0


@dataclass(slots=True)
class ForwardedRequest:
    """A request that was forwarded; `paused`: with MaxBytes 0. `waited`: the service did not open in time.

    `generation` is the group's when it was forwarded: it may acquire records before a trip that is read meanwhile.
    """

    share: ShareRequest
    acks: RequestAcks
    generation: int
    sent_at: float
    paused: bool
    waited: bool = False

    @property
    def is_last(self) -> bool:
        return self.share.session_epoch == LAST_EPOCH


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A decoded request, and its acknowledgements by topic id and partition."""

    share: ShareRequest
    runs: Mapping[tuple[bytes, int], tuple[AckRun, ...]]


_Forwarded = Forward[ForwardedRequest] | Rewritten[ForwardedRequest]


class ShareInterceptor(Interceptor[ForwardedRequest]):
    """The common part of ShareFetch and ShareAcknowledge."""

    # 50,000 acknowledgements of one record each: more than a real member sends, and 0.2 s of work off the event loop.
    max_bytes = 1024 * 1024
    max_response_bytes = 2**31 - 1  # the connection limits frames
    request_type: ClassVar[type[ShareFetchRequest] | type[ShareAcknowledgeRequest]]

    def __init__(
        self,
        service: ShareGroupService,
        acknowledgements: AcknowledgementTracker,
        principal_of: Callable[[Session], str | None],
    ) -> None:
        self._service = service
        self._principal_of = principal_of
        self._rights = service.rights
        self._acknowledgements = acknowledgements
        self._in_flight: dict[int, list[RequestAcks]] = {}  # with dead letters, by connection

    def _read(self, request: RequestFrame) -> ShareRequest:
        raise NotImplementedError

    def _carries_deferred(self, share: ShareRequest) -> bool:
        """Whether deferred acknowledgements of the member can be added to this request."""
        raise NotImplementedError

    def _error(self, version: ApiVersion, code: ErrorCode) -> bytes:
        """The response to a request that is not forwarded."""
        raise NotImplementedError

    # --- requests

    def prefilter(self, api_version: ApiVersion) -> Prefilter:  # noqa: ARG002 - all versions begin with the group
        return self._concerns

    def _concerns(self, view: Buffer, pos: int, end: int) -> bool:
        if self._service.is_opening:
            return True
        name = group_bytes(view, pos, end)
        return name is None or self._service.manages_name(name)

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[ForwardedRequest]:
        try:
            group = group_name(request.body)
        except WireError:
            return self._invalid(request)
        is_opening = self._service.is_opening
        if not group or not (self._service.selects(group) if is_opening else self._service.manages(group)):
            return Forward()
        is_small = len(request.body) <= SMALL_BYTES
        if is_small and not is_opening and self._rights.has(session, GroupRight.READ, group):
            try:
                return self._decide(request, self._parse(request), session)
            except WireError:
                return self._invalid(request)
            except Exception as failure:  # noqa: BLE001 - any
                return self._failed(failure, request, group)
        deadline = _PROBE_S + DECODE_SECONDS + self._service.max_hold_s() + _MARGIN_S
        return Hold(self._when_allowed(request, group, session), deadline, self._late(request))

    def _late(self, request: RequestFrame) -> Answer:
        """Not forwarded: its group may be paused by now, its dead letters withdrawn, and its locks may have ended."""
        return Answer(self._error(request.api_version, ErrorCode.REQUEST_TIMED_OUT))

    def _failed(self, failure: Exception, request: RequestFrame, group: str) -> Answer:
        """A request that fails here passes, except one that would acquire records of a paused group."""
        if not self._may_pass_a_pause(group):
            raise failure
        self._service.report_failure(failure)
        return Answer(self._error(request.api_version, ErrorCode.UNKNOWN_SERVER_ERROR))

    def _may_pass_a_pause(self, group: str) -> bool:
        """Whether the request, forwarded as it is now, may acquire records of a paused group."""
        is_paused = self._service.is_opening or self._service.is_paused(group)
        return is_paused and self.request_type is ShareFetchRequest

    def _invalid(self, request: RequestFrame) -> Answer:
        """Not forwarded: a broker that can decode it would let it acquire records of a paused group."""
        return Answer(self._error(request.api_version, ErrorCode.INVALID_REQUEST))

    def _parse(self, request: RequestFrame) -> ReadRequest:
        share = self._read(request)
        found = {
            (acks.topic_id, acks.partition): tuple(
                run for batch in acks.batches for run in runs(batch.first, batch.last, batch.types)
            )
            for acks in share.acks
        }
        return ReadRequest(share, found)

    async def _when_allowed(self, request: RequestFrame, group: str, session: Session) -> Outcome[ForwardedRequest]:
        try:
            return await self._probe_and_decide(request, group, session)
        except Exception as failure:  # noqa: BLE001 - any
            return self._failed(failure, request, group)

    async def _probe_and_decide(self, request: RequestFrame, group: str, session: Session) -> Outcome[ForwardedRequest]:
        """Read the request after the broker has answered a probe for READ on its group."""
        try:
            if not self._rights.has(session, GroupRight.READ, group):
                # The right may have been granted since a denial that is kept, and may be granted behind the probe.
                afresh = self._may_pass_a_pause(group)
                code = await self._rights.ask(session, GroupRight.READ, group, deadline=_PROBE_S, afresh=afresh)
                if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                    refusal = Answer(self._error(request.api_version, ErrorCode.GROUP_AUTHORIZATION_FAILED))
                    return refusal if self._may_pass_a_pause(group) else Forward()  # the broker refuses it
                self._rights.note(session, GroupRight.READ, group, code)
            if len(request.body) <= SMALL_BYTES:
                read = self._parse(request)
            else:
                async with asyncio.timeout(DECODE_SECONDS):
                    read = await run_off_loop(lambda: self._parse(request))
        except WireError:
            return self._invalid(request)
        except (ClusterError, TimeoutError):
            return self._late(request)
        if self._service.is_opening:
            return await self._when_open(request, read, session)
        decided = self._decide(request, read, session)
        return await decided.outcome if isinstance(decided, Hold) else decided

    async def _when_open(self, request: RequestFrame, read: ReadRequest, session: Session) -> Outcome[ForwardedRequest]:
        """Wait until it is known which groups are paused; after too long the request acquires nothing."""
        is_open = await self._service.wait_until_open(self._service.opening_wait_s(read.share))
        unknown = not is_open and self._service.is_opening
        decided = self._decide(request, read, session, unknown=unknown)
        return await decided.outcome if isinstance(decided, Hold) else decided

    def _decide(
        self, request: RequestFrame, read: ReadRequest, session: Session, *, unknown: bool = False
    ) -> _Forwarded | Hold[ForwardedRequest]:
        """`unknown`: it acquires nothing, and what is known of the group since before the opening holds."""
        share, group = read.share, read.share.group or ""
        is_managed = self._service.manages(group)
        if not is_managed and not unknown:
            return Forward()
        if not share.member or not is_managed:
            holder = Holder(share.member or "", self._owner(session))
            nothing = RequestAcks(group, holder, self._service.state(group).settings, {})
            return self._forward(request, share, nothing, session, unknown=unknown)
        # A large request carries no deferred acknowledgements: adding them decodes it once more, on the event loop.
        carries_deferred = len(request.body) <= SMALL_BYTES and self._carries_deferred(share)
        if self.request_type is ShareFetchRequest:
            self._acknowledgements.follow_session(share, session)
        acks = self._acknowledgements.read(
            share, read.runs, self._owner(session), session, carries_deferred=carries_deferred
        )
        if not acks.rejected and not acks.deferred_ranges:
            return self._forward(request, share, acks, session, unknown=unknown)
        # Records that are accepted in the same request wait with the rejected ones.
        hold_s = self._acknowledgements.hold_s(acks)
        outcome = self._after_dead_letters(request, share, acks, session, hold_s, unknown=unknown)
        return Hold(outcome, hold_s + _MARGIN_S, self._late(request))

    def _owner(self, session: Session) -> str | int:
        """The owner of acquired records: the principal, or the connection where the principal is not known."""
        return self._principal_of(session) or session.number

    async def _after_dead_letters(
        self,
        request: RequestFrame,
        share: ShareRequest,
        acks: RequestAcks,
        session: Session,
        hold_s: float,
        *,
        unknown: bool,
    ) -> _Forwarded | Answer:
        await self._acknowledgements.write_dead_letters(acks, session, hold_s)
        try:
            return self._forward(request, share, acks, session, unknown=unknown and self._service.is_opening)
        except Exception as failure:  # noqa: BLE001 - any
            return self._failed(failure, request, acks.group)

    def _forward(
        self, request: RequestFrame, share: ShareRequest, acks: RequestAcks, session: Session, *, unknown: bool = False
    ) -> _Forwarded:
        """Forward the request now: whether the group is paused is decided last."""
        body: Buffer | None = None
        self._acknowledgements.drop_expired(acks)
        if rejects := acks.deferred_ranges:
            body = add_rejects(self.request_type, request.body, request.api_version, rejects, acks.forget)
        is_fetch = self.request_type is ShareFetchRequest and share.session_epoch != LAST_EPOCH
        paused = is_fetch and (unknown or self._service.is_paused(acks.group))
        if paused:
            body = without_bytes(request.body if body is None else body)
        elif is_fetch and share.max_wait_ms > _MAX_WAIT_MS and acks.settings.dlq_topic is not None:
            body = with_wait(request.body if body is None else body, _MAX_WAIT_MS)
        if any(outcome.written for _, outcome in acks.outcomes):
            self._in_flight.setdefault(session.number, []).append(acks)
        generation = self._service.state(acks.group).generation
        sent_at = self._acknowledgements.now()
        forwarded = ForwardedRequest(share, acks, generation, sent_at, paused, waited=unknown)
        return Forward(forwarded) if body is None else Rewritten(bytes(body), forwarded)

    # --- responses

    def _complete(self, forwarded: ForwardedRequest, error_code: int, session: Session) -> None:
        """The response has arrived: the outcome of the dead letters is not in doubt any more."""
        self._rights.note(session, GroupRight.READ, forwarded.acks.group, error_code)
        in_flight = self._in_flight.get(session.number)
        if in_flight is not None and forwarded.acks in in_flight:
            in_flight.remove(forwarded.acks)
            if not in_flight:
                del self._in_flight[session.number]

    def on_close(self, session: Session) -> None:
        """The broker may or may not have received the requests in flight."""
        for acks in self._in_flight.pop(session.number, ()):
            self._acknowledgements.withdraw(acks, {"outcome": "unknown"})
        self._acknowledgements.on_close(session)


class ShareFetchInterceptor(ShareInterceptor):
    """Records what members acquire, and removes what was delivered too often from their responses."""

    api_keys = frozenset((ApiKey.SHARE_FETCH,))
    request_type = ShareFetchRequest

    def _read(self, request: RequestFrame) -> ShareRequest:
        return read_fetch(request.body, request.api_version)

    def _carries_deferred(self, share: ShareRequest) -> bool:
        return share.session_epoch != FIRST_EPOCH  # the request that opens a session may not acknowledge anything

    def _error(self, version: ApiVersion, code: ErrorCode) -> bytes:
        return encode(ShareFetchResponse(error_code=code), version)

    def on_response(self, response: ResponseFrame, context: ForwardedRequest, session: Session) -> OnResponse:
        answer = read_fetch_response(response.body, response.api_version)
        self._complete(context, answer.error_code, session)
        acks = context.acks
        codes = {(one.topic_id, one.partition): one.acknowledge_error_code for one in answer.partitions}
        self._acknowledgements.settle(acks, codes, answer.error_code, is_last=context.is_last)
        kept = self._acknowledgements.acquire(
            acks, response.body, answer, context.generation, session, sent_at=context.sent_at
        )
        body = stripped(memoryview(response.body), kept, answer) if kept else None
        if acks.forget:
            before = response.body if body is None else body
            body = remove_partitions(ShareFetchResponse, before, response.api_version, acks.forget)
        outcome: ResponseOutcome = Forward() if body is None else Rewritten(body)
        wait_s = context.share.max_wait_ms / 1000
        if context.paused and not context.waited and not acks.partitions and wait_s > 0:
            return Hold(self._service.wait_until_resumed(acks.group, wait_s, outcome), wait_s + _MARGIN_S)
        return outcome


class ShareAcknowledgeInterceptor(ShareInterceptor):
    """Forwards the broker's response as it is, without partitions that the client did not name."""

    api_keys = frozenset((ApiKey.SHARE_ACKNOWLEDGE,))
    request_type = ShareAcknowledgeRequest

    def _read(self, request: RequestFrame) -> ShareRequest:
        return read_acknowledge(request.body, request.api_version)

    def _carries_deferred(self, share: ShareRequest) -> bool:
        return share.session_epoch == LAST_EPOCH

    def _error(self, version: ApiVersion, code: ErrorCode) -> bytes:
        return encode(ShareAcknowledgeResponse(error_code=code), version)

    def on_response(self, response: ResponseFrame, context: ForwardedRequest, session: Session) -> OnResponse:
        answer = read_acknowledge_response(response.body, response.api_version)
        self._complete(context, answer.error_code, session)
        codes = {(topic_id, partition): code for topic_id, partition, code in answer.partitions}
        self._acknowledgements.settle(context.acks, codes, answer.error_code, is_last=context.is_last)
        if context.acks.added:
            added = context.acks.added
            return Rewritten(remove_partitions(ShareAcknowledgeResponse, response.body, response.api_version, added))
        return Forward()
