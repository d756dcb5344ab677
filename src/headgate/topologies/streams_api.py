"""The Streams APIs of 4.4 clients on a 4.3 broker: versions, their conversion, and a describe on a client's connection.

Requests are converted as 4.4's own request builder does it for such a broker: version 0 rejects task offsets and knows
no warm-up tasks. Responses get the fields that version 1 has and a broker of version 0 cannot know. A broker that has
version 1 is sent version 1; then the gateway changes only the fields about topology descriptions.
"""

from collections.abc import Mapping
from dataclasses import replace
from struct import Struct
from typing import Final

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiKey, ApiVersion
from headgate.kafka.group_admin import EMPTY, STREAMS, GroupOutline
from headgate.proxy.interceptor import Session, Versions
from headgate.wire import group_requests
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.groups import ListGroupsRequest
from headgate.wire.messages.streams import (
    DescribedStreamsGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

_HEARTBEAT, _DESCRIBE = ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE
_PUSH = ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE
# The versions that clients may use when the gateway stores descriptions, if the broker has the API at all.
_ADDED: Final = {_HEARTBEAT: (0, 1), _DESCRIBE: (0, 1), ApiKey.DELETE_GROUPS: (0, 3)}
# The highest versions that clients may use when descriptions are switched off.
HIDDEN: Final[Mapping[int, int]] = {_HEARTBEAT: 0, _DESCRIBE: 0, ApiKey.DELETE_GROUPS: 2, _PUSH: -1}

_LAG_NOT_SUPPORTED: Final = -1
_LAG_IN_V1: Final = _LAG_NOT_SUPPORTED.to_bytes(8, "big", signed=True)
_THROTTLE: Final = Struct(">i")
_NULL_OFFSETS: Final = b"\x00\x00"
_DESCRIBE_VERSION: Final = ApiVersion(0)
_LIST_VERSION: Final = ApiVersion(5)  # the first with types of groups
_DESCRIBE_TIMEOUT_S: Final = 10.0  # it may wait behind a long poll of the same connection


def added_versions(broker: Versions) -> dict[int, tuple[int, int]]:
    """Nothing for a broker without Streams groups."""
    if _HEARTBEAT not in broker or _DESCRIBE not in broker:
        return {}
    return {**{key: versions for key, versions in _ADDED.items() if key in broker}, _PUSH: (0, 0)}


def broker_version(broker: Versions, key: ApiKey, client_version: int) -> ApiVersion:
    """The version in which the request is sent to the broker."""
    return ApiVersion(min(client_version, broker.get(key, (0, 0))[1]))


def downgrade_heartbeat(request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatRequest:
    """A heartbeat of version 1 as version 0 has it."""
    return replace(
        request,
        task_offsets=None,
        task_end_offsets=None,
        warmup_tasks=None if request.warmup_tasks is None else (),
    )


def upgrade_heartbeat(response: StreamsGroupHeartbeatResponse, *, solicit: bool) -> StreamsGroupHeartbeatResponse:
    """A response of version 0 as version 1 has it; `solicit` sets TopologyDescriptionRequired."""
    return replace(
        response,
        acceptable_recovery_lag_legacy=0,
        acceptable_recovery_lag=_LAG_NOT_SUPPORTED,
        topology_description_required=solicit,
    )


def downgrade_plain_heartbeat(body: bytes, beat: group_requests.IdleHeartbeat) -> bytes:
    """`downgrade_heartbeat` for a heartbeat that changes nothing, without decoding the rest of it."""
    begin, end = beat.offsets
    return body[:begin] + _NULL_OFFSETS + body[end:]


def upgrade_plain_heartbeat(body: bytes, beaten: group_requests.IdleHeartbeatResponse, *, solicit: bool) -> bytes:
    """`upgrade_heartbeat` for its response: the wider lag follows the interval, and the flag follows the tasks."""
    lag, flag = beaten.lag_at, beaten.question_at
    interval, rest = body[lag + 4 : lag + 8], body[lag + 8 : flag]
    return body[:lag] + interval + _LAG_IN_V1 + rest + (b"\x01" if solicit else b"\x00") + body[flag:]


def with_throttle(body: bytes, throttle_ms: int) -> bytes:
    """A response whose first field is ThrottleTimeMs, with at least this throttle time."""
    (own_ms,) = _THROTTLE.unpack_from(body)
    return body if own_ms >= throttle_ms else _THROTTLE.pack(throttle_ms) + body[_THROTTLE.size :]


def outline(group: DescribedStreamsGroup) -> GroupOutline:
    return GroupOutline(
        group=group.group_id,
        error_code=group.error_code,
        error_text=group.error_message,
        state=group.group_state,
        topology_epoch=None if group.topology is None else group.topology.epoch,
        member_ids=tuple(member.member_id for member in group.members),
    )


async def describe_group(session: Session, group: str) -> GroupOutline:
    """Describe the group on the client's own connection, with its rights; `ClusterError` without a response."""
    request = StreamsGroupDescribeRequest(group_ids=(group,))
    response = await session.call(request, _DESCRIBE_VERSION, deadline=_DESCRIBE_TIMEOUT_S)
    for described in response.groups:
        if described.group_id == group:
            return outline(described)
    raise ClusterError(f"the broker did not describe the group {group!r}")


async def group_state(session: Session, group: str) -> GroupOutline:
    """Describe the group, or find only its state; `ClusterError` without a response.

    The broker describes no group of which the client may not describe a topic (29). It lists such a group, though.
    """
    found = await describe_group(session, group)
    if found.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return found
    request = ListGroupsRequest(states_filter=(EMPTY,), types_filter=(STREAMS,))
    response = await session.call(request, _LIST_VERSION, deadline=_DESCRIBE_TIMEOUT_S)
    is_empty = any(one.group_id == group for one in response.groups)
    return replace(found, error_code=response.error_code, state=EMPTY if is_empty else "")
