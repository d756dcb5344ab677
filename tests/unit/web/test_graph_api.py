"""`/api/v1/graph` on the tables of the shop: what it selects, formats, ETags, refusals and limited tokens."""

import struct
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headgate.web.api import graph_formats, graphviz
from headgate.web.api.estate_tables import EstateLimits, EstateTables
from headgate.web.api.models import GraphModel
from headgate.web.tokens import TokenScope, add_token
from tests.unit.lineage.shop import NOON, TWO
from tests.unit.web.api_stage import ApiStage

HEAD = (
    '"from_kind","from_name","from_component","to_kind","to_name","to_component",'
    '"declared","observed","filled","internal","bytes_day","records_day","last_seen","topics"'
)
LATER = datetime.fromtimestamp(TWO / 1000 + 3600, UTC)


async def test_the_whole_map_has_every_use_once(shop: ApiStage) -> None:
    found = GraphModel.model_validate(await shop.json("graph"))
    assert (found.cluster, found.as_of, found.collapsed) == ("c1", None, True)
    place = {(node.kind, node.name): node.id for node in found.nodes}
    edges = {(edge.from_, edge.to): edge for edge in found.edges}
    assert len(edges) == len(found.edges) == 11
    read = edges[place["topic", "orders"], place["streams", "shop-app"]]
    assert (read.declared, read.observed, read.bytes_day) == (True, True, 1000)
    silent = edges[place["streams", "shop-app"], place["topic", "large"]]
    assert (silent.declared, silent.observed, silent.bytes_day) == (True, False, None)


async def test_as_of_a_time_the_former_uses_are_there(shop: ApiStage) -> None:
    now = {node["name"] for node in (await shop.json("graph"))["nodes"]}
    before = await shop.json("graph", as_of="2026-11-15T11:30:00Z")
    assert "old-totals" not in now
    assert "old-totals" in {node["name"] for node in before["nodes"]}
    assert before["as_of"] == NOON - 1_800_000
    assert await shop.json("graph", as_of=NOON - 1_800_000) == before
    of_last_day = {(edge["bytes_day"], edge["records_day"]) for edge in before["edges"]}
    assert of_last_day == {(None, None)}, "known only for now"


async def test_a_focus_with_hops_and_a_direction(shop: ApiStage) -> None:
    found = await shop.json("graph", focus="totals", hops=1, direction="down")
    assert {node["name"] for node in found["nodes"]} == {"totals", "reports"}
    everything = await shop.json("graph", focus="totals", hops="all", direction="up")
    assert {"orders", "shop", "unknown", "shop-app"} <= {node["name"] for node in everything["nodes"]}


async def test_an_unknown_focus_is_404_with_similar_names(shop: ApiStage) -> None:
    answer = await shop.get("graph", focus="order")
    assert answer.status == 404
    assert answer.json["message"] == (
        "The tables have no topic or actor 'order' at this time; similar names: 'orders', 'dlq.orders'"
    )


@pytest.mark.parametrize(
    "query",
    [
        {"hops": "0"},
        {"hops": "21"},
        {"hops": "x"},
        {"direction": "left"},
        {"kinds": "topic,table"},
        {"kinds": ","},
        {"focus_kind": "table"},
        {"as_of": "yesterday"},
        {"as_of": "9" * 15},
        {"format": "pdf"},
        {"collapsed": "perhaps"},
        {"cluster": "x" * 256},
        {"focus": "x" * 40_000},
    ],
)
async def test_wrong_parameters_are_400(shop: ApiStage, query: dict[str, Any]) -> None:
    assert (await shop.get("graph", **query)).status == 400


async def test_an_unknown_cluster_has_an_empty_map(shop: ApiStage) -> None:
    assert (await shop.json("graph", cluster="c9"))["nodes"] == []


async def test_too_many_nodes_are_refused_with_how_to_narrow(shop: ApiStage) -> None:
    tables = EstateTables(shop.tables.root, shop.clock, limits=EstateLimits(map_nodes=5))
    stage = ApiStage(tables, shop.clock)
    answer = await stage.get("graph")
    assert answer.status == 400
    message = answer.json["message"]
    assert "The graph has 12 nodes (6 topic, 1 client, 1 consumer_group, " in message
    assert "name a focus, such as focus=TOPIC&hops=2; select kinds, such as kinds=topic,streams" in message
    assert (await stage.get("graph", focus="totals", direction="down")).status == 200
    await tables.close()


FORMATS = {
    "dot": "text/vnd.graphviz",
    "mermaid": "text/vnd.mermaid",
    "csv": "text/csv",
    "json": "application/json",
}


@pytest.mark.parametrize("form", FORMATS)
async def test_formats_by_parameter_and_by_accept_are_the_same_bytes(shop: ApiStage, form: str) -> None:
    asked = await shop.get("graph", focus="totals", format=form)
    accepted = await shop.get("graph", focus="totals", headers={"Accept": f"text/html, {FORMATS[form]};q=0.9"})
    again = await ApiStage(shop.tables, shop.clock).get("graph", focus="totals", format=form)
    assert asked.body == accepted.body == again.body
    assert asked.headers["content-type"].startswith(FORMATS[form])
    assert asked.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in asked.headers["content-security-policy"]


