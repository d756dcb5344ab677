"""`headgate share-groups --backtest`, on tables with one outage that the live setting stops late."""

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headgate.cli.backtest import backtest_text
from headgate.cli.main import main
from headgate.lineage.backtests import GroupBacktest
from headgate.share_groups.model.backtest import BacktestSummary
from headgate.share_groups.model.breaker import BreakerRules
from headgate.share_groups.model.group_configs import MIN_MESSAGES, THRESHOLD_PERCENT
from headgate.tables.definitions import table_named
from headgate.tables.writer import TableWriter

_EMPTY: dict[pa.DataType, object] = {pa.string(): "", pa.bool_(): False}


def row(table: str, **values: object) -> dict[str, Any]:
    columns = table_named(table).columns
    empty = {one.name: None if one.nullable else _EMPTY.get(one.type, 0) for one in columns}
    return {**empty, "cluster_id": "c", **values}


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Twenty records a second, of which 40 % fail for five minutes; the live threshold is 50 %."""
    hour_ago = time.time_ns() // 1_000_000 - 3_600_000
    dispositions = [
        row(
            "dispositions",
            writer="w",
            boot="b",
            seq=2 * second + member,
            group="sg",
            member=f"m{member}",
            at=hour_ago + 1000 * second,
            second=hour_ago // 1000 + second,
            by_delivery_count="{}",
            accepted=6,
            dead_lettered=4,
        )
        for second in range(300)
        for member in range(2)
    ]
    changes = json.dumps({"changes": {THRESHOLD_PERCENT: "50", MIN_MESSAGES: "30"}})
    events = [
        row("breaker_events", event_id="e", group="sg", event="config_changed", detail=changes, at=1),
        row("breaker_events", event_id="t", group="sg", event="tripped", detail="{}", at=hour_ago + 3_500_000),
        row("breaker_events", event_id="r", group="sg", event="resumed", detail="{}", at=hour_ago + 3_500_999),
    ]
    for name, rows in (("dispositions", dispositions), ("breaker_events", events)):
        table = table_named(name)
        writer = TableWriter(tmp_path, table)
        made = pa.Table.from_pylist(rows, table.columns)
        if table.appended:
            writer.create()
            write_deltalake(str(writer.folder), made.cast(table.stored_schema), mode="append")
        else:
            writer.upsert(made, query="facts", batch=1)
    return tmp_path


def test_the_document_has_all_settings_with_the_live_one_first(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["share-groups", "--backtest", "--group", "sg", "--path", str(tables), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {**found, "configs": len(found["configs"])} == {
        "group": "sg",
        "days": 7,
        "configs": 101,
        "recommended": found["recommended"],
        "live": 0,
        "enabled": False,
        "real_trips": 1,
        "changes": 0,
        "recorded": True,
        "pause_s": 300,
        "left_out_s": 0,
    }
    live, best = found["configs"][0], found["configs"][found["recommended"]]
    assert live == {
        "threshold_percent": 50,
        "window_ms": 60_000,
        "min_messages": 30,
        "trips": 0,
        "paused_s": 0,
        "avoided": 0,
        "false_trips": 0,
    }
    assert (best["threshold_percent"], best["window_ms"], best["min_messages"]) == (40, 10_000, 20)
    assert (best["trips"], best["paused_s"], best["avoided"]) == (1, 300, 8 * 299)


@pytest.mark.parametrize(
    ("kinds", "is_false"),
    [
        ([{}], True),
        ([{"withdrawn": True}, {"format": "connect"}, {"group": "other"}, {"key_hash": None}], False),
    ],
    ids=["of the group", "of others, withdrawn or without a key"],
)
def test_dead_letters_of_one_key_make_trips_false(
    kinds: list[dict[str, object]], is_false: bool, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of twenty records a second 8 fail, 6 of them with the same key: without it, 2 of 14 do."""
    begin = time.time_ns() // 1_000_000 - 3_660_000
    letters = [
        row(
            "dead_letters",
            topic_id=f"t{number}",
            offset=8 * second + place,
            dead_lettered_at=begin + 1000 * second,
            **{"group": "sg", "format": "kafka", "key_hash": "same" if place < 6 else f"{second} {place}", **kind},
        )
        for second in range(420)
        for number, kind in enumerate(kinds)
        for place in range(8)
    ]
    table = table_named("dead_letters")
    TableWriter(tables, table).replace_all(pa.Table.from_pylist(letters, table.columns))
    assert main(["share-groups", "--backtest", "--group", "sg", "--path", str(tables), "--json"]) == 0
    tripped = [one for one in json.loads(capsys.readouterr().out)["configs"] if one["trips"]]
    assert {one["threshold_percent"] for one in tripped} == {5, 10, 15, 20, 25, 30, 40}
    false = {one["threshold_percent"] for one in tripped if one["false_trips"]}
    assert false == ({15, 20, 25, 30, 40} if is_false else set())


