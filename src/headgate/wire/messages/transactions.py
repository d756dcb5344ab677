"""The calls of transactional producers."""

from headgate.base.ids import ApiKey
from headgate.wire.schema import (
    INT32,
    Message,
    Request,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    request,
    response,
    string,
    struct,
    uuid,
)


@request(ApiKey.INIT_PRODUCER_ID)
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


@response(InitProducerIdRequest)
class InitProducerIdResponse(Message):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)


@struct
class AddPartitionsToTxnTopic(Struct):
    name: str = string("0+")
    partitions: tuple[int, ...] = array(INT32, "0+")


@struct
class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+")
    topics: tuple[AddPartitionsToTxnTopic, ...] = array(AddPartitionsToTxnTopic, "4+")


@request(ApiKey.ADD_PARTITIONS_TO_TXN)
class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"]):
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = array(AddPartitionsToTxnTopic, "0-3")


@struct
class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32("0+")
    partition_error_code: int = int16("0+")


@struct
class AddPartitionsToTxnTopicResult(Struct):
    name: str = string("0+")
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = array(AddPartitionsToTxnPartitionResult, "0+")


@struct
class AddPartitionsToTxnResult(Struct):
    transactional_id: str = string("4+")
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = array(AddPartitionsToTxnTopicResult, "4+")


@response(AddPartitionsToTxnRequest)
class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = array(
        AddPartitionsToTxnTopicResult, "0-3"
    )


@request(ApiKey.ADD_OFFSETS_TO_TXN)
class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"]):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


@response(AddOffsetsToTxnRequest)
class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


@struct
class TxnOffsetCommitPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


@struct
class TxnOffsetCommitTopic(Struct):
    name: str = string("0-5", ignorable=True)
    topic_id: bytes = uuid("6+", ignorable=True)
    partitions: tuple[TxnOffsetCommitPartition, ...] = array(TxnOffsetCommitPartition, "0+")


@request(ApiKey.TXN_OFFSET_COMMIT)
class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"]):
    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id_or_member_epoch: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: tuple[TxnOffsetCommitTopic, ...] = array(TxnOffsetCommitTopic, "0+")


@struct
class TxnCommittedPartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@struct
class TxnCommittedTopic(Struct):
    name: str = string("0-5", ignorable=True)
    topic_id: bytes = uuid("6+", ignorable=True)
    partitions: tuple[TxnCommittedPartition, ...] = array(TxnCommittedPartition, "0+")


@response(TxnOffsetCommitRequest)
class TxnOffsetCommitResponse(Message):
    throttle_time_ms: int = int32("0+")
    topics: tuple[TxnCommittedTopic, ...] = array(TxnCommittedTopic, "0+")
