"""ShareGroupDescribe and ShareGroupHeartbeat: the status of breakers, and strict isolation of dead-letter topics."""

from dataclasses import replace
from typing import Any, Final

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiVersion
from headgate.proxy.decoding import DecodingInterceptor
from headgate.proxy.interceptor import Answer, Forward, Hold, OnRequest, Outcome, Prefilter, RequestFrame, Session
from headgate.proxy.rights import GroupRight, Rights
from headgate.share_groups.model.breaker_status import STATUS_TAG
from headgate.share_groups.service import ShareGroupService
from headgate.wire import group_requests
from headgate.wire.codec import encode
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.share import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_RIGHTS_S: Final = 10.0


class ShareGroupDescribeInterceptor(DecodingInterceptor[ShareGroupDescribeRequest, ShareGroupDescribeResponse, bool]):
    """Adds the status of the breaker to described groups, in a tagged field that clients ignore.

    A group with an error gets none: the broker has checked DESCRIBE on the client's own connection. The broker's fields
    stay as they are, and responses without a managed group pass byte for byte.
    """

    request_class = ShareGroupDescribeRequest
    max_bytes = 256 * 1024  # group names
    max_response_bytes = 64 * 1024 * 1024

    def __init__(self, service: ShareGroupService) -> None:
        self._service = service

    def on_decoded_request(
        self,
        message: ShareGroupDescribeRequest,
        request: RequestFrame,  # noqa: ARG002
        session: Session,  # noqa: ARG002
    ) -> Forward[bool]:
        return Forward(True) if any(map(self._is_managed, message.group_ids)) else Forward()

    def on_decoded_response(
        self,
        message: ShareGroupDescribeResponse,
        context: bool,  # noqa: ARG002
        session: Session,  # noqa: ARG002
    ) -> ShareGroupDescribeResponse:
        groups = tuple(
            self._with_status(one) if one.error_code == 0 and self._is_managed(one.group_id) else one
            for one in message.groups
        )
        return replace(message, groups=groups)

    def _is_managed(self, group: str) -> bool:
        return self._service.is_ready and self._service.manages(group)

    def _with_status(self, group: DescribedShareGroup) -> DescribedShareGroup:
        status = self._service.status(group.group_id).encode()
        others = (one for one in group.unknown_tags if one[0] != STATUS_TAG)
        return replace(group, unknown_tags=(*others, (STATUS_TAG, status)))


class ShareGroupHeartbeatInterceptor(DecodingInterceptor[ShareGroupHeartbeatRequest, Any, None]):
    """Refuses members of a group with strict isolation whose dead-letter topic belongs to another group.

    Only joins (member epoch 0) are checked: members that have joined stay, and other heartbeats pass undecoded. Only a
    client with READ on the group gets the error; the broker refuses all others. A refused member does not try again:
    its application has to be restarted after the conflict is resolved.
    """

    request_class = ShareGroupHeartbeatRequest
    max_bytes = 1024 * 1024  # topic names
    max_response_bytes = 8 * 1024 * 1024

    def __init__(self, service: ShareGroupService, rights: Rights) -> None:
        self._service = service
        self._rights = rights

    def prefilter(self, api_version: ApiVersion) -> Prefilter:  # noqa: ARG002
        return group_requests.is_join  # it begins as StreamsGroupHeartbeat does

    def on_decoded_request(
        self, message: ShareGroupHeartbeatRequest, request: RequestFrame, session: Session
    ) -> OnRequest[None]:
        if message.member_epoch != 0 or not self._service.is_ready:
            return Forward()
        conflict = self._service.isolation_conflict(message.group_id)
        if conflict is None:
            return Forward()
        return Hold(self._refuse(message.group_id, conflict, request.api_version, session), _RIGHTS_S)

    async def _refuse(self, group: str, conflict: str, version: ApiVersion, session: Session) -> Outcome[None]:
        try:
            if await self._rights.ask(session, GroupRight.READ, group) == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                return Forward()
        except ClusterError:
            return Forward()
        response = ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=conflict)
        return Answer(encode(response, version))
