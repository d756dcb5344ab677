"""A selection of the map as JSON, DOT, Mermaid, CSV, SVG and PNG: equal selections are equal bytes.

In DOT and Mermaid nodes are numbers, and names are labels only. In CSV a cell that a spreadsheet would take for a
formula begins with an apostrophe, and characters that are not printable are escaped. SVG and PNG are made by Graphviz.
"""

import csv
import io
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from headgate.lineage.estate_map import MapSelection, MapUse, ShownNode
from headgate.topologies.model.topology_pictures import Picture, to_dot, to_mermaid
from headgate.web.api.answers import Rendered, json_answer
from headgate.web.api.graphviz import run_graphviz

_DRAWING_S: Final = 20
_LOOK: Final = ("-Nfontname=sans-serif", "-Nfontsize=12", "-Ncolor=#76829a", "-Ecolor=#76829a", "-Gpad=0.2")
_PNG_DPI: Final = 144  # twice the pixels of the SVG, so that names can be read on any screen
_MOST_PIXELS: Final = 5_000  # of a side: Graphviz scales down what is larger, and needs 4 bytes for each pixel
_FORMULA: Final = tuple("=+-@\t\r|%")
_COLUMNS: Final = (
    *("from_kind", "from_name", "from_component", "to_kind", "to_name", "to_component"),
    *(*MapUse._fields, "topics"),
)


class GraphFormat(StrEnum):
    JSON = "json"
    DOT = "dot"
    MERMAID = "mermaid"
    CSV = "csv"
    SVG = "svg"
    PNG = "png"


MEDIA_TYPES: Final = {
    GraphFormat.JSON: "application/json",
    GraphFormat.DOT: "text/vnd.graphviz",
    GraphFormat.MERMAID: "text/vnd.mermaid",
    GraphFormat.CSV: "text/csv",
    GraphFormat.SVG: "image/svg+xml",
    GraphFormat.PNG: "image/png",
}


def accepted_format(accept: str, formats: Iterable[GraphFormat] = GraphFormat) -> GraphFormat:
    """The first format that the Accept header names; JSON if it names none."""
    by_type = {MEDIA_TYPES[one]: one for one in formats}
    for part in accept.split(","):
        found = by_type.get(part.partition(";")[0].strip().lower())
        if found is not None:
            return found
    return GraphFormat.JSON


def render_graph(selection: MapSelection, form: GraphFormat, about: dict[str, Any]) -> Rendered:
    """`about` is what the JSON has beside nodes and edges."""
    match form:
        case GraphFormat.JSON:
            return json_answer(about | graph_document(selection))
        case GraphFormat.CSV:
            return _text(graph_csv(selection), form)
        case GraphFormat.MERMAID:
            return _text(to_mermaid(graph_picture(selection)), form)
        case GraphFormat.DOT:
            return _text(to_dot(graph_picture(selection)), form)
        case GraphFormat.SVG:
            return svg_answer(graph_picture(selection))
        case GraphFormat.PNG:
            return png_answer(graph_picture(selection))


def _text(text: str, form: GraphFormat) -> Rendered:
    return Rendered(text.encode("utf-8", "replace"), f"{MEDIA_TYPES[form]}; charset=utf-8")


def graph_document(selection: MapSelection) -> dict[str, Any]:
    return {
        "nodes": [
            {
                "id": place,
                "kind": node.kind,
                "name": node.name,
                "hidden": node.name is None,
                "component": node.component,
                "internal": node.internal,
            }
            for place, node in enumerate(selection.nodes)
        ],
        "edges": [
            {"from": edge.start, "to": edge.end, **edge.use._asdict(), "topics": edge.topics}
            for edge in selection.edges
        ],
    }


def graph_picture(selection: MapSelection) -> Picture:
    picture = Picture()
    for node in selection.nodes:
        picture.add(node.kind, _label(node), None)
    for edge in selection.edges:
        use = edge.use
        picture.connect(edge.start, edge.end, "" if use.declared and use.observed else _mark(use))
    return picture


def _mark(use: MapUse) -> str:
    return "declared" if use.declared else "observed"


def _label(node: ShownNode) -> str:
    if node.name is None:
        return f"(hidden {node.kind})"
    part = "" if node.component is None else f" / {node.component}"
    return node.name + part if node.kind == "topic" else f"{node.name}{part} ({node.kind})"


def graph_csv(selection: MapSelection) -> str:
    """One line for each edge, as RFC 4180 has it."""
    written = io.StringIO()
    out = csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    out.writerow(_COLUMNS)
    for edge in selection.edges:
        ends = [part for place in (edge.start, edge.end) for part in selection.nodes[place][:3]]
        out.writerow([csv_cell(one) for one in (*ends, *edge.use, edge.topics)])
    return written.getvalue()


def csv_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if not isinstance(value, str):
        return text
    if not text.isprintable():
        text = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) or str(value).startswith(_FORMULA) else text


def svg_answer(picture: Picture) -> Rendered:
    drawn = run_graphviz(
        "svg", to_dot(picture), what="SVG", instead="use format=dot", deadline_s=_DRAWING_S, options=_LOOK
    )
    return Rendered(drawn, MEDIA_TYPES[GraphFormat.SVG])


def png_answer(picture: Picture) -> Rendered:
    """At most `_MOST_PIXELS` wide and high, whatever the number of nodes."""
    drawn = run_graphviz(
        "png",
        to_dot(picture),
        what="PNG",
        instead="use format=dot",
        deadline_s=_DRAWING_S,
        options=(*_LOOK, f"-Gdpi={_PNG_DPI}", f"-Gsize={_MOST_PIXELS / _PNG_DPI:.2f}"),
    )
    return Rendered(drawn, MEDIA_TYPES[GraphFormat.PNG])
