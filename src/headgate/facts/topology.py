"""Topology descriptions (KIP-1331): sub-topologies of nodes and global stores, and the facts of `topologies`.

A description has the successors of each node; everything else is derived from them. It is kept as it was sent,
including its order; only the content hash ignores order, and `extra`, the fields of a later version. Cycles are legal,
and nothing here recurses, so that a long chain of nodes is harmless.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Literal, assert_never

from headgate.facts.codec import Ended, Fact, fact
from headgate.facts.json_form import INT32_MAX, OMIT_NULL, Extra, Whole, object_type


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
    """One version of an application's topology; a group's current one is the last that was pushed."""

    group: _Group
    incarnation: _Incarnation
    epoch: Annotated[int, "the topology epoch within it", Whole(0, INT32_MAX)]
    hash: Annotated[str, "the content hash of the description"]
    provenance: Annotated[Provenance, "the origin of the description"]
    member: Annotated[str | None, "the member that pushed it; null when it was not pushed"]
    process: Annotated[str | None, "the process of that member; null when it was not pushed"]
    by: Annotated[
        str | None, "the principal that pasted it; absent when it was not pasted or is unknown", OMIT_NULL
    ] = None
    client_id: Annotated[str | None, "its client id; absent when it was not pasted", OMIT_NULL] = None
    description: Annotated[Description, "sub-topologies and global stores, see below"]


@fact(topic="topologies", key=("group", "deleted"), key_in_value=True)
class TopologyDeleted(Fact):
    """The group was deleted, and with it its description; its versions stay as history for a time."""

    group: _Group
    incarnation: _Incarnation


@fact(topic="topologies", key=("group", "incarnation", "epoch", "hash", "provenance"))
class TopologyVersionRemoved(Ended):
    """The version is not kept in the topic any more. It is no deletion: the rows of the tables stay as they are."""

    group: _Group
    incarnation: _Incarnation
    epoch: Annotated[int, "the topology epoch within it", Whole(0, INT32_MAX)]
    hash: Annotated[str, "the content hash of the description"]
    provenance: Annotated[Provenance, "the origin of the description"]


@fact(topic="topologies", key=("group", "deleted"))
class TopologyDeletionRemoved(Ended):
    """The deletion of the group is not kept in the topic any more. It says nothing about a later description."""

    group: _Group


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
