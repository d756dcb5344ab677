"""ShareGroupHeartbeat: members of a group that may not share its dead-letter topic are refused when they join.

One rule: only who may READ the group is told why; everybody else is the broker's to refuse. Only joins (member epoch
0) are looked at: members that are in already stay, and every other heartbeat passes unopened.

A refused member is dead: its application has to be started again when the conflict is over.
"""

from typing import Final

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.interceptor import (
    Answer,
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    Outcome,
    Prefilter,
    RequestFrame,
    Session,
)
from headgate.proxy.rights import GROUP_AUTHORIZATION_FAILED, GroupRight, Rights
from headgate.share_groups.steering import Steering
from headgate.wire import group_requests
from headgate.wire.codec import decode, encode
from headgate.wire.messages.share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

SHARE_GROUP_HEARTBEAT: Final = ApiKey(76)
INVALID_REQUEST: Final = 42
_LONGEST_S: Final = 10.0  # what the broker may take to say who may


class IsolationInterceptor(Interceptor[None]):
    api_keys = frozenset((SHARE_GROUP_HEARTBEAT,))
    max_bytes = 1024 * 1024  # of names of topics
    max_response_bytes = 8 * 1024 * 1024

    def __init__(self, service: Steering, rights: Rights) -> None:
        self._service = service
        self._rights = rights

    def prefilter(self, api_version: ApiVersion) -> Prefilter:  # noqa: ARG002
        return group_requests.is_join  # it begins as the heartbeat of Streams groups does

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[None]:
        message = decode(ShareGroupHeartbeatRequest, request.api_version, request.body)
        group = message.group_id
        if message.member_epoch != 0 or not self._service.is_ready:
            return Forward()
        conflict = self._service.conflict(group)
        if conflict is None:
            return Forward()
        return Hold(self._refuse(group, conflict, request.api_version, session), _LONGEST_S)

    async def _refuse(self, group: str, conflict: str, version: ApiVersion, session: Session) -> Outcome[None]:
        try:
            if await self._rights.ask(session, GroupRight.READ, group) == GROUP_AUTHORIZATION_FAILED:
                return Forward()
        except ClusterError:
            return Forward()
        refused = ShareGroupHeartbeatResponse(error_code=INVALID_REQUEST, error_message=conflict)
        return Answer(encode(refused, version))
