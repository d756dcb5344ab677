"""`/api/v1/attention`: what needs attention, worst first, and for whom."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headgate.web.api import attention_facts
from headgate.web.api.attention_models import AttentionItemModel, AttentionModel
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.models import ApplicationModel
from headgate.web.tokens import TokenScope, add_token
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import DAY, HOUR, TWO, Row, cause, gap, use, write
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.share_port import FakeShares

MINUTE = 60_000
LATER = datetime.fromtimestamp(TWO / 1000 + 3600, UTC)
NOISE = {"group": "quiet", "topic": "orders", "processed": 50, "dead_lettered": 9}


def lag(group: str, minutes_ago: int, records: int | None, partition: int = 0, kind: str = "consumer") -> Row:
    known: Row = {"group": group, "topic": "orders", "partition": partition, "kind": kind}
    return known | {"lag": records, "at": TWO - minutes_ago * MINUTE}


def mismatch_event(number: int, minutes_ago: int, detail: Any) -> Row:
    known: Row = {"event_id": f"m-{number}", "event": "topology_mismatch", "subject_kind": "application"}
    return known | {"subject": "shop-app", "at": TWO - minutes_ago * MINUTE, "detail": json.dumps(detail)}


SIDES = [
    {"fingerprint": "aa", "refused": False, "member_count": 2, "members": [{"member": "m-1", "host": "10.0.0.7"}]},
    {"fingerprint": "bb", "refused": True, "member_count": 1, "members": [{"member": "m-2", "host": None}, "no"]},
]
OPEN = {"state": "open", "kind": "refused", "topology_count": 2, "topologies": SIDES}
TABLES: dict[str, list[Row]] = {
    "lineage_edges": [use("shop-app", "orders", "read"), use("billing", "orders", "read", "share_group")],
    "app_io": [],
    "applications": [],
    "dlq_rates": [
        *({"group": "shipping", "topic": "orders", "minute": TWO - m * MINUTE, "dead_lettered": 5} for m in (3, 8)),
        {"group": "shipping", "topic": "orders", "minute": TWO - 90 * MINUTE, "dead_lettered": 4},
        {"group": "billing", "topic": "orders", "minute": TWO - 5 * MINUTE, "dead_lettered": 30, "processed": 60},
        NOISE | {"minute": TWO},
    ],
    "group_lags": [
        lag("reports", 80, 1_000),
        lag("reports", 20, 1_000),
        lag("reports", 10, 2_500),
        lag("reports", 1, None),
        lag("reports", 70, 400, 1),
        lag("reports", 5, 800, 1),
        lag("steady", 90, 9_000),
        lag("steady", 1, 9_900),
        lag("billing", 40, 0, kind="share"),
        lag("billing", 1, 90_000, kind="share"),
    ],
    "lineage_gaps": [
        gap("declared_silent", "shop-app", "large", "write", opened_at=TWO - HOUR),
        gap("used_undeclared", "shop-app", "audit", "read", opened_at=TWO - 2 * HOUR),
        gap("declared_silent", "shop-app", "old", "write", opened_at=TWO - 3 * DAY),
        gap("declared_silent", "shop-app", "gone", "write", opened_at=TWO - HOUR, state="closed"),
        gap("mismatch", "shop-app", "", "", opened_at=TWO - 30 * MINUTE, detail='{"kind":"assignment"}'),
    ],
    "changes": [
        {"event_id": "c-1", "event": "topology_changed", "subject_kind": "application", "subject": "shop-app"}
        | {"at": TWO - 6 * MINUTE, "detail": "{}"},
        {
            "event_id": "c-2",
            "event": "tripped",
            "subject_kind": "share_group",
            "subject": "refunds",
            "at": TWO - MINUTE,
        },
        mismatch_event(1, 30, OPEN),
        mismatch_event(2, 20, OPEN | {"topology_count": 3, "topologies": "broken"}),
        mismatch_event(3, 10, OPEN),
    ],
    "breaker_causes": [
        cause("t1", 2, "config", subject="billing", what="config_changed", tripped_at=TWO - 300_000, at=TWO - HOUR),
        cause("t1", 1, "new_producer", topic="orders", tripped_at=TWO - 300_000, at=TWO - HOUR),
        cause("t0", 1, "member", what="joined", tripped_at=TWO - DAY),
    ],
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiStage]:
    root = tmp_path_factory.mktemp("attention")
    for name, rows in TABLES.items():
        write(root, name, rows)
    tokens = root / "tokens.toml"
    clock = FakeClock(TWO)
    tables = EstateTables(root, clock)
    yield ApiStage(tables, clock, tokens_file=tokens, share_port=FakeShares.of_the_shop())
    asyncio.run(tables.close())


async def attention(stage: ApiStage, **query: Any) -> AttentionModel:
    return AttentionModel.model_validate(await stage.json("attention", **query))


def one(found: AttentionModel, kind: str) -> AttentionItemModel:
    (item,) = (item for item in found.items if item.kind == kind)
    return item


async def test_worst_first_and_stopped_before_all_else(stage: ApiStage) -> None:
    found = await attention(stage)
    assert [(item.kind, item.state, item.subject) for item in found.items] == [
        ("paused", "stopped", "refunds"),
        ("paused", "stopped", "billing"),
        ("dead_letters", "attention", "shipping"),
        ("mismatch", "attention", "shop-app"),
        ("lag", "attention", "reports"),
        ("gaps", "attention", "shop-app"),
    ]
    assert not found.truncated
    cut = await attention(stage, limit=2)
    assert (len(cut.items), cut.truncated, cut.counts) == (2, True, found.counts)


async def test_a_tripped_group_has_its_rate_and_the_causes_of_this_trip(stage: ApiStage) -> None:
    refunds, billing = (await attention(stage)).items[:2]
    assert billing.tripped
    assert billing.since == TWO - 300_000
    assert [cause.subject for cause in billing.causes] == ["shop", "billing"]
    assert (billing.causes[0].likelihood, billing.causes[0].topic) == ("high", "orders")
    assert billing.causes[0].detail == {"a": 1}
    assert (len(billing.points), max(billing.points)) == (60, 0.5)
    # Of a pause by an operator: what changed before, without the group's own events.
    assert [(cause.what, cause.subject) for cause in refunds.causes if cause.what != "topology_mismatch"] == [
        ("topology_changed", "shop-app")
    ]
    assert [cause.detail for cause in refunds.causes if cause.what == "topology_changed"] == [{}]
    assert refunds.pause_reasons[0].text == "maintenance <b>now</b>"


async def test_dead_letters_that_grow(stage: ApiStage) -> None:
    found = await attention(stage)
    item = one(found, "dead_letters")
    assert (item.now, item.before, item.since) == (10, 4, TWO - 8 * MINUTE)
    assert sum(item.points) == 10
    # With what is too little to be listed, and with the dead letters of the group that is paused.
    assert (found.counts.dead_letters_hour, found.counts.dead_letters_before) == (49, 4)


def test_dead_letters_of_any_time_are_of_its_minute() -> None:
    """A rate between two minutes once left the request without an answer."""
    found = attention_facts.MinuteDispositions()
    found.add(TWO + 1, 5, 10)
    found.add(TWO + MINUTE - 1, 2, 10)
    assert found.minutes == {TWO: (7, 20)}


async def test_a_lag_that_has_doubled(stage: ApiStage) -> None:
    item = one(await attention(stage), "lag")
    assert (item.subject_kind, item.before, item.now) == ("consumer_group", 1_400, 3_300)
    assert item.since is not None
    assert TWO - 11 * MINUTE <= item.since < TWO - 9 * MINUTE


async def test_a_mismatch_has_its_members_and_hosts(stage: ApiStage) -> None:
    mismatch = one(await attention(stage), "mismatch").mismatch
    assert mismatch is not None
    assert (mismatch.since, mismatch.kind, mismatch.topology_count) == (TWO - 30 * MINUTE, "refused", 2)
    first, second = mismatch.topologies
    assert (first.member_count, first.members[0].host, second.refused) == (2, "10.0.0.7", True)
    assert second.members[1].member is None
    application = ApplicationModel.model_validate(await stage.json("applications/shop-app"))
    assert application.mismatch == mismatch
    assert {row.kind for row in application.gaps} == {"declared_silent", "used_undeclared"}


async def test_new_gaps_are_one_item_for_each_application(stage: ApiStage) -> None:
    found = await attention(stage)
    item = one(found, "gaps")
    assert [(row.topic, row.direction) for row in item.gaps] == [("large", "write"), ("audit", "read")]
    assert (item.gap_count, found.counts.new_gaps, found.counts.older_gaps) == (2, 2, 1)


async def test_what_is_watched(stage: ApiStage) -> None:
    found = await attention(stage)
    watched = found.watched
    assert (watched.share_groups, watched.applications, watched.topics, watched.groups_with_lags) == (2, 1, 1, 3)
    assert found.missing == found.incomplete == []


async def test_a_token_with_names_sees_its_own_only(stage: ApiStage) -> None:
    assert stage.tokens_file is not None
    token = add_token(stage.tokens_file, name="team", scope=TokenScope.READ, expires=LATER, names=["billing", "orders"])
    found = AttentionModel.model_validate((await stage.get("attention", token=token)).json)
    assert [item.subject for item in found.items] == ["billing"]
    assert [cause.subject for cause in found.items[0].causes] == [None, "billing"]
    assert [cause.detail for cause in found.items[0].causes] == [None, None], "they may have any names"
    assert found.counts.dead_letters_hour == 30
    assert found.watched.share_groups == 1
    assert b"shop-app" not in (await stage.get("attention", token=token)).body


async def test_an_unchanged_answer_is_not_sent_again(stage: ApiStage) -> None:
    answer = await stage.get("attention")
    again = await stage.get("attention", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert isinstance(stage.share_port, FakeShares)
    stage.share_port.changes += 1
    assert (await stage.get("attention", headers={"if-none-match": answer.headers["etag"]})).status == 200


async def test_without_tables_paused_groups_are_there_and_the_rest_is_unknown(tmp_path: Path) -> None:
    tables = EstateTables(tmp_path, FakeClock(TWO))
    stage = ApiStage(tables, FakeClock(TWO), share_port=FakeShares.of_the_shop())
    found = await attention(stage)
    assert [item.subject for item in found.items] == ["refunds", "billing"]
    assert (found.counts.mismatches, found.counts.dead_letters_hour, found.watched.topics) == (None, None, None)
    assert {*found.missing, "applications"} == set(attention_facts.TABLES_READ)
    nothing = await attention(ApiStage(tables, FakeClock(TWO)))
    assert (nothing.items, nothing.counts.paused, nothing.watched.share_groups) == ([], None, None)
    assert nothing.problem is not None
    await tables.close()


async def test_a_table_with_too_many_rows_is_named(stage: ApiStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_facts, "_MOST_ROWS", len(TABLES["changes"]))
    assert stage.tokens_file is not None
    tables = EstateTables(stage.tokens_file.parent, FakeClock(TWO))
    found = await attention(ApiStage(tables, FakeClock(TWO)))
    assert found.incomplete == ["group_lags"]
    await tables.close()


async def test_the_pipeline_itself_is_never_what_changed_before(tmp_path: Path) -> None:
    """A user's query of the same name, or one that reads another topic too, is."""
    cases = {
        "facts": [use("facts", "headgate.events", "read", "spark")],
        "mixed": [use("mixed", "headgate.events", "read", "spark"), use("mixed", "orders", "read", "spark")],
        "twice": [use("twice", "headgate.events", "read", "spark"), use("twice", "orders", "write", "streams")],
        "totals": [use("totals", "headgate.events", "read", "streams")],
        "append": [],  # of which no use is known
    }
    described = {
        ("facts", "spark"),
        ("mixed", "spark"),
        ("twice", "spark"),
        ("twice", "streams"),
        ("totals", "streams"),
    }
    described |= {("append", "spark")}
    changed: Row = {"event": "topology_added", "subject_kind": "application", "at": TWO - 6 * MINUTE, "detail": "{}"}
    group: Row = {"event": "config_changed", "subject_kind": "share_group"}
    write(tmp_path, "lineage_edges", [row for rows in cases.values() for row in rows])
    versions = enumerate(sorted(described))
    write(tmp_path, "applications", [{"app_id": name, "kind": kind, "valid_from": at} for at, (name, kind) in versions])
    write(tmp_path, "app_io", [])
    rows = [changed | {"event_id": f"c-{name}", "subject": name} for name in cases]
    write(tmp_path, "changes", [*rows, changed | group | {"event_id": "c", "subject": "facts"}])

    async def causes(**more: Any) -> list[tuple[str, str | None]]:
        tables = EstateTables(tmp_path, FakeClock(TWO), **more)
        stage = ApiStage(tables, FakeClock(TWO), share_port=FakeShares.of_the_shop())
        refunds = (await attention(stage)).items[0]
        await tables.close()
        return sorted((cause.subject_kind, cause.subject) for cause in refunds.causes)

    of_users = [("application", name) for name in ("mixed", "totals", "twice")]
    assert await causes() == [*of_users, ("share_group", "facts")]
    assert ("application", "facts") in await causes(facts_prefix="other.")


