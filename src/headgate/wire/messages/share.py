"""Share groups (KIP-932): membership, fetching, acknowledging, and the offsets that they have reached."""

from headgate.base.ids import ApiKey
from headgate.wire.messages.data import NodeEndpoint
from headgate.wire.schema import (
    INT8,
    INT32,
    NOT_ASKED,
    STRING,
    Message,
    Request,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nested,
    nested_or_null,
    records,
    request,
    response,
    string,
    struct,
    uuid,
)


@request(ApiKey.SHARE_GROUP_HEARTBEAT)
class ShareGroupHeartbeatRequest(Request["ShareGroupHeartbeatResponse"]):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    rack_id: str | None = string("0+", nullable="0+", default=None)
    subscribed_topic_names: tuple[str, ...] | None = array(STRING, "0+", nullable="0+", default=None)


@struct
class ShareTopicPartitions(Struct):
    topic_id: bytes = uuid("0+")
    partitions: tuple[int, ...] = array(INT32, "0+")


@struct
class ShareAssignment(Struct):
    topic_partitions: tuple[ShareTopicPartitions, ...] = array(ShareTopicPartitions, "0+")


@response(ShareGroupHeartbeatRequest)
class ShareGroupHeartbeatResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: ShareAssignment | None = nested_or_null(ShareAssignment, "0+", nullable="0+")


@request(ApiKey.SHARE_GROUP_DESCRIBE)
class ShareGroupDescribeRequest(Request["ShareGroupDescribeResponse"]):
    group_ids: tuple[str, ...] = array(STRING, "0+")
    include_authorized_operations: bool = boolean("0+")


@struct
class DescribedTopicPartitions(Struct):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    partitions: tuple[int, ...] = array(INT32, "0+")


@struct
class DescribedAssignment(Struct):
    topic_partitions: tuple[DescribedTopicPartitions, ...] = array(DescribedTopicPartitions, "0+")


@struct
class ShareGroupMember(Struct):
    member_id: str = string("0+")
    rack_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: tuple[str, ...] = array(STRING, "0+")
    assignment: DescribedAssignment = nested(DescribedAssignment, "0+")


@struct
class DescribedShareGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: tuple[ShareGroupMember, ...] = array(ShareGroupMember, "0+")
    authorized_operations: int = int32("0+", default=NOT_ASKED)


@response(ShareGroupDescribeRequest)
class ShareGroupDescribeResponse(Message):
    throttle_time_ms: int = int32("0+")
    groups: tuple[DescribedShareGroup, ...] = array(DescribedShareGroup, "0+")


@struct
class AcknowledgementBatch(Struct):
    """One type for the whole range or one for each offset: 0 gap, 1 accept, 2 release, 3 reject, 4 renew (v2)."""

    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    acknowledge_types: tuple[int, ...] = array(INT8, "0+")


@struct
class ShareFetchPartition(Struct):
    partition_index: int = int32("0+")
    partition_max_bytes: int = int32("0")
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = array(AcknowledgementBatch, "0+")


@struct
class ShareFetchTopic(Struct):
    topic_id: bytes = uuid("0+")
    partitions: tuple[ShareFetchPartition, ...] = array(ShareFetchPartition, "0+")


@struct
class ShareForgottenTopic(Struct):
    topic_id: bytes = uuid("0+")
    partitions: tuple[int, ...] = array(INT32, "0+")


@request(ApiKey.SHARE_FETCH)
class ShareFetchRequest(Request["ShareFetchResponse"]):
    """Session epoch 0 opens the session and -1 closes it; ShareAcknowledge counts on the same epochs."""

    group_id: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("0+", default=0x7FFFFFFF)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+", ignorable=True)
    is_renew_ack: bool = boolean("2+")
    topics: tuple[ShareFetchTopic, ...] = array(ShareFetchTopic, "0+")
    forgotten_topics_data: tuple[ShareForgottenTopic, ...] = array(ShareForgottenTopic, "0+")


@struct
class ShareLeader(Struct):
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


@struct
class AcquiredRecords(Struct):
    """Offsets that the member holds now, and how often they have been delivered."""

    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_count: int = int16("0+")


@struct
class ShareFetchPartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acknowledge_error_code: int = int16("0+")
    acknowledge_error_message: str | None = string("0+", nullable="0+", default=None)
    current_leader: ShareLeader = nested(ShareLeader, "0+")
    records: bytes | None = records("0+", nullable="0")
    acquired_records: tuple[AcquiredRecords, ...] = array(AcquiredRecords, "0+")


