"""What changed between two versions of a topology, in terms of nodes: added, removed, renamed, moved, changed.

`node_matching.py` decides which node is which. Built on it:

- A node is renamed if its name has changed by more than the number that Kafka Streams gives it; nodes of which only the
  number has changed are counted (`renumbered`).
- A node has moved if its sub-topology is not the one that most of its former neighbours are in. The number of a
  sub-topology is no change of its nodes.
- A node has changed if its topics, its pattern or its stores have, or if it feeds other nodes than before. A node that
  was put between two others, or taken out from between them, changes neither.

Lists are sorted, so that equal versions in another order give the same result. The bounded search for detours keeps the
time in proportion to the size of the versions.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from headgate.facts.topology import Description
from headgate.topologies.model.node_matching import PlacedNode, VersionGraph, match_nodes

GLOBAL: Final = "global"
_MAX_DETOUR_STEPS: Final = 1_000_000


class NodeRef(NamedTuple):
    """A node of one version; `subtopology` is `global` in a global store."""

    kind: str
    name: str
    subtopology: str


class RenamedNode(NamedTuple):
    kind: str
    before: str
    after: str


class MovedNode(NamedTuple):
    """`name` is its name after the move; `before` and `after` are ids of sub-topologies in their versions."""

    kind: str
    name: str
    before: str
    after: str


class ChangedNode(NamedTuple):
    """`field` is topics, pattern, stores or successors; of successors, only those that differ are listed."""

    kind: str
    name: str
    field: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDiff:
    """`matches` are the pairs of nodes that are one node in both versions; `before` and `after` are all nodes."""

    added: tuple[NodeRef, ...]
    removed: tuple[NodeRef, ...]
    renamed: tuple[RenamedNode, ...]
    moved: tuple[MovedNode, ...]
    changed: tuple[ChangedNode, ...]
    renumbered: int
    matches: tuple[tuple[PlacedNode, PlacedNode], ...]
    before: tuple[PlacedNode, ...]
    after: tuple[PlacedNode, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.renamed or self.moved or self.changed or self.renumbered)


def diff(
    before: Description,
    after: Description,
    *,
    before_application: str | None = None,
    after_application: str | None = None,
) -> TopologyDiff:
    """An application id, where it is known, is removed from the names of the internal topics of its version."""
    old, new = VersionGraph(before, before_application), VersionGraph(after, after_application)
    matched = match_nodes(old, new)
    taken = set(matched.values())
    pairs = sorted(((old.nodes[one], new.nodes[other]) for one, other in matched.items()), key=_pair_order)
    return TopologyDiff(
        added=_refs(node for number, node in enumerate(new.nodes) if number not in taken),
        removed=_refs(node for number, node in enumerate(old.nodes) if number not in matched),
        renamed=tuple(
            sorted(RenamedNode(one.kind, one.name, other.name) for one, other in pairs if _is_renamed(one, other))
        ),
        moved=tuple(sorted(_moved(pairs))),
        changed=tuple(sorted([*_changed_contents(pairs), *_changed_successors(old, new, matched)])),
        renumbered=sum(one.name != other.name and not _is_renamed(one, other) for one, other in pairs),
        matches=tuple(pairs),
        before=tuple(old.nodes),
        after=tuple(new.nodes),
    )


def _pair_order(pair: tuple[PlacedNode, PlacedNode]) -> tuple[str, str, int]:
    return pair[0].kind, pair[0].name, pair[0].section


def place_of(node: PlacedNode) -> str:
    return GLOBAL if node.subtopology is None else node.subtopology


def _refs(nodes: Iterator[PlacedNode]) -> tuple[NodeRef, ...]:
    return tuple(sorted(NodeRef(node.kind, node.name, place_of(node)) for node in nodes))


def _is_renamed(one: PlacedNode, other: PlacedNode) -> bool:
    return one.stem != other.stem


def _moved(pairs: Sequence[tuple[PlacedNode, PlacedNode]]) -> Iterator[MovedNode]:
    """Sub-topologies are paired by the nodes that they have in common, those with the most first."""
    places = {(one.section, other.section): (place_of(one), place_of(other)) for one, other in pairs}
    common = Counter((one.section, other.section) for one, other in pairs)
    counterpart: dict[int, int] = {}
    taken: set[int] = set()
    for old, new in sorted(common, key=lambda key: (-common[key], len(set(places[key])), key)):
        if old not in counterpart and new not in taken:
            counterpart[old] = new
            taken.add(new)
    for one, other in pairs:
        if counterpart.get(one.section) != other.section:
            yield MovedNode(other.kind, other.name, place_of(one), place_of(other))


def _changed_contents(pairs: Sequence[tuple[PlacedNode, PlacedNode]]) -> Iterator[ChangedNode]:
    for one, other in pairs:
        for field, old, new in (
            ("topics", one.topics, other.topics),
            ("stores", one.stores, other.stores),
            ("pattern", _one_or_none(one.pattern), _one_or_none(other.pattern)),
        ):
            if old != new:
                yield ChangedNode(one.kind, other.name, field, tuple(sorted(old)), tuple(sorted(new)))


def _one_or_none(text: str | None) -> frozenset[str]:
    return frozenset() if text is None else frozenset({text})


def _changed_successors(old: VersionGraph, new: VersionGraph, matched: Mapping[int, int]) -> Iterator[ChangedNode]:
    """Edges between matched nodes that are in one version only, unless a path through unmatched nodes replaces them."""
    back = {other: one for one, other in matched.items()}
    detours_new, detours_old = _Detours(new, back), _Detours(old, matched)
    for one, other in matched.items():
        before = {matched[successor] for successor in old.successors[one] if successor in matched}
        after = {successor for successor in new.successors[other] if successor in back}
        lost, gained = before - after, after - before
        if lost:
            lost -= detours_new.reached(other)
        if gained:
            gained -= {matched[number] for number in detours_old.reached(one)}
        if lost or gained:
            yield ChangedNode(
                old.nodes[one].kind,
                new.nodes[other].name,
                "successors",
                tuple(sorted(old.nodes[back[number]].name for number in lost)),
                tuple(sorted(new.nodes[number].name for number in gained)),
            )


class _Detours:
    """The matched nodes that a node reaches through unmatched nodes only; all searches together are bounded."""

    def __init__(self, graph: VersionGraph, matched: Collection[int]) -> None:
        self._graph = graph
        self._matched = matched
        self._steps = _MAX_DETOUR_STEPS

    def reached(self, start: int) -> set[int]:
        found: set[int] = set()
        open_ends = [number for number in self._graph.successors[start] if number not in self._matched]
        seen = set(open_ends)
        while open_ends and self._steps > 0:
            following = self._graph.successors[open_ends.pop()]
            self._steps -= 1 + len(following)
            for number in following:
                if number in self._matched:
                    found.add(number)
                elif number not in seen:
                    seen.add(number)
                    open_ends.append(number)
        return found
