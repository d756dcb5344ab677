"""Which node of one version of a topology is which node of another, although Kafka Streams numbers its operators anew.

Nodes are matched by what they are and where they stand: kind, topics, stores, neighbours, and only then by name. A name
that the author chose counts early, together with kind, topics and stores; a generated one (`KSTREAM-FILTER-0000000007`)
counts without its number, which any operator in front of it changes, and with it only between nodes that nothing else
tells apart. The rules are applied from the strictest to the loosest, and each match helps to tell its neighbours apart.

Every rule looks at each node and at each edge a bounded number of times, so that the time grows with the size of the
topologies. The result does not depend on the order in which nodes are listed.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.facts.topology import Description, Node, SourceNode
from headgate.topologies.model.topology_graph import kind_of, sections, stores_of, topics_of

_NUMBER: Final = re.compile(r"(?<=-)\d{10}")
_WORD: Final = re.compile(r"[A-Za-z]+")
_RADII: Final = (8, 2, 1)  # how far neighbours are looked at, the furthest first
_INTERNAL_SUFFIXES: Final = ("-repartition", "-changelog", "-topic")


def without_number(name: str) -> str:
    """A name of a node, a store or a topic without the number that Kafka Streams put into it."""
    return _NUMBER.sub("#", name)


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node and where it stands: the id of its sub-topology, None in a global store.

    `topics` are those that it reads or writes, internal ones without the application id.
    """

    node: Node
    section: int
    subtopology: str | None
    kind: str
    topics: frozenset[str]
    stores: frozenset[str]
    is_generated: bool = field(init=False)
    stem: str = field(init=False)

    def __post_init__(self) -> None:
        stem = without_number(self.node.name)
        object.__setattr__(self, "stem", stem)
        object.__setattr__(self, "is_generated", stem != self.node.name)

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def pattern(self) -> str | None:
        return self.node.pattern if isinstance(self.node, SourceNode) else None

    @property
    def label(self) -> Hashable:
        """The properties by which two nodes with different names can be the same node."""
        topics, stores = frozenset(map(without_number, self.topics)), frozenset(map(without_number, self.stores))
        return self.kind, topics, self.pattern, stores

    @property
    def operator(self) -> str | None:
        """The last word of a generated name, such as FILTER; None for a name that its author chose."""
        words = _WORD.findall(self.stem) if self.is_generated else ()
        return words[-1].upper() if words else None


class VersionGraph:
    """The nodes of one version by number, and their neighbours."""

    def __init__(self, description: Description, application: str | None = None) -> None:
        self.nodes: list[PlacedNode] = []
        self.successors: list[tuple[int, ...]] = []
        for number, section in enumerate(sections(description)):
            first = len(self.nodes)
            placed = sorted(section.nodes, key=lambda node: (node.name, kind_of(node)))
            by_name = {node.name: first + at for at, node in reversed(list(enumerate(placed)))}
            for node in placed:
                topics = frozenset(_undecorated(topic, application) for topic in topics_of(node))
                stores = frozenset(stores_of(node))
                self.nodes.append(PlacedNode(node, number, section.id, kind_of(node), topics, stores))
                self.successors.append(tuple(sorted({by_name[name] for name in node.successors if name in by_name})))
        feeders: list[list[int]] = [[] for _ in self.nodes]
        for number, following in enumerate(self.successors):
            for successor in following:
                feeders[successor].append(number)
        self.predecessors = [tuple(found) for found in feeders]
        self.labels = [node.label for node in self.nodes]
        self.strict_labels = [
            (label, node.stem if node.is_generated else None)
            for node, label in zip(self.nodes, self.labels, strict=True)
        ]

    def surroundings(self, neighbours: Sequence[tuple[int, ...]], radius: int) -> list[int]:
        """A hash of each node and of all that lies within a distance in one direction."""
        found = [hash(label) for label in self.strict_labels]
        for _ in range(radius):
            found = [
                hash((label, tuple(sorted([found[other] for other in around]))))
                for label, around in zip(self.strict_labels, neighbours, strict=True)
            ]
        return found


def _undecorated(topic: str, application: str | None) -> str:
    if application is not None and topic.endswith(_INTERNAL_SUFFIXES):
        return topic.removeprefix(f"{application}-")
    return topic


def match_nodes(before: VersionGraph, after: VersionGraph) -> dict[int, int]:
    """The numbers of the nodes of `before` and of those that they have become; without those that are gone."""
    matching = _Matching(before, after)
    far, *near = (_surroundings(before, after, radius) for radius in _RADII)
    matching.match_by(lambda graph, at: (graph.labels[at], graph.nodes[at].name), _is_named)
    for surroundings in (far.both, far.downstream, far.upstream):
        matching.match_by(surroundings)
    matching.match_neighbours(_same_strict_label)
    for around in near:
        matching.match_by(around.both)
        matching.match_neighbours(_same_strict_label)
    matching.match_by(lambda graph, at: graph.labels[at], _has_topics_or_stores)
    matching.match_neighbours(_same_strict_label)
    matching.match_by(lambda graph, at: (graph.labels[at], graph.nodes[at].name))
    matching.match_neighbours(_same_strict_label, in_order=True)
    for around in (far, *near):
        matching.match_by(around.both, in_order=True)
        matching.match_neighbours(_same_strict_label, in_order=True)
    matching.match_neighbours(_same_label)
    matching.match_neighbours(_same_stem)
    matching.match_neighbours(_repartition_end)
    matching.match_by(lambda graph, at: (graph.nodes[at].kind, graph.nodes[at].name), _is_named)
    return matching.matched