@struct
class ShareFetchTopicResponse(Struct):
    topic_id: bytes = uuid("0+")
    partitions: tuple[ShareFetchPartitionResponse, ...] = array(ShareFetchPartitionResponse, "0+")


@response(ShareFetchRequest)
class ShareFetchResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: tuple[ShareFetchTopicResponse, ...] = array(ShareFetchTopicResponse, "0+")
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "0+")


@struct
class ShareAcknowledgePartition(Struct):
    partition_index: int = int32("0+")
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = array(AcknowledgementBatch, "0+")


@struct
class ShareAcknowledgeTopic(Struct):
    topic_id: bytes = uuid("0+")
    partitions: tuple[ShareAcknowledgePartition, ...] = array(ShareAcknowledgePartition, "0+")


@request(ApiKey.SHARE_ACKNOWLEDGE)
class ShareAcknowledgeRequest(Request["ShareAcknowledgeResponse"]):
    group_id: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    is_renew_ack: bool = boolean("2+")
    topics: tuple[ShareAcknowledgeTopic, ...] = array(ShareAcknowledgeTopic, "0+")


@struct
class ShareAcknowledgePartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    current_leader: ShareLeader = nested(ShareLeader, "0+")


@struct
class ShareAcknowledgeTopicResponse(Struct):
    topic_id: bytes = uuid("0+")
    partitions: tuple[ShareAcknowledgePartitionResponse, ...] = array(ShareAcknowledgePartitionResponse, "0+")


@response(ShareAcknowledgeRequest)
class ShareAcknowledgeResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+", ignorable=True)
    responses: tuple[ShareAcknowledgeTopicResponse, ...] = array(ShareAcknowledgeTopicResponse, "0+")
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "0+")


@struct
class ShareOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")
    partitions: tuple[int, ...] = array(INT32, "0+")


@struct
class ShareOffsetsRequestGroup(Struct):
    group_id: str = string("0+")
    topics: tuple[ShareOffsetsRequestTopic, ...] | None = array(ShareOffsetsRequestTopic, "0+", nullable="0+")


@request(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
class DescribeShareGroupOffsetsRequest(Request["DescribeShareGroupOffsetsResponse"]):
    groups: tuple[ShareOffsetsRequestGroup, ...] = array(ShareOffsetsRequestGroup, "0+")


@struct
class ShareOffsetsPartition(Struct):
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")
    leader_epoch: int = int32("0+")
    lag: int = int64("1+", default=-1, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


@struct
class ShareOffsetsTopic(Struct):
    topic_name: str = string("0+")
    topic_id: bytes = uuid("0+")
    partitions: tuple[ShareOffsetsPartition, ...] = array(ShareOffsetsPartition, "0+")


@struct
class ShareOffsetsGroup(Struct):
    group_id: str = string("0+")
    topics: tuple[ShareOffsetsTopic, ...] = array(ShareOffsetsTopic, "0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


@response(DescribeShareGroupOffsetsRequest)
class DescribeShareGroupOffsetsResponse(Message):
    throttle_time_ms: int = int32("0+")
    groups: tuple[ShareOffsetsGroup, ...] = array(ShareOffsetsGroup, "0+")


@struct
class AlteredShareOffset(Struct):
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")


@struct
class AlteredShareTopic(Struct):
    topic_name: str = string("0+")
    partitions: tuple[AlteredShareOffset, ...] = array(AlteredShareOffset, "0+")


@request(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
class AlterShareGroupOffsetsRequest(Request["AlterShareGroupOffsetsResponse"]):
    group_id: str = string("0+")
    topics: tuple[AlteredShareTopic, ...] = array(AlteredShareTopic, "0+")


@struct
class AlteredSharePartitionResult(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


@struct
class AlteredShareTopicResult(Struct):
    topic_name: str = string("0+")
    topic_id: bytes = uuid("0+")
    partitions: tuple[AlteredSharePartitionResult, ...] = array(AlteredSharePartitionResult, "0+")


@response(AlterShareGroupOffsetsRequest)
class AlterShareGroupOffsetsResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    responses: tuple[AlteredShareTopicResult, ...] = array(AlteredShareTopicResult, "0+")
