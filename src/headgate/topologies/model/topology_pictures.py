"""Topologies as pictures: Graphviz's DOT and Mermaid, of one version or of the difference between two.

Sub-topologies are boxes around their nodes; topics and stores are drawn once and connect them. Nodes are numbered in
the output, and names are labels only: whatever a client calls a node, it stays text, cut at a length that can be read.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.facts.topology import Description
from headgate.topologies.model.node_matching import PlacedNode, VersionGraph
from headgate.topologies.model.topology_diff import GLOBAL, TopologyDiff, place_of

_LONGEST_LABEL: Final = 120
_COLOURS: Final = {
    "added": "#2e7d32",
    "removed": "#c62828",
    "changed": "#ef6c00",
    "renamed": "#1565c0",
    "moved": "#6a1b9a",
}
# Edges of a map that are not both declared and observed.
_DOT_STYLES: Final = {"declared": "style=dashed", "observed": "style=dotted"}
_DOT_SHAPES: Final = {"topic": "ellipse", "store": "cylinder"}
_MERMAID_SHAPES: Final = {"topic": ("([", "])"), "store": ("[(", ")]")}


@dataclass(slots=True)
class Picture:
    """Items by number; a place is the title of the box that an item stands in, None for topics and stores."""

    items: list[tuple[str, str, str | None, str]] = field(default_factory=list)  # kind, label, place, mark
    edges: dict[tuple[int, int], str] = field(default_factory=dict)  # and its mark
    _shared: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, kind: str, label: str, place: str | None, mark: str = "") -> int:
        self.items.append((kind, label, place, mark))
        return len(self.items) - 1

    def connect(self, one: int, other: int, mark: str = "") -> None:
        self.edges.setdefault((one, other), mark)

    def add_surroundings(self, number: int, node: PlacedNode, mark: str) -> None:
        """The topics and stores of a node."""
        for topic in sorted(node.topics):
            ends = (self._once("topic", topic), number)
            self.connect(*(ends if node.kind == "source" else ends[::-1]), mark)
        if node.pattern is not None:
            self.connect(self._once("topic", node.pattern), number, mark)
        for store in sorted(node.stores):
            self.connect(number, self._once("store", store), mark)

    def _once(self, kind: str, name: str) -> int:
        if (kind, name) not in self._shared:
            self._shared[kind, name] = self.add(kind, name, None)
        return self._shared[kind, name]


def picture_of(description: Description) -> Picture:
    picture = Picture()
    graph = VersionGraph(description)
    numbers = [picture.add(node.kind, node.name, _title(node)) for node in graph.nodes]
    for at, number in enumerate(numbers):
        picture.add_surroundings(number, graph.nodes[at], "")
        for successor in graph.successors[at]:
            picture.connect(number, numbers[successor])
    return picture


def picture_of_diff(diff: TopologyDiff) -> Picture:
    """The newer version, and what is gone of the older one beside it."""
    picture = Picture()
    marks = _Marks(diff)
    before_of = {id(other): one for one, other in diff.matches}
    numbers: dict[int, int] = {}
    for node in diff.after:
        one = before_of.get(id(node))
        label = node.name if one is None or one.stem == node.stem else f"{one.name} → {node.name}"
        numbers[id(node)] = picture.add(node.kind, label, _title(node), marks.of(node, is_matched=one is not None))
        if one is not None:
            numbers[id(one)] = numbers[id(node)]
    for node in diff.before:
        if id(node) not in numbers:
            numbers[id(node)] = picture.add(node.kind, node.name, f"Removed from {_title(node).lower()}", "removed")
    former = {(numbers[id(one)], numbers[id(other)]) for one, other in _edges(diff.before)}
    for one, other in _edges(diff.after):
        ends = numbers[id(one)], numbers[id(other)]
        picture.connect(*ends, "" if ends in former else "added")
    for ends in sorted(former):
        picture.connect(*ends, "removed")  # unless it is still there
    for node in diff.after:
        picture.add_surroundings(numbers[id(node)], node, "" if id(node) in before_of else "added")
    for node in diff.before:
        picture.add_surroundings(numbers[id(node)], node, "removed")
    return picture


class _Marks:
    """The most telling mark of each node of the newer version."""

    def __init__(self, diff: TopologyDiff) -> None:
        self._marked = {
            "moved": {(one.kind, one.name) for one in diff.moved},
            "renamed": {(one.kind, one.after) for one in diff.renamed},
            "changed": {(one.kind, one.name) for one in diff.changed},
        }

    def of(self, node: PlacedNode, *, is_matched: bool) -> str:
        if not is_matched:
            return "added"
        key = node.kind, node.name
        return next((mark for mark, nodes in self._marked.items() if key in nodes), "")


def _edges(nodes: Sequence[PlacedNode]) -> Iterator[tuple[PlacedNode, PlacedNode]]:
    by_name = {(node.section, node.name): node for node in reversed(nodes)}
    for node in nodes:
        for successor in node.node.successors:
            if (other := by_name.get((node.section, successor))) is not None:
                yield node, other


def _title(node: PlacedNode) -> str:
    return "Global stores" if place_of(node) == GLOBAL else f"Sub-topology {place_of(node)}"


def to_dot(picture: Picture) -> str:
    lines = ["digraph topology {", "  rankdir=LR;", "  node [shape=box];"]
    for at, (title, numbers) in enumerate(_boxes(picture)):
        indent = "  " if title is None else "    "
        if title is not None:
            lines += [f"  subgraph cluster_{at} {{", f"    label={_dot_text(title)};"]
        for number in numbers:
            kind, label, _, mark = picture.items[number]
            shape = f", shape={_DOT_SHAPES[kind]}" if kind in _DOT_SHAPES else ""
            lines.append(f"{indent}n{number} [label={_dot_text(label)}{shape}{_dot_colour(mark)}];")
        if title is not None:
            lines.append("  }")
    for (one, other), mark in picture.edges.items():
        style = _DOT_STYLES.get(mark, _dot_colour(mark)[2:])
        lines.append(f"  n{one} -> n{other}{f' [{style}]' if style else ''};")
    return "\n".join([*lines, "}"]) + "\n"


def _dot_colour(mark: str) -> str:
    if mark not in _COLOURS:
        return ""
    style = ", style=dashed" if mark == "removed" else ""
    return f', color="{_COLOURS[mark]}", fontcolor="{_COLOURS[mark]}"{style}'


def _dot_text(text: str) -> str:
    return '"' + _shown(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def to_mermaid(picture: Picture) -> str:
    lines = ["flowchart LR"]
    used = {mark for _, _, _, mark in picture.items if mark in _COLOURS}
    for at, (title, numbers) in enumerate(_boxes(picture)):
        indent = "  " if title is None else "    "
        if title is not None:
            lines.append(f"  subgraph s{at} [{_mermaid_text(title)}]")
        for number in numbers:
            kind, label, _, mark = picture.items[number]
            left, right = _MERMAID_SHAPES.get(kind, ("[", "]"))
            style = f":::{mark}" if mark in used else ""
            lines.append(f"{indent}n{number}{left}{_mermaid_text(label)}{right}{style}")
        if title is not None:
            lines.append("  end")
    arrows = {"removed": "-.->", "added": "==>"} | {mark: f"-.->|{mark}|" for mark in _DOT_STYLES}
    lines += [f"  n{one} {arrows.get(mark, '-->')} n{other}" for (one, other), mark in picture.edges.items()]
    lines += [f"  classDef {mark} stroke:{_COLOURS[mark]},color:{_COLOURS[mark]}" for mark in sorted(used)]
    return "\n".join(lines) + "\n"


def _mermaid_text(text: str) -> str:
    """In quotes, with everything that Mermaid or a browser could take for markup as a code."""
    coded = (f"#{ord(char)};" if char in '"#&<>`\\;' else char for char in _shown(text))
    return f'"{"".join(coded)}"'


def _boxes(picture: Picture) -> Iterable[tuple[str | None, list[int]]]:
    boxes: dict[str | None, list[int]] = {}
    for number, (_, _, place, _) in enumerate(picture.items):
        boxes.setdefault(place, []).append(number)
    return boxes.items()


def _shown(text: str) -> str:
    short = text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in short)