async def test_the_texts_of_a_small_graph(shop: ApiStage) -> None:
    query: dict[str, Any] = {"focus": "totals", "direction": "both"}
    assert (await shop.get("graph", format="dot", **query)).body.decode() == (
        "digraph topology {\n  rankdir=LR;\n  node [shape=box];\n"
        '  n0 [label="reports (consumer_group)"];\n  n1 [label="shop-app (streams)"];\n'
        '  n2 [label="totals", shape=ellipse];\n  n1 -> n2;\n  n2 -> n0 [style=dotted];\n}\n'
    )
    assert (await shop.get("graph", format="mermaid", **query)).body.decode() == (
        'flowchart LR\n  n0["reports (consumer_group)"]\n  n1["shop-app (streams)"]\n  n2(["totals"])\n'
        "  n1 --> n2\n  n2 -.->|observed| n0\n"
    )
    assert (await shop.get("graph", format="csv", **query)).body.decode().splitlines() == [
        HEAD,
        f'"streams","shop-app","","topic","totals","","true","true","false","false","1000","10","{TWO}",""',
        f'"topic","totals","","consumer_group","reports","","false","true","false","false","1000","10","{TWO}",""',
    ]


async def test_svg_is_drawn_by_graphviz(shop: ApiStage) -> None:
    answer = await shop.get("graph", focus="totals", format="svg")
    assert answer.headers["content-type"] == "image/svg+xml"
    texts = {one.text for one in ET.fromstring(answer.body).iter("{http://www.w3.org/2000/svg}text")}
    assert texts == {"totals", "shop-app (streams)", "reports (consumer_group)"}


async def test_png_has_at_most_so_many_pixels(shop: ApiStage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def size_of(stage: ApiStage) -> tuple[int, int]:
        answer = await stage.get("graph", focus="totals", format="png")
        assert answer.headers["content-type"] == "image/png"
        assert answer.body.startswith(b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", answer.body[16:24])
        return width, height

    whole = await size_of(shop)
    assert 300 < max(whole) <= graph_formats._MOST_PIXELS
    monkeypatch.setattr(graph_formats, "_MOST_PIXELS", 200)
    assert 150 < max(await size_of(ApiStage(shop.tables, shop.clock))) <= 201


@pytest.mark.parametrize("form", ["svg", "png"])
async def test_without_graphviz_a_picture_is_501_and_the_message_says_what_to_do(
    shop: ApiStage, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    stage = ApiStage(shop.tables, shop.clock)  # which has no picture of another test
    answer = await stage.get("graph", focus="orders", format=form)
    assert answer.status == 501
    assert "install the package graphviz, or use format=dot" in answer.json["message"]


async def test_one_picture_is_drawn_at_a_time(shop: ApiStage) -> None:
    stage = ApiStage(shop.tables, shop.clock)  # which has no picture of another test
    with graphviz.DRAWING:
        answer = await stage.get("graph", focus="large", format="svg")
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert (await stage.get("graph", focus="large", format="svg")).status == 200


async def test_an_etag_that_the_client_has_is_304_without_a_body(shop: ApiStage) -> None:
    first = await shop.get("graph", focus="totals")
    etag = first.headers["etag"]
    for header in (etag, f'"other", {etag}', f"W/{etag}"):
        same = await shop.get("graph", focus="totals", headers={"If-None-Match": header})
        assert (same.status, same.body, same.headers["etag"]) == (304, b"", etag)
    others: list[dict[str, Any]] = [
        {"focus": "orders"},
        {"focus": "totals", "hops": 2},
        {"focus": "totals", "format": "csv"},
    ]
    for query in others:
        other = await shop.get("graph", headers={"If-None-Match": etag}, **query)
        assert (other.status, other.headers["etag"] != etag) == (200, True)


async def test_a_token_that_is_limited_to_names_sees_other_nodes_without_names(shop: ApiStage, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    token = add_token(file, name="team", scope=TokenScope.READ, expires=LATER, names=["totals", "report*"])
    stage = ApiStage(shop.tables, shop.clock, tokens_file=file, is_read_open=False)
    answer = await stage.get("graph", token=token)
    found = GraphModel.model_validate(answer.json)
    assert [(node.kind, node.name, node.hidden) for node in found.nodes] == [
        ("consumer_group", "reports", False),
        ("topic", "totals", False),
        ("streams", None, True),
    ]
    for form in ("dot", "mermaid", "csv", "json"):
        text = (await stage.get("graph", token=token, format=form)).body
        assert b"shop-app" not in text
        assert b"orders" not in text
    assert b"(hidden streams)" in (await stage.get("graph", token=token, format="dot")).body
    absent = await stage.get("graph", token=token, focus="orders")
    assert absent.status == 404
    assert "dlq.orders" not in absent.json["message"]


async def test_a_limited_token_has_etags_of_its_own(shop: ApiStage, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    whole = add_token(file, name="all", scope=TokenScope.READ, expires=LATER)
    team = add_token(file, name="team", scope=TokenScope.OPERATE, expires=LATER, names=["totals"])
    stage = ApiStage(shop.tables, shop.clock, tokens_file=file)
    etag = (await stage.get("graph", token=whole)).headers["etag"]
    answer = await stage.get("graph", token=team, headers={"If-None-Match": etag})
    assert answer.status == 200
    assert b"orders" not in answer.body


async def test_without_a_token_reading_is_refused_where_one_is_needed(shop: ApiStage, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    add_token(file, name="all", scope=TokenScope.READ, expires=LATER)
    stage = ApiStage(shop.tables, shop.clock, tokens_file=file, is_read_open=False)
    for path in ("graph", "topics", "topics/orders", "topics/orders/impact", "health", "openapi.json"):
        assert (await stage.get(path)).status == 401
        assert (await stage.get(path, token="headgate_x")).status == 401


async def test_a_limited_token_opens_no_resource_that_is_not_limited(shop: ApiStage, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    token = add_token(file, name="team", scope=TokenScope.OPERATE, expires=LATER, names=["totals"])
    stage = ApiStage(shop.tables, shop.clock, tokens_file=file, is_read_open=False)
    assert (await stage.request("GET", "/connectors/src/topics", token=token)).status == 403
    assert (await stage.request("PUT", "/connectors/src/topics/reset", token=token)).status == 403
