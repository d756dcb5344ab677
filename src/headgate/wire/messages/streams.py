"""Streams groups (KIP-1071) and the description of their topologies (KIP-1331).

Structs that requests and responses spell alike are one class here.
"""

from headgate.base.ids import ApiKey
from headgate.wire.schema import (
    INT16,
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
    request,
    response,
    string,
    struct,
    uint16,
)


@struct
class KeyValue(Struct):
    key: str = string("0+")
    value: str = string("0+")


@struct
class TopicInfo(Struct):
    name: str = string("0+")
    partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    topic_configs: tuple[KeyValue, ...] = array(KeyValue, "0+")


@struct
class CopartitionGroup(Struct):
    source_topics: tuple[int, ...] = array(INT16, "0+")
    source_topic_regex: tuple[int, ...] = array(INT16, "0+")
    repartition_source_topics: tuple[int, ...] = array(INT16, "0+")


@struct
class HeartbeatSubtopology(Struct):
    subtopology_id: str = string("0+")
    source_topics: tuple[str, ...] = array(STRING, "0+")
    source_topic_regex: tuple[str, ...] = array(STRING, "0+")
    state_changelog_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
    repartition_sink_topics: tuple[str, ...] = array(STRING, "0+")
    repartition_source_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
    copartition_groups: tuple[CopartitionGroup, ...] = array(CopartitionGroup, "0+")


@struct
class HeartbeatTopology(Struct):
    epoch: int = int32("0+")
    subtopologies: tuple[HeartbeatSubtopology, ...] = array(HeartbeatSubtopology, "0+")


@struct
class TaskIds(Struct):
    subtopology_id: str = string("0+")
    partitions: tuple[int, ...] = array(INT32, "0+")


@struct
class Endpoint(Struct):
    host: str = string("0+")
    port: int = uint16("0+")


@struct
class TaskOffset(Struct):
    subtopology_id: str = string("0+")
    partition: int = int32("0+")
    offset: int = int64("0+")


@request(ApiKey.STREAMS_GROUP_HEARTBEAT)
class StreamsGroupHeartbeatRequest(Request["StreamsGroupHeartbeatResponse"]):
    """Member epoch 0 joins, -1 leaves, -2 leaves as a static member; null means "as I said before".

    A broker of version 0 refuses task offsets, which a client of version 1 sends: going down takes more than a
    version number.
    """

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    endpoint_information_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology: HeartbeatTopology | None = nested_or_null(HeartbeatTopology, "0+", nullable="0+")
    active_tasks: tuple[TaskIds, ...] | None = array(TaskIds, "0+", nullable="0+", default=None)
    standby_tasks: tuple[TaskIds, ...] | None = array(TaskIds, "0+", nullable="0+", default=None)
    warmup_tasks: tuple[TaskIds, ...] | None = array(TaskIds, "0+", nullable="0+", default=None)
    process_id: str | None = string("0+", nullable="0+", default=None)
    user_endpoint: Endpoint | None = nested_or_null(Endpoint, "0+", nullable="0+")
    client_tags: tuple[KeyValue, ...] | None = array(KeyValue, "0+", nullable="0+", default=None)
    task_offsets: tuple[TaskOffset, ...] | None = array(TaskOffset, "0+", nullable="0+", default=None)
    task_end_offsets: tuple[TaskOffset, ...] | None = array(TaskOffset, "0+", nullable="0+", default=None)
    shutdown_application: bool = boolean("0+")


@struct
class StreamsGroupStatus(Struct):
    """What keeps the group from working as it should.

    0 stale topology, 1 missing source topics, 2 incorrectly partitioned topics, 3 missing internal topics,
    4 shutdown of the application, 5 assignment delayed, 6 missing client tags (v1).
    """

    status_code: int = int8("0+")
    status_detail: str = string("0+")


@struct
class TopicPartitions(Struct):
    topic: str = string("0+")
    partitions: tuple[int, ...] = array(INT32, "0+")


@struct
class EndpointPartitions(Struct):
    user_endpoint: Endpoint = nested(Endpoint, "0+")
    active_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")
    standby_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")


