"""ShareGroupDescribe: the state of a group's breaker and pause, in a tagged field that clients skip.

One rule: what the broker said of a group stays as it is, and a group with an error gets nothing: the broker has checked
DESCRIBE, on the client's own connection. Groups that are none of ours pass byte for byte.
"""

from dataclasses import replace
from typing import Final

from headgate.base.ids import ApiKey
from headgate.proxy.decoding import SMALL_BYTES, run_off_loop
from headgate.proxy.interceptor import (
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    OnResponse,
    RequestFrame,
    ResponseFrame,
    ResponseOutcome,
    Rewritten,
    Session,
)
from headgate.share_groups.steering import Steering
from headgate.wire.codec import decode, encode
from headgate.wire.messages.share import DescribedShareGroup, ShareGroupDescribeRequest, ShareGroupDescribeResponse

SHARE_GROUP_DESCRIBE: Final = ApiKey(77)
STATUS_TAG: Final = 10001  # Kafka's own go to 3
_LONGEST_S: Final = 60.0


class ShareGroupDescribeInterceptor(Interceptor[bool]):
    api_keys = frozenset((SHARE_GROUP_DESCRIBE,))
    max_bytes = 256 * 1024  # of group names
    max_response_bytes = 64 * 1024 * 1024

    def __init__(self, service: Steering) -> None:
        self._service = service

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[bool]:  # noqa: ARG002
        message = decode(ShareGroupDescribeRequest, request.api_version, request.body)
        return Forward(context=True if any(map(self._is_ours, message.group_ids)) else None)

    def on_response(self, response: ResponseFrame, context: bool, session: Session) -> OnResponse:  # noqa: ARG002
        if len(response.body) <= SMALL_BYTES:
            message = decode(ShareGroupDescribeResponse, response.api_version, response.body)
            return Rewritten(encode(self._added(message), response.api_version))
        return Hold(self._added_aside(response), _LONGEST_S)

    async def _added_aside(self, response: ResponseFrame) -> ResponseOutcome:
        message = await run_off_loop(lambda: decode(ShareGroupDescribeResponse, response.api_version, response.body))
        added = self._added(message)
        return Rewritten(await run_off_loop(lambda: encode(added, response.api_version)))

    def _is_ours(self, group: str) -> bool:
        service = self._service
        return service.is_ready and service.selects(group) and service.minds(group)

    def _added(self, message: ShareGroupDescribeResponse) -> ShareGroupDescribeResponse:
        groups = tuple(
            self._with_status(one) if one.error_code == 0 and self._is_ours(one.group_id) else one
            for one in message.groups
        )
        return replace(message, groups=groups)

    def _with_status(self, group: DescribedShareGroup) -> DescribedShareGroup:
        status = self._service.status(group.group_id).encode()
        others = (one for one in group.unknown_tags if one[0] != STATUS_TAG)
        return replace(group, unknown_tags=(*others, (STATUS_TAG, status)))
