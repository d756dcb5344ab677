"""A topology as rows: its nodes, with its topics and stores as nodes of their own, and the edges between them.

One rule: rows are blind to the order in which things were listed, as the content hash is, and no two rows have the same
key, whatever a description repeats. So one version always has the same rows. Nothing here recurses.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headgate.facts.topology import Description, Node, ProcessorNode, SinkNode, SourceNode

REPARTITION, CHANGELOG = "-repartition", "-changelog"
TOPIC, STORE = "topic", "store"


class NodeRow(NamedTuple):
    """`kind` is source, processor, sink, topic or store; no two rows share kind and name.

    `subtopology` is None for topics and in a global store.
    """

    kind: str
    node: str
    subtopology: str | None = None
    pattern: str | None = None
    is_internal: bool = False
    is_global: bool = False


class EdgeRow(NamedTuple):
    """Node to successor, topic to source, sink to topic, processor to store; `is_internal` is the topic's."""

    from_kind: str
    from_node: str
    to_kind: str
    to_node: str
    is_internal: bool = False


class Part(NamedTuple):
    """A sub-topology, or a global store (`id` is None): successors lie within one part."""

    id: str | None
    nodes: tuple[Node, ...]


def parts(description: Description) -> Iterator[Part]:
    for subtopology in description.subtopologies:
        yield Part(subtopology.id, subtopology.nodes)
    for store in description.global_stores:
        yield Part(None, (store.source, store.processor))


def kind_of(node: Node) -> str:
    match node:
        case SourceNode():
            return "source"
        case ProcessorNode():
            return "processor"
        case SinkNode():
            return "sink"


def topics_of(node: Node) -> tuple[str, ...]:
    """The topics that it reads or writes."""
    match node:
        case SourceNode(topics=topics):
            return topics
        case SinkNode(topic=str() as topic):
            return (topic,)
        case _:
            return ()


def stores_of(node: Node) -> tuple[str, ...]:
    return node.stores if isinstance(node, ProcessorNode) else ()


def node_rows(description: Description, application: str) -> tuple[NodeRow, ...]:
    """By kind and name. What two parts share is global if one of them is, and in the first of their sub-topologies."""
    internal = internal_topics(description, application)
    found: dict[tuple[str, str], NodeRow] = {}
    for part in parts(description):
        for row in _rows_of(part, internal):
            key = row[:2]
            found[key] = _merged(found[key], row) if key in found else row
    return tuple(found[key] for key in sorted(found))


def _rows_of(part: Part, internal: frozenset[str]) -> Iterator[NodeRow]:
    is_global = part.id is None
    for node in part.nodes:
        pattern = node.pattern if isinstance(node, SourceNode) else None
        yield NodeRow(kind_of(node), node.name, part.id, pattern, is_global=is_global)
        for topic in topics_of(node):
            yield NodeRow(TOPIC, topic, is_internal=topic in internal, is_global=is_global)
        for store in stores_of(node):
            yield NodeRow(STORE, store, part.id, is_global=is_global)


def _merged(one: NodeRow, other: NodeRow) -> NodeRow:
    return one._replace(
        subtopology=_first(one.subtopology, other.subtopology),
        pattern=_first(one.pattern, other.pattern),
        is_global=one.is_global or other.is_global,
    )


def _first(one: str | None, other: str | None) -> str | None:
    return min((text for text in (one, other) if text is not None), key=id_order, default=None)


def id_order(subtopology: str) -> tuple[int, str]:
    """Sub-topologies are numbered by Kafka Streams: 2 comes before 10."""
    return len(subtopology), subtopology


def edge_rows(description: Description, application: str) -> tuple[EdgeRow, ...]:
    """Sorted; a successor that is no node of its part is no edge."""
    internal = internal_topics(description, application)
    return tuple(sorted({row for part in parts(description) for row in _edges_of(part, internal)}))


def _edges_of(part: Part, internal: frozenset[str]) -> Iterator[EdgeRow]:
    kinds: dict[str, set[str]] = {}
    for node in part.nodes:
        kinds.setdefault(node.name, set()).add(kind_of(node))
    for node in part.nodes:
        kind = kind_of(node)
        for successor in node.successors:
            for other in kinds.get(successor, ()):
                yield EdgeRow(kind, node.name, other, successor)
        for topic in topics_of(node):
            ends = (TOPIC, topic, kind, node.name) if kind == "source" else (kind, node.name, TOPIC, topic)
            yield EdgeRow(*ends, is_internal=topic in internal)
        for store in stores_of(node):
            yield EdgeRow(kind, node.name, STORE, store)


def internal_topics(description: Description, application: str) -> frozenset[str]:
    """The topics that Kafka Streams made for this application.

    In the cluster their names begin with the application id. A description names them before that: then a repartition
    topic is one that the application both writes and reads, and a changelog one of its own stores'.
    """
    nodes = [node for part in parts(description) for node in part.nodes]
    read = _topics(node for node in nodes if isinstance(node, SourceNode))
    written = _topics(node for node in nodes if isinstance(node, SinkNode))
    stores = {store for node in nodes for store in stores_of(node)}
    return frozenset(
        topic
        for topic in read | written
        if (topic.startswith(f"{application}-") and topic.endswith((REPARTITION, CHANGELOG)))
        or (topic.endswith(REPARTITION) and topic in read and topic in written)
        or (topic.endswith(CHANGELOG) and topic.removesuffix(CHANGELOG) in stores)
    )


def _topics(nodes: Iterable[Node]) -> set[str]:
    return {topic for node in nodes for topic in topics_of(node)}
