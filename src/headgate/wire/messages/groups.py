"""The calls of classic and consumer groups, and those that list, describe and delete groups of every kind."""

from headgate.base.ids import ApiKey
from headgate.wire.schema import (
    INT32,
    NOT_ASKED,
    STRING,
    Message,
    Request,
    Struct,
    array,
    binary,
    boolean,
    int16,
    int32,
    int64,
    nested_or_null,
    request,
    response,
    string,
    struct,
    uuid,
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
class SyncGroupAssignment(Struct):
    member_id: str = string("0+")
    assignment: bytes = binary("0+")


@request(ApiKey.SYNC_GROUP)
class SyncGroupRequest(Request["SyncGroupResponse"]):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: tuple[SyncGroupAssignment, ...] = array(SyncGroupAssignment, "0+")


@response(SyncGroupRequest)
class SyncGroupResponse(Message):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = binary("0+")


@struct
class LeavingMember(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@request(ApiKey.LEAVE_GROUP)
class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: tuple[LeavingMember, ...] = array(LeavingMember, "3+")


@struct
class LeftMember(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


@response(LeaveGroupRequest)
class LeaveGroupResponse(Message):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    members: tuple[LeftMember, ...] = array(LeftMember, "3+")


@request(ApiKey.DESCRIBE_GROUPS)
class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    groups: tuple[str, ...] = array(STRING, "0+")
    include_authorized_operations: bool = boolean("3+")


@struct
class DescribedGroupMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = binary("0+")
    member_assignment: bytes = binary("0+")


@struct
class DescribedGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: tuple[DescribedGroupMember, ...] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=NOT_ASKED)


@response(DescribeGroupsRequest)
class DescribeGroupsResponse(Message):
    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: tuple[DescribedGroup, ...] = array(DescribedGroup, "0+")


@struct
class OffsetCommitPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


@struct
class OffsetCommitTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: tuple[OffsetCommitPartition, ...] = array(OffsetCommitPartition, "0+")


@request(ApiKey.OFFSET_COMMIT)
class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: tuple[OffsetCommitTopic, ...] = array(OffsetCommitTopic, "0+")


@struct
class CommittedPartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@struct
class CommittedTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: tuple[CommittedPartition, ...] = array(CommittedPartition, "0+")


@response(OffsetCommitRequest)
class OffsetCommitResponse(Message):
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: tuple[CommittedTopic, ...] = array(CommittedTopic, "0+")


@struct
class ConsumerGroupTopicPartitions(Struct):
    topic_id: bytes = uuid("0+")
    partitions: tuple[int, ...] = array(INT32, "0+")


@request(ApiKey.CONSUMER_GROUP_HEARTBEAT)
class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"]):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    subscribed_topic_names: tuple[str, ...] | None = array(STRING, "0+", nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string("0+", nullable="0+", default=None)
    topic_partitions: tuple[ConsumerGroupTopicPartitions, ...] | None = array(
        ConsumerGroupTopicPartitions, "0+", nullable="0+", default=None
    )


@struct
class ConsumerGroupAssignment(Struct):
    topic_partitions: tuple[ConsumerGroupTopicPartitions, ...] = array(ConsumerGroupTopicPartitions, "0+")


@response(ConsumerGroupHeartbeatRequest)
class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: ConsumerGroupAssignment | None = nested_or_null(ConsumerGroupAssignment, "0+", nullable="0+")


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
