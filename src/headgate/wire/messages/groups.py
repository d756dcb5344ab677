"""The calls of classic groups, and those that list, describe and delete groups of every kind."""

from headgate.base.ids import ApiKey
from headgate.wire.schema import (
    STRING,
    Message,
    Request,
    Struct,
    array,
    binary,
    boolean,
    int16,
    int32,
    request,
    response,
    string,
    struct,
)


@struct
class JoinGroupProtocol(Struct):
    name: str = string("0+")
    metadata: bytes = binary("0+")


@request(ApiKey.JOIN_GROUP)
class JoinGroupRequest(Request["JoinGroupResponse"]):
    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string("0+")
    protocols: tuple[JoinGroupProtocol, ...] = array(JoinGroupProtocol, "0+")
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


@struct
class JoinGroupMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = binary("0+")


@response(JoinGroupRequest)
class JoinGroupResponse(Message):
    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: tuple[JoinGroupMember, ...] = array(JoinGroupMember, "0+")


@request(ApiKey.HEARTBEAT)
class HeartbeatRequest(Request["HeartbeatResponse"]):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@response(HeartbeatRequest)
class HeartbeatResponse(Message):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")


@struct
class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32("0+")


@struct
class OffsetDeleteRequestTopic(Struct):
    name: str = string("0+")
    partitions: tuple[OffsetDeleteRequestPartition, ...] = array(OffsetDeleteRequestPartition, "0+")


@request(ApiKey.OFFSET_DELETE)
class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    group_id: str = string("0+")
    topics: tuple[OffsetDeleteRequestTopic, ...] = array(OffsetDeleteRequestTopic, "0+")


@struct
class OffsetDeleteResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@struct
class OffsetDeleteResponseTopic(Struct):
    name: str = string("0+")
    partitions: tuple[OffsetDeleteResponsePartition, ...] = array(OffsetDeleteResponsePartition, "0+")


@response(OffsetDeleteRequest)
class OffsetDeleteResponse(Message):
    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: tuple[OffsetDeleteResponseTopic, ...] = array(OffsetDeleteResponseTopic, "0+")


@request(ApiKey.LIST_GROUPS)
class ListGroupsRequest(Request["ListGroupsResponse"]):
    states_filter: tuple[str, ...] = array(STRING, "4+")
    types_filter: tuple[str, ...] = array(STRING, "5+")


@struct
class ListedGroup(Struct):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


@response(ListGroupsRequest)
class ListGroupsResponse(Message):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: tuple[ListedGroup, ...] = array(ListedGroup, "0+")


@request(ApiKey.DELETE_GROUPS)
class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    groups_names: tuple[str, ...] = array(STRING, "0+")


@struct
class DeletedGroup(Struct):
    group_id: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("3+", nullable="3+", default=None, ignorable=True)


@response(DeleteGroupsRequest)
class DeleteGroupsResponse(Message):
    throttle_time_ms: int = int32("0+")
    results: tuple[DeletedGroup, ...] = array(DeletedGroup, "0+")
