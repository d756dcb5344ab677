"""The estate before there are tables, and what is newer than these: served from the topics, and marked as such."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headgate.facts import GroupConfigSet
from headgate.lineage.edge_periods import Edge
from headgate.lineage.estate_map import MapRow
from headgate.lineage.graph import LineageFlow
from headgate.share_groups.model.group_configs import DLQ_TOPIC
from headgate.web.api.estate_tables import EstateLimits, EstateTables
from headgate.web.estate_facts import EstateFacts, HourSum, UsedTopic
from headgate.web.estate_topics import EstateTopics
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import DAY, ROWS, TWO, write
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.share_port import FakeShares

# The first use of Delta tables in a process opens sockets for good: a fixture does so, because a test must not.
pytestmark = pytest.mark.usefixtures("shop_tables")


@dataclass
class FoldedTopics:
    """An `EstatePort` without Kafka: what a test has folded."""

    facts: EstateFacts = field(default_factory=lambda: EstateFacts(quiet_ms=7 * DAY))
    is_read: bool = True

    def version(self) -> int | None:
        return self.facts.changes if self.is_read else None

    def clusters(self) -> set[str]:
        return self.facts.clusters()

    def rows(self, cluster: str) -> tuple[list[MapRow], list[LineageFlow]]:
        return self.facts.rows(cluster, TWO)

    def use(self, actor: str, topic: str, direction: str, *, cluster: str = "c1", kind: str = "client") -> None:
        edge = Edge(cluster, kind, actor, topic, direction)
        self.facts.use(UsedTopic(edge, TWO - 1000, TWO - 500, HourSum(10, 1)))


def stage_of(root: Path, topics: FoldedTopics, limits: EstateLimits | None = None) -> ApiStage:
    clock = FakeClock(TWO)
    return ApiStage(EstateTables(root, clock, topics, limits=limits or EstateLimits()), clock)


async def edges_when(stage: ApiStage, reached: Callable[[set[tuple[str, str]]], bool]) -> set[tuple[str, str]]:
    """The edges as soon as a load that is under way has brought this."""
    for _ in range(3_000):
        found = await edges_of(stage)
        if reached(found):
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(found)


async def edges_of(stage: ApiStage, **query: Any) -> set[tuple[str, str]]:
    found = await stage.json("graph", **query)
    names = [node["name"] for node in found["nodes"]]
    return {(names[edge["from"]], names[edge["to"]]) for edge in found["edges"]}


async def test_without_tables_the_map_comes_from_the_topics_and_is_marked(tmp_path: Path) -> None:
    topics = FoldedTopics()
    topics.use("till", "orders", "write")
    stage = stage_of(tmp_path, topics)
    found = await stage.json("graph")
    assert (found["cluster"], found["provisional"]) == ("c1", True)
    assert await edges_of(stage) == {("till", "orders")}
    assert [row["name"] for row in (await stage.json("topics"))["topics"]] == ["orders"]
    topic = await stage.json("topics/orders")
    assert [(row["name"], row["clients"]) for row in topic["writers"]] == [("till", [])]
    assert topic["coverage"] is None
    await stage.tables.close()


async def test_another_use_is_another_version_of_the_map(tmp_path: Path) -> None:
    topics = FoldedTopics()
    topics.use("till", "orders", "write")
    stage = stage_of(tmp_path, topics)
    first = await stage.get("graph")
    topics.use("till", "orders", "write")
    assert (await stage.get("graph", headers={"if-none-match": first.headers["etag"]})).status == 304
    topics.use("billing", "orders", "read")
    await edges_when(stage, lambda edges: ("orders", "billing") in edges)
    await stage.tables.close()


async def test_before_the_topics_have_been_read_there_is_no_map(tmp_path: Path) -> None:
    topics = FoldedTopics(is_read=False)
    topics.use("till", "orders", "write")
    stage = stage_of(tmp_path, topics)
    assert (await stage.get("graph")).status == 503
    await stage.tables.close()


async def test_a_past_time_is_answered_from_tables_only(tmp_path: Path) -> None:
    topics = FoldedTopics()
    topics.use("till", "orders", "write")
    stage = stage_of(tmp_path, topics)
    assert (await stage.get("graph", as_of="2026-11-15T12:00:00Z")).status == 503
    await stage.tables.close()


async def test_several_clusters_in_the_topics_have_to_be_told_apart(tmp_path: Path) -> None:
    topics = FoldedTopics()
    topics.use("till", "orders", "write")
    topics.use("other", "orders", "write", cluster="c2")
    stage = stage_of(tmp_path, topics)
    assert (await stage.get("graph")).status == 400
    assert await edges_of(stage, cluster="c2") == {("other", "orders")}
    await stage.tables.close()


async def test_what_is_newer_than_the_tables_is_added_to_them(tmp_path: Path) -> None:
    for name in ("app_io", "applications", "lineage_edges"):
        write(tmp_path, name, ROWS[name])
    topics = FoldedTopics()
    topics.use("billing", "orders", "read", kind="share_group")  # the tables have it
    stage = stage_of(tmp_path, topics)
    found = await stage.json("graph", focus="orders")
    assert found["provisional"] is False
    before = await edges_of(stage)
    topics.use("till", "orders", "write")
    topics.use("elsewhere", "orders", "write", cluster="c2")
    now = await edges_when(stage, lambda edges: edges != before)
    assert now - before == {("till", "orders")}
    assert (await stage.json("graph"))["provisional"] is True
    billing = next(edge for edge in (await stage.json("graph", focus="billing"))["edges"] if edge["bytes_day"])
    assert billing["bytes_day"] == 1000  # as in the tables
    await stage.tables.close()


async def test_tables_that_are_large_are_served_alone(tmp_path: Path) -> None:
    for name in ("app_io", "applications", "lineage_edges"):
        write(tmp_path, name, ROWS[name])
    topics = FoldedTopics()
    topics.use("till", "orders", "write")
    stage = stage_of(tmp_path, topics, EstateLimits(newer_edges=5))
    assert ("till", "orders") in await edges_of(stage)  # their size is known from now on
    await edges_when(stage, lambda edges: ("till", "orders") not in edges)
    assert (await stage.json("graph"))["provisional"] is False
    await stage.tables.close()


async def test_dead_letter_topics_follow_the_state_of_share_groups() -> None:
    shares = FakeShares()
    clock = FakeClock(TWO)
    topics = EstateTopics({"bootstrap.servers": "127.0.0.1:1"}, prefix="h.", quiet_ms=DAY, clock=clock, shares=shares)
    assert topics.version() is None
    topics._activity.replayed.set()
    topics._topologies.replayed.set()
    edge = Edge("c1", "share_group", "billing", "orders", "read")
    topics.take_uses([UsedTopic(edge, TWO - 1, TWO, HourSum(0, None))])
    before = topics.version()
    shares.apply(GroupConfigSet(group="billing", name=DLQ_TOPIC, value="dlq.orders", by="User:ops", at=TWO))
    assert topics.version() != before
    assert [(row.topic, row.direction) for row in topics.rows("c1")[0]] == [("dlq.orders", "write"), ("orders", "read")]
