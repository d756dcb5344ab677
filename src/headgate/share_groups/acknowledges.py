"""ShareAcknowledge: its REJECTs wait for their dead letters, and the closing one pays what the member owes.

One rule: the broker's answer reaches the client as it is, but for partitions that the client did not name.
"""

from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.interceptor import Forward, OnResponse, RequestFrame, ResponseFrame, Rewritten, Session
from headgate.share_groups.acks import Work
from headgate.share_groups.deferred_ack_frames import paid, without_ours
from headgate.share_groups.share_interceptor import INVALID_REQUEST, LAST_EPOCH, Sent, ShareInterceptor
from headgate.wire.codec import encode
from headgate.wire.messages.share import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from headgate.wire.primitives import Buffer
from headgate.wire.share_calls import ShareRequest, read_acknowledge, read_acknowledge_response


class AcknowledgeInterceptor(ShareInterceptor):
    api_keys = frozenset((ApiKey(79),))

    def _read(self, request: RequestFrame) -> ShareRequest:
        return read_acknowledge(request.body, request.api_version)

    def _may_pay(self, share: ShareRequest) -> bool:
        return share.session_epoch == LAST_EPOCH

    def _paid(self, body: Buffer, version: ApiVersion, work: Work) -> bytes:
        return paid(ShareAcknowledgeRequest, body, version, work)

    def _refusal(self, version: ApiVersion) -> bytes:
        return encode(ShareAcknowledgeResponse(error_code=INVALID_REQUEST), version)

    def on_response(self, response: ResponseFrame, context: Sent, session: Session) -> OnResponse:
        self._answered(context, session)
        answer = read_acknowledge_response(response.body, response.api_version)
        work, service = context.work, self._service
        codes = {(topic_id, partition): code for topic_id, partition, code in answer.partitions}
        service.acks.settle(work, codes, answer.error_code)
        if context.share.session_epoch == LAST_EPOCH and not answer.error_code:
            service.ledger.forget_member(work.group, work.member)
        if any(one.debts and one.is_ours for one in work.partitions.values()):
            return Rewritten(without_ours(response.body, response.api_version, work))
        return Forward()
