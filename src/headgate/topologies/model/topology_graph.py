"""What a topology description says: its nodes and edges as rows, which topics flow into which, and what changed.

- Rows do not depend on the order in which things were listed, as the content hash does not, and no two rows have the
  same key, whatever a description repeats. So one version always has the same rows.
- A topic flows into another when records of the input can change what is written to the output: along successors,
  through stores that processors share, and through the internal topics of the application. A topic of the user's that
  the application writes and reads again is an output and an input, because others may write it too.
- A change is what an operator would name: a node, a topic that is read or written, a store. The order of a list is no
  change, and neither is the number of a sub-topology, which Kafka Streams assigns anew each time.

Nothing here recurses. A hostile description has an excessive number of topic pairs: past a bound the rest is left out,
and `TopicFlow.is_complete` says so.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.facts.topology import Description, Node, ProcessorNode, SinkNode, SourceNode

REPARTITION, CHANGELOG = "-repartition", "-changelog"
TOPIC, STORE = "topic", "store"
MAX_PAIRS = 100_000
MAX_STEPS = 10_000_000
NO_TOPIC = ""
GLOBAL = "global"


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


class Section(NamedTuple):
    """A sub-topology, or a global store (`id` is None): successors lie within one section."""

    id: str | None
    nodes: tuple[Node, ...]


def sections(description: Description) -> Iterator[Section]:
    for subtopology in description.subtopologies:
        yield Section(subtopology.id, subtopology.nodes)
    for store in description.global_stores:
        yield Section(None, (store.source, store.processor))


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
    """The nodes of a description, sorted by kind and name.

    What two sections share is global if one of them is, and in the first of their sub-topologies.
    """
    internal = internal_topics(description, application)
    found: dict[tuple[str, str], NodeRow] = {}
    for section in sections(description):
        for row in _rows_of(section, internal):
            key = row[:2]
            found[key] = _merged(found[key], row) if key in found else row
    return tuple(found[key] for key in sorted(found))


def _rows_of(section: Section, internal: frozenset[str]) -> Iterator[NodeRow]:
    is_global = section.id is None
    for node in section.nodes:
        pattern = node.pattern if isinstance(node, SourceNode) else None
        yield NodeRow(kind_of(node), node.name, section.id, pattern, is_global=is_global)
        for topic in topics_of(node):
            yield NodeRow(TOPIC, topic, is_internal=topic in internal, is_global=is_global)
        for store in stores_of(node):
            yield NodeRow(STORE, store, section.id, is_global=is_global)


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
    """Sorted; a successor that is no node of its section is no edge."""
    internal = internal_topics(description, application)
    return tuple(sorted({row for section in sections(description) for row in _edges_of(section, internal)}))


def _edges_of(section: Section, internal: frozenset[str]) -> Iterator[EdgeRow]:
    kinds: dict[str, set[str]] = {}
    for node in section.nodes:
        kinds.setdefault(node.name, set()).add(kind_of(node))
    for node in section.nodes:
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
    nodes = [node for section in sections(description) for node in section.nodes]
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


# --- topics that flow into topics


class TopicPair(NamedTuple):
    """`in_topic` is empty for what no known topic feeds, `out_topic` for what flows into no known topic.

    Both are empty where a source with a pattern flows into a sink that chooses its topic. `component` is the first of
    its sub-topologies' ids, `global` when it has none.
    """

    component: str
    in_topic: str
    out_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFlow:
    pairs: tuple[TopicPair, ...]
    is_complete: bool = True


class _Vertex(NamedTuple):
    """A node of a section (numbered), a store or an internal topic."""

    kind: str
    section: int
    name: str


@dataclass(slots=True)
class _FlowGraph:
    to: defaultdict[_Vertex, set[_Vertex]] = field(default_factory=lambda: defaultdict(set))
    around: defaultdict[_Vertex, set[_Vertex]] = field(default_factory=lambda: defaultdict(set))
    nodes: dict[_Vertex, str | None] = field(default_factory=dict)  # with the ids of their sub-topologies
    inputs: dict[_Vertex, set[str]] = field(default_factory=dict)
    outputs: dict[_Vertex, set[str]] = field(default_factory=dict)

    def join(self, one: _Vertex, other: _Vertex) -> None:
        self.to[one].add(other)
        self.around[one].add(other)
        self.around[other].add(one)


def app_io(
    description: Description, application: str, *, max_pairs: int = MAX_PAIRS, max_steps: int = MAX_STEPS
) -> TopicFlow:
    """All pairs, sorted. A source without topics (a pattern) and a sink without a topic count as topics unknown."""
    graph = _graph(description, application)
    pairs: set[TopicPair] = set()
    is_complete = True
    for component in _components(graph):
        name = min(
            (id_ for vertex in component if (id_ := graph.nodes.get(vertex)) is not None), key=id_order, default=GLOBAL
        )
        fed: set[str] = set()
        for vertex in component:
            topics = graph.inputs.get(vertex)
            if not topics:
                continue
            outputs, steps = _reach(graph, vertex, max_steps)
            max_steps -= steps
            fed |= outputs
            ends = outputs or {NO_TOPIC}
            pairs |= {TopicPair(name, topic, output) for topic in topics for output in ends if topic or outputs}
            is_complete = max_steps > 0 and len(pairs) <= max_pairs
            if not is_complete:
                break
        written = {output for vertex in component for output in graph.outputs.get(vertex, ())}
        pairs |= {TopicPair(name, NO_TOPIC, output) for output in written - fed - {NO_TOPIC}}
        if not is_complete:
            break
    return TopicFlow(pairs=tuple(sorted(pairs)[:max_pairs]), is_complete=is_complete and len(pairs) <= max_pairs)


def _graph(description: Description, application: str) -> _FlowGraph:
    internal = internal_topics(description, application)
    graph = _FlowGraph()
    for number, section in enumerate(sections(description)):
        here = {node.name for node in section.nodes}
        for node in section.nodes:
            vertex = _Vertex("node", number, node.name)
            graph.nodes[vertex] = section.id
            for successor in here.intersection(node.successors):
                graph.join(vertex, _Vertex("node", number, successor))
            match node:
                case SourceNode():
                    for topic in node.topics:
                        if topic in internal:
                            graph.join(_Vertex("topic", 0, topic), vertex)
                    outside = (set(node.topics) - internal) if node.topics else {NO_TOPIC}
                    graph.inputs.setdefault(vertex, set()).update(outside)
                case ProcessorNode():
                    for store in node.stores:
                        _join_store(graph, vertex, store, application, internal)
                case SinkNode(topic=str() as topic) if topic in internal:
                    graph.join(vertex, _Vertex("topic", 0, topic))
                case SinkNode(topic=topic):
                    graph.outputs.setdefault(vertex, set()).add(topic or NO_TOPIC)
    return graph


def _join_store(graph: _FlowGraph, vertex: _Vertex, store: str, application: str, internal: frozenset[str]) -> None:
    """Nothing says who writes a store and who reads it, so whatever touches it flows both ways."""
    hub = _Vertex("store", 0, store)
    graph.join(vertex, hub)
    graph.join(hub, vertex)
    for changelog in (store + CHANGELOG, f"{application}-{store}{CHANGELOG}"):
        if changelog in internal:
            graph.join(hub, _Vertex("topic", 0, changelog))


def _reach(graph: _FlowGraph, start: _Vertex, max_steps: int) -> tuple[set[str], int]:
    """The outputs that can be reached, and how many edges were walked."""
    seen = {start}
    open_ends = [start]
    outputs: set[str] = set()
    steps = 1
    while open_ends and steps < max_steps:
        vertex = open_ends.pop()
        outputs |= graph.outputs.get(vertex, set())
        following = graph.to.get(vertex, set())
        steps += 1 + len(following)
        open_ends += following - seen
        seen |= following
    return outputs, steps


def _components(graph: _FlowGraph) -> Iterator[list[_Vertex]]:
    """The vertices that hang together, whatever the direction."""
    seen: set[_Vertex] = set()
    for start in graph.nodes:
        if start in seen:
            continue
        seen.add(start)
        component = []
        open_ends = [start]
        while open_ends:
            vertex = open_ends.pop()
            component.append(vertex)
            fresh = graph.around.get(vertex, set()) - seen
            seen |= fresh
            open_ends += fresh
        yield component


# --- changes between two versions

_Elements = Mapping[tuple[str, str], frozenset[tuple[object, ...]]]


class ElementChange(NamedTuple):
    element: str  # input, output, store, or the kind of a node
    name: str
    change: str  # added, changed, removed


def element_changes(before: Description | None, after: Description | None) -> tuple[ElementChange, ...]:
    """Sorted; None is no description, so that a first version adds everything and an end removes it."""
    old, new = _elements(before), _elements(after)
    return tuple(
        sorted(
            ElementChange(*key, "removed" if key not in new else "added" if key not in old else "changed")
            for key in old.keys() | new.keys()
            if old.get(key) != new.get(key)
        )
    )


def _elements(description: Description | None) -> _Elements:
    """The nodes by kind and name, with their properties; a name that occurs twice has those of both."""
    found: dict[tuple[str, str], set[tuple[object, ...]]] = {}
    for section in () if description is None else sections(description):
        for node in section.nodes:
            kind = kind_of(node)
            topics, stores = frozenset(topics_of(node)), frozenset(stores_of(node))
            pattern = node.pattern if isinstance(node, SourceNode) else None
            found.setdefault((kind, node.name), set()).add((topics, stores, pattern, frozenset(node.successors)))
            for topic in topics:
                found["input" if kind == "source" else "output", topic] = set()
            for store in stores:
                found[STORE, store] = set()
    return {key: frozenset(content) for key, content in found.items()}