_Key = Callable[[VersionGraph, int], Hashable]
_Condition = Callable[[VersionGraph, int], bool]


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """Hashes of the nodes of both graphs with what lies before them and behind them, up to a distance."""

    before_nodes: Mapping[int, Sequence[int]]
    behind_nodes: Mapping[int, Sequence[int]]

    def both(self, graph: VersionGraph, at: int) -> Hashable:
        return self.before_nodes[id(graph)][at], self.behind_nodes[id(graph)][at]

    def downstream(self, graph: VersionGraph, at: int) -> Hashable:
        return self.behind_nodes[id(graph)][at]

    def upstream(self, graph: VersionGraph, at: int) -> Hashable:
        return self.before_nodes[id(graph)][at]


def _surroundings(before: VersionGraph, after: VersionGraph, radius: int) -> _Surroundings:
    graphs = (before, after)
    return _Surroundings(
        {id(graph): graph.surroundings(graph.predecessors, radius) for graph in graphs},
        {id(graph): graph.surroundings(graph.successors, radius) for graph in graphs},
    )


def _is_named(graph: VersionGraph, at: int) -> bool:
    return not graph.nodes[at].is_generated


def _has_topics_or_stores(graph: VersionGraph, at: int) -> bool:
    node = graph.nodes[at]
    return bool(node.topics or node.stores or node.pattern is not None)


def _same_strict_label(graph: VersionGraph, at: int) -> Hashable:
    return graph.strict_labels[at]


def _same_label(graph: VersionGraph, at: int) -> Hashable:
    return graph.labels[at]


def _same_stem(graph: VersionGraph, at: int) -> Hashable:
    return graph.nodes[at].kind, graph.nodes[at].stem


def _repartition_end(graph: VersionGraph, at: int) -> Hashable:
    """Sinks and sources of repartition topics are alike: their name and topic both come from one chosen name."""
    node = graph.nodes[at]
    is_end = bool(node.topics) and all(topic.endswith("-repartition") for topic in node.topics)
    return node.kind if is_end else (id(graph), at)


class _Matching:
    """The matches so far, in both directions."""

    def __init__(self, before: VersionGraph, after: VersionGraph) -> None:
        self.before, self.after = before, after
        self.matched: dict[int, int] = {}
        self._taken: dict[int, int] = {}

    def match_by(self, key: _Key, condition: _Condition | None = None, *, in_order: bool = False) -> None:
        """Match nodes that alone have a key in their version.

        `in_order`: also nodes that share a key, in the order of their names.
        """
        old = self._unmatched(self.before, self.matched, condition)
        new = self._unmatched(self.after, self._taken, condition)
        self._match_groups(_grouped(self.before, old, key), _grouped(self.after, new, key), in_order=in_order)

    def match_neighbours(self, key: _Key, *, in_order: bool = False) -> None:
        """Match the successors and predecessors of matched nodes that alone have a key among them."""
        queue = sorted(self.matched.items())
        at = 0
        while at < len(queue):
            old, new = queue[at]
            at += 1
            for one, other in (
                (self.before.successors[old], self.after.successors[new]),
                (self.before.predecessors[old], self.after.predecessors[new]),
            ):
                olds = [number for number in one if number not in self.matched]
                news = [number for number in other if number not in self._taken]
                if olds and news:
                    groups = _grouped(self.before, olds, key), _grouped(self.after, news, key)
                    queue += self._match_groups(*groups, in_order=in_order)

    @staticmethod
    def _unmatched(graph: VersionGraph, done: Mapping[int, int], condition: _Condition | None) -> list[int]:
        numbers = (number for number in range(len(graph.nodes)) if number not in done)
        return [number for number in numbers if condition is None or condition(graph, number)]

    def _match_groups(
        self, olds: Mapping[Hashable, list[int]], news: Mapping[Hashable, list[int]], *, in_order: bool
    ) -> list[tuple[int, int]]:
        found = []
        for key, old in olds.items():
            new = news.get(key, [])
            if not new or (not in_order and (len(old) > 1 or len(new) > 1)):
                continue
            for one, other in zip(old, new, strict=False):
                if _can_be(self.before.nodes[one], self.after.nodes[other]):
                    self.matched[one] = other
                    self._taken[other] = one
                    found.append((one, other))
        return found


def _grouped(graph: VersionGraph, numbers: Iterable[int], key: _Key) -> dict[Hashable, list[int]]:
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for number in numbers:
        groups[key(graph, number)].append(number)
    return groups


def _can_be(old: PlacedNode, new: PlacedNode) -> bool:
    """Whether one can have become the other: a filter that is now a map is another node, whatever it is called."""
    if old.kind != new.kind:
        return False
    return old.kind != "processor" or None in {old.operator, new.operator} or old.operator == new.operator