@response(StreamsGroupHeartbeatRequest)
class StreamsGroupHeartbeatResponse(Message):
    """Version 1 widens the acceptable lag, elsewhere in the message, and can ask for the topology's description."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    acceptable_recovery_lag_legacy: int = int32("0")
    task_offset_interval_ms: int = int32("0+")
    acceptable_recovery_lag: int = int64("1+", default=-1, ignorable=True)
    status: tuple[StreamsGroupStatus, ...] | None = array(StreamsGroupStatus, "0+", nullable="0+")
    active_tasks: tuple[TaskIds, ...] | None = array(TaskIds, "0+", nullable="0+", default=None)
    standby_tasks: tuple[TaskIds, ...] | None = array(TaskIds, "0+", nullable="0+", default=None)
    warmup_tasks: tuple[TaskIds, ...] | None = array(TaskIds, "0+", nullable="0+", default=None)
    topology_description_required: bool = boolean("1+")
    endpoint_information_epoch: int = int32("0+")
    partitions_by_user_endpoint: tuple[EndpointPartitions, ...] | None = array(
        EndpointPartitions, "0+", nullable="0+", default=None
    )


@request(ApiKey.STREAMS_GROUP_DESCRIBE)
class StreamsGroupDescribeRequest(Request["StreamsGroupDescribeResponse"]):
    group_ids: tuple[str, ...] = array(STRING, "0+")
    include_authorized_operations: bool = boolean("0+")
    include_topology_description: bool = boolean("1+")


@struct
class DescribedSubtopology(Struct):
    subtopology_id: str = string("0+")
    source_topics: tuple[str, ...] = array(STRING, "0+")
    repartition_sink_topics: tuple[str, ...] = array(STRING, "0+")
    state_changelog_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
    repartition_source_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")


@struct
class DescribedTopology(Struct):
    epoch: int = int32("0+")
    subtopologies: tuple[DescribedSubtopology, ...] | None = array(
        DescribedSubtopology, "0+", nullable="0+", default=None
    )


@struct
class Assignment(Struct):
    active_tasks: tuple[TaskIds, ...] = array(TaskIds, "0+")
    standby_tasks: tuple[TaskIds, ...] = array(TaskIds, "0+")
    warmup_tasks: tuple[TaskIds, ...] = array(TaskIds, "0+")


@struct
class StreamsGroupMember(Struct):
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    client_id: str = string("0+")
    client_host: str = string("0+")
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: Endpoint | None = nested_or_null(Endpoint, "0+", nullable="0+")
    client_tags: tuple[KeyValue, ...] = array(KeyValue, "0+")
    task_offsets: tuple[TaskOffset, ...] = array(TaskOffset, "0+")
    task_end_offsets: tuple[TaskOffset, ...] = array(TaskOffset, "0+")
    assignment: Assignment = nested(Assignment, "0+")
    target_assignment: Assignment = nested(Assignment, "0+")
    is_classic: bool = boolean("0+")


@struct
class TopologyDescriptionNode(Struct):
    """A source, a processor or a sink; the lists that its type does not use are empty."""

    name: str = string("0+")
    node_type: int = int8("0+")
    source_topics: tuple[str, ...] = array(STRING, "0+")
    sink_topic: str | None = string("0+", nullable="0+", default=None)
    stores: tuple[str, ...] = array(STRING, "0+")
    successors: tuple[str, ...] = array(STRING, "0+")


@struct
class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = string("0+")
    nodes: tuple[TopologyDescriptionNode, ...] = array(TopologyDescriptionNode, "0+")


@struct
class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = nested(TopologyDescriptionNode, "0+")
    processor: TopologyDescriptionNode = nested(TopologyDescriptionNode, "0+")


@struct
class TopologyDescription(Struct):
    subtopologies: tuple[TopologyDescriptionSubtopology, ...] = array(TopologyDescriptionSubtopology, "0+")
    global_stores: tuple[TopologyDescriptionGlobalStore, ...] = array(TopologyDescriptionGlobalStore, "0+")


@struct
class DescribedStreamsGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    topology: DescribedTopology | None = nested_or_null(DescribedTopology, "0+", nullable="0+")
    members: tuple[StreamsGroupMember, ...] = array(StreamsGroupMember, "0+")
    authorized_operations: int = int32("0+", default=NOT_ASKED)
    topology_description: TopologyDescription | None = nested_or_null(TopologyDescription, "1+", nullable="1+")
    topology_description_status: int = int8("1+")
    assignor_name: str | None = string("1+", nullable="1+", default=None, ignorable=True)


@response(StreamsGroupDescribeRequest)
class StreamsGroupDescribeResponse(Message):
    throttle_time_ms: int = int32("0+")
    groups: tuple[DescribedStreamsGroup, ...] = array(DescribedStreamsGroup, "0+")


@request(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE)
class StreamsGroupTopologyDescriptionUpdateRequest(Request["StreamsGroupTopologyDescriptionUpdateResponse"]):
    group_id: str = string("0+")
    member_id: str = string("0+")
    topology_epoch: int = int32("0+")
    topology_description: TopologyDescription = nested(TopologyDescription, "0+")


@response(StreamsGroupTopologyDescriptionUpdateRequest)
class StreamsGroupTopologyDescriptionUpdateResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
