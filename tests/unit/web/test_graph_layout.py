"""Positions of the map: no overlaps, data from left to right, kept by content, bounded in time, without names."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from fastapi import HTTPException

from headgate.doctor import machine
from headgate.lineage.estate_map import MAX_NODES, MapSelection, MapUse, ShownEdge, ShownNode
from headgate.web.api import graphviz
from headgate.web.api.estate_tables import TooBusyError
from headgate.web.api.graph_layout import GraphLayouts, node_size
from headgate.web.api.models import GraphLayoutModel
from headgate.web.tokens import TokenScope, add_token
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.test_graph_api import LATER

USE = MapUse(
    declared=True, observed=True, filled=False, internal=False, bytes_day=1, records_day=1, last_seen=1_794_751_200_000
)
HOSTILE = '"];\n}digraph{x[image="/etc/passwd"]}\x00\u202e'


def selection(nodes: list[ShownNode], edges: list[tuple[int, int]]) -> MapSelection:
    return MapSelection(tuple(nodes), tuple(ShownEdge(start, end, USE, None) for start, end in edges))


def topic(name: str) -> ShownNode:
    return ShownNode("topic", name, None, internal=False)


def app(name: str) -> ShownNode:
    return ShownNode("streams", name, None, internal=False)


def estate(count: int, *, stages: int = 6) -> MapSelection:
    """Topics and applications in turn, each connected with neighbours in the next stage."""
    dice = random.Random(7)
    per = count // stages
    nodes = [(topic if number % stages % 2 == 0 else app)(f"{number:04}") for number in range(per * stages)]
    edges = [
        (row * stages + stage, min(per - 1, max(0, row + dice.randrange(-2, 3))) * stages + stage + 1)
        for stage in range(stages - 1)
        for row in range(per)
    ]
    return selection(nodes, sorted(set(edges)))


class Runs:
    """Counts the runs of Graphviz, which stay real ones."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def run(self, form: str, text: str, **options: Any) -> bytes:
        self.texts.append(text)
        return graphviz.run_graphviz(form, text, **options)


@pytest.fixture
def runs() -> Runs:
    return Runs()


def test_data_runs_from_left_to_right_and_no_node_covers_another() -> None:
    wide = selection(
        [topic("a"), app("b" * 300), topic("c"), topic("d"), app("alone"), app("\x00" * 30), topic("e")],
        [(0, 1), (1, 2), (1, 3), (5, 6), (2, 1)],
    )
    at = GraphLayouts().points(wide)
    assert at[0][0] < at[1][0] < at[2][0]
    assert at[5][0] < at[6][0]
    sizes = [node_size(node) for node in wide.nodes]
    for one in range(len(at)):
        for other in range(one):
            apart_x = abs(at[one][0] - at[other][0]) * 2 >= sizes[one].width + sizes[other].width
            apart_y = abs(at[one][1] - at[other][1]) * 2 >= sizes[one].height + sizes[other].height
            assert apart_x or apart_y, (one, other)


def test_many_small_parts_fill_a_screen_and_not_a_column() -> None:
    pairs = 100
    nodes = [node for number in range(pairs) for node in (topic(f"t{number}"), app(f"a{number}"))]
    at = GraphLayouts().points(selection(nodes, [(2 * one, 2 * one + 1) for one in range(pairs)]))
    width, height = (max(point[axis] for point in at) - min(point[axis] for point in at) for axis in (0, 1))
    assert 0.9 < width / height < 3.6


def test_graphviz_gets_numbers_and_no_names(runs: Runs) -> None:
    at = GraphLayouts(run=runs.run).points(selection([topic(HOSTILE), app(HOSTILE * 100)], [(0, 1)]))
    assert len(set(at)) == 2
    (text,) = runs.texts
    assert "passwd" not in text
    assert text.isascii()


