"""`/api/v1/graph/overlay`: states of share groups, the last lags of partitions, dead letters of an hour, open gaps."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.models import GraphOverlayModel
from headgate.web.tokens import TokenScope, add_token
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import NOON, TWO, Row, use, write, write_shop
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.share_port import FakeShares
from tests.unit.web.test_graph_api import LATER

MINUTE = 60_000


def lag(group: str, kind: str, topic: str, records: int | None, *, partition: int = 0, at: int = TWO) -> Row:
    return {"group": group, "kind": kind, "topic": topic, "partition": partition, "lag": records, "at": at}


def rate(group: str, minute: int, processed: int, dead_lettered: int) -> Row:
    return {
        "group": group,
        "topic": "orders",
        "minute": minute,
        "processed": processed,
        "dead_lettered": dead_lettered,
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("overlay")
    write_shop(found)
    write(
        found,
        "lineage_edges",
        [
            use("shop-app", "orders", "read"),
            use("billing", "orders", "read", "share_group"),
            use("reports", "totals", "read", "consumer_group"),
            use("archive", "totals", "read", "connector"),
        ],
    )
    write(
        found,
        "group_lags",
        [
            lag("billing", "share", "orders", 900, at=TWO - 5 * MINUTE),
            lag("billing", "share", "orders", 7, at=TWO - MINUTE),
            lag("billing", "share", "orders", 5, partition=1),
            lag("billing", "share", "orders", None, partition=2),
            lag("shop-app", "classic", "orders", 40),
            lag("connect-archive", "consumer", "totals", 3),
            lag("reports", "consumer", "totals", 99, at=NOON),
            lag("nobody", "consumer", "totals", 1),
        ],
    )
    write(
        found,
        "dlq_rates",
        [
            rate("billing", TWO - 2 * MINUTE, 100, 30),
            rate("billing", TWO - MINUTE, 50, 0),
            rate("billing", TWO - 61 * MINUTE, 500, 500),
        ],
    )
    return found


@pytest.fixture
def stage(root: Path) -> Iterator[ApiStage]:
    clock = FakeClock(TWO)
    tables = EstateTables(root, clock)
    yield ApiStage(tables, clock, share_port=FakeShares.of_the_shop())
    asyncio.run(tables.close())


def by_name(answer: Any) -> dict[str, Any]:
    return {one["name"]: one for one in answer["nodes"]}


async def test_figures_stand_at_the_nodes_of_the_map(stage: ApiStage) -> None:
    answer = await stage.json("graph/overlay")
    GraphOverlayModel.model_validate(answer)
    nodes = by_name(answer)
    # The newest lag of each partition; one that is unknown is none.
    assert (nodes["billing"]["kind"], nodes["billing"]["lag"]) == ("share_group", 12)
    assert (nodes["billing"]["processed"], nodes["billing"]["dead_lettered"]) == (150, 30)
    assert nodes["billing"]["state"] == "tripped"
    # A Streams application and a sink connector read as groups.
    assert (nodes["shop-app"]["kind"], nodes["shop-app"]["lag"], nodes["shop-app"]["gaps"]) == ("streams", 40, 1)
    assert (nodes["archive"]["kind"], nodes["archive"]["lag"]) == ("connector", 3)
    # A lag that was not written for more than an hour is of a group that is gone; a group off the map has no node.
    assert {"reports", "nobody"}.isdisjoint(nodes)
    assert {(one["name"], one["topic"], one["lag"]) for one in answer["uses"]} == {
        ("billing", "orders", 12),
        ("shop-app", "orders", 40),
        ("archive", "totals", 3),
    }
    assert answer["truncated"] is False


@pytest.mark.parametrize("as_of", ["2026-11-15T12:00:00Z", "1794744000000"])
async def test_figures_of_the_past_are_refused(stage: ApiStage, as_of: str) -> None:
    answer = await stage.request("GET", "/api/v1/graph/overlay", f"as_of={as_of}")
    assert (answer.status, answer.json["message"]) == (400, "as_of: Input should be 'now'")
    assert await stage.json("graph/overlay", as_of="now") == await stage.json("graph/overlay")


async def test_a_resume_changes_the_state_and_the_etag_at_once(stage: ApiStage) -> None:
    first = await stage.get("graph/overlay")
    etag = first.headers["etag"]
    assert (await stage.get("graph/overlay", headers={"if-none-match": etag})).status == 304
    assert isinstance(stage.share_port, FakeShares)
    stage.share_port.problem = "headgate.state has not been read to its end yet"
    second = await stage.get("graph/overlay", headers={"if-none-match": etag})
    assert second.status == 200
    assert by_name(second.json)["billing"]["state"] == "unknown"


async def test_a_limited_token_sees_figures_of_its_own_names_only(stage: ApiStage, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    token = add_token(tokens, name="team", scope=TokenScope.READ, expires=LATER, names=["billing"])
    limited = ApiStage(stage.tables, stage.clock, tokens_file=tokens, is_read_open=False, share_port=stage.share_port)
    assert (await limited.get("graph/overlay")).status == 401
    answer = await limited.get("graph/overlay", token=token)
    assert set(by_name(answer.json)) == {"billing"}
    assert answer.json["uses"] == []  # the name of its topic is not visible
    assert b"orders" not in answer.body


async def test_without_the_tables_of_lags_and_letters_there_are_states_only(tmp_path: Path) -> None:
    write(tmp_path, "lineage_edges", [use("billing", "orders", "read", "share_group")])
    for table in ("app_io", "applications"):
        write(tmp_path, table, [])
    tables = EstateTables(tmp_path, FakeClock(TWO))
    try:
        answer = await ApiStage(tables, FakeClock(TWO)).json("graph/overlay")
    finally:
        await tables.close()
    (node,) = answer["nodes"]
    assert (node["name"], node["state"], node["lag"], node["processed"]) == ("billing", "unknown", None, None)


async def test_more_rows_than_are_read_are_said(stage: ApiStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.web.api.graph_overlay._MOST_ROWS", 2)
    assert (await stage.json("graph/overlay"))["truncated"] is True
