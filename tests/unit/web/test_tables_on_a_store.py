"""The web server on tables that are on an object store: the same answers, where they are, and how fresh."""

import asyncio
import time
from typing import Any

import pytest

from headgate.web.api import estate_tables
from headgate.web.api.estate_tables import EstateTables
from tests.support.clock import FakeClock
from tests.support.object_stores import SECRET, moto_server
from tests.unit.lineage.shop import ROWS, TWO, use, write
from tests.unit.web.api_stage import ApiStage

pytestmark = pytest.mark.object_store

GRAPH = ("app_io", "applications", "lineage_edges")


def test_the_graph_is_read_from_a_store_and_health_says_where_and_how_fresh_it_is() -> None:
    with moto_server() as store:
        root = store.new_location()
        for name in GRAPH:
            write(root, name, ROWS[name])
        health, before, after = asyncio.run(_ask(root))
    assert health["tables_path"] == str(root)
    assert SECRET not in str(health)
    tables = {one["name"]: one for one in health["tables"]}
    assert set(tables) == set(GRAPH)
    assert all(time.time() * 1000 - 600_000 < one["updated"] <= time.time() * 1000 for one in tables.values())
    assert {"orders"} <= before
    assert after - before == {"new-topic"}


async def _ask(root: Any) -> tuple[dict[str, Any], set[str], set[str]]:
    tables = EstateTables(root, clock := FakeClock(TWO))
    stage = ApiStage(tables, clock)
    health, before = await stage.json("health"), await _topics(stage)
    await asyncio.to_thread(
        write, root, "lineage_edges", [*ROWS["lineage_edges"], use("shop", "new-topic", "write", "client")]
    )
    clock.now_ms += round(estate_tables._LOOK_STORE_S * 1000)
    after = await _topics(stage)
    while after == before:  # the former version, until the newer one is loaded
        after = await _topics(stage)
    await tables.close()
    return health, before, after


async def _topics(stage: ApiStage) -> set[str]:
    return {row["name"] for row in (await stage.json("topics"))["topics"]}
