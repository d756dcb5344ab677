"""The map of an estate: who uses which topic, as nodes and edges, and the part of it that a question selects.

A map is for looking at: its edges are the rows of `lineage_edges`, and a selection follows them, whatever flows through
an application. What depends on a topic is the question of `graph.py`. Nodes and edges are in the order of their names,
so equal tables give equal selections. A selection is bounded: one that is too large is refused, with its size.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from headgate.lineage.graph import READ, TOPIC, WRITE, LineageFlow

MAX_NODES: Final = 2_000
MAX_EDGES: Final = 20_000
MAX_HOPS: Final = 20
ACTOR_KINDS: Final = ("streams", "spark", "connector", "share_group", "consumer_group", "client", "unattributed")
NODE_KINDS: Final = (TOPIC, *ACTOR_KINDS)
# Actors that are known by their uses alone: with nothing but internal topics, they are internal too.
_ONLY_USES: Final = frozenset({"consumer_group", "client", "unattributed"})
MapDirection = Literal["up", "down", "both"]


class MapUse(NamedTuple):
    """What a row of `lineage_edges` says about a use of a topic."""

    declared: bool
    observed: bool
    filled: bool
    internal: bool
    bytes_day: int | None
    records_day: int | None
    last_seen: int | None


class MapRow(NamedTuple):
    """A row of `lineage_edges`."""

    actor_kind: str
    actor: str
    topic: str
    direction: str
    use: MapUse


class NodeSummary(NamedTuple):
    """A node and the numbers of its edges; `lower` is its name in lower case."""

    kind: str
    name: str
    lower: str
    edges_in: int
    edges_out: int
    internal: bool


class ShownNode(NamedTuple):
    """A node of a selection. `name` is None where the caller may not see it; `component` only of a part."""

    kind: str
    name: str | None
    component: str | None
    internal: bool


class ShownEdge(NamedTuple):
    """An edge between two places in the nodes of a selection.

    `topics` is None for the use of a topic; between two actors it is the number of topics that connect them.
    """

    start: int
    end: int
    use: MapUse
    topics: int | None


class MapSelection(NamedTuple):
    nodes: tuple[ShownNode, ...]
    edges: tuple[ShownEdge, ...]


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A refusal: the selection has more nodes or edges than are shown. `kinds` counts those that were selected."""

    nodes: int
    edges: int
    kinds: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapQuestion:
    """`hops` None means all; `kinds` None means all. Without topics, actors are connected directly."""

    focus: str | None = None
    focus_kind: str | None = None
    hops: int | None = 1
    direction: MapDirection = "both"
    kinds: frozenset[str] | None = None
    internal: bool = True
    collapsed: bool = True


class _Edge(NamedTuple):
    start: int
    end: int
    use: MapUse


@dataclass(slots=True)
class _Places:
    """The selected nodes and their places in the result, one for each component that is shown."""

    nodes: list[ShownNode] = field(default_factory=list)
    of: dict[tuple[int, str | None], int] = field(default_factory=dict)