def test_equal_sizes_and_edges_are_laid_out_once_whatever_else_changes(runs: Runs) -> None:
    layouts = GraphLayouts(run=runs.run)
    before = selection([topic("a1"), app("b1")], [(0, 1)])
    after = before._replace(
        nodes=(topic("a2"), app("b2")), edges=(before.edges[0]._replace(use=USE._replace(bytes_day=9)),)
    )
    assert layouts.points(before) == layouts.points(after)
    assert len(runs.texts) == 1
    layouts.points(selection([topic("a1"), app("b1")], [(1, 0)]))
    assert len(runs.texts) == 2


def test_only_the_last_layouts_are_kept(runs: Runs) -> None:
    layouts = GraphLayouts(kept=2, run=runs.run)
    maps = [selection([topic("x" * (20 + size))], []) for size in range(3)]
    for one in (*maps, maps[2], maps[0]):
        layouts.points(one)
    assert len(runs.texts) == 4


def test_a_layout_that_takes_too_long_is_ended_and_not_tried_again(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = tmp_path / "dot"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(slow))
    layouts = GraphLayouts(deadline_s=0.2, run=runs.run)
    for _ in range(2):
        with pytest.raises(HTTPException) as refused:
            layouts.points(selection([topic("a")], []))
        assert refused.value.status_code == 503
    assert len(runs.texts) == 1


@pytest.mark.parametrize("output", ["", "graph 1 2 3\nstop\n"])
def test_an_output_without_the_nodes_is_a_failure(output: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "dot"
    broken.write_text(f"#!/bin/sh\ncat >/dev/null; printf '{output}'\n")
    broken.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(broken))
    with pytest.raises(HTTPException) as refused:
        GraphLayouts().points(selection([topic("a")], []))
    assert refused.value.status_code == 503


def test_another_layout_is_awaited_and_then_the_request_can_be_repeated() -> None:
    layouts, wanted = GraphLayouts(wait_s=0.05), selection([topic("a")], [])
    with graphviz.DRAWING, pytest.raises(TooBusyError):
        layouts.points(wanted)
    assert len(layouts.points(wanted)) == 1


def test_the_largest_map_is_laid_out() -> None:
    largest = estate(MAX_NODES - MAX_NODES % 6)
    at = GraphLayouts(deadline_s=120).points(largest)
    assert len(set(at)) == len(largest.nodes)


async def test_the_layout_has_the_nodes_of_the_graph_and_an_etag(shop: ApiStage) -> None:
    graph = await shop.json("graph", focus="totals")
    answer = await shop.get("graph/layout", focus="totals")
    found = GraphLayoutModel.model_validate(answer.json)
    assert [(one.id, one.kind, one.name) for one in found.nodes] == [
        (one["id"], one["kind"], one["name"]) for one in graph["nodes"]
    ]
    again = await shop.get("graph/layout", focus="totals", headers={"if-none-match": answer.headers["etag"]})
    assert again.status == 304
    assert (await shop.get("graph/layout", focus="none-such")).status == 404


async def test_hidden_names_stay_hidden_in_the_layout(shop: ApiStage, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    token = add_token(tokens, name="team", scope=TokenScope.READ, expires=LATER, names=["orders"])
    stage = ApiStage(shop.tables, shop.clock, tokens_file=tokens, is_read_open=False)
    answer = await stage.get("graph/layout", token=token)
    assert answer.status == 200
    assert {one["name"] for one in answer.json["nodes"]} == {"orders", None}
    assert b"shop-app" not in answer.body


async def test_without_graphviz_the_layout_is_501_and_the_doctor_says_how_to_install_it(
    shop: ApiStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine.graphviz().verdict.value == "ok"
    monkeypatch.setattr(shutil, "which", lambda _: None)
    stage = ApiStage(shop.tables, shop.clock)  # which has no layout of another test
    assert (await stage.get("graph/layout")).status == 501
    finding = machine.graphviz()
    assert finding.verdict.value == "warning"
    assert "apt-get install" in finding.mend
