"""Topology descriptions (KIP-1331): sub-topologies of nodes and global stores, and the facts of `topologies`.

A description has the successors of each node; everything else is derived from them. It is kept as it was sent,
including its order; only the content hash ignores order, and `extra`, the fields of a later version. Cycles are legal,
and nothing here recurses, so that a long chain of nodes is harmless.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Annotated, ClassVar, Literal, NamedTuple, Protocol, assert_never

from headgate.facts.codec import Fact, fact
from headgate.facts.json_form import INT32_MAX, Extra, Whole, object_type


class NodeType(IntEnum):
    """`NodeType` of TopologyDescriptionNode on the wire."""

    SOURCE = 1
    PROCESSOR = 2
    SINK = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """Reads topics, or those that match `pattern`. A push carries no pattern: such a source then has neither."""

    json_type: ClassVar = "source"
    name: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    successors: tuple[str, ...] = ()
    extra: Extra = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorNode:
    """Processes records, with state stores or without."""

    json_type: ClassVar = "processor"
    name: str
    stores: tuple[str, ...] = ()
    successors: tuple[str, ...] = ()
    extra: Extra = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNode:
    """Writes a topic; None when the topic is chosen for each record."""

    json_type: ClassVar = "sink"
    name: str
    topic: str | None
    successors: tuple[str, ...] = ()
    extra: Extra = ()


Node = SourceNode | ProcessorNode | SinkNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    id: str
    nodes: tuple[Node, ...]
    extra: Extra = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalStore:
    """A store that every instance fills with a whole topic: the node that reads the topic and the one that fills it."""

    source: SourceNode
    processor: ProcessorNode
    extra: Extra = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    subtopologies: tuple[Subtopology, ...] = ()
    global_stores: tuple[GlobalStore, ...] = ()
    extra: Extra = ()


DESCRIPTION = object_type(Description)  # its JSON form
Provenance = Literal["pushed", "assignment", "pasted", "spark"]
_Group = Annotated[str, "the group, or the name of a Spark query"]
_Incarnation = Annotated[str, "one life of the group"]


@fact(topic="topologies", key=("group", "incarnation", "epoch", "hash", "provenance"), key_in_value=True)
class TopologyDescribed(Fact):
    """One version of an application's topology; a group's current one is its last record."""

    group: _Group
    incarnation: _Incarnation
    epoch: Annotated[int, "the topology epoch within it", Whole(0, INT32_MAX)]
    hash: Annotated[str, "the content hash of the description"]
    provenance: Annotated[Provenance, "the origin of the description"]
    member: Annotated[str | None, "the member that pushed it; null when it was not pushed"]
    process: Annotated[str | None, "the process of that member; null when it was not pushed"]
    description: Annotated[Description, "sub-topologies and global stores, see below"]


@fact(topic="topologies", key=("group", "deleted"), key_in_value=True)
class TopologyDeleted(Fact):
    """The group was deleted, and with it its description; its versions stay as history."""

    group: _Group
    incarnation: _Incarnation


# --- the wire form --------------------------------------------------------------------------------------------------


class WireNode(Protocol):
    """TopologyDescriptionNode of any message class."""

    @property
    def name(self) -> str: ...
    @property
    def node_type(self) -> int: ...
    @property
    def source_topics(self) -> Sequence[str]: ...
    @property
    def sink_topic(self) -> str | None: ...
    @property
    def stores(self) -> Sequence[str]: ...
    @property
    def successors(self) -> Sequence[str]: ...


class WireSubtopology(Protocol):
    @property
    def subtopology_id(self) -> str: ...
    @property
    def nodes(self) -> Sequence[WireNode]: ...


class WireGlobalStore(Protocol):
    @property
    def source(self) -> WireNode: ...
    @property
    def processor(self) -> WireNode: ...


class WireDescription(Protocol):
    """TopologyDescription of StreamsGroupTopologyDescriptionUpdate and of StreamsGroupDescribe."""

    @property
    def subtopologies(self) -> Sequence[WireSubtopology]: ...
    @property
    def global_stores(self) -> Sequence[WireGlobalStore]: ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pushed description is an INVALID_REQUEST, with the broker's own text."""

    text: str


class WireFields(NamedTuple):
    """A node's fields by their names on the wire; fields that its type does not have are empty."""

    name: str
    node_type: int
    source_topics: tuple[str, ...] = ()
    sink_topic: str | None = None
    stores: tuple[str, ...] = ()
    successors: tuple[str, ...] = ()


def from_wire(wire: WireDescription) -> Description | Refusal:
    """The pushed description, or the first error in it in the order of the broker's checks.

    Topics, stores and successors are sets to the broker: a repeated name is kept once, at its first place. Fields that
    a node of its type does not have (the stores of a sink) are dropped, as the broker drops them.
    """
    subtopologies = []
    for subtopology in wire.subtopologies:
        nodes = []
        for node in subtopology.nodes:
            read = _from_wire(node)
            if isinstance(read, Refusal):
                return read
            nodes.append(read)
        subtopologies.append(Subtopology(id=subtopology.subtopology_id, nodes=tuple(nodes)))
    stores = []
    for store in wire.global_stores:
        source, processor = _from_wire(store.source), _from_wire(store.processor)
        for read in (source, processor):
            if isinstance(read, Refusal):
                return read
        if not isinstance(source, SourceNode) or not isinstance(processor, ProcessorNode):
            return Refusal("Global store must be composed of a source and a processor node.")
        stores.append(GlobalStore(source=source, processor=processor))
    return Description(subtopologies=tuple(subtopologies), global_stores=tuple(stores))


