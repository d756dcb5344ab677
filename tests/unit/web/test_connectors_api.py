"""`/api/v1/connectors`: what Connect records beside what was seen on the wire, with and without tables."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headgate.web.api.connectors import ConnectorModel, ConnectorsModel
from headgate.web.api.estate_tables import EstateTables
from headgate.web.tokens import TokenScope, add_token
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import TWO, use, write
from tests.unit.web.stage import NOW_MS, Stage

PATH = "/api/v1/connectors"
LATER = datetime.fromtimestamp(NOW_MS / 1000 + 3600, UTC)


@pytest.fixture
def stage() -> Stage:
    found = Stage()
    found.main.use("src", "b", "a")
    found.other.use("src", "c")
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Written before the event loop runs: the library that writes opens sockets of its own, once."""
    edges = [use("src", "a", "write", "connector"), use("old", "z", "read", "connector")]
    for name, rows in {"lineage_edges": edges, "app_io": [], "applications": []}.items():
        write(tmp_path, name, rows)
    return tmp_path


async def connectors(stage: Stage, query: str = "") -> ConnectorsModel:
    answer = await stage.call("GET", PATH, query=query)
    assert answer.status == 200, answer.body
    return ConnectorsModel.model_validate(answer.json)


def known(found: ConnectorsModel) -> list[tuple[Any, ...]]:
    return [(row.cluster, row.connector, row.connect, row.wire) for row in found.connectors]


async def test_both_views_of_every_connector(stage: Stage) -> None:
    stage.wire.use("src", "a")
    stage.wire.use("seen", "x")
    found = await connectors(stage)
    assert known(found) == [
        ("main", "src", ["a", "b"], ["a"]),
        ("other", "src", ["c"], ["a"]),
        (None, "seen", None, ["x"]),
    ]
    assert (found.truncated, found.problems) == (False, {})
    assert [(row.tracking, row.reset_allowed, row.reads_count) for row in found.connectors] == [
        (True, True, None),
        (True, True, None),
        (None, False, None),
    ]


async def test_one_connector_of_one_cluster(stage: Stage) -> None:
    assert known(await connectors(stage, "name=src&cluster=other")) == [("other", "src", ["c"], [])]
    assert [row.cluster for row in (await connectors(stage, "name=new")).connectors] == ["main", "other"]
    assert (await stage.call("GET", PATH, query="cluster=unknown")).status == 404


async def test_unknown_topics_are_null_and_the_problems_are_named(stage: Stage) -> None:
    stage.wire.problem = "the topic is away"
    stage.main.is_ready, stage.main.problem = False, "not read yet"
    found = await connectors(stage, "name=src&cluster=main")
    assert known(found) == [("main", "src", None, None)]
    assert found.problems == {"connect.main": "not read yet", "activity": "the topic is away"}
    assert [(one.name, one.problem) for one in found.clusters] == [("main", "not read yet")]
    health = await stage.call("GET", "/api/v1/health")
    assert health.json["ready"] is False
    assert health.json["problems"] == found.problems


async def test_without_activity_and_clusters_the_list_is_empty(stage: Stage) -> None:
    stage.wire, stage.has_clusters = None, False
    found = await connectors(stage)
    assert (found.connectors, found.clusters, found.problems) == ([], [], {})
    assert known(await connectors(stage, "name=src")) == [(None, "src", None, None)]


async def test_where_tracking_is_off_or_a_reset_is_not_allowed_the_answer_says_so(stage: Stage) -> None:
    stage.tracking = False
    found = await connectors(stage)
    assert [(one.name, one.tracking, one.reset_allowed) for one in found.clusters] == [
        ("main", False, False),
        ("other", True, True),
    ]
    first = (await connectors(stage, "name=src")).connectors[0]
    assert (first.tracking, first.connect) == (False, None)
    stage.tracking, stage.allow_reset = True, False
    assert not (await connectors(stage)).connectors[0].reset_allowed


async def test_one_connector_with_what_it_reads_and_writes(stage: Stage, root: Path) -> None:
    stage.tables = EstateTables(root, FakeClock(TWO))
    stage.wire.use("src", "a", "d")
    answer = await stage.call("GET", f"{PATH}/src")
    found = ConnectorModel.model_validate(answer.json)
    assert [(row.cluster, row.connect, row.wire) for row in found.rows] == [
        ("main", ["a", "b"], ["a", "d"]),
        ("other", ["c"], ["a", "d"]),
    ]
    assert found.writes is not None
    assert [(row.topic, row.bytes_day) for row in found.writes] == [("a", 1000)]
    # One that was seen before this process began to read.
    listed = await connectors(stage)
    assert [(row.connector, row.reads_count, row.last_seen) for row in listed.connectors if row.cluster is None] == [
        ("old", 1, TWO)
    ]
    assert (await stage.call("GET", f"{PATH}/old")).status == 200
    again = await stage.call("GET", f"{PATH}/src", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    await stage.tables.close()


async def test_a_connector_that_is_not_known_is_404(stage: Stage) -> None:
    assert (await stage.call("GET", f"{PATH}/none")).status == 404
    without_tables = ConnectorModel.model_validate((await stage.call("GET", f"{PATH}/src")).json)
    assert (without_tables.reads, without_tables.writes) == (None, None)


async def test_tables_that_cannot_be_read_leave_the_rest(stage: Stage, root: Path) -> None:
    for file in (root / "lineage_edges" / "_delta_log").glob("*.json"):
        file.write_text("no JSON")
    stage.tables = EstateTables(root, FakeClock(TWO))
    assert len((await connectors(stage)).connectors) == 2
    await stage.tables.close()


async def test_a_token_with_names_sees_its_own_connectors_and_topics(stage: Stage, tmp_path: Path) -> None:
    stage.tokens_file, stage.is_read_open = tmp_path / "tokens.toml", False
    token = add_token(stage.tokens_file, name="team", scope=TokenScope.READ, expires=LATER, names=["src", "a"])
    stage.main.use("secret", "s")
    headers = {"authorization": f"Bearer {token}"}
    answer = await stage.call("GET", PATH, headers=headers)
    found = ConnectorsModel.model_validate(answer.json)
    assert [(row.connector, row.connect, row.hidden_topics) for row in found.connectors] == [
        ("src", ["a"], 1),
        ("src", [], 1),
    ]
    assert b"secret" not in answer.body
    for path, query in ((f"{PATH}/secret", ""), (PATH, "name=secret")):
        assert (await stage.call("GET", path, query=query, headers=headers)).status == 404