async def test_what_changed_before_is_about_the_topics_of_the_item(tmp_path: Path) -> None:
    """Trips of groups that share none of them say nothing, and what writes them comes first."""
    edges = [
        use("refunds", "orders", "read", "share_group"),
        use("shipping", "orders", "read", "share_group"),
        use("elsewhere", "clicks", "read", "share_group"),
        use("shop", "orders", "write"),
        use("far", "clicks", "write"),
    ]
    write(tmp_path, "lineage_edges", edges)
    write(tmp_path, "applications", [])
    write(tmp_path, "app_io", [])
    happened = [
        ("application", "shop", "topology_changed", 20),
        ("application", "far", "topology_changed", 3),
        ("topic", "clicks", "operation", 4),
        ("share_group", "shipping", "tripped", 2),
        # A share group of the name of an application that writes the topic, and one of which no topic is known.
        *(("share_group", name, event, 1) for name in ("shop", "unknown") for event in ("tripped", "resumed")),
        *(("share_group", "elsewhere", event, 1) for event in ("tripped", "paused", "resumed", "operation")),
    ]
    rows: list[Row] = [
        {"event_id": f"c-{number}", "subject_kind": kind, "subject": name, "event": event, "detail": "{}"}
        | {"at": TWO - minutes * MINUTE}
        for number, (kind, name, event, minutes) in enumerate(happened)
    ]
    write(tmp_path, "changes", rows)
    tables = EstateTables(tmp_path, FakeClock(TWO))
    refunds = (await attention(ApiStage(tables, FakeClock(TWO), share_port=FakeShares.of_the_shop()))).items[0]
    await tables.close()
    assert [(cause.what, cause.subject) for cause in refunds.causes] == [
        ("topology_changed", "shop"),
        ("tripped", "shipping"),
        ("topology_changed", "far"),
        ("operation", "clicks"),
    ]
    assert refunds.causes_left_out == 0
