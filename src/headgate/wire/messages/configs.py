"""Reading and changing the configuration of topics, brokers and groups."""

from headgate.base.ids import ApiKey
from headgate.wire.schema import (
    INT8,
    STRING,
    Message,
    Request,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    request,
    response,
    string,
    struct,
)


@struct
class AlterableConfig(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@struct
class AlterConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: tuple[AlterableConfig, ...] = array(AlterableConfig, "0+")


@request(ApiKey.ALTER_CONFIGS)
class AlterConfigsRequest(Request["AlterConfigsResponse"]):
    resources: tuple[AlterConfigsResource, ...] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


@struct
class AlterConfigsResourceResponse(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


@response(AlterConfigsRequest)
class AlterConfigsResponse(Message):
    throttle_time_ms: int = int32("0+")
    responses: tuple[AlterConfigsResourceResponse, ...] = array(AlterConfigsResourceResponse, "0+")


@struct
class IncrementalConfig(Struct):
    name: str = string("0+")
    config_operation: int = int8("0+")
    value: str | None = string("0+", nullable="0+")


@struct
class IncrementalAlterConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: tuple[IncrementalConfig, ...] = array(IncrementalConfig, "0+")


@request(ApiKey.INCREMENTAL_ALTER_CONFIGS)
class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
    resources: tuple[IncrementalAlterConfigsResource, ...] = array(IncrementalAlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


@response(IncrementalAlterConfigsRequest)
class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: int = int32("0+")
    responses: tuple[AlterConfigsResourceResponse, ...] = array(AlterConfigsResourceResponse, "0+")


@struct
class DescribeConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configuration_keys: tuple[str, ...] | None = array(STRING, "0+", nullable="0+")


@request(ApiKey.DESCRIBE_CONFIGS)
class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    resources: tuple[DescribeConfigsResource, ...] = array(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


@struct
class ConfigSynonym(Struct):
    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


@struct
class DescribedConfig(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")
    read_only: bool = boolean("0+")
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("0+")
    synonyms: tuple[ConfigSynonym, ...] = array(ConfigSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable="0+", ignorable=True)


@struct
class DescribeConfigsResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: tuple[DescribedConfig, ...] = array(DescribedConfig, "0+")


@response(DescribeConfigsRequest)
class DescribeConfigsResponse(Message):
    throttle_time_ms: int = int32("0+")
    results: tuple[DescribeConfigsResult, ...] = array(DescribeConfigsResult, "0+")


@request(ApiKey.LIST_CONFIG_RESOURCES)
class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"]):
    resource_types: tuple[int, ...] = array(INT8, "1+")


@struct
class ConfigResource(Struct):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=16, ignorable=True)


@response(ListConfigResourcesRequest)
class ListConfigResourcesResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: tuple[ConfigResource, ...] = array(ConfigResource, "0+")
