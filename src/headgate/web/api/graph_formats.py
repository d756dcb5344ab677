"""A selection of the map as JSON, DOT, Mermaid, CSV and SVG: equal selections are equal bytes.

In DOT and Mermaid nodes are numbers, and names are labels only. In CSV a cell that a spreadsheet would take for a
formula begins with an apostrophe, and characters that are not printable are escaped. SVG is made by Graphviz.
"""

import csv
import io
import shutil
import subprocess
import threading
from collections.abc import Iterable
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

from fastapi import HTTPException

from headgate.lineage.estate_map import MapSelection, MapUse, ShownNode
from headgate.topologies.model.topology_pictures import Picture, to_dot, to_mermaid
from headgate.web.api.answers import Rendered, json_answer
from headgate.web.api.estate_tables import TooBusyError

_SVG_S: Final = 20
_drawing: Final = threading.Lock()  # one picture at a time: a large one takes a core for seconds
_MAX_SVG: Final = 64 * 1024 * 1024
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


MEDIA_TYPES: Final = {
    GraphFormat.JSON: "application/json",
    GraphFormat.DOT: "text/vnd.graphviz",
    GraphFormat.MERMAID: "text/vnd.mermaid",
    GraphFormat.CSV: "text/csv",
    GraphFormat.SVG: "image/svg+xml",
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
    """Drawn by Graphviz, one at a time, in a process that ends after a time; 501 where it is not installed."""
    program = shutil.which("dot")
    if program is None:
        raise HTTPException(
            HTTPStatus.NOT_IMPLEMENTED,
            "SVG needs Graphviz, which is not installed: install the package graphviz, or use format=dot",
        )
    if not _drawing.acquire(blocking=False):
        raise TooBusyError("Another picture is being drawn: repeat the request in a second, or use format=dot")
    try:
        done = subprocess.run(
            [program, "-Tsvg"],
            input=to_dot(picture).encode("utf-8", "replace"),
            capture_output=True,
            timeout=_SVG_S,
            check=True,
        )
    except subprocess.TimeoutExpired:
        text = f"Graphviz did not finish within {_SVG_S} seconds: narrow the graph, or use format=dot"
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, text) from None
    except (OSError, subprocess.CalledProcessError):
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "Graphviz failed: use format=dot") from None
    finally:
        _drawing.release()
    if len(done.stdout) > _MAX_SVG:
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "The picture is too large: narrow the graph")
    return Rendered(done.stdout, MEDIA_TYPES[GraphFormat.SVG])
