"""What Connect and Headgate keep in topics for themselves: internal on the map, and left out of it."""

from pathlib import Path
from typing import Any

import pytest

from headgate.config import load
from headgate.facts import ActivityObserved
from headgate.facts.observations import Actor
from headgate.facts.replays import PROGRESS_TOPIC
from headgate.web.api.estate_tables import EstateTables
from headgate.web.estate_facts import used_topic
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import TWO, use, write
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.test_default_cluster import FakeUpstream
from tests.unit.web.test_provisional_estate import FoldedTopics, edges_of

# The first use of Delta tables in a process opens sockets for good: a fixture does so, because a test must not.
pytestmark = pytest.mark.usefixtures("shop_tables")

OFFSETS = "connect-offsets"


def stage_of(root: Path, *, upstream: str, topics: FoldedTopics | None = None) -> ApiStage:
    clock = FakeClock(TWO)
    tables = EstateTables(root, clock, topics, upstream=FakeUpstream(upstream), connect_topics=[OFFSETS])
    return ApiStage(tables, clock)


def write_worker(root: Path) -> None:
    """In two clusters: the worker's client reads and writes its topic, and its connector writes another one."""
    for name in ("app_io", "applications"):
        write(root, name, [])
    rows: list[dict[str, Any]] = []
    for cluster in ("c1", "c2"):
        rows += [use("worker", OFFSETS, way, "client", cluster_id=cluster) for way in ("read", "write")]
        rows.append(use("source", "products", "write", "connector", cluster_id=cluster))
    write(root, "lineage_edges", rows)


async def test_topics_of_a_connect_cluster_are_internal_where_that_cluster_is(tmp_path: Path) -> None:
    write_worker(tmp_path)
    stage = stage_of(tmp_path, upstream="c1")
    assert await edges_of(stage, internal="false") == {("source", "products")}
    assert await edges_of(stage) == {("source", "products"), ("worker", OFFSETS), (OFFSETS, "worker")}
    listed = {row["name"]: row["internal"] for row in (await stage.json("topics"))["topics"]}
    assert listed == {OFFSETS: True, "products": False}
    elsewhere = await edges_of(stage, internal="false", cluster="c2")
    assert ("worker", OFFSETS) in elsewhere
    await stage.tables.close()


async def test_they_are_internal_before_there_are_tables(tmp_path: Path) -> None:
    topics = FoldedTopics()
    topics.use("worker", OFFSETS, "write")
    topics.use("till", "orders", "write")
    stage = stage_of(tmp_path, upstream="c1", topics=topics)
    assert await edges_of(stage, internal="false") == {("till", "orders")}
    await stage.tables.close()


def test_a_connect_cluster_has_three_topics_of_its_own() -> None:
    connect = load(None, {}, {"connect.a.status_topic": "s", "connect.a.config_topic": "c"}).connect["a"]
    assert connect.own_topics == ("s", "c", OFFSETS)


async def test_the_progress_of_replays_is_no_part_of_the_estate(tmp_path: Path) -> None:
    for name in ("app_io", "applications"):
        write(tmp_path, name, [])
    rows = [use("headgate", PROGRESS_TOPIC, way, "client") for way in ("read", "write")]
    letters = use("headgate", "orders", "write", "client")
    write(tmp_path, "lineage_edges", [*rows, letters, use("other", "headgate-replays", "write", "client")])
    stage = stage_of(tmp_path, upstream="c1")
    assert await edges_of(stage) == {("headgate", "orders"), ("other", "headgate-replays")}
    assert (await stage.get(f"topics/{PROGRESS_TOPIC}/impact")).status == 404
    await stage.tables.close()


@pytest.mark.parametrize(("topic", "is_use"), [(PROGRESS_TOPIC, False), ("orders", True)])
def test_nor_is_it_before_there_are_tables(topic: str, *, is_use: bool) -> None:
    fact = ActivityObserved(
        topic_id=None,
        principal=None,
        client_id="headgate",
        group=None,
        transactional_id=None,
        software=None,
        host=None,
        actor=Actor(kind="client", name="headgate", rule="client-id-and-principal", confidence="likely"),
        topic=topic,
        direction="write",
        since=TWO - 1_000,
        until=TWO,
        bytes=7,
        records=1,
        at=TWO,
        cluster="c1",
        writer="w",
        boot="b",
        seq=1,
    )
    assert (used_topic(fact) is not None) is is_use