def test_the_text_has_the_command_that_sets_what_is_recommended(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["share-groups", "--backtest", "--group", "sg", "--path", str(tables)]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0].split() == ["THRESHOLD", "WINDOW", "MIN-MESSAGES", "TRIPS", "PAUSED", "AVOIDED", "FALSE-TRIPS"]
    assert lines[1].split() == ["live", "50%", "60", "s", "30", "0", "0", "s", "0", "0"]
    assert lines[2].split() == ["recommended", "40%", "10", "s", "20", "1", "300", "s", "2392", "0"]
    assert "The circuit breaker really tripped once then.\n" in shown
    assert "not enabled: the live setting does nothing.\n" in shown
    enabled = "share.group.dlq.circuit.breaker.enable=true"
    window = "share.group.dlq.circuit.breaker.window.ms=10000"
    assert f"--entity-name sg --add-config {enabled},{THRESHOLD_PERCENT}=40,{window}" in shown


def found(**more: Any) -> GroupBacktest:
    known: dict[str, Any] = {"group": "sg", "days": 7, "recommended": None, "pause_s": 300, "left_out_s": 0}
    recorded = {"is_enabled": True, "real_trips": 0, "changes": 0, "is_recorded": True}
    return GroupBacktest(**known | recorded | more)


def summary(*, trips: int = 1, false_trips: int = 0) -> BacktestSummary:
    rules = BreakerRules(threshold_percent=20, window_ms=60_000, min_messages=100)
    return BacktestSummary(rules=rules, trips=trips, paused_s=0, avoided=0, false_trips=false_trips)


def test_a_group_name_is_quoted_in_the_command() -> None:
    text = backtest_text(found(group="a b; c", summaries=(summary(trips=0), summary()), recommended=1))
    assert "--entity-name 'a b; c' --add-config share.group.dlq.circuit.breaker.threshold.percent=20," in text


def test_the_live_setting_of_a_breaker_that_is_not_enabled_is_not_kept_but_enabled() -> None:
    recommended: dict[str, Any] = {"summaries": (summary(), summary()), "recommended": 0}
    assert backtest_text(found(**recommended)).endswith("Keep the live setting.\n")
    assert "circuit.breaker.enable=true" in backtest_text(found(**recommended, is_enabled=False))


def test_the_text_says_why_nothing_is_recommended() -> None:
    assert backtest_text(found(summaries=(summary(trips=0),))).endswith("No setting would have tripped.\n")
    false = (summary(trips=0), summary(false_trips=1))
    assert backtest_text(found(summaries=false)).endswith(
        "No setting is recommended: one member or one key alone caused each trip.\n"
    )


def test_the_text_says_how_far_the_live_setting_is_that_of_the_time() -> None:
    text = backtest_text(found(summaries=(summary(),), real_trips=3, changes=2, is_recorded=False))
    assert "The circuit breaker really tripped 3 times then.\n" in text
    assert "Its settings were changed 2 times then; the last ones are simulated as live.\n" in text
    assert "No change of its settings is recorded: the defaults are simulated as live.\n" in text


def test_one_of_several_clusters_is_chosen(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["share-groups", "--backtest", "--group", "sg", "--path", str(tables), "--json"]
    assert main([*arguments, "--cluster-id", "c"]) == 0
    capsys.readouterr()
    assert main([*arguments, "--cluster-id", "other"]) != 0


def test_an_unknown_group_and_missing_tables_are_told(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["share-groups", "--backtest", "--group", "other", "--path", str(tables)]) == 2
    assert "no records of the share group other were counted" in capsys.readouterr().err
    assert main(["share-groups", "--backtest", "--group", "sg", "--path", str(tables / "nowhere")]) == 1
    assert "no table dispositions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--backtest", "--group", "a", "--group", "b"], "specify exactly one --group"),
        (["--backtest", "--group", "a", "--days", "0"], "--days must be from 1 to 90"),
        (
            ["--backtest", "--group", "a", "--reason", "x"],
            "--backtest takes --group, --days, --path, --config and --cluster-id only",
        ),
        (["--describe", "--circuit-breaker", "--group", "a"], "--bootstrap-server is missing"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["share-groups", *arguments]) == 2
    assert problem in capsys.readouterr().err
