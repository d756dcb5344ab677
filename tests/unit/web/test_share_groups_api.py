"""`/api/v1/share-groups`: the state from the port, rates and events from tables, and each of them without the other."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headgate.facts import BreakerResumed, BreakerTripped, GroupConfigSet, GroupConfigUnset, GroupPaused, encode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.share_groups.model.group_configs import BREAKER_ENABLE
from headgate.share_groups.model.group_state import ShareGroupFact
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.share_group_models import ShareGroupModel, ShareGroupsModel
from headgate.web.share_states import ShareStateTopics, share_facts
from headgate.web.tokens import TokenScope, add_token
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import TWO
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.share_port import FakeShares

LATER = datetime.fromtimestamp(TWO / 1000 + 3600, UTC)


async def test_groups_that_are_seen_and_groups_that_are_configured(shop: ApiStage) -> None:
    found = ShareGroupsModel.model_validate(await shop.json("share-groups"))
    assert [(one.name, one.paused, one.tripped) for one in found.share_groups] == [
        ("billing", True, True),
        ("refunds", True, False),
    ]
    assert (found.count, found.next, found.problem) == (2, None, None)
    assert found.share_groups[1].pause_reasons[0].text == "maintenance <b>now</b>"


async def test_one_group_has_settings_rates_and_events(shop: ApiStage) -> None:
    found = ShareGroupModel.model_validate(await shop.json("share-groups/billing"))
    (reason,) = found.pause_reasons
    assert reason.code == "DLQ_CIRCUIT_BREAKER_TRIPPED"
    assert (found.generation, found.auto_resume_at, found.dlq_topic) == (4, TWO + 60_000, "dlq.orders")
    assert found.settings is not None
    assert (found.settings.threshold_percent, found.settings.breaker_enable) == (20, True)
    assert found.dlq_topic_shared_with == ["refunds"]
    assert [one.topic for one in found.reads] == ["orders"]
    (rate,) = found.rates
    assert (rate.minute, rate.processed, rate.dead_lettered, rate.dlq_rate) == (TWO - 360_000, 100, 20, 0.2)
    assert [(one.event, one.by) for one in found.events] == [("resumed", "User:ops"), ("tripped", None)]
    assert len((await shop.json("share-groups/billing", events=1, minutes=1440))["rates"]) == 2


async def test_a_change_is_there_at_once_and_has_another_etag(shop: ApiStage) -> None:
    port = FakeShares.of_the_shop()
    stage = ApiStage(shop.tables, shop.clock, share_port=port)
    before = await stage.get("share-groups")
    port.apply(BreakerResumed(group="billing", generation=4, at=TWO))
    after = await stage.get("share-groups", headers={"If-None-Match": before.headers["etag"]})
    assert (after.status, after.json["share_groups"][0]["paused"]) == (200, False)
    only = await stage.json("share-groups", paused="true")
    assert [one["name"] for one in only["share_groups"]] == ["refunds"]


async def test_pages_of_share_groups(shop: ApiStage) -> None:
    first = await shop.json("share-groups", limit=1)
    assert first["next"] == "billing"
    assert [one["name"] for one in (await shop.json("share-groups", after="billing"))["share_groups"]] == ["refunds"]
    assert (await shop.json("share-groups", contains="REF"))["count"] == 1


async def test_an_absent_group_is_404(shop: ApiStage) -> None:
    answer = await shop.get("share-groups/biling")
    assert answer.status == 404
    assert "similar names: 'billing'" in answer.json["message"]


async def test_without_tables_the_state_is_there(shop: ApiStage, tmp_path: Path) -> None:
    assert shop.tables is not None  # which has begun to use Delta tables
    clock = FakeClock(TWO)
    stage = ApiStage(EstateTables(tmp_path, clock), clock, share_port=FakeShares.of_the_shop())
    found = ShareGroupModel.model_validate(await stage.json("share-groups/refunds"))
    assert (found.paused, found.rates, found.events, found.reads) == (True, [], [], [])
    await stage.tables.close()


async def test_without_the_state_groups_are_listed_with_the_problem(shop: ApiStage) -> None:
    stage = ApiStage(shop.tables, shop.clock)
    found = ShareGroupsModel.model_validate(await stage.json("share-groups"))
    assert [(one.name, one.paused) for one in found.share_groups] == [("billing", None)]
    assert "share_groups.enable is false" in (found.problem or "")
    away = ApiStage(shop.tables, shop.clock, share_port=FakeShares(problem="headgate.state is away"))
    assert (await away.json("share-groups"))["problem"] == "headgate.state is away"
    assert (await away.json("health"))["problems"] == {"share_groups": "headgate.state is away"}


async def test_a_limited_token_sees_its_groups_and_no_other_names(shop: ApiStage, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    token = add_token(file, name="team", scope=TokenScope.READ, expires=LATER, names=["billing"])
    port = FakeShares.of_the_shop()
    stage = ApiStage(shop.tables, shop.clock, tokens_file=file, is_read_open=False, share_port=port)
    assert (await stage.get("share-groups", token=token)).json["count"] == 1
    found = await stage.get("share-groups/billing", token=token)
    assert (found.json["dlq_topic"], found.json["dlq_topic_hidden"]) == (None, True)
    assert found.json["dlq_topic_shared_with"] == [None]
    assert not any(name in found.body for name in (b"refunds", b"orders"))
    assert (await stage.get("share-groups/refunds", token=token)).status == 404


# --- the port on Kafka's topics, without Kafka


def record(fact: ShareGroupFact, offset: int = 0) -> ConsumedRecord:
    _, key, value = encode(fact)
    return ConsumedRecord(offset=offset, key=key, value=value)


TRIP = BreakerTripped(
    group="g",
    generation=2,
    resume_at=None,
    dlq_written=1,
    delivered=1,
    threshold_percent=20,
    window_ms=1000,
    at=1,
)
SET = GroupConfigSet(group="g", name=BREAKER_ENABLE, value="true", by="User:ops", at=1)
PAUSED = GroupPaused(group="g", reason="r", by="User:ops", at=1)


@pytest.fixture
def topics() -> ShareStateTopics:
    async def made() -> ShareStateTopics:
        return ShareStateTopics({"bootstrap.servers": "127.0.0.1:1"}, prefix="headgate.")

    return asyncio.run(made())


def test_facts_of_both_topics_make_the_state(topics: ShareStateTopics) -> None:
    topics.take("state", share_facts("state", [record(SET), record(PAUSED)]))
    topics.take("trips", share_facts("trips", [record(TRIP)]))
    state = topics.of("g")
    assert (state.settings.breaker_enable, state.is_tripped, state.pause) == (True, True, PAUSED)
    assert list(topics.groups()) == ["g"]
    unset = GroupConfigUnset(group="g", name=BREAKER_ENABLE)
    topics.take("state", share_facts("state", [record(unset)]))
    assert not topics.of("g").settings.breaker_enable


@pytest.mark.parametrize("lost", ["state", "trips"])
def test_a_topic_that_is_read_again_takes_nothing_from_the_other(topics: ShareStateTopics, lost: str) -> None:
    topics.take("state", share_facts("state", [record(SET), record(PAUSED)]))
    topics.take("trips", share_facts("trips", [record(TRIP)]))
    before = topics.changes
    topics.take(lost, None)
    state = topics.of("g")
    assert (state.is_tripped, state.pause is None) == (lost == "state", lost == "state")
    assert topics.changes > before


def test_other_records_are_passed_over() -> None:
    nonsense = ConsumedRecord(offset=0, key=b"x", value=json.dumps({}).encode())
    assert share_facts("state", [nonsense]) == []
