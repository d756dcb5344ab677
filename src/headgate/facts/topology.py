"""What a Streams application computes, as a value: sub-topologies of nodes, and global stores (KIP-1331).

One rule: successors are what is given, everything else is worked out from them. A description that was sent is kept as
it was sent, its order too; only the content hash is blind to order. Nothing here recurses, so a hostile depth is only
a length, and cycles are legal.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple, Protocol, assert_never

# Fields of a later version that came with a fact. They are carried along and are no part of the content.
Extra = tuple[tuple[str, object], ...]


class NodeType(IntEnum):
    """`NodeType` of TopologyDescriptionNode on the wire."""

    SOURCE = 1
    PROCESSOR = 2
    SINK = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """Reads topics; `pattern` when they are found by one, and then `topics` may be empty.

    A push carries no pattern: such a source then has neither.
    """

    name: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    successors: tuple[str, ...] = ()
    extra: Extra = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorNode:
    name: str
    stores: tuple[str, ...] = ()
    successors: tuple[str, ...] = ()
    extra: Extra = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNode:
    """Writes a topic; None when each record chooses its own."""

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
    """A store that every instance fills whole: the node that reads its topic and the one that writes the store."""

    source: SourceNode
    processor: ProcessorNode
    extra: Extra = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    subtopologies: tuple[Subtopology, ...] = ()
    global_stores: tuple[GlobalStore, ...] = ()
    extra: Extra = ()


# --- the wire's form of it ------------------------------------------------------------------------------------------


class WireNode(Protocol):
    """TopologyDescriptionNode, whatever class decoded it."""

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
    """Why a pushed description is an INVALID_REQUEST, in the broker's own words."""

    text: str


class WireFields(NamedTuple):
    """A node's fields by their names on the wire; what a node of its type does not have is empty."""

    name: str
    node_type: int
    source_topics: tuple[str, ...] = ()
    sink_topic: str | None = None
    stores: tuple[str, ...] = ()
    successors: tuple[str, ...] = ()


def from_wire(wire: WireDescription) -> Description | Refusal:
    """The pushed description; the first thing that is wrong with it, in the broker's order, refuses it.

    Topics, stores and successors are sets to the broker: a name that stands twice is kept once, at its first place.
    What a node of its type does not have (the stores of a sink) is dropped, as the broker drops it.
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
    """A node for a StreamsGroupDescribe answer: `TopologyDescriptionNode(**to_wire(node)._asdict())`."""
    match node:
        case SourceNode():
            return WireFields(node.name, NodeType.SOURCE, source_topics=node.topics, successors=node.successors)
        case ProcessorNode():
            return WireFields(node.name, NodeType.PROCESSOR, stores=node.stores, successors=node.successors)
        case SinkNode():
            return WireFields(node.name, NodeType.SINK, sink_topic=node.topic, successors=node.successors)
    assert_never(node)


# --- what follows from it -------------------------------------------------------------------------------------------


def predecessors(nodes: Iterable[Node]) -> Mapping[str, tuple[str, ...]]:
    """Who feeds each node of one sub-topology (or of one global store), in one pass; absent when nobody does."""
    found: dict[str, dict[str, None]] = {}
    for node in nodes:
        for successor in node.successors:
            found.setdefault(successor, {})[node.name] = None
    return {name: tuple(feeders) for name, feeders in found.items()}


def content_hash(description: Description) -> str:
    """`sha256:...` of what the description says: equal for equal content in whatever order it was listed.

    Lists are written as their length and their sorted items, an item as its length and itself, so that no two contents
    are written alike, whatever the names hold.
    """
    subtopologies = (
        _item(subtopology.id) + _items(map(_content, subtopology.nodes)) for subtopology in description.subtopologies
    )
    stores = (_content(store.source) + _content(store.processor) for store in description.global_stores)
    written = _items(subtopologies) + _items(stores)
    # A lone surrogate is a name that was no UTF-8.
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
    """What we find odd and Kafka accepts; the values are labels of metrics and events."""

    DANGLING_SUCCESSOR = "dangling_successor"
    DUPLICATE_NODE = "duplicate_node"
    DUPLICATE_SUBTOPOLOGY = "duplicate_subtopology"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A flaw and where it is; `subtopology` is None in a global store, `node` is None for a whole sub-topology."""

    flaw: Flaw
    subtopology: str | None
    node: str | None
    text: str


def findings(description: Description) -> Iterator[Finding]:
    """Everything odd, lazily: a hostile description can have millions, so take as many as you will show.

    Node names are unique over the whole topology in Kafka Streams; a successor lies in the same sub-topology.
    """
    ids: set[str] = set()
    names: set[str] = set()
    for subtopology in description.subtopologies:
        if subtopology.id in ids:
            text = f"sub-topology {subtopology.id!r} is described twice"
            yield Finding(flaw=Flaw.DUPLICATE_SUBTOPOLOGY, subtopology=subtopology.id, node=None, text=text)
        ids.add(subtopology.id)
        yield from _node_findings(subtopology.nodes, subtopology.id, names)
    for store in description.global_stores:
        yield from _node_findings((store.source, store.processor), None, names)


def _node_findings(nodes: Sequence[Node], subtopology: str | None, names: set[str]) -> Iterator[Finding]:
    here = {node.name for node in nodes}
    for node in nodes:
        if node.name in names:
            text = f"the name {node.name!r} is another node's too"
            yield Finding(flaw=Flaw.DUPLICATE_NODE, subtopology=subtopology, node=node.name, text=text)
        names.add(node.name)
        for successor in node.successors:
            if successor not in here:
                text = f"{node.name!r} feeds {successor!r}, which is not there"
                yield Finding(flaw=Flaw.DANGLING_SUCCESSOR, subtopology=subtopology, node=node.name, text=text)
