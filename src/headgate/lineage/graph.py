"""The graph of an estate: topics, and the actors that read and write them. Paths and closures are rustworkx's.

Data flows through an application only where `app_io` has a pair of an input and an output topic. So an application is
not one node: it has a node for each connected component, and where inputs of a component flow into different outputs,
one for each set of outputs. Other actors have a node for what they read and another for what they write, so that no
path runs through them; a share group is one node, because what it writes is its dead letters.

A use that is filled is of a topic that the description does not name: of a pattern, or of a sink that chooses its
topic. It belongs to all components of the application with such an open end, because nothing says to which; so paths
along it are possible ones, and its end is marked.
"""

from array import array
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import chain, groupby, pairwise
from typing import Final, Literal, NamedTuple

import rustworkx as rx

from headgate.base.errors import PlatformError

Direction = Literal["down", "up"]
TOPIC: Final = "topic"
SHARE_GROUP: Final = "share_group"
READ, WRITE = "read", "write"
MAX_EDGES: Final = 5_000_000
GLOBAL: Final = "global"  # the component of a global store
_AT_ONCE: Final = 100_000  # edges that are tuples at a time
_OPEN_END: Final = -1  # among the outputs of an input: topics that the description does not name

_Graph = rx.PyDiGraph[None, None]


class LineageUse(NamedTuple):
    """A row of `lineage_edges`: an actor reads or writes a topic."""

    actor_kind: str
    actor: str
    topic: str
    direction: str
    filled: bool = False


class LineageFlow(NamedTuple):
    """A row of `app_io`: `in_topic` or `out_topic` is empty where no topic is known, which may be an open end."""

    actor_kind: str
    actor: str
    component: str
    in_topic: str
    out_topic: str


class LineageNode(NamedTuple):
    """A topic, or an actor; `component` only of an application with pairs in `app_io`.

    `filled` in an answer says that a filled use leads to it.
    """

    kind: str
    name: str
    component: str = ""
    filled: bool = False


class ReachedNode(NamedTuple):
    """A node of a closure. `parent` is the place in the closure of a node that leads to it.

    `depth` is the number of actors from the root to this node, with the node itself if it is one: an application and
    the topics that it makes have the same.
    """

    node: LineageNode
    depth: int
    parent: int | None


class Closure(NamedTuple):
    """All that depends on a topic (down), or all that it depends on (up).

    `nodes` begins with the topic itself; those nearest to it come first, and an application can be there with several
    of its nodes. The counts are those of the whole closure, without the topic: `depth` is that of its farthest topic,
    and an application counts once. `is_truncated` says that `nodes` is not all of it.
    """

    nodes: tuple[ReachedNode, ...]
    topics: int
    actors: int
    depth: int
    is_truncated: bool


