"""Reading tables for requests: one load for each version, bounded waiting, and errors that clients can act on."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.base.errors import PlatformError
from headgate.tables.reader import TableReader
from headgate.tables.table import WRITTEN_BY
from headgate.web.api.estate_tables import EstateLimits, EstateTables, LoadedEstate, TooBusyError
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import ROWS, TWO, use, write
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.stage import NOW_MS

# The first use of Delta tables in a process opens sockets for good: a fixture does so, because a test must not.
pytestmark = pytest.mark.usefixtures("shop_tables")


def write_graph(root: Path, *more: dict[str, Any]) -> None:
    for name in ("app_io", "applications"):
        write(root, name, ROWS[name])
    write(root, "lineage_edges", [*ROWS["lineage_edges"], *more])


class Stage(ApiStage):
    """Counts the loads; `gate` holds them back while it is cleared."""

    def __init__(self, root: Path, limits: EstateLimits | None = None) -> None:
        clock = FakeClock(TWO)
        super().__init__(EstateTables(root, clock, limits=limits or EstateLimits()), clock)
        self.loads = 0
        self.gate = threading.Event()
        self.gate.set()
        load = self.tables._estate

        def counted(*given: Any) -> LoadedEstate:
            self.loads += 1
            assert self.gate.wait(60)
            return load(*given)

        self.tables._estate = counted  # type: ignore[method-assign, assignment]

    async def topics(self) -> list[str]:
        return [row["name"] for row in (await self.json("topics"))["topics"]]

    async def topics_with(self, topic: str) -> list[str]:
        """The topics, when a load that is under way is done and this one is among them."""
        for _ in range(3_000):
            found = await self.topics()
            if topic in found:
                return found
            await asyncio.sleep(0.01)
        raise AssertionError(found)


async def test_many_requests_at_once_are_one_load(tmp_path: Path) -> None:
    write_graph(tmp_path)
    stage = Stage(tmp_path)
    found = await asyncio.gather(*(stage.topics() for _ in range(20)))
    assert (len({tuple(one) for one in found}), stage.loads) == (1, 1)
    await stage.tables.close()


async def test_while_a_newer_version_is_loaded_the_former_one_is_served(tmp_path: Path) -> None:
    write_graph(tmp_path)
    stage = Stage(tmp_path)
    before = await stage.get("topics")
    stage.gate.clear()
    write_graph(tmp_path, use("shop", "new-topic", "write", "client"))
    assert await stage.topics() == [row["name"] for row in before.json["topics"]]  # versions are not looked up yet
    stage.clock.now_ms += 1_000
    assert (await stage.get("topics", headers={"If-None-Match": before.headers["etag"]})).status == 304
    assert stage.loads <= 2
    stage.gate.set()
    assert "new-topic" in await stage.topics_with("new-topic")
    assert stage.loads == 2
    assert (await stage.get("topics", headers={"If-None-Match": before.headers["etag"]})).status == 200
    await stage.tables.close()


async def test_without_tables_the_answer_says_how_they_are_made(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    answer = await stage.get("graph")
    assert answer.status == 503
    assert answer.json["message"] == f"No table app_io yet: {WRITTEN_BY}"
    assert (await stage.json("health"))["tables"] == []
    write_graph(tmp_path)
    stage.clock.now_ms += 1_000
    assert "orders" in await stage.topics()
    await stage.tables.close()


async def test_several_clusters_need_a_parameter(tmp_path: Path) -> None:
    write_graph(tmp_path, use("shop", "other", "write", "client", cluster_id="c2"))
    stage = Stage(tmp_path)
    answer = await stage.get("topics")
    assert answer.status == 400
    assert answer.json["message"].endswith("'c1' and 'c2' among them: specify one with cluster=ID")
    found = await stage.json("topics", cluster="c2")
    assert [row["name"] for row in found["topics"]] == ["other"]
    await stage.tables.close()


async def test_a_table_that_cannot_be_read_is_503_and_its_path_is_only_in_the_log(
    tmp_path: Path, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_graph(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise PlatformError(f"{tmp_path}: the disk is away")

    monkeypatch.setattr(TableReader, "stream", fail)
    stage = Stage(tmp_path)
    answer = await stage.get("graph")
    assert (answer.status, str(tmp_path) in answer.body.decode()) == (503, False)
    assert "the disk is away" in logs[-1]["error"]
    assert (await stage.get("graph")).status == 503
    assert stage.loads == 1, "a failed load is not repeated at once"
    stage.clock.now_ms += 10_000
    monkeypatch.undo()
    assert (await stage.get("graph")).status == 200
    await stage.tables.close()


async def test_more_uses_than_fit_are_503(tmp_path: Path) -> None:
    write_graph(tmp_path)
    stage = Stage(tmp_path, EstateLimits(graph_edges=5))
    answer = await stage.get("graph")
    assert answer.status == 503
    assert "more than 5 uses of topics" in answer.json["message"]
    await stage.tables.close()


async def test_above_a_bound_waiting_requests_are_refused(tmp_path: Path) -> None:
    tables = EstateTables(tmp_path, FakeClock(NOW_MS), limits=EstateLimits(waiting=2))
    gate = threading.Event()
    waiting = [asyncio.ensure_future(tables.run(lambda: gate.wait(60))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TooBusyError):
        await tables.run(lambda: None)
    gate.set()
    assert await asyncio.gather(*waiting) == [True, True]
    assert await tables.run(lambda: 1) == 1
    await tables.close()


async def test_loads_that_wait_are_bounded_and_leave_other_requests_alone(tmp_path: Path) -> None:
    write_graph(tmp_path)
    stage = Stage(tmp_path, EstateLimits(loads=2))
    await stage.topics()
    stage.gate.clear()
    waiting = [asyncio.ensure_future(stage.get("topics", as_of=TWO + number)) for number in range(2)]
    while stage.tables.waiting_loads < 2 or stage.loads < 2:  # noqa: ASYNC110 - a thread counts them
        await asyncio.sleep(0.001)
    refused = await stage.get("topics", as_of=TWO + 9)
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert "orders" in await stage.topics()
    assert (await stage.get("search", q="orders")).status == 200
    stage.gate.set()
    assert [one.status for one in await asyncio.gather(*waiting)] == [200, 200]
    assert (await stage.get("topics", as_of=TWO + 9)).status == 200
    await stage.tables.close()


async def test_estates_of_other_times_are_kept_in_a_bounded_number(tmp_path: Path) -> None:
    write_graph(tmp_path)
    stage = Stage(tmp_path)
    await stage.topics()
    for number in range(EstateLimits().kept):
        assert (await stage.get("topics", as_of=TWO + number)).status == 200
    assert (await stage.get("topics", cluster="c9")).status == 200
    assert stage.tables.kept("estate") == EstateLimits().kept
    loads = stage.loads
    await stage.json("topics", as_of=TWO + number, limit=2)
    await stage.json("topics", limit=2)
    assert stage.loads == loads, "the last one and that of now are still there"
    await stage.tables.close()
