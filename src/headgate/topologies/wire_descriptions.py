"""Topology descriptions in Kafka's messages: read from a push with the broker's checks, written into a response."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, assert_never

from headgate.facts.topology import (
    Description,
    GlobalStore,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    Subtopology,
)
from headgate.wire.messages.streams import (
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)

# Of a StreamsGroupTopologyDescriptionUpdate without a member: the description was pasted. Also in the response to it.
PASTED_TAG: Final = 10003
PASTED: Final = b"pasted"


class NodeType(IntEnum):
    """`NodeType` of TopologyDescriptionNode."""

    SOURCE = 1
    PROCESSOR = 2
    SINK = 3


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pushed description is an INVALID_REQUEST, with the broker's own text."""

    text: str


def from_wire(wire: TopologyDescription) -> Description | Refusal:
    """The pushed description, or the first error in it in the order of the broker's checks.

    Topics, stores and successors are sets to the broker: a repeated name is kept once, at its first place. Fields that
    a node of its type does not have (the stores of a sink) are dropped, as the broker drops them.
    """
    subtopologies = []
    for subtopology in wire.subtopologies:
        nodes = []
        for node in subtopology.nodes:
            read = _node_from_wire(node)
            if isinstance(read, Refusal):
                return read
            nodes.append(read)
        subtopologies.append(Subtopology(id=subtopology.subtopology_id, nodes=tuple(nodes)))
    stores = []
    for store in wire.global_stores:
        source, processor = _node_from_wire(store.source), _node_from_wire(store.processor)
        for read in (source, processor):
            if isinstance(read, Refusal):
                return read
        if not isinstance(source, SourceNode) or not isinstance(processor, ProcessorNode):
            return Refusal("Global store must be composed of a source and a processor node.")
        stores.append(GlobalStore(source=source, processor=processor))
    return Description(subtopologies=tuple(subtopologies), global_stores=tuple(stores))


def _node_from_wire(node: TopologyDescriptionNode) -> Node | Refusal:
    successors = _once(node.successors)
    match node.node_type:
        case NodeType.SOURCE:
            return SourceNode(name=node.name, topics=_once(node.source_topics), successors=successors)
        case NodeType.PROCESSOR:
            return ProcessorNode(name=node.name, stores=_once(node.stores), successors=successors)
        case NodeType.SINK:
            return SinkNode(name=node.name, topic=node.sink_topic, successors=successors)
        case unknown:
            return Refusal(f"Unknown topology node type: {unknown}")


def _once(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names)) if len(names) > 1 else tuple(names)


def to_wire(description: Description) -> TopologyDescription:
    """The description for a response of StreamsGroupDescribe; a pattern is not carried."""
    return TopologyDescription(
        subtopologies=tuple(
            TopologyDescriptionSubtopology(subtopology_id=one.id, nodes=tuple(map(_node_to_wire, one.nodes)))
            for one in description.subtopologies
        ),
        global_stores=tuple(
            TopologyDescriptionGlobalStore(source=_node_to_wire(one.source), processor=_node_to_wire(one.processor))
            for one in description.global_stores
        ),
    )


def _node_to_wire(node: Node) -> TopologyDescriptionNode:
    name, successors = node.name, node.successors
    match node:
        case SourceNode(topics=topics):
            return TopologyDescriptionNode(
                name=name, node_type=NodeType.SOURCE, source_topics=topics, successors=successors
            )
        case ProcessorNode(stores=stores):
            return TopologyDescriptionNode(
                name=name, node_type=NodeType.PROCESSOR, stores=stores, successors=successors
            )
        case SinkNode(topic=topic):
            return TopologyDescriptionNode(name=name, node_type=NodeType.SINK, sink_topic=topic, successors=successors)
    assert_never(node)