class EstateMap:
    """Immutable once it is made."""

    def __init__(
        self,
        rows: Iterable[MapRow],
        flows: Iterable[LineageFlow],
        *,
        max_nodes: int = MAX_NODES,
        max_edges: int = MAX_EDGES,
    ) -> None:
        self._max_nodes = max_nodes
        self._max_edges = max_edges
        listed = list(rows)
        names = {(TOPIC, row.topic) for row in listed} | {(row.actor_kind, row.actor) for row in listed}
        self.nodes: Sequence[tuple[str, str]] = sorted(names)
        number = {node: place for place, node in enumerate(self.nodes)}
        self._out: list[list[_Edge]] = [[] for _ in self.nodes]
        self._in: list[list[_Edge]] = [[] for _ in self.nodes]
        self._internal: set[int] = set()
        self._components = _components(flows)
        self.edges = len(listed)
        for row in listed:
            topic, actor = number[TOPIC, row.topic], number[row.actor_kind, row.actor]
            ends = (topic, actor) if row.direction == READ else (actor, topic)
            edge = _Edge(*ends, row.use)
            self._out[edge.start].append(edge)
            self._in[edge.end].append(edge)
            if row.use.internal:
                self._internal.add(topic)
        self._number = number
        self._counts = Counter(kind for kind, _ in self.nodes)
        self._summaries: dict[frozenset[str], Sequence[NodeSummary]] = {}  # of the few sets that resources ask for
        self._plumbing = {
            place
            for place, (kind, _) in enumerate(self.nodes)
            if kind in _ONLY_USES and all(topic in self._internal for topic in self._around(place))
        }
        for edges in self._out:
            edges.sort(key=lambda edge: edge.end)
        for edges in self._in:
            edges.sort(key=lambda edge: edge.start)

    def has(self, kind: str, name: str) -> bool:
        return (kind, name) in self._number

    def uses(self, kind: str, name: str) -> tuple[list[tuple[str, str, MapUse]], list[tuple[str, str, MapUse]]]:
        """The nodes before and after one, each with its kind, its name and the use; `KeyError` when it is absent."""
        place = self._number[kind, name]
        return (
            [(*self.nodes[edge.start], edge.use) for edge in self._in[place]],
            [(*self.nodes[edge.end], edge.use) for edge in self._out[place]],
        )

    def summaries(self, kinds: frozenset[str]) -> Sequence[NodeSummary]:
        """The nodes of these kinds, in order."""
        found = self._summaries.get(kinds)
        if found is None:
            found = self._summaries[kinds] = [
                NodeSummary(
                    kind, name, name.lower(), len(self._in[place]), len(self._out[place]), place in self._internal
                )
                for place, (kind, name) in enumerate(self.nodes)
                if kind in kinds
            ]
        return found

    def select(self, asked: MapQuestion, visible: Sequence[bool] | None = None) -> MapSelection | TooLarge:
        """The nodes and edges; `KeyError` when there is no visible node of the focus' name.

        `visible` says for each of `nodes` whether the caller may see its name, None means all. A node that is not
        visible is shown without its name, if it is next to a visible one.
        """
        kinds = frozenset(NODE_KINDS) if asked.kinds is None else asked.kinds
        has_topics = TOPIC in kinds
        if not has_topics and not asked.collapsed:  # components are connected by topics
            asked = replace(asked, collapsed=True)
        if asked.focus is None and visible is None and asked.internal:
            counts = {kind: self._counts[kind] for kind in kinds if self._counts[kind]}
            if sum(counts.values()) > self._max_nodes:  # without a look at each of them
                return TooLarge(sum(counts.values()), 0, counts)
        found = self._reached(asked, visible) if asked.focus is not None else range(len(self.nodes))
        chosen = [place for place in found if self.nodes[place][0] in kinds and self._is_shown(place, asked)]
        if visible is not None:
            chosen = [place for place in chosen if visible[place] or self._is_beside(place, visible, has_topics)]
        if len(chosen) > self._max_nodes:
            return self._too_large(chosen, 0)
        edges: Iterator[tuple[_Edge, int | None]]
        edges = self._edges(chosen, visible) if has_topics else self._joined(chosen, asked, visible)
        places = self._places(chosen, asked, visible)
        shown: list[ShownEdge] = []
        for edge, topics in edges:
            for start, end in self._ends(edge, places, asked, visible):
                shown.append(ShownEdge(start, end, edge.use, topics))
            if len(shown) > self._max_edges:
                return self._too_large(chosen, len(shown))
        if len(places.nodes) > self._max_nodes:
            return TooLarge(len(places.nodes), len(shown), Counter(node.kind for node in places.nodes))
        shown.sort(key=lambda edge: edge[:2])
        return MapSelection(tuple(places.nodes), tuple(shown))

    def _too_large(self, chosen: Iterable[int], edges: int) -> TooLarge:
        counts = Counter(self.nodes[place][0] for place in chosen)
        return TooLarge(counts.total(), edges, counts)

    def _is_shown(self, place: int, asked: MapQuestion) -> bool:
        if asked.internal or self.nodes[place][1] == asked.focus:
            return True
        if place in self._plumbing:
            return asked.focus is not None and any(self._is_shown(topic, asked) for topic in self._around(place))
        return place not in self._internal

    def _reached(self, asked: MapQuestion, visible: Sequence[bool] | None) -> list[int]:
        """The nodes within the hops, in order; all of them are walked through, also those that are not shown."""
        kinds = NODE_KINDS if asked.focus_kind is None else (asked.focus_kind,)
        found_by_name = (self._number.get((kind, asked.focus or "")) for kind in kinds)
        starts = [place for place in found_by_name if place is not None]
        if visible is not None:
            starts = [place for place in starts if visible[place]]
        if not starts:
            raise KeyError(asked.focus)
        ways: list[Callable[[int], Iterator[int]]] = []
        if asked.direction != "up":
            ways.append(lambda place: (edge.end for edge in self._out[place]))
        if asked.direction != "down":
            ways.append(lambda place: (edge.start for edge in self._in[place]))
        found = set(starts)
        # Each way is walked alone: what else the readers of a topic read is no neighbour of the topic downstream.
        for way in ways:
            seen, layer = set(starts), starts
            for _ in range(len(self.nodes) if asked.hops is None else asked.hops):
                layer = [one for place in layer for one in way(place) if self._is_shown(one, asked)]
                layer = [one for one in dict.fromkeys(layer) if one not in seen]
                if not layer:
                    break
                seen.update(layer)
            found |= seen
        return sorted(found)

    def _is_beside(self, place: int, visible: Sequence[bool], has_topics: bool) -> bool:
        """Whether a visible node is next to this one; without topics, the next actor."""
        beside = [edge.end for edge in self._out[place]] + [edge.start for edge in self._in[place]]
        if has_topics:
            return any(visible[one] for one in beside)
        return any(visible[one] for topic in beside for one in self._around(topic))

    def _around(self, place: int) -> Iterator[int]:
        yield from (edge.end for edge in self._out[place])
        yield from (edge.start for edge in self._in[place])

    def _edges(self, chosen: Sequence[int], visible: Sequence[bool] | None) -> Iterator[tuple[_Edge, int | None]]:
        wanted = set(chosen)
        for place in chosen:
            for edge in self._out[place]:
                if edge.end in wanted and (visible is None or visible[edge.start] or visible[edge.end]):
                    yield edge, None

    def _joined(
        self, chosen: Sequence[int], asked: MapQuestion, visible: Sequence[bool] | None
    ) -> Iterator[tuple[_Edge, int | None]]:
        """Actors that are connected by topics, with the number of these."""
        wanted = set(chosen)
        for place in chosen:
            uses: dict[int, list[MapUse]] = {}
            for written in self._out[place]:
                if not self._is_shown(written.end, asked):
                    continue
                for read in self._out[written.end]:
                    if read.end in wanted and read.end != place:
                        uses.setdefault(read.end, []).append(_both(written.use, read.use))
            for other in sorted(uses):
                if visible is None or visible[place] or visible[other]:
                    yield _Edge(place, other, _any(uses[other])), len(uses[other])

    def _places(self, chosen: Sequence[int], asked: MapQuestion, visible: Sequence[bool] | None) -> _Places:
        """Nodes without names come last: their order among the others would tell something of their names."""
        places = _Places()
        for hidden in (False, True):
            for place in chosen:
                if (visible is not None and not visible[place]) is not hidden:
                    continue
                kind, name = self.nodes[place]
                internal = place in self._internal
                for part in self._parts(place, asked, is_hidden=hidden):
                    places.of[place, part] = len(places.nodes)
                    places.nodes.append(ShownNode(kind, None if hidden else name, part, internal))
        return places

    def _parts(self, place: int, asked: MapQuestion, *, is_hidden: bool) -> Sequence[str | None]:
        """The components of an application, and None for its uses that belong to none of them."""
        node = self.nodes[place]
        if asked.collapsed or is_hidden or node not in self._components:
            return (None,)
        known = self._components[node]
        parts = sorted({one for components in known.values() for one in components})
        edges = [(self.nodes[e.start][1], READ) for e in self._in[place]]
        edges += [(self.nodes[e.end][1], WRITE) for e in self._out[place]]
        return [*parts, *([None] if any(edge not in known for edge in edges) else [])]

    def _ends(
        self, edge: _Edge, places: _Places, asked: MapQuestion, visible: Sequence[bool] | None
    ) -> Iterator[tuple[int, int]]:
        """The places of an edge: one pair for each component of the application that has it."""
        if asked.collapsed:
            yield places.of[edge.start, None], places.of[edge.end, None]
            return
        start, end = self.nodes[edge.start], self.nodes[edge.end]
        starts = self._with_use(edge.start, (end[1], WRITE), visible)
        ends = self._with_use(edge.end, (start[1], READ), visible)
        for one in starts:
            for other in ends:
                if (edge.start, one) in places.of and (edge.end, other) in places.of:
                    yield places.of[edge.start, one], places.of[edge.end, other]

    def _with_use(self, place: int, use: tuple[str, str], visible: Sequence[bool] | None) -> Sequence[str | None]:
        node = self.nodes[place]
        if node not in self._components or (visible is not None and not visible[place]):
            return (None,)
        return self._components[node].get(use, (None,))


