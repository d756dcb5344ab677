"""The public API for authors of topology stores: the contract, its types, and `headgate.plugin.conformance`."""

from headgate.base.errors import UsageError
from headgate.facts.topology import (
    Description,
    GlobalStore,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    Subtopology,
    content_hash,
)
from headgate.plugin.topology_store import (
    PermanentFailure,
    PushedTopology,
    StoreSettings,
    TopologyStore,
    TransientFailure,
    check_hash,
    from_bytes,
    to_bytes,
)

__all__ = [
    "Description",
    "GlobalStore",
    "Node",
    "PermanentFailure",
    "ProcessorNode",
    "PushedTopology",
    "SinkNode",
    "SourceNode",
    "StoreSettings",
    "Subtopology",
    "TopologyStore",
    "TransientFailure",
    "UsageError",
    "check_hash",
    "content_hash",
    "from_bytes",
    "to_bytes",
]
