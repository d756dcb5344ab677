"""`/api/v1/topics`: lists in pages, owners of a topic, and what depends on it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headgate.lineage import questions
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.models import ImpactModel, TopicModel, TopicsModel
from headgate.web.api.topic_activity import TopicActivityModel
from headgate.web.tokens import TokenScope, add_token
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import DAY, HOUR, NOON, TWO
from tests.unit.web.api_stage import ApiStage

LATER = datetime.fromtimestamp(TWO / 1000 + 3600, UTC)
ALL = ["clicks", "dlq.orders", "large", "orders", "sessions", "totals"]


async def test_topics_are_listed_by_name_with_the_numbers_of_writers_and_readers(shop: ApiStage) -> None:
    found = TopicsModel.model_validate(await shop.json("topics"))
    assert [row.name for row in found.topics] == ALL
    assert (found.count, found.next) == (6, None)
    orders = found.topics[3]
    assert (orders.writers, orders.readers, orders.internal) == (2, 3, False)


async def test_pages_follow_each_other_until_the_last(shop: ApiStage) -> None:
    pages, after = [], ""
    while True:
        found = await shop.json("topics", limit=4, after=after)
        pages.append([row["name"] for row in found["topics"]])
        if found["next"] is None:
            break
        after = found["next"]
    assert pages == [ALL[:4], ALL[4:]]


async def test_topics_by_a_part_of_their_name(shop: ApiStage) -> None:
    found = await shop.json("topics", contains="ORDER")
    assert [row["name"] for row in found["topics"]] == ["dlq.orders", "orders"]
    assert (await shop.json("topics", after="zzz"))["topics"] == []


async def test_the_owners_of_a_topic(shop: ApiStage) -> None:
    found = TopicModel.model_validate(await shop.json("topics/orders"))
    assert [(one.kind, one.name) for one in found.writers] == [("client", "shop"), ("unattributed", "unknown")]
    assert [one.client_id for one in found.writers[0].clients] == ["shop-1", "shop-2"]
    assert {one.name for one in found.readers} == {"shop-app", "billing", "night-job"}
    assert found.unattributed_share == 0.25
    assert found.coverage == 0.95


async def test_the_impact_of_a_topic_in_both_directions(shop: ApiStage) -> None:
    down = ImpactModel.model_validate(await shop.json("topics/orders/impact"))
    assert [(node.kind, node.name, node.depth) for node in down.nodes] == [
        ("share_group", "billing", 1),
        ("spark", "night-job", 1),
        ("streams", "shop-app", 1),
        ("topic", "dlq.orders", 1),
        ("topic", "large", 1),
        ("topic", "totals", 1),
        ("consumer_group", "reports", 2),
    ]
    assert (down.topics, down.actors, down.depth, down.truncated) == (3, 4, 1, False)
    up = await shop.json("topics/totals/impact", direction="up")
    assert [node["name"] for node in up["nodes"]] == ["shop-app", "orders", "shop", "unknown"]
    cut = await shop.json("topics/orders/impact", limit=2)
    assert (len(cut["nodes"]), cut["topics"], cut["truncated"]) == (2, 3, True)


async def test_the_activity_of_a_topic_by_hour_and_actor(shop: ApiStage) -> None:
    found = TopicActivityModel.model_validate(await shop.json("topics/orders/activity", days=1))
    assert (found.until - found.since, len(found.written), found.hour_ms) == (DAY, 24, HOUR)
    assert (found.written[-2:], found.read[-2:], sum(found.written)) == ([500, 700], [900, 0], 1200)
    assert [(one.name, one.direction, one.bytes, one.hours[-2:]) for one in found.actors] == [
        ("shop", "write", 1200, [500, 700]),
        ("shop-app", "read", 900, [900, 0]),
    ]
    assert not found.truncated
    whole = await shop.json("topics/orders/activity", days=31, limit=1)
    assert (sum(whole["written"]), len(whole["actors"]), whole["truncated"]) == (1201, 1, True)
    assert (await shop.json("topics/clicks/activity"))["actors"] == []
    assert (await shop.get("topics/none/activity")).status == 404


async def test_an_actor_without_a_name_is_counted(shop: ApiStage, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    token = add_token(file, name="team", scope=TokenScope.READ, expires=LATER, names=["orders", "shop-app"])
    stage = ApiStage(shop.tables, shop.clock, tokens_file=file, is_read_open=False)
    found = (await stage.get("topics/orders/activity", token=token)).json
    assert [(one["name"], one["bytes"]) for one in found["actors"]] == [("shop-app", 900), (None, 1200)]


async def test_an_absent_topic_is_404_with_similar_names(shop: ApiStage) -> None:
    for path in ("topics/totls", "topics/totls/impact"):
        answer = await shop.get(path)
        assert answer.status == 404
        assert "similar names: 'totals'" in answer.json["message"]


@pytest.mark.parametrize("query", [{"limit": "0"}, {"limit": "1001"}, {"limit": "x"}, {"direction": "left"}])
async def test_wrong_parameters_are_400(shop: ApiStage, query: dict[str, Any]) -> None:
    assert (await shop.get("topics/orders/impact", **query)).status == 400


async def test_etags_of_topics(shop: ApiStage) -> None:
    for path in ("topics", "topics/orders", "topics/orders/impact", "health"):
        etag = (await shop.get(path)).headers["etag"]
        assert (await shop.get(path, headers={"If-None-Match": etag})).status == 304


async def test_the_owners_of_every_topic_are_those_of_the_command(shop: ApiStage) -> None:
    estate = shop.tables.open_estate(cluster=None, as_of_ms=None)
    for topic in ALL:
        assert await shop.json(f"topics/{topic}") == questions.owners(estate, topic, now_ms=TWO, limit=20)


async def test_coverage_is_that_of_the_hours_that_are_complete_when_it_is_asked_for(shop: ApiStage) -> None:
    clock = FakeClock(NOON + 30 * 60_000)
    stage = ApiStage(EstateTables(shop.tables._root, clock), clock)
    before = await stage.get("topics/orders")
    assert (before.json["seen_records"], before.json["hours"]) == (100, 1)
    clock.now_ms = TWO
    until = [await stage.get("topics/orders")]
    while until[-1].headers["etag"] == before.headers["etag"]:  # while the newer one is loaded
        until.append(await stage.get("topics/orders"))
    assert (until[-1].json["seen_records"], until[-1].json["hours"]) == (190, 2)
    await stage.tables.close()


async def test_a_limited_token_sees_its_topics_and_no_other_names(shop: ApiStage, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    token = add_token(file, name="team", scope=TokenScope.READ, expires=LATER, names=["orders", "tot?ls", "billing"])
    stage = ApiStage(shop.tables, shop.clock, tokens_file=file, is_read_open=False)
    listed = (await stage.get("topics", token=token)).json
    assert ([row["name"] for row in listed["topics"]], listed["count"]) == (["orders", "totals"], 2)
    topic = (await stage.get("topics/orders", token=token)).json
    assert [one["name"] for one in topic["writers"]] == [None, None]
    assert [one["clients"] for one in topic["writers"]] == [[], []]
    assert [one["name"] for one in topic["readers"]] == ["billing", None, None]
    impact = (await stage.get("topics/orders/impact", token=token)).json
    assert {node["name"] for node in impact["nodes"]} == {"billing", "totals", None}
    for path in ("topics/large", "topics/large/impact", "topics/nothing"):
        answer = await stage.get(path, token=token)
        assert answer.status == 404
        assert "similar" not in answer.json["message"]
