"""ShareFetch: what it acquires is noted, what was delivered too often is taken out, and a paused group gets nothing.

Pausing is what brokers have a path for (MaxBytes 0): acknowledgements hold and the session goes on, but nothing is
acquired. The answer then waits as long as the broker's would have, unless the group is resumed; one that carried
acknowledgements does not wait, for its client wants to know.

One rule: an answer that cannot be read passes, and so does one whose group has no config of ours any more.
"""

from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.interceptor import (
    Forward,
    Hold,
    OnResponse,
    RequestFrame,
    ResponseFrame,
    ResponseOutcome,
    Rewritten,
    Session,
)
from headgate.share_groups.acks import Work
from headgate.share_groups.dead_letter_delivery import Wanted
from headgate.share_groups.deferred_ack_frames import paid
from headgate.share_groups.model.dead_letter_records import Cause
from headgate.share_groups.share_interceptor import FIRST_EPOCH, INVALID_REQUEST, LAST_EPOCH, Sent, ShareInterceptor
from headgate.wire.codec import encode
from headgate.wire.messages.share import ShareFetchRequest, ShareFetchResponse
from headgate.wire.primitives import Buffer, read_uvarint
from headgate.wire.share_calls import (
    Acquired,
    ShareFetchSummary,
    ShareRequest,
    read_fetch,
    read_fetch_response,
    stripped,
)

_MARGIN_S = 5.0


class FetchInterceptor(ShareInterceptor):
    api_keys = frozenset((ApiKey(78),))

    def _read(self, request: RequestFrame) -> ShareRequest:
        return read_fetch(request.body, request.api_version)

    def _may_pay(self, share: ShareRequest) -> bool:
        return share.session_epoch != FIRST_EPOCH  # the request that opens a session may not acknowledge anything

    def _paid(self, body: Buffer, version: ApiVersion, work: Work) -> bytes:
        return paid(ShareFetchRequest, body, version, work)

    def _refusal(self, version: ApiVersion) -> bytes:
        return encode(ShareFetchResponse(error_code=INVALID_REQUEST), version)

    def on_response(self, response: ResponseFrame, context: Sent, session: Session) -> OnResponse:
        self._answered(context, session)
        answer = read_fetch_response(response.body, response.api_version)
        work, service = context.work, self._service
        if work.partitions:
            codes = {(one.topic_id, one.partition): one.acknowledge_error_code for one in answer.partitions}
            service.acks.settle(work, codes, answer.error_code)
        if context.share.session_epoch == LAST_EPOCH and not answer.error_code:
            service.ledger.forget_member(work.group, work.member)
        body = self._acquired(response.body, answer, context, session)
        outcome: ResponseOutcome = Forward() if body is None else Rewritten(body)
        wait_s = context.share.max_wait_ms / 1000
        if context.paused and not context.waited and not work.partitions and wait_s > 0:
            return Hold(service.resumed_within(work.group, wait_s, outcome), wait_s + _MARGIN_S)
        return outcome

    def _acquired(self, body: Buffer, answer: ShareFetchSummary, sent: Sent, session: Session) -> bytes | None:
        """Note what the member holds now; the answer without what it must not get, None when it may have all."""
        service, work, generation = self._service, sent.work, sent.generation
        state = service.states.of(work.group)
        limit = service.limits.of(state)
        kept: dict[int, list[Acquired]] = {}
        owed: list[Wanted] = []
        for index, one in enumerate(answer.partitions):
            if not one.acquired:
                continue
            key = (work.group, work.member, one.topic_id, one.partition)
            if state.settings.copy_record:
                _, begin = read_uvarint(body, one.records[0])
                service.copies.keep(one.topic_id, one.partition, memoryview(body)[begin : one.records[1]])
            service.lock_began(key, answer.lock_timeout_ms)
            left: list[Acquired] = []
            for found in one.acquired:
                service.meter.acquired += found.last - found.first + 1
                if limit is not None and found.delivery_count > limit:
                    owed.append(
                        Wanted(
                            key=key,
                            first=found.first,
                            last=found.last,
                            delivery_count=found.delivery_count,
                            generation=generation,
                            cause=Cause.OVER_LIMIT,
                        )
                    )
                else:
                    left.append(found)
                    service.ledger.acquired(key, found.first, found.last, found.delivery_count, generation)
            if len(left) < len(one.acquired):
                kept[index] = left
        if not kept:
            return None
        service.owe(owed, state.settings, answer.lock_timeout_ms, session)
        return stripped(memoryview(body), kept, answer)
