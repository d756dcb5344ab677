"""Names that clients choose stay text in every format."""

import csv
import io
import json
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.lineage.estate_map import MapSelection, MapUse, ShownEdge, ShownNode
from headgate.web.api.graph_formats import GraphFormat, accepted_format, csv_cell, graph_csv, render_graph

USE = MapUse(True, False, False, False, None, None, None)
HOSTILE = [
    'a"b',
    "a\nb\r\nc",
    "<script>alert(1)</script>",
    "<b>x</b>&amp;",
    "\u202egnp.exe",
    "nul\x00byte",
    '"]; evil [label="',
    "\\N \\G \\",
    "n0 --> n1; end",
    "%%{init: {}}%%",
    "`code` #quot; #35;",
    "=1+1",
    "\x1b[31mred",
    "x" * 32_767,
    "😀 emoji",
]


def selection(*names: str) -> MapSelection:
    nodes = [ShownNode("topic", name, None, internal=False) for name in names]
    edges = [ShownEdge(place, place + 1, USE, None) for place in range(len(nodes) - 1)]
    return MapSelection(tuple(nodes), tuple(edges))


def text(form: GraphFormat, *names: str) -> str:
    return render_graph(selection(*names), form, {}).body.decode()


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("form", [GraphFormat.DOT, GraphFormat.MERMAID])
def test_a_name_adds_no_line_and_no_node_to_a_picture(form: GraphFormat, name: str) -> None:
    lines, plain = text(form, name, "b").splitlines(), text(form, "a", "b").splitlines()
    assert len(lines) == len(plain)
    assert [line for line in lines if "label" not in line and "n0" not in line] == [
        line for line in plain if "label" not in line and "n0" not in line
    ]
    assert max(map(len, lines)) < 1_000
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("name", HOSTILE)
def test_mermaid_has_no_markup_of_a_name(name: str) -> None:
    label = text(GraphFormat.MERMAID, name).splitlines()[1].removeprefix('  n0(["').removesuffix('"])')
    assert not set(label) & set('"<>&`\\')


def test_graphviz_reads_the_picture_of_hostile_names_as_so_many_nodes() -> None:
    dot = text(GraphFormat.DOT, *HOSTILE)
    done = subprocess.run(["dot", "-Tplain"], input=dot.encode(), capture_output=True, check=True)
    assert done.stderr == b""
    kinds = [line.split()[0] for line in done.stdout.decode().splitlines() if line]
    assert (kinds.count("node"), kinds.count("edge")) == (len(HOSTILE), len(HOSTILE) - 1)


def test_svg_of_a_hostile_name_has_no_script() -> None:
    svg = text(GraphFormat.SVG, *HOSTILE)
    assert "<script" not in svg
    assert "&lt;script&gt;" in svg


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\r=1", "|cmd", "%x"])
def test_a_cell_that_looks_like_a_formula_begins_with_an_apostrophe(name: str) -> None:
    assert csv_cell(name).startswith("'")


def test_csv_cells_of_other_values() -> None:
    assert [csv_cell(one) for one in (None, True, False, -5, 0, "orders", "a b")] == [
        *("", "true", "false", "-5", "0", "orders", "a b"),
    ]
    assert csv_cell("a\nb\x00\u202e") == "a\\nb\\x00\\u202e"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=40), min_size=2, max_size=4))
def test_csv_has_one_line_for_each_edge_whatever_the_names(names: list[str]) -> None:
    rows = list(csv.reader(io.StringIO(graph_csv(selection(*names)), newline="")))
    assert len(rows) == len(names)
    assert all(len(row) == len(rows[0]) for row in rows)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40))
def test_json_is_ascii_and_keeps_the_name(name: str) -> None:
    body = render_graph(selection(name), GraphFormat.JSON, {}).body
    assert body.isascii()
    assert json.loads(body)["nodes"][0]["name"] == name


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "json"),
        ("*/*", "json"),
        ("text/html,application/xhtml+xml", "json"),
        ("TEXT/CSV", "csv"),
        ("text/html, image/svg+xml;q=0.5", "svg"),
        ("text/vnd.graphviz", "dot"),
        ("application/json, text/csv", "json"),
    ],
)
def test_the_format_that_a_client_accepts(accept: str, form: str) -> None:
    assert accepted_format(accept) == form