class LineageGraph:
    """Immutable once it is made; its nodes are numbers, their names are kept once."""

    def __init__(self, uses: Iterable[LineageUse], flows: Iterable[LineageFlow], *, max_edges: int = MAX_EDGES) -> None:
        made = _Builder(max_edges)
        for component in _components(flows):
            made.add_component(*component)
        for use in uses:
            made.add_use(use)
        self._graph = made.graph()
        self._topics = made.topics
        self._names = tuple(made.names)  # kind and name, of which an application's nodes share one
        self._name_of = made.name_of
        self._component_of = made.component_of
        self._filled = made.filled
        self._reversed: _Graph | None = None

    @property
    def topics(self) -> Iterable[str]:
        return self._topics.keys()

    @property
    def actors(self) -> Iterable[str]:
        return (name for kind, name in self._names if kind != TOPIC)

    @property
    def edges(self) -> int:
        return self._graph.num_edges()

    def has_topic(self, name: str) -> bool:
        return name in self._topics

    def closure(self, topic: str, direction: Direction, *, limit: int) -> Closure:
        """What the topic reaches, with at most `limit` nodes; `KeyError` when it is not in the graph."""
        root = self._topics[topic]
        graph = self._directed(direction)
        layers = rx.bfs_layers(graph, [root])
        return Closure(
            nodes=self._first_nodes(graph, layers, limit),
            topics=sum(map(len, layers[2::2])),
            actors=len(set(map(self._name_of.__getitem__, chain.from_iterable(layers[1::2])))),
            depth=(len(layers) - 1) // 2,
            is_truncated=sum(map(len, layers)) - 1 > limit,
        )

    def paths(self, start: str, end: str, *, limit: int) -> tuple[list[list[LineageNode]], bool]:
        """Shortest paths from one topic or actor to another, at most `limit`, and whether there are more.

        A name that both a topic and an actor have is the topic's. `KeyError` when nothing has one of the names.
        """
        starts, ends = self._places(start), self._places(end)
        layers = rx.bfs_layers(self._graph, starts)
        steps = {place: step for step, layer in enumerate(layers) for place in layer}
        nearest = min((steps[place] for place in ends if place in steps), default=None)
        found: list[list[LineageNode]] = []
        for place in ends:
            for path in self._backwards(place, steps) if nearest is not None and steps.get(place) == nearest else ():
                if len(found) == limit:
                    return found, True
                found.append(list(self._nodes(path[::-1])))
        return found, False

    def _nodes(self, path: list[int]) -> Iterator[LineageNode]:
        yield self._node(path[0])
        for start, end in pairwise(path):
            yield self._node(end, filled=_pair(start, end) in self._filled)

    def _node(self, place: int, *, filled: bool = False) -> LineageNode:
        kind, name = self._names[self._name_of[place]]
        return LineageNode(kind, name, self._component_of.get(place, ""), filled)

    def _places(self, name: str) -> list[int]:
        if name in self._topics:
            return [self._topics[name]]
        meant = {number for number, (_, one) in enumerate(self._names) if one == name}
        places = [place for place, number in enumerate(self._name_of) if number in meant]
        if not places:
            raise KeyError(name)
        return places

    def _backwards(self, end: int, steps: dict[int, int]) -> Iterator[list[int]]:
        """Every path to `end` along which the steps count down to 0. None of its beginnings is a dead end."""
        path = [end]
        ways = [self._before(end, steps)]
        while ways:
            if steps[path[-1]] == 0:
                yield list(path)
            following = next(ways[-1], None)
            if following is None:
                path.pop()
                ways.pop()
            else:
                path.append(following)
                ways.append(self._before(following, steps))

    def _before(self, place: int, steps: dict[int, int]) -> Iterator[int]:
        before = steps[place] - 1
        return iter(sorted({one for one in self._graph.predecessor_indices(place) if steps.get(one) == before}))

    def _directed(self, direction: Direction) -> _Graph:
        if direction == "down":
            return self._graph
        if self._reversed is None:
            turned = self._graph.copy()
            turned.reverse()
            self._reversed = turned
        return self._reversed

    def _first_nodes(self, graph: _Graph, layers: list[list[int]], limit: int) -> tuple[ReachedNode, ...]:
        """The root and the `limit` nodes nearest to it, by name within a layer, each under one that leads to it.

        A layer may have a million nodes, so only those that are returned are sorted.
        """
        above = {layers[0][0]: 0}
        found = [ReachedNode(self._node(layers[0][0]), 0, None)]
        for number, layer in enumerate(layers[1:], start=1):
            chosen = nsmallest(limit + 1 - len(found), layer, key=lambda place: self._names[self._name_of[place]])
            wanted = set(chosen)
            parents: dict[int, tuple[int, bool]] = {}
            for place, position in above.items():
                for child in wanted.intersection(graph.successor_indices(place)):
                    edge = _pair(place, child) if graph is self._graph else _pair(child, place)
                    is_filled = edge in self._filled
                    if child not in parents or (parents[child][1] and not is_filled):
                        parents[child] = position, is_filled
            above = {}
            for place in chosen:
                above[place] = len(found)
                parent, is_filled = parents[place]
                found.append(ReachedNode(self._node(place, filled=is_filled), (number + 1) // 2, parent))
            if len(chosen) < len(layer):
                break
        return tuple(found)


def _components(flows: Iterable[LineageFlow]) -> Iterator[tuple[LineageNode, Iterator[LineageFlow]]]:
    """The flows by component. They need no order: a component that comes in pieces gets more nodes, not other paths."""
    for (kind, actor, component), group in groupby(flows, key=lambda flow: flow[:3]):
        yield LineageNode(kind, actor, component), group


class _Builder:
    """Collects nodes and edges as numbers, which take less memory than objects."""

    def __init__(self, max_edges: int) -> None:
        self.topics: dict[str, int] = {}
        self.names: dict[tuple[str, str], int] = {}
        self.name_of: list[int] = []
        self.component_of: dict[int, str] = {}
        self._max_edges = max_edges
        self._starts, self._ends = array("L"), array("L")
        self._actors: dict[tuple[int, str], int] = {}
        # What applications read and write by their pairs, which needs no further edge.
        self._by_pairs: dict[str, set[int]] = {READ: set(), WRITE: set()}
        # The nodes of applications that read by a pattern or choose what they write, by the number of the name.
        self._open: dict[str, dict[int, list[int]]] = {READ: {}, WRITE: {}}
        self.filled: set[int] = set()

    def add_component(self, node: LineageNode, flows: Iterable[LineageFlow]) -> None:
        outputs: dict[str, set[int]] = {}
        for flow in flows:
            # A global store has no output. Elsewhere the description may leave an output open.
            open_end = [] if node.component == GLOBAL else [_OPEN_END]
            outputs.setdefault(flow.in_topic, set()).update(
                [self._topic(flow.out_topic)] if flow.out_topic else open_end
            )
        inputs: dict[frozenset[int], list[str]] = {}
        for name, topics in outputs.items():
            inputs.setdefault(frozenset(topics), []).append(name)
        for written, names in inputs.items():
            place = self._add_node(node.kind, node.name)
            self.component_of[place] = node.component
            for direction, is_open in ((READ, "" in names), (WRITE, _OPEN_END in written)):
                if is_open:
                    self._open[direction].setdefault(self.name_of[place], []).append(place)
            for name in filter(None, names):
                topic = self._topic(name)
                self._connect(topic, place)
                self._by_pairs[READ].add(_pair(self.name_of[place], topic))
            for topic in written - {_OPEN_END}:
                self._connect(place, topic)
                self._by_pairs[WRITE].add(_pair(self.name_of[place], topic))

    def add_use(self, use: LineageUse) -> None:
        topic = self._topic(use.topic)
        name = self._name(use.actor_kind, use.actor)
        if _pair(name, topic) in self._by_pairs[use.direction]:
            return
        open_ends = self._open[use.direction].get(name, ()) if use.filled else ()
        for place in open_ends:
            start, end = (topic, place) if use.direction == READ else (place, topic)
            self._connect(start, end)
            self.filled.add(_pair(start, end))
        if open_ends:
            return
        key = (name, "" if use.actor_kind == SHARE_GROUP else use.direction)
        actor = self._actors.get(key)
        if actor is None:
            actor = self._actors[key] = self._add_node(use.actor_kind, use.actor)
        if use.direction == READ:
            self._connect(topic, actor)
        else:
            self._connect(actor, topic)

    def graph(self) -> _Graph:
        made: _Graph = rx.PyDiGraph()
        made.add_nodes_from([None] * len(self.name_of))
        for first in range(0, len(self._starts), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            made.add_edges_from_no_data(list(zip(self._starts[part], self._ends[part], strict=True)))
        return made

    def _topic(self, name: str) -> int:
        place = self.topics.get(name)
        if place is None:
            place = self.topics[name] = self._add_node(TOPIC, name)
        return place

    def _add_node(self, kind: str, name: str) -> int:
        self.name_of.append(self._name(kind, name))
        return len(self.name_of) - 1

    def _name(self, kind: str, name: str) -> int:
        return self.names.setdefault((kind, name), len(self.names))

    def _connect(self, start: int, end: int) -> None:
        if len(self._starts) >= self._max_edges:
            raise PlatformError(
                f"the tables have more than {self._max_edges:,} uses of topics, which do not fit into memory: "
                "specify one with --cluster-id"
            )
        self._starts.append(start)
        self._ends.append(end)


def _pair(first: int, second: int) -> int:
    return first << 32 | second
