"""The public Python API for clients of a cluster behind Headgate (`docs/client.md`).

`GatewayClient` describes, deletes, pushes, and reads the status of circuit breakers. `StreamsMember` is a member of a
streams group that pushes its description when it is asked; `TopologyPush` decides when, for a client of one's own.
"""

from headgate.base.errors import ClusterError
from headgate.client.gateway_client import GatewayClient
from headgate.client.streams_member import StreamsMember
from headgate.client.topology_push import PushResult, TopologyPush
from headgate.facts.topology import (
    Description,
    GlobalStore,
    ProcessorNode,
    SinkNode,
    SourceNode,
    Subtopology,
)
from headgate.wire.messages.streams import HeartbeatSubtopology, HeartbeatTopology

__all__ = [
    "ClusterError",
    "Description",
    "GatewayClient",
    "GlobalStore",
    "HeartbeatSubtopology",
    "HeartbeatTopology",
    "ProcessorNode",
    "PushResult",
    "SinkNode",
    "SourceNode",
    "StreamsMember",
    "Subtopology",
    "TopologyPush",
]