def _from_wire(node: WireNode) -> Node | Refusal:
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


def to_wire(node: Node) -> WireFields:
    """A node for a StreamsGroupDescribe response: `TopologyDescriptionNode(**to_wire(node)._asdict())`."""
    match node:
        case SourceNode():
            return WireFields(node.name, NodeType.SOURCE, source_topics=node.topics, successors=node.successors)
        case ProcessorNode():
            return WireFields(node.name, NodeType.PROCESSOR, stores=node.stores, successors=node.successors)
        case SinkNode():
            return WireFields(node.name, NodeType.SINK, sink_topic=node.topic, successors=node.successors)
    assert_never(node)


# --- derived from a description -------------------------------------------------------------------------------------


def predecessors(nodes: Iterable[Node]) -> Mapping[str, tuple[str, ...]]:
    """The predecessors of each node of one sub-topology (or of one global store), absent for a node without any."""
    found: dict[str, dict[str, None]] = {}
    for node in nodes:
        for successor in node.successors:
            found.setdefault(successor, {})[node.name] = None
    return {name: tuple(feeders) for name, feeders in found.items()}


def content_hash(description: Description) -> str:
    """`sha256:...` of the content: equal descriptions have equal hashes, in whatever order their items are listed.

    Lists are written as their length and their sorted items, an item as its length and itself, so that two different
    contents are never written alike.
    """
    subtopologies = (
        _item(subtopology.id) + _items(map(_content, subtopology.nodes)) for subtopology in description.subtopologies
    )
    stores = (_content(store.source) + _content(store.processor) for store in description.global_stores)
    written = _items(subtopologies) + _items(stores)
    # A lone surrogate comes from a name that was not UTF-8.
    return "sha256:" + hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()


def _content(node: Node) -> str:
    match node:
        case SourceNode():
            pattern = () if node.pattern is None else (node.pattern,)
            rest = f"1{_names(node.topics)}{_names(pattern)}"
        case ProcessorNode():
            rest = f"2{_names(node.stores)}"
        case SinkNode():
            rest = f"3{_names(() if node.topic is None else (node.topic,))}"
        case _:
            assert_never(node)
    return f"{_item(node.name)}{rest}{_names(node.successors)}"


def _names(names: tuple[str, ...]) -> str:
    if len(names) == 1:
        return f"1[{len(names[0])}:{names[0]}]"
    return _items(set(names))


def _items(texts: Iterable[str]) -> str:
    items = sorted(texts)
    return f"{len(items)}[{''.join([f'{len(item)}:{item}' for item in items])}]"


def _item(text: str) -> str:
    return f"{len(text)}:{text}"


class Flaw(StrEnum):
    """Flaws that Kafka accepts; the values are labels of metrics and events."""

    DANGLING_SUCCESSOR = "dangling_successor"
    DUPLICATE_NODE = "duplicate_node"
    DUPLICATE_SUBTOPOLOGY = "duplicate_subtopology"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyFinding:
    """A flaw and where it is; `subtopology` is None in a global store, `node` is None for a whole sub-topology."""

    flaw: Flaw
    subtopology: str | None
    node: str | None
    text: str


def findings(description: Description) -> Iterator[TopologyFinding]:
    """All flaws, lazily: a hostile description can have millions, so take only as many as you show.

    Node names are unique over the whole topology in Kafka Streams; a successor lies in the same sub-topology.
    """
    ids: set[str] = set()
    names: set[str] = set()
    for subtopology in description.subtopologies:
        if subtopology.id in ids:
            text = f"sub-topology {subtopology.id!r} is described twice"
            yield TopologyFinding(flaw=Flaw.DUPLICATE_SUBTOPOLOGY, subtopology=subtopology.id, node=None, text=text)
        ids.add(subtopology.id)
        yield from _node_findings(subtopology.nodes, subtopology.id, names)
    for store in description.global_stores:
        yield from _node_findings((store.source, store.processor), None, names)


def _node_findings(nodes: Sequence[Node], subtopology: str | None, names: set[str]) -> Iterator[TopologyFinding]:
    here = {node.name for node in nodes}
    for node in nodes:
        if node.name in names:
            text = f"the name {node.name!r} is another node's too"
            yield TopologyFinding(flaw=Flaw.DUPLICATE_NODE, subtopology=subtopology, node=node.name, text=text)
        names.add(node.name)
        for successor in node.successors:
            if successor not in here:
                text = f"{node.name!r} feeds {successor!r}, which is not there"
                yield TopologyFinding(flaw=Flaw.DANGLING_SUCCESSOR, subtopology=subtopology, node=node.name, text=text)
