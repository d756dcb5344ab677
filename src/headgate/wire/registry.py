"""Which header and which classes a call of a given key and version has.

One rule: everything that depends on (key, version) is answered here, from the table in `apis`, so that no other
module knows which call is flexible. Calls without classes are forwarded unopened: only their headers are known.
"""

from dataclasses import dataclass

from headgate.base.errors import WireError
from headgate.wire.apis import APIS, Api
from headgate.wire.messages import cluster, configs, data, groups, sasl, share, streams
from headgate.wire.schema import Message

API_VERSIONS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that Headgate can open."""

    api: Api
    request: type[Message]
    response: type[Message]


_CLASSES: dict[int, tuple[type[Message], type[Message]]] = {
    0: (data.ProduceRequest, data.ProduceResponse),
    1: (data.FetchRequest, data.FetchResponse),
    3: (cluster.MetadataRequest, cluster.MetadataResponse),
    10: (cluster.FindCoordinatorRequest, cluster.FindCoordinatorResponse),
    11: (groups.JoinGroupRequest, groups.JoinGroupResponse),
    12: (groups.HeartbeatRequest, groups.HeartbeatResponse),
    15: (groups.DescribeGroupsRequest, groups.DescribeGroupsResponse),
    16: (groups.ListGroupsRequest, groups.ListGroupsResponse),
    17: (sasl.SaslHandshakeRequest, sasl.SaslHandshakeResponse),
    18: (cluster.ApiVersionsRequest, cluster.ApiVersionsResponse),
    32: (configs.DescribeConfigsRequest, configs.DescribeConfigsResponse),
    33: (configs.AlterConfigsRequest, configs.AlterConfigsResponse),
    36: (sasl.SaslAuthenticateRequest, sasl.SaslAuthenticateResponse),
    42: (groups.DeleteGroupsRequest, groups.DeleteGroupsResponse),
    44: (configs.IncrementalAlterConfigsRequest, configs.IncrementalAlterConfigsResponse),
    47: (groups.OffsetDeleteRequest, groups.OffsetDeleteResponse),
    60: (cluster.DescribeClusterRequest, cluster.DescribeClusterResponse),
    74: (configs.ListConfigResourcesRequest, configs.ListConfigResourcesResponse),
    76: (share.ShareGroupHeartbeatRequest, share.ShareGroupHeartbeatResponse),
    77: (share.ShareGroupDescribeRequest, share.ShareGroupDescribeResponse),
    78: (share.ShareFetchRequest, share.ShareFetchResponse),
    79: (share.ShareAcknowledgeRequest, share.ShareAcknowledgeResponse),
    88: (streams.StreamsGroupHeartbeatRequest, streams.StreamsGroupHeartbeatResponse),
    89: (streams.StreamsGroupDescribeRequest, streams.StreamsGroupDescribeResponse),
    90: (share.DescribeShareGroupOffsetsRequest, share.DescribeShareGroupOffsetsResponse),
    93: (streams.StreamsGroupTopologyDescriptionUpdateRequest, streams.StreamsGroupTopologyDescriptionUpdateResponse),
}

CALLS: dict[int, Call] = {
    key: Call(api=APIS[key], request=request, response=response) for key, (request, response) in _CLASSES.items()
}


def api_of(key: int) -> Api:
    """The call behind a key; a `WireError` for a key that Kafka 4.4 does not have."""
    api = APIS.get(key)
    if api is None:
        raise WireError(f"no Kafka call has api key {key}")
    return api


def api_name(key: int) -> str:
    """The metric label of a key: Kafka's name, or `unknown` so that a peer cannot make up labels."""
    api = APIS.get(key)
    return "unknown" if api is None else api.name


def request_header_version(key: int, version: int) -> int:
    """2 for flexible versions, else 1; a version above the highest known one is as flexible as that one."""
    return 2 if api_of(key).is_flexible(version) else 1


def response_header_version(key: int, version: int) -> int:
    """1 for flexible versions, else 0; ApiVersions always 0 (KIP-511): its reader cannot know the version yet."""
    return 1 if key != API_VERSIONS and api_of(key).is_flexible(version) else 0
