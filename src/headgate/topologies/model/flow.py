"""Which topics of an application flow into which: exact pairs of input and output for each connected component.

One rule: a pair is there when records of the input can change what is written to the output: along successors, through
stores that processors share, and through the topics that Kafka Streams made for the application. A topic of the user's
that the application writes and reads again is an output and an input, because others may write it too.

Nothing here recurses. A hostile description has more pairs than anyone wants: past a bound the rest is left out, and
`Flow.whole` says so.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.facts.topology import Description, ProcessorNode, SinkNode, SourceNode
from headgate.topologies.model.rows import CHANGELOG, id_order, internal_topics, parts

MOST_PAIRS = 100_000
MOST_STEPS = 10_000_000
NONE = ""  # no topic has this name
GLOBAL = "global"


class Pair(NamedTuple):
    """`in_topic` is empty for what no known topic feeds, `out_topic` for what flows into no known topic.

    `component` is the first of its sub-topologies' ids, `global` when it has none.
    """

    component: str
    in_topic: str
    out_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    pairs: tuple[Pair, ...]
    whole: bool = True


class _Vertex(NamedTuple):
    """A node of a part (numbered), a store or an internal topic."""

    kind: str
    part: int
    name: str


@dataclass(slots=True)
class _Graph:
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
    description: Description, application: str, *, most_pairs: int = MOST_PAIRS, most_steps: int = MOST_STEPS
) -> Flow:
    """All pairs, sorted. A source without topics (a pattern) and a sink without a topic count as topics unknown."""
    graph = _graph(description, application)
    pairs: set[Pair] = set()
    whole = True
    for component in _components(graph):
        name = min(
            (id_ for vertex in component if (id_ := graph.nodes.get(vertex)) is not None), key=id_order, default=GLOBAL
        )
        fed: set[str] = set()
        for vertex in component:
            topics = graph.inputs.get(vertex)
            if not topics:
                continue
            outputs, steps = _reach(graph, vertex, most_steps)
            most_steps -= steps
            fed |= outputs
            pairs |= {Pair(name, topic, output) for topic in topics for output in outputs or (NONE,)}
            whole = most_steps > 0 and len(pairs) <= most_pairs
            if not whole:
                break
        written = {output for vertex in component for output in graph.outputs.get(vertex, ())}
        pairs |= {Pair(name, NONE, output) for output in written - fed}
        pairs.discard(Pair(name, NONE, NONE))
        if not whole:
            break
    return Flow(pairs=tuple(sorted(pairs)[:most_pairs]), whole=whole and len(pairs) <= most_pairs)


def _graph(description: Description, application: str) -> _Graph:
    internal = internal_topics(description, application)
    graph = _Graph()
    for number, part in enumerate(parts(description)):
        here = {node.name for node in part.nodes}
        for node in part.nodes:
            vertex = _Vertex("node", number, node.name)
            graph.nodes[vertex] = part.id
            for successor in here.intersection(node.successors):
                graph.join(vertex, _Vertex("node", number, successor))
            match node:
                case SourceNode():
                    for topic in node.topics:
                        if topic in internal:
                            graph.join(_Vertex("topic", 0, topic), vertex)
                    outside = (set(node.topics) - internal) if node.topics else {NONE}
                    graph.inputs.setdefault(vertex, set()).update(outside)
                case ProcessorNode():
                    for store in node.stores:
                        _join_store(graph, vertex, store, application, internal)
                case SinkNode(topic=str() as topic) if topic in internal:
                    graph.join(vertex, _Vertex("topic", 0, topic))
                case SinkNode(topic=topic):
                    graph.outputs.setdefault(vertex, set()).add(topic or NONE)
    return graph


def _join_store(graph: _Graph, vertex: _Vertex, store: str, application: str, internal: frozenset[str]) -> None:
    """Nothing says who writes a store and who reads it, so whatever touches it flows both ways."""
    hub = _Vertex("store", 0, store)
    graph.join(vertex, hub)
    graph.join(hub, vertex)
    for changelog in (store + CHANGELOG, f"{application}-{store}{CHANGELOG}"):
        if changelog in internal:
            graph.join(hub, _Vertex("topic", 0, changelog))


def _reach(graph: _Graph, start: _Vertex, most_steps: int) -> tuple[set[str], int]:
    """The outputs that can be reached, and how many edges were walked."""
    seen = {start}
    open_ends = [start]
    outputs: set[str] = set()
    steps = 1
    while open_ends and steps < most_steps:
        vertex = open_ends.pop()
        outputs |= graph.outputs.get(vertex, set())
        following = graph.to.get(vertex, set())
        steps += 1 + len(following)
        open_ends += following - seen
        seen |= following
    return outputs, steps


def _components(graph: _Graph) -> Iterator[list[_Vertex]]:
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
