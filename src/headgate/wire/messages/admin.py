"""Messages that only `headgate doctor` sends, complete in every version as Kafka 4.4.0 defines them."""

from headgate.base.ids import ApiKey
from headgate.wire.schema import (
    INT32,
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
    request,
    response,
    string,
    struct,
    uint16,
    uuid,
)


@struct
class ReplicaAssignment(Struct):
    partition_index: int = int32("0+")
    broker_ids: tuple[int, ...] = array(INT32, "0+")


@struct
class NewTopicConfig(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@struct
class NewTopic(Struct):
    name: str = string("0+")
    num_partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    assignments: tuple[ReplicaAssignment, ...] = array(ReplicaAssignment, "0+")
    configs: tuple[NewTopicConfig, ...] = array(NewTopicConfig, "0+")


@request(ApiKey.CREATE_TOPICS)
class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    topics: tuple[NewTopic, ...] = array(NewTopic, "0+")
    timeout_ms: int = int32("0+", default=60000)
    validate_only: bool = boolean("1+")


@struct
class CreatedTopicConfig(Struct):
    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


@struct
class CreatedTopic(Struct):
    name: str = string("0+")
    topic_id: bytes = uuid("7+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16("5+", ignorable=True, tag=0)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: tuple[CreatedTopicConfig, ...] | None = array(CreatedTopicConfig, "5+", nullable="5+", ignorable=True)


@response(CreateTopicsRequest)
class CreateTopicsResponse(Message):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: tuple[CreatedTopic, ...] = array(CreatedTopic, "0+")


@request(ApiKey.END_TXN)
class EndTxnRequest(Request["EndTxnResponse"]):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


@response(EndTxnRequest)
class EndTxnResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)


@request(ApiKey.DESCRIBE_TRANSACTIONS)
class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"]):
    transactional_ids: tuple[str, ...] = array(STRING, "0+")


@struct
class TransactionTopic(Struct):
    topic: str = string("0+")
    partitions: tuple[int, ...] = array(INT32, "0+")


@struct
class TransactionState(Struct):
    error_code: int = int16("0+")
    transactional_id: str = string("0+")
    transaction_state: str = string("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_start_time_ms: int = int64("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    topics: tuple[TransactionTopic, ...] = array(TransactionTopic, "0+")


@response(DescribeTransactionsRequest)
class DescribeTransactionsResponse(Message):
    throttle_time_ms: int = int32("0+")
    transaction_states: tuple[TransactionState, ...] = array(TransactionState, "0+")


@struct
class QuorumPartition(Struct):
    partition_index: int = int32("0+")


@struct
class QuorumTopic(Struct):
    topic_name: str = string("0+")
    partitions: tuple[QuorumPartition, ...] = array(QuorumPartition, "0+")


@request(ApiKey.DESCRIBE_QUORUM)
class DescribeQuorumRequest(Request["DescribeQuorumResponse"]):
    topics: tuple[QuorumTopic, ...] = array(QuorumTopic, "0+")


@struct
class QuorumReplica(Struct):
    replica_id: int = int32("0+")
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64("0+")
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


@struct
class DescribedQuorumPartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    high_watermark: int = int64("0+")
    current_voters: tuple[QuorumReplica, ...] = array(QuorumReplica, "0+")
    observers: tuple[QuorumReplica, ...] = array(QuorumReplica, "0+")


@struct
class DescribedQuorumTopic(Struct):
    topic_name: str = string("0+")
    partitions: tuple[DescribedQuorumPartition, ...] = array(DescribedQuorumPartition, "0+")


@struct
class QuorumListener(Struct):
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


@struct
class QuorumNode(Struct):
    node_id: int = int32("2+")
    listeners: tuple[QuorumListener, ...] = array(QuorumListener, "2+")


@response(DescribeQuorumRequest)
class DescribeQuorumResponse(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: tuple[DescribedQuorumTopic, ...] = array(DescribedQuorumTopic, "0+")
    nodes: tuple[QuorumNode, ...] = array(QuorumNode, "2+")


@request(ApiKey.DESCRIBE_ACLS)
class DescribeAclsRequest(Request["DescribeAclsResponse"]):
    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@struct
class AclDescription(Struct):
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@struct
class DescribedAclResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", default=3)
    acls: tuple[AclDescription, ...] = array(AclDescription, "0+")


@response(DescribeAclsRequest)
class DescribeAclsResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resources: tuple[DescribedAclResource, ...] = array(DescribedAclResource, "0+")
