"""`/api/v1/clusters` and `/api/v1/dead-letters`."""

from datetime import UTC, datetime
from pathlib import Path

from headgate.web.api.dead_letter_models import DeadLetterClustersModel, DeadLettersModel
from headgate.web.api.episode_points import counted, span_of
from headgate.web.api.estate_tables import EstateTables
from headgate.web.tokens import TokenScope, add_token
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import TWO
from tests.unit.web.api_stage import ApiStage

LATER = datetime.fromtimestamp(TWO / 1000 + 3600, UTC)


async def test_episodes_with_the_newest_first(shop: ApiStage) -> None:
    found = DeadLetterClustersModel.model_validate(await shop.json("clusters"))
    assert [(one.group, one.verdict) for one in found.clusters] == [("billing", "content"), ("other", "poison")]
    assert (found.clusters[0].evidence, found.clusters[0].feature) == ({"recall": 1.0}, "schema_id=7")
    cut = await shop.json("clusters", limit=1)
    assert (len(cut["clusters"]), cut["truncated"]) == (1, True)


async def test_an_episode_has_the_dead_letters_of_its_minutes_and_of_five_around_it(shop: ApiStage) -> None:
    first, other = (await shop.json("clusters"))["clusters"]
    began = TWO - 6 * 60_000
    assert (first["points_from"], first["points_ms"]) == (began - 5 * 60_000, 60_000)
    # It lasts for a minute, and both partitions had ten in its first one.
    assert first["points"] == [0, 0, 0, 0, 0, 20, 0, 0, 0, 0, 0]
    assert (other["points"], other["points_from"], other["points_ms"]) == ([], None, None)


def test_a_long_episode_has_at_most_sixty_points() -> None:
    day = 24 * 3_600_000
    span = span_of({"group": "g", "first_at": TWO, "last_at": TWO + day, "ended_at": None})
    assert (span.points, span.step_ms) == (58, 25 * 60_000)
    assert span.until_ms >= TWO + day
    points = counted(span, [(TWO + minute * 60_000, 2) for minute in range(24 * 60)])
    assert (len(points), sum(points)) == (58, 24 * 60 * 2)


async def test_episodes_of_a_group_and_since_a_time(shop: ApiStage) -> None:
    assert [one["id"] for one in (await shop.json("clusters", group="other"))["clusters"]] == ["0a1b"]
    recent = await shop.json("clusters", since=TWO - 600_000)
    assert [one["group"] for one in recent["clusters"]] == ["billing"]
    assert (await shop.get("clusters", since="never")).status == 400


async def test_dead_letters_of_a_group_the_newest_first_without_withdrawn_ones(shop: ApiStage) -> None:
    found = DeadLettersModel.model_validate(await shop.json("dead-letters", group="billing"))
    assert [one.offset for one in found.letters] == [10, 8, 7]
    assert (found.count, found.truncated) == (3, False)
    cut = await shop.json("dead-letters", group="billing", limit=1)
    assert ([one["offset"] for one in cut["letters"]], cut["count"], cut["truncated"]) == ([10], 3, True)


async def test_how_many_records_can_be_had_and_expire_within_a_day_is_that_of_all_of_them(shop: ApiStage) -> None:
    found = DeadLettersModel.model_validate(await shop.json("dead-letters", group="billing", limit=1))
    assert found.records.model_dump() == {
        "letters": 3,
        "readable": 3,
        "gone": 0,
        "unknown": 0,
        "unplannable": 0,
        "problems": 0,
        "expire_soon": 2,
        "next_expiry": TWO + 3_600_000,
    }
    tables = EstateTables(shop.tables.root, clock := FakeClock(TWO + 3_600_000))
    later = await ApiStage(tables, clock).json("dead-letters", group="billing")
    await tables.close()
    assert (later["records"]["gone"], later["records"]["next_expiry"]) == (1, TWO + 7_200_000)


async def test_dead_letters_of_an_episode_and_of_a_topic(shop: ApiStage) -> None:
    of_episode = await shop.json("dead-letters", group="billing", episode="5f1c0d2a9b3e")
    assert [one["offset"] for one in of_episode["letters"]] == [8, 7]
    of_topic = await shop.json("dead-letters", group="billing", topic="orders")
    assert [one["offset"] for one in of_topic["letters"]] == [10, 7]
    assert (await shop.json("dead-letters", group="nobody"))["count"] == 0
    assert (await shop.get("dead-letters")).status == 400


async def test_a_limited_token_sees_its_groups_and_topics_and_no_evidence(shop: ApiStage, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    token = add_token(file, name="team", scope=TokenScope.READ, expires=LATER, names=["billing", "orders"])
    stage = ApiStage(shop.tables, shop.clock, tokens_file=file, is_read_open=False)
    [cluster] = (await stage.get("clusters", token=token)).json["clusters"]
    assert (cluster["group"], cluster["topics"]) == ("billing", ["orders"])
    assert (cluster["evidence"], cluster["feature"]) == (None, None)
    letters = (await stage.get("dead-letters", token=token, group="billing")).json
    assert ([one["offset"] for one in letters["letters"]], letters["count"]) == ([10, 7], 2)
    assert {one["dlq_topic"] for one in letters["letters"]} == {None}
    assert (await stage.get("dead-letters", token=token, group="other")).json["letters"] == []
    hidden = (await shop.json("dead-letters", group="billing", topic="secret"))["count"]
    assert (hidden, (await stage.get("dead-letters", token=token, group="billing", topic="secret")).json["count"]) == (
        1,
        0,
    )
