"""`/api/v1/changes`, `/api/v1/search`, `/api/v1/topologies:parse` and `/api/v1/health`."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from headgate.web.api import models
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.topologies import MAX_TEXT
from headgate.web.tokens import TokenScope, add_token
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import NOON, TWO, Row, write
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.shop_rows import NEW_TEXT, VERSIONS

LATER = datetime.fromtimestamp(TWO / 1000 + 3600, UTC)
PARSE = "/api/v1/topologies:parse"


async def test_changes_of_the_last_days_with_the_newest_first(shop: ApiStage) -> None:
    found = models.ChangesModel.model_validate(await shop.json("changes"))
    assert [one.event_id for one in found.changes] == ["e-3", "e-2", "e-1"]
    assert [one.detail for one in found.changes] == ["not JSON", {"added": ["count"]}, {}]
    assert not found.truncated


async def test_changes_by_time_subject_and_event(shop: ApiStage) -> None:
    assert [one["event_id"] for one in (await shop.json("changes", subject="billing"))["changes"]] == ["e-3"]
    assert [one["event_id"] for one in (await shop.json("changes", event="topology_added"))["changes"]] == ["e-1"]
    early = await shop.json("changes", since="2026-11-01T00:00:00Z", until=NOON)
    assert [one["event_id"] for one in early["changes"]] == ["e-1", "e-4"]
    cut = await shop.json("changes", limit=1)
    assert ([one["event_id"] for one in cut["changes"]], cut["truncated"]) == (["e-3"], True)
    assert (await shop.get("changes", since="never")).status == 400


async def test_a_search_has_the_nearest_names_first(shop: ApiStage) -> None:
    found = models.SearchModel.model_validate(await shop.json("search", q="SHOP"))
    assert [(one.kind, one.name) for one in found.results] == [("client", "shop"), ("streams", "shop-app")]
    cut = await shop.json("search", q="o", limit=2)
    assert (len(cut["results"]), cut["count"] > 2) == (2, True)
    assert (await shop.json("search", q="no such name")) == {"results": [], "count": 0}
    for wrong in ({"q": ""}, {}, {"q": "x" * 1001}, {"q": "x", "limit": "101"}):
        assert (await shop.get("search", **wrong)).status == 400  # type: ignore[arg-type]


async def test_a_limited_token_finds_its_names_only(shop: ApiStage, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    token = add_token(file, name="team", scope=TokenScope.READ, expires=LATER, names=["shop-app"])
    stage = ApiStage(shop.tables, shop.clock, tokens_file=file, is_read_open=False)
    found = (await stage.get("search", token=token, q="o")).json
    assert found == {"results": [{"kind": "streams", "name": "shop-app"}], "count": 1}
    changes = (await stage.get("changes", token=token)).json["changes"]
    assert [(one["subject"], one["detail"]) for one in changes] == [("shop-app", None), ("shop-app", None)]


async def test_a_pasted_topology_is_parsed(shop: ApiStage) -> None:
    answer = await shop.request("POST", PARSE, body=NEW_TEXT.encode())
    found = models.ParsedModel.model_validate(answer.json)
    assert found.hash == VERSIONS[1]["hash"]
    assert [part["id"] for part in found.description["subtopologies"]] == ["0", "1"]
    assert found.findings == []
    flawed = NEW_TEXT.replace("--> sessions-out", "--> nowhere")
    assert (await shop.request("POST", PARSE, body=flawed.encode())).json["findings"][0]["flaw"] == "dangling_successor"


async def test_a_text_that_is_no_topology_is_400_with_the_place(shop: ApiStage) -> None:
    answer = await shop.request("POST", PARSE, body=b"Topologies:\nSub-topology: 0\nnonsense")
    assert answer.status == 400
    assert answer.json["message"].startswith("Line 3, column 1: ")
    for body in (b"", b"\xff\xfe", b"<script>"):
        assert (await shop.request("POST", PARSE, body=body)).status == 400


async def test_a_text_that_is_too_large_is_413_before_it_is_read_whole(shop: ApiStage) -> None:
    answer = await shop.request("POST", PARSE, body=b"x" * (MAX_TEXT + 1))
    assert answer.status == 413
    assert "1,048,576 bytes" in answer.json["message"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_parsing_is_a_post(shop: ApiStage, method: str) -> None:
    assert (await shop.request(method, PARSE)).status == 405


async def test_health_has_the_tables_and_the_last_run_of_each_query(shop: ApiStage) -> None:
    found = models.HealthModel.model_validate(await shop.json("health"))
    assert {"app_io", "changes", "lineage_edges"} <= {one.name for one in found.tables}
    assert [(one.query, one.state, one.lag) for one in found.pipeline] == [("facts", "running", 3)]
    assert (found.ready, found.problems) == (True, {})
    assert found.tables_path == str(shop.tables.root)
    assert found.rejected is not None
    assert (found.rejected.count, [one.offset for one in found.rejected.facts]) == (30, list(range(29, 9, -1)))


async def test_health_has_the_newest_of_many_rejected_facts_and_runs(tmp_path: Path) -> None:
    """Tables are read in the order of their keys, in which the newest may be the last."""
    rejected: list[Row] = [
        {"topic": "headgate.activity", "offset": number, "at": NOON + number, "reason": "no JSON"}
        for number in range(1_200)
    ]
    runs: list[Row] = [
        {"run_id": f"r-{number:05}", "query": "facts", "state": "stopped", "started_at": NOON + number, "at": TWO}
        for number in range(10_100)
    ]
    write(tmp_path, "rejected_facts", rejected)
    write(tmp_path, "pipeline_runs", runs)
    tables = EstateTables(tmp_path, FakeClock(TWO))
    found = models.HealthModel.model_validate(await ApiStage(tables, FakeClock(TWO)).json("health"))
    await tables.close()
    assert found.rejected is not None
    assert [one.offset for one in found.rejected.facts] == list(range(1_199, 1_179, -1))
    assert (found.rejected.count, found.rejected.more) == (1_000, True)
    assert [one.started_at for one in found.pipeline] == [NOON + 10_099]


async def test_a_token_with_names_gets_neither_rejected_facts_nor_the_folder(shop: ApiStage, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    token = add_token(file, name="team", scope=TokenScope.READ, expires=LATER, names=["orders"])
    stage = ApiStage(shop.tables, shop.clock, tokens_file=file, is_read_open=False)
    found = models.HealthModel.model_validate((await stage.get("health", token=token)).json)
    assert (found.rejected, found.tables_path) == (None, None)


async def test_workers_of_gateways_by_what_they_reported(shop: ApiStage) -> None:
    found = models.WorkersModel.model_validate(await shop.json("health/workers"))
    assert [(one.worker, one.last_seen, one.starts) for one in found.workers] == [("gw-a/0", TWO - 60_000, 2)]
    assert not found.truncated
