"""ListOffsets and OffsetFetch, in the notation of `headgate.wire.schema`.

One rule: complete in every version, as Kafka 4.4.0 defines them, so that a table can move to `wire/messages` as it
stands once the gateway needs it.
"""

from headgate.base.ids import ApiKey
from headgate.wire.schema import (
    INT32,
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
    uuid,
)

LIST_OFFSETS, OFFSET_FETCH = 2, 9
EARLIEST, LATEST = -2, -1  # as timestamps of ListOffsets


@struct
class ListOffsetsPartition(Struct):
    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64("0+")


@struct
class ListOffsetsTopic(Struct):
    name: str = string("0+")
    partitions: tuple[ListOffsetsPartition, ...] = array(ListOffsetsPartition, "0+")


@request(ApiKey.LIST_OFFSETS)
class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    """A replica id of -1 is a consumer; one request names a partition once."""

    replica_id: int = int32("0+")
    isolation_level: int = int8("2+")
    topics: tuple[ListOffsetsTopic, ...] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+", ignorable=True)


@struct
class ListedPartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


@struct
class ListedTopic(Struct):
    name: str = string("0+")
    partitions: tuple[ListedPartition, ...] = array(ListedPartition, "0+")


@response(ListOffsetsRequest)
class ListOffsetsResponse(Message):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: tuple[ListedTopic, ...] = array(ListedTopic, "0+")


@struct
class OffsetFetchRequestTopic(Struct):
    name: str = string("0-7")
    partition_indexes: tuple[int, ...] = array(INT32, "0-7")


@struct
class OffsetFetchRequestTopics(Struct):
    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partition_indexes: tuple[int, ...] = array(INT32, "8+")


@struct
class OffsetFetchRequestGroup(Struct):
    """Null topics are all of them."""

    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")


@request(ApiKey.OFFSET_FETCH)
class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    group_id: str = string("0-7")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: tuple[OffsetFetchRequestGroup, ...] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@struct
class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


@struct
class OffsetFetchResponseTopic(Struct):
    name: str = string("0-7")
    partitions: tuple[OffsetFetchResponsePartition, ...] = array(OffsetFetchResponsePartition, "0-7")


@struct
class OffsetFetchResponsePartitions(Struct):
    """An offset of -1 is none."""

    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


@struct
class OffsetFetchResponseTopics(Struct):
    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = array(OffsetFetchResponsePartitions, "8+")


@struct
class OffsetFetchResponseGroup(Struct):
    group_id: str = string("8+")
    topics: tuple[OffsetFetchResponseTopics, ...] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


@response(OffsetFetchRequest)
class OffsetFetchResponse(Message):
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: tuple[OffsetFetchResponseTopic, ...] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: tuple[OffsetFetchResponseGroup, ...] = array(OffsetFetchResponseGroup, "8+")
