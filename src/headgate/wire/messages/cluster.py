"""Cluster and connection apis: versions, SASL, brokers, topics and coordinators."""

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


@request(ApiKey.API_VERSIONS)
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    """Cluster and node id (KIP-1242) come together or not at all: they say whom the client believes to have dialled."""

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)
    cluster_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    node_id: int = int32("5+", default=-1, ignorable=True)


@struct
class ApiVersionRange(Struct):
    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


@struct
class SupportedFeature(Struct):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


@struct
class FinalizedFeature(Struct):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@response(ApiVersionsRequest)
class ApiVersionsResponse(Message):
    """Error 35 comes in version 0, whatever version was asked for."""

    error_code: int = int16("0+")
    api_keys: tuple[ApiVersionRange, ...] = array(ApiVersionRange, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: tuple[SupportedFeature, ...] = array(SupportedFeature, "3+", ignorable=True, tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, ignorable=True, tag=1)
    finalized_features: tuple[FinalizedFeature, ...] = array(FinalizedFeature, "3+", ignorable=True, tag=2)
    zk_migration_ready: bool = boolean("3+", ignorable=True, tag=3)


@struct
class MetadataRequestTopic(Struct):
    topic_id: bytes = uuid("10+", ignorable=True)
    name: str | None = string("0+", nullable="10+")


@request(ApiKey.METADATA)
class MetadataRequest(Request["MetadataResponse"]):
    """No topics at all means all of them in version 0; from version 1 on null means that."""

    topics: tuple[MetadataRequestTopic, ...] | None = array(MetadataRequestTopic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@struct
class MetadataBroker(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


@struct
class MetadataPartition(Struct):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = array(INT32, "0+")
    isr_nodes: tuple[int, ...] = array(INT32, "0+")
    offline_replicas: tuple[int, ...] = array(INT32, "5+", ignorable=True)


@struct
class MetadataTopic(Struct):
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="12+")
    topic_id: bytes = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: tuple[MetadataPartition, ...] = array(MetadataPartition, "0+")
    topic_authorized_operations: int = int32("8+", default=NOT_ASKED)


@response(MetadataRequest)
class MetadataResponse(Message):
    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: tuple[MetadataBroker, ...] = array(MetadataBroker, "0+")
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: tuple[MetadataTopic, ...] = array(MetadataTopic, "0+")
    cluster_authorized_operations: int = int32("8-10", default=NOT_ASKED)
    error_code: int = int16("13+", ignorable=True)


@request(ApiKey.FIND_COORDINATOR)
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: tuple[str, ...] = array(STRING, "4+")


@struct
class Coordinator(Struct):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


@response(FindCoordinatorRequest)
class FindCoordinatorResponse(Message):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: tuple[Coordinator, ...] = array(Coordinator, "4+")


@request(ApiKey.DESCRIBE_CLUSTER)
class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


@struct
class DescribeClusterBroker(Struct):
    broker_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


@response(DescribeClusterRequest)
class DescribeClusterResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", default=-1)
    brokers: tuple[DescribeClusterBroker, ...] = array(DescribeClusterBroker, "0+")
    cluster_authorized_operations: int = int32("0+", default=NOT_ASKED)


@request(ApiKey.SASL_HANDSHAKE)
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    mechanism: str = string("0+")


@response(SaslHandshakeRequest)
class SaslHandshakeResponse(Message):
    error_code: int = int16("0+")
    mechanisms: tuple[str, ...] = array(STRING, "0+")


@request(ApiKey.SASL_AUTHENTICATE)
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    auth_bytes: bytes = binary("0+")


@response(SaslAuthenticateRequest)
class SaslAuthenticateResponse(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = binary("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
