"""Tables with the facts of two clusters: a request that names none is about the cluster of this server."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headgate.lineage.edge_periods import Edge
from headgate.web.api.estate_tables import EstateTables
from headgate.web.estate_facts import HourSum, UsedTopic
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import ROWS, TWO, use, write
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.shop_rows import EXTRA
from tests.unit.web.test_provisional_estate import FoldedTopics

# The first use of Delta tables in a process opens sockets for good: a fixture does so, because a test must not.
pytestmark = pytest.mark.usefixtures("shop_tables")

MINUTE = 60_000


@dataclass
class FakeUpstream:
    """The cluster that this server is connected to; None before it has answered."""

    cluster: str | None = "c2"


def rate(cluster: str, minute: int, processed: int) -> dict[str, Any]:
    known = {"cluster_id": cluster, "group": "billing", "topic_id": "t", "topic": "orders", "partition": 0}
    return known | {"minute": minute, "processed": processed, "dead_lettered": 1}


@pytest.fixture
def upstream() -> FakeUpstream:
    return FakeUpstream()


@pytest.fixture
def stage(tmp_path: Path, upstream: FakeUpstream) -> Iterator[ApiStage]:
    for name in ("app_io", "applications"):
        write(tmp_path, name, ROWS[name])
    again = use("till", "again", "write", "client", cluster_id="c2")
    reads = use("billing", "again", "read", "share_group", cluster_id="c2")
    write(tmp_path, "lineage_edges", [*ROWS["lineage_edges"], again, reads])
    write(tmp_path, "dlq_rates", [rate("c1", TWO - MINUTE, 100), rate("c2", TWO - MINUTE, 10)])
    clock = FakeClock(TWO)
    made = ApiStage(EstateTables(tmp_path, clock, upstream=upstream), clock)
    yield made
    asyncio.run(made.tables.close())


async def topics_of(stage: ApiStage, **query: Any) -> list[str]:
    return [row["name"] for row in (await stage.json("topics", **query))["topics"]]


async def test_a_request_that_names_no_cluster_is_about_the_one_of_the_server(stage: ApiStage) -> None:
    assert await topics_of(stage) == ["again"]
    assert (await stage.json("graph"))["cluster"] == "c2"
    assert (await stage.json("graph/overlay"))["cluster"] == "c2"
    assert (await stage.json("graph", as_of=str(TWO - MINUTE)))["cluster"] == "c2"
    assert "orders" in await topics_of(stage, cluster="c1")


async def test_every_resource_that_takes_a_cluster_works_without_it(stage: ApiStage) -> None:
    taken = [
        path.removeprefix("/api/v1/")
        for path, operations in (await stage.json("openapi.json"))["paths"].items()
        if any(one["name"] == "cluster" for one in operations.get("get", {}).get("parameters", ()))
        and path != "/api/v1/connectors"  # a cluster of Connect
    ]
    assert len(taken) > 15
    parameters: dict[str, dict[str, Any]] = {"dead-letters": {"group": "billing"}, "search": {"q": "again"}}
    for path in taken:
        answer = await stage.get(path.replace("{name}", "again"), **parameters.get(path, {}))
        assert answer.status != 400, (path, answer.body)


async def test_numbers_of_a_group_are_those_of_one_cluster(stage: ApiStage) -> None:
    rates = (await stage.json("share-groups/billing"))["rates"]
    assert [row["processed"] for row in rates] == [10]


async def test_a_table_without_the_servers_cluster_is_empty_and_not_that_of_another(
    stage: ApiStage, tmp_path: Path
) -> None:
    write(tmp_path, "dead_letter_clusters", EXTRA["dead_letter_clusters"])  # of c1
    assert (await stage.json("clusters"))["clusters"] == []
    assert (await stage.json("clusters", cluster="c1"))["clusters"] != []


async def test_before_the_upstream_has_answered_several_clusters_are_503_with_a_hint(
    stage: ApiStage, upstream: FakeUpstream
) -> None:
    upstream.cluster = None
    answer = await stage.get("topics")
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert "specify one with cluster=ID" in answer.json["message"]
    assert await topics_of(stage, cluster="c2") == ["again"]
    upstream.cluster = "c2"
    assert await topics_of(stage) == ["again"]


async def test_tables_without_the_cluster_of_the_server_need_a_parameter(
    stage: ApiStage, upstream: FakeUpstream
) -> None:
    upstream.cluster = "c3"
    answer = await stage.get("topics")
    assert answer.status == 400
    assert answer.json["message"].endswith("'c1' and 'c2' among them: specify one with cluster=ID")


async def test_a_cluster_that_was_created_again_is_shown_as_soon_as_the_tables_have_it(tmp_path: Path) -> None:
    for name in ("app_io", "applications", "lineage_edges"):
        write(tmp_path, name, ROWS[name])
    clock = FakeClock(TWO)
    stage = ApiStage(EstateTables(tmp_path, clock, upstream=FakeUpstream()), clock)
    before = await stage.get("topics")
    assert "orders" in [row["name"] for row in before.json["topics"]]
    write(tmp_path, "lineage_edges", [*ROWS["lineage_edges"], use("till", "again", "write", "client", cluster_id="c2")])
    clock.now_ms += 1_000
    assert await topics_of(stage) == ["again"]
    await stage.tables.close()


async def test_a_cluster_that_was_created_again_is_shown_as_soon_as_the_topics_have_it(tmp_path: Path) -> None:
    for name in ("app_io", "applications", "lineage_edges"):
        write(tmp_path, name, ROWS[name])
    clock, topics = FakeClock(TWO), FoldedTopics()
    stage = ApiStage(EstateTables(tmp_path, clock, topics, upstream=FakeUpstream()), clock)
    assert "orders" in await topics_of(stage)
    topics.facts.use(UsedTopic(Edge("c2", "client", "till", "again", "write"), TWO - 2, TWO - 1, HourSum(10, 1)))
    assert await topics_of(stage) == ["again"]
    assert (await stage.json("graph"))["provisional"] is True
    await stage.tables.close()


async def test_an_answer_of_another_cluster_has_another_etag(
    stage: ApiStage, upstream: FakeUpstream, tmp_path: Path
) -> None:
    write(tmp_path, "dead_letter_clusters", EXTRA["dead_letter_clusters"])  # of c1: no question which
    upstream.cluster = None
    before = await stage.get("clusters")
    assert before.json["clusters"] != []
    upstream.cluster = "c2"
    after = await stage.get("clusters", headers={"if-none-match": before.headers["etag"]})
    assert (after.status, after.json["clusters"]) == (200, [])
