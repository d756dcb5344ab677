"""Positions of the nodes of a selection, computed by Graphviz from sizes and edges, and kept by their content.

Graphviz gets numbers and sizes, and never a name. Each connected part of the selection is a graph of its own, which is
faster than one graph of all; the parts are then set in rows, the largest first, so that the whole has the shape of a
screen. Selections of equal sizes and edges have equal positions, whatever else of them has changed: so a new version of
the tables seldom needs another layout. A selection that Graphviz could not lay out is not tried again.
"""

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from fastapi import HTTPException

from headgate.lineage.estate_map import MapSelection, ShownNode
from headgate.lineage.graph import TOPIC
from headgate.web.api.graphviz import run_graphviz

_DEADLINE_S: Final = 10.0
_WAIT_S: Final = 2.0  # for the layout of another request; the page lays out by itself then
_KEPT: Final = 64  # layouts of at most 2,000 nodes: 16 bytes for each
_PX_INCH: Final = 72
_GAP: Final = 32  # between parts
_ASPECT: Final = 1.8
_INSTEAD: Final = "lay the graph out yourself, as the page does"
# What the page draws: its boxes are at most this large (ui/src/model/estate_graph.ts).
_CHARACTER_PX: Final = 7.3
_MOST_CHARACTERS: Final = 34
_KIND_PX: Final = 180
_TOPIC_PX: Final = 72
_HEIGHTS: Final = {True: 28, False: 46}

Point = tuple[int, int]


class _Size(NamedTuple):
    width: int
    height: int


class _LaidPart(NamedTuple):
    """A connected part, and where its nodes stand in it."""

    width: float
    height: float
    at: dict[int, tuple[float, float]]


def layout_document(selection: MapSelection, points: Sequence[Point]) -> dict[str, Any]:
    """Nodes have their names too: the graph may be of another version of the tables than its layout."""
    return {
        "engine": "graphviz",
        "nodes": [
            {"id": place, "kind": node.kind, "name": node.name, "component": node.component, "x": x, "y": y}
            for place, (node, (x, y)) in enumerate(zip(selection.nodes, points, strict=True))
        ],
    }


class GraphLayouts:
    """Computes layouts and keeps the last ones by a hash of their content; used on threads."""

    def __init__(
        self,
        *,
        deadline_s: float = _DEADLINE_S,
        wait_s: float = _WAIT_S,
        kept: int = _KEPT,
        run: Callable[..., bytes] = run_graphviz,
    ) -> None:
        self._deadline_s = deadline_s
        self._wait_s = wait_s
        self._most_kept = kept
        self._run = run
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[Point, ...] | None] = OrderedDict()

    def points(self, selection: MapSelection) -> tuple[Point, ...]:
        """The centre of each node in pixels, y downwards; an `HTTPException` where Graphviz cannot do it."""
        sizes = [node_size(node) for node in selection.nodes]
        edges = sorted({(edge.start, edge.end) for edge in selection.edges if edge.start != edge.end})
        parts = list(_connected(len(sizes), edges))
        text = "".join(_graph_text(part, sizes, edges_of) for part, edges_of in parts)
        key = hashlib.sha256(text.encode()).hexdigest()
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return _known(self._kept[key])
        if not sizes:
            return ()
        try:
            output = self._run(
                "plain", text, what="The layout", instead=_INSTEAD, deadline_s=self._deadline_s, wait_s=self._wait_s
            )
            made: tuple[Point, ...] | None = _arranged(_parse_plain(output.decode("ascii", "replace")), sizes)
        except HTTPException as error:
            if error.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            made = None
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > self._most_kept:
                self._kept.popitem(last=False)
        return _known(made)


def _known(made: tuple[Point, ...] | None) -> tuple[Point, ...]:
    if made is None:
        text = f"Graphviz could not lay this graph out in time: narrow it, or {_INSTEAD}"
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, text)
    return made


def node_size(node: ShownNode) -> _Size:
    is_topic = node.kind == TOPIC
    # A character that cannot be printed is shown as an escape, which is longer.
    length = len(node.name or "name not visible")
    shown = _MOST_CHARACTERS if node.name is not None and not node.name.isprintable() else min(length, _MOST_CHARACTERS)
    width = max(_TOPIC_PX if is_topic else _KIND_PX, math.ceil(shown * _CHARACTER_PX) + 30)
    return _Size(width + (60 if node.component is not None else 0), _HEIGHTS[is_topic])


def _connected(
    count: int, edges: Sequence[tuple[int, int]]
) -> Iterator[tuple[Sequence[int], Sequence[tuple[int, int]]]]:
    """The connected parts with their edges, in the order of their first nodes."""
    root = list(range(count))

    def find(one: int) -> int:
        while root[one] != one:
            root[one] = root[root[one]]
            one = root[one]
        return one

    for start, end in edges:
        low, high = sorted((find(start), find(end)))
        root[high] = low
    nodes: dict[int, list[int]] = {}
    for one in range(count):
        nodes.setdefault(find(one), []).append(one)
    links: dict[int, list[tuple[int, int]]] = {first: [] for first in nodes}
    for edge in edges:
        links[find(edge[0])].append(edge)
    for first, members in nodes.items():
        yield members, links[first]


def _graph_text(nodes: Iterable[int], sizes: Sequence[_Size], edges: Iterable[tuple[int, int]]) -> str:
    """Without splines, because the page draws the edges; with limits of iterations, because some graphs need many."""
    lines = [
        "digraph {",
        "rankdir=LR; nodesep=0.25; ranksep=0.8; splines=false; nslimit=2; nslimit1=2; mclimit=0.5;",
        "node [shape=box, fixedsize=true];",
    ]
    for one in nodes:
        width, height = sizes[one]
        lines.append(f"n{one} [width={width / _PX_INCH:.3f}, height={height / _PX_INCH:.3f}];")
    lines.extend(f"n{start} -> n{end};" for start, end in edges)
    return "\n".join([*lines, "}\n"])


def _parse_plain(text: str) -> Iterator[_LaidPart]:
    """The format is one line for each graph, node and edge: `node NAME X Y ...` in inches, y upwards."""
    size, at = (0.0, 0.0), dict[int, tuple[float, float]]()
    for line in text.splitlines():
        words = line.split(" ", 4)
        if words[0] == "graph":
            size, at = (float(words[2]) * _PX_INCH, float(words[3].split()[0]) * _PX_INCH), {}
        elif words[0] == "node":
            at[int(words[1][1:])] = (float(words[2]) * _PX_INCH, size[1] - float(words[3]) * _PX_INCH)
        elif words[0] == "stop":
            yield _LaidPart(*size, at)


def _arranged(parts: Iterable[_LaidPart], sizes: Sequence[_Size]) -> tuple[Point, ...]:
    """All parts in rows: the largest first, each row as wide as the widest part or as the shape of a screen asks."""
    ordered = sorted(parts, key=lambda part: (-part.height, -part.width, min(part.at, default=0)))
    area = sum((part.width + _GAP) * (part.height + _GAP) for part in ordered)
    room = max(math.sqrt(area * _ASPECT), *(part.width for part in ordered), 0.0)
    points: dict[int, Point] = {}
    left = top = row = 0.0
    for part in ordered:
        if left > 0 and left + part.width > room:
            left, top, row = 0.0, top + row + _GAP, 0.0
        points.update({one: (round(left + x), round(top + y)) for one, (x, y) in part.at.items()})
        left, row = left + part.width + _GAP, max(row, part.height)
    if len(points) != len(sizes):
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"Graphviz failed: {_INSTEAD}")
    return tuple(points[one] for one in range(len(sizes)))