def _components(flows: Iterable[LineageFlow]) -> dict[tuple[str, str], dict[tuple[str, str], tuple[str, ...]]]:
    """Lists, for each application, the components behind each of its uses of topics."""
    found: dict[tuple[str, str], dict[tuple[str, str], set[str]]] = {}
    for flow in flows:
        uses = found.setdefault((flow.actor_kind, flow.actor), {})
        for topic, direction in ((flow.in_topic, READ), (flow.out_topic, WRITE)):
            if topic:
                uses.setdefault((topic, direction), set()).add(flow.component)
    return {node: {use: tuple(sorted(components)) for use, components in uses.items()} for node, uses in found.items()}


def _both(written: MapUse, read: MapUse) -> MapUse:
    """A way from a writer to a reader is declared, or observed, where both of its uses are."""
    return MapUse(
        declared=written.declared and read.declared,
        observed=written.observed and read.observed,
        filled=written.filled or read.filled,
        internal=written.internal or read.internal,
        bytes_day=None,
        records_day=None,
        last_seen=None,
    )


def _any(uses: Sequence[MapUse]) -> MapUse:
    return MapUse(
        declared=any(use.declared for use in uses),
        observed=any(use.observed for use in uses),
        filled=all(use.filled for use in uses),
        internal=all(use.internal for use in uses),
        bytes_day=None,
        records_day=None,
        last_seen=None,
    )
