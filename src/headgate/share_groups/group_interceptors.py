"""ShareGroupDescribe and ShareGroupHeartbeat: the status of breakers, and the groups that may not start."""

from collections.abc import Coroutine
from dataclasses import replace
from itertools import compress
from typing import Any, Final

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiVersion
from headgate.proxy.decoding import A_STEP, DecodingInterceptor, map_in_steps
from headgate.proxy.interceptor import Answer, Forward, Hold, OnRequest, Outcome, Prefilter, RequestFrame, Session
from headgate.proxy.rights import GroupRight, Rights
from headgate.share_groups.broker_configs import GROUP
from headgate.share_groups.group_start import TRY_AGAIN, StartRefusal
from headgate.share_groups.model.breaker import STATUS_TAG
from headgate.share_groups.service import ShareGroupService
from headgate.wire import group_requests
from headgate.wire.codec import encode
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from headgate.wire.messages.share import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_DESCRIBE_CONFIGS_VERSION: Final = ApiVersion(4)
_RIGHTS_S: Final = 10.0
_PROBE_S: Final = 5.0
_START_S: Final = 30.0  # more than all that a join waits for
_OPENING_S: Final = 5.0


class ShareGroupDescribeInterceptor(
    DecodingInterceptor[ShareGroupDescribeRequest, ShareGroupDescribeResponse, frozenset[str]]
):
    """Adds the status of the breaker to described groups, in a tagged field that clients ignore.

    A group with an error gets none: the broker has checked DESCRIBE on the client's own connection. The configs in the
    status are only for clients with DESCRIBE_CONFIGS on the group, which is asked before the request goes on: the
    context has the groups on which the client has it. The broker's fields stay as they are, and responses without a
    managed group pass byte for byte.
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
        session: Session,
    ) -> OnRequest[frozenset[str]]:
        names = message.group_ids
        if len(names) > A_STEP:
            return Hold(self._ask_about_many(names, session), _RIGHTS_S)
        managed = tuple(filter(self._is_managed, dict.fromkeys(names)))
        return Hold(self._ask(managed, session), _RIGHTS_S) if managed else Forward()

    async def _ask_about_many(self, names: tuple[str, ...], session: Session) -> Outcome[frozenset[str]]:
        distinct = tuple(dict.fromkeys(names))
        managed = tuple(compress(distinct, await map_in_steps(self._is_managed, distinct)))
        return await self._ask(managed, session) if managed else Forward()

    async def _ask(self, groups: tuple[str, ...], session: Session) -> Outcome[frozenset[str]]:
        """Ask the broker on which groups the client has DESCRIBE_CONFIGS; on none when it does not say."""
        resources = tuple(
            # A config that no group has: the response is as small as it can be.
            DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=("x",))
            for group in groups
        )
        try:
            response = await session.call(DescribeConfigsRequest(resources=resources), _DESCRIBE_CONFIGS_VERSION)
        except ClusterError:
            return Forward(frozenset())
        return Forward(frozenset(one.resource_name for one in response.results if one.error_code == 0))

    def on_decoded_response(
        self,
        message: ShareGroupDescribeResponse,
        context: frozenset[str],
        session: Session,
    ) -> ShareGroupDescribeResponse | Coroutine[Any, Any, ShareGroupDescribeResponse]:
        message = replace(message, throttle_time_ms=max(message.throttle_time_ms, session.throttle_ms))
        if len(message.groups) > A_STEP:
            return self._add_in_steps(message, context)
        return replace(message, groups=tuple(self._shown(one, context) for one in message.groups))

    async def _add_in_steps(
        self, message: ShareGroupDescribeResponse, context: frozenset[str]
    ) -> ShareGroupDescribeResponse:
        return replace(message, groups=await map_in_steps(lambda one: self._shown(one, context), message.groups))

    def _shown(self, group: DescribedShareGroup, context: frozenset[str]) -> DescribedShareGroup:
        if group.error_code == 0 and self._is_managed(group.group_id):
            return self._with_status(group, has_configs=group.group_id in context)
        return group

    def _is_managed(self, group: str) -> bool:
        return self._service.is_ready and self._service.manages(group)

    def _with_status(self, group: DescribedShareGroup, *, has_configs: bool) -> DescribedShareGroup:
        status = self._service.status(group.group_id)
        shown = status if has_configs else status.without_configs()
        others = (one for one in group.unknown_tags if one[0] != STATUS_TAG)
        return replace(group, unknown_tags=(*others, (STATUS_TAG, shown.encode())))


class ShareGroupHeartbeatInterceptor(DecodingInterceptor[ShareGroupHeartbeatRequest, Any, None]):
    """Refuses the members of groups that may not start (`group_start`).

    Only joins (member epoch 0) are checked: members that have joined stay, and other heartbeats pass undecoded. While
    it is not known yet which groups have which configs, a join waits for a few seconds. Only a client with READ on the
    group gets the error; the broker refuses all others. A refused member does not try again: its application has to be
    restarted after the conflict is resolved.
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
        group = message.group_id
        if message.member_epoch != 0 or not self._service.selects(group):
            return Forward()
        if not self._service.is_opening and not self._service.may_be_refused(group):
            return Forward()
        version = request.api_version
        return Hold(
            self._check(group, version, session), _START_S, _refused(TRY_AGAIN, TRY_AGAIN.text, version, session)
        )

    async def _check(self, group: str, version: ApiVersion, session: Session) -> Outcome[None]:
        if self._service.is_opening:
            await self._service.wait_until_open(_OPENING_S)
        if not self._service.may_be_refused(group):
            return Forward()
        try:
            code = await self._rights.ask(session, GroupRight.READ, group, deadline=_PROBE_S)
            if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                return Forward()
            refusal = await self._service.start_refusal(group)
            if refusal is None:
                return Forward()
            text = await self._shown(refusal, session)
        except ClusterError:  # a client can make its own connection slow, so it does not join for that
            return _refused(TRY_AGAIN, TRY_AGAIN.text, version, session)
        return _refused(refusal, text, version, session)

    async def _shown(self, refusal: StartRefusal, session: Session) -> str:
        """The error message, which names no group that the client may not describe."""
        if refusal.owner is None:
            return refusal.text
        code = await self._rights.ask(session, GroupRight.DESCRIBE, refusal.owner, deadline=_PROBE_S)
        return refusal.anonymous_text if code == ErrorCode.GROUP_AUTHORIZATION_FAILED else refusal.text


def _refused(refusal: StartRefusal, text: str, version: ApiVersion, session: Session) -> Answer:
    response = ShareGroupHeartbeatResponse(
        throttle_time_ms=session.throttle_ms, error_code=refusal.code, error_message=text
    )
    return Answer(encode(response, version))
