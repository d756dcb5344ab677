"""`headgate lineage` from the outside."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.main import main
from headgate.lineage.estate import Estate
from headgate.lineage.questions import owners
from headgate.tables.reader import Condition
from headgate.tables.table import WRITTEN_BY
from tests.unit.lineage.shop import CLUSTER, NOON, TWO, VERSION, Row, cause, gap, hour, pair, use, write, write_shop

Capture = pytest.CaptureFixture[str]
AT_TWO = "2026-11-15T14:00:00Z"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    write_shop(folder)
    return folder


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def ask(capsys: Capture, root: Path, *arguments: str, code: int = 0) -> Any:
    assert main(["lineage", *arguments, "--path", str(root), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def show(capsys: Capture, root: Path, *arguments: str, code: int = 0) -> tuple[list[str], str]:
    assert main(["lineage", *arguments, "--path", str(root)]) == code
    printed = capsys.readouterr()
    return printed.out.splitlines(), printed.err


def test_impact_has_the_form_of_the_contract(root: Path, capsys: Capture) -> None:
    assert ask(capsys, root, "impact", "orders") == {
        "root": "orders",
        "direction": "down",
        "nodes": [
            {"kind": "share_group", "name": "billing", "depth": 1},
            {"kind": "spark", "name": "night-job", "depth": 1},
            {"kind": "streams", "name": "shop-app", "depth": 1},
            {"kind": "topic", "name": "dlq.orders", "depth": 1},
            {"kind": "topic", "name": "large", "depth": 1},
            {"kind": "topic", "name": "totals", "depth": 1},
            {"kind": "consumer_group", "name": "reports", "depth": 2},
        ],
        "truncated": False,
    }


def test_impact_upwards_does_not_cross_components(root: Path, capsys: Capture) -> None:
    nodes = ask(capsys, root, "impact", "sessions", "--direction", "up")["nodes"]
    assert [(one["kind"], one["name"], one["depth"]) for one in nodes] == [
        ("streams", "shop-app", 1),
        ("topic", "clicks", 1),
    ]


def test_impact_as_of_a_time_reads_both_kinds_of_validity_at_that_time(root: Path, capsys: Capture) -> None:
    then = ask(capsys, root, "impact", "orders", "--as-of", "2026-11-15T11:30:00Z")
    names = {one["name"] for one in then["nodes"] if one["kind"] == "topic"}
    assert names == {"old-totals", "dlq.orders"}


def test_the_pairs_of_a_version_that_returned_are_those_of_each_of_its_periods(tmp_path: Path, capsys: Capture) -> None:
    write(
        tmp_path,
        "applications",
        [
            VERSION | {"valid_from": 1, "valid_to": 2, "at": NOON - 2, "ended_at": NOON - 1},
            VERSION | {"hash": "other", "valid_from": 2, "valid_to": 3, "at": NOON - 1, "ended_at": NOON},
            VERSION | {"valid_from": 3, "at": NOON},
        ],
    )
    write(tmp_path, "app_io", [pair("a", "b"), pair("a", "c", hash="other", valid_from=2, valid_to=3, ended_at=NOON)])
    write(tmp_path, "lineage_edges", [])
    for milliseconds, name in ((998, "b"), (999, "c")):
        then = ask(capsys, tmp_path, "impact", "a", "--as-of", f"2026-11-15T11:59:59.{milliseconds}Z")
        assert [one["name"] for one in then["nodes"]] == ["shop-app", name]


def test_an_application_in_two_components_is_one_node_of_the_document(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, "app_io", [pair("a", "b", "0"), pair("b", "c", "1")])
    write(tmp_path, "lineage_edges", [])
    nodes = ask(capsys, tmp_path, "impact", "a")["nodes"]
    assert [(one["name"], one["depth"]) for one in nodes] == [("shop-app", 1), ("b", 1), ("c", 2)]
    lines, _ = show(capsys, tmp_path, "impact", "a")
    assert lines == [
        "DEPTH",
        "    0  a",
        "    1  └─ shop-app (streams, component 0)",
        "    1     └─ b",
        "    2        └─ shop-app (streams, component 1)",
        "    2           └─ c",
        "",
        "1 application, group or client and 2 topics depend on a",
    ]


def test_the_pairs_of_a_spark_query_are_followed(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, "app_io", [pair("a", "b", app="job", provenance="spark")])
    write(tmp_path, "lineage_edges", [use("job", "a", "read", "spark"), use("job", "b", "write", "spark")])
    nodes = ask(capsys, tmp_path, "impact", "a")["nodes"]
    assert [(one["kind"], one["name"]) for one in nodes] == [("spark", "job"), ("topic", "b")]


def test_filled_topics_are_followed_and_marked(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, "app_io", [pair("a", "")])
    write(tmp_path, "lineage_edges", [use("shop-app", "chosen", "write", declared=True, filled=True)])
    assert ask(capsys, tmp_path, "impact", "a")["nodes"] == [
        {"kind": "streams", "name": "shop-app", "depth": 1},
        {"kind": "topic", "name": "chosen", "depth": 1, "filled": True},
    ]
    assert ask(capsys, tmp_path, "path", "a", "chosen")["paths"][0][1:] == [
        {"kind": "streams", "name": "shop-app", "component": "0"},
        {"kind": "topic", "name": "chosen", "filled": True},
    ]
    lines, _ = show(capsys, tmp_path, "impact", "chosen", "--direction", "up")
    assert lines[1:4] == [
        "    0  chosen",
        "    1  └─ shop-app (streams, component 0, filled)",
        "    1     └─ a",
    ]


def test_impact_is_a_tree_for_people(root: Path, capsys: Capture) -> None:
    lines, errors = show(capsys, root, "impact", "orders")
    assert errors == ""
    assert lines == [
        "DEPTH",
        "    0  orders",
        "    1  ├─ billing (share group)",
        "    1  │  └─ dlq.orders",
        "    1  ├─ night-job (spark)",
        "    1  └─ shop-app (streams, component 0)",
        "    1     ├─ large",
        "    1     └─ totals",
        "    2        └─ reports (consumer group)",
        "",
        "4 applications, groups and clients and 3 topics depend on orders",
    ]
    lines, _ = show(capsys, root, "impact", "dlq.orders")
    assert lines[-1] == "nothing is known to read dlq.orders"


def test_impact_is_bounded(root: Path, capsys: Capture) -> None:
    cut = ask(capsys, root, "impact", "orders", "--limit", "2")
    assert [one["name"] for one in cut["nodes"]] == ["billing", "night-job"]
    assert cut["truncated"] is True
    lines, errors = show(capsys, root, "impact", "orders", "--limit", "2")
    assert errors == "headgate: 2 nodes are shown; there are more: --limit N shows more\n"
    assert lines[-1] == "4 applications, groups and clients and 3 topics depend on orders"


def test_a_topic_that_is_not_there_suggests_similar_names(root: Path, capsys: Capture) -> None:
    for action in ("impact", "owners"):
        lines, errors = show(capsys, root, action, "order", code=1)
        assert lines == []
        assert errors.startswith("headgate: the tables have no topic 'order' at this time; similar names: 'orders'")


def test_names_are_escaped(tmp_path: Path, capsys: Capture) -> None:
    evil = "\x1b[2Jx"
    write(tmp_path, "app_io", [pair(evil, "b", evil, evil)])
    write(tmp_path, "lineage_edges", [use(evil, evil, "write", "connector")])
    write(tmp_path, "topic_coverage", [hour(evil, 0, 1, 2)])
    write(tmp_path, "client_identities", [{"client_id": evil, "actor_kind": "connector", "actor": evil}])
    write(tmp_path, "lineage_gaps", [gap("declared_silent", evil, evil, "read")])
    write(tmp_path, "breaker_causes", [cause(evil, 1, evil, group=evil, subject=evil, topic=evil)])
    for arguments in (
        ["impact", evil],
        ["impact", "b", "--direction", "up"],
        ["path", evil, "b"],
        ["gaps", "--as-of", AT_TWO],
        ["owners", evil],
        ["coverage", "--as-of", AT_TWO],
        ["idle", "--as-of", "2027-11-15T14:00:00Z"],
        ["causes", evil, "--as-of", AT_TWO],
        ["impact", evil + "y"],
        ["path", "b", evil],
    ):
        main(["lineage", *arguments, "--path", str(tmp_path)])
        printed = capsys.readouterr()
        assert "\x1b" not in printed.out + printed.err
        assert "\\x1b[2Jx" in printed.out + printed.err


def test_path_shows_the_way_of_data(root: Path, capsys: Capture) -> None:
    lines, _ = show(capsys, root, "path", "shop", "reports")
    assert lines == [
        "shop (client)",
        "  └─ orders",
        "    └─ shop-app (streams, component 0)",
        "      └─ totals",
        "        └─ reports (consumer group)",
    ]
    found = ask(capsys, root, "path", "orders", "totals")
    assert found == {
        "from": "orders",
        "to": "totals",
        "paths": [
            [
                {"kind": "topic", "name": "orders"},
                {"kind": "streams", "name": "shop-app", "component": "0"},
                {"kind": "topic", "name": "totals"},
            ]
        ],
        "truncated": False,
    }


def test_no_path_is_exit_code_1_and_says_whether_there_is_one_back(root: Path, capsys: Capture) -> None:
    assert ask(capsys, root, "path", "orders", "sessions", code=1)["paths"] == []
    _, errors = show(capsys, root, "path", "totals", "orders", code=1)
    assert errors == "headgate: no data flows from totals to orders at this time; there is one in the other direction\n"
    _, errors = show(capsys, root, "path", "orders", "shop-ap", code=1)
    assert errors == (
        "headgate: the tables have no topic or application 'shop-ap' at this time; similar names: 'shop-app', 'shop'\n"
    )


def test_gaps_are_those_that_are_open(root: Path, capsys: Capture) -> None:
    found = ask(capsys, root, "gaps", "--as-of", AT_TWO)
    assert [(one["kind"], one["app_id"], one["topic"], one["detail"]) for one in found["gaps"]] == [
        ("declared_silent", "shop-app", "large", {})
    ]
    assert (found["open"], found["unknown"], found["closed"], found["truncated"]) == (1, 1, 1, False)


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        (["--state", "all"], ["large", "clicks", "audit"]),
        (["--state", "unknown"], ["clicks"]),
        (["--kind", "used_undeclared", "--state", "closed"], ["audit"]),
        (["--topic", "large", "--state", "all"], ["large"]),
        (["--application", "shop-app", "--state", "unknown"], ["clicks"]),
        (["--application", "night-job", "--state", "all"], []),
        (["--since", "2026-11-15T12:30:00Z", "--state", "all"], ["large", "clicks"]),
        (["--as-of", "2026-11-15T12:30:00Z"], ["audit"]),
        (["--as-of", "2026-11-15T11:30:00Z", "--state", "all"], []),
        (["--state", "all", "--limit", "1"], ["clicks"]),
    ],
)
def test_gaps_are_chosen(root: Path, capsys: Capture, options: list[str], topics: list[str]) -> None:
    found = ask(capsys, root, "gaps", "--as-of", AT_TWO, *options)
    assert sorted(one["topic"] for one in found["gaps"]) == sorted(topics)
    assert found["truncated"] is ("--limit" in options)


@pytest.mark.usefixtures("utc")
def test_gaps_are_rows_for_people(root: Path, capsys: Capture) -> None:
    lines, _ = show(capsys, root, "gaps", "--state", "all", "--as-of", AT_TWO)
    assert lines[0].split() == [
        *("KIND", "ACTOR-KIND", "APP-ID", "TOPIC", "DIRECTION", "OPENED-AT", "CLOSED-AT", "STATE", "COVERAGE")
    ]
    assert lines[2].split() == [
        *(
            "declared_silent",
            "streams",
            "shop-app",
            "large",
            "write",
            "2026-11-15",
            "13:00:00",
            "-",
            "open",
            "99.0",
            "%",
        )
    ]
    assert lines[-2] == "1 open, 1 unknown, 1 closed"
    assert lines[-1].startswith("unknown: the gateway counted less than 95 %")


def test_owners_show_the_writers_and_what_the_gateway_does_not_see(root: Path, capsys: Capture) -> None:
    found = ask(capsys, root, "owners", "orders", "--as-of", AT_TWO)
    assert [(one["kind"], one["name"]) for one in found["writers"]] == [("client", "shop"), ("unattributed", "unknown")]
    assert [one["client_id"] for one in found["writers"][0]["clients"]] == ["shop-1", "shop-2"]
    assert [one["name"] for one in found["readers"]] == ["billing", "night-job", "shop-app"]
    assert (found["seen_records"], found["all_records"], found["past_gateway"]) == (190, 200, 10)
    assert found["coverage"] == 0.95
    lines, _ = show(capsys, root, "owners", "orders", "--as-of", AT_TWO)
    assert "10.0.0.7 and 1 more" in "\n".join(lines)
    assert lines[-1] == "coverage of the last 24 hours: 95.0 %; 10 of 200 records were written past the gateway"


def test_the_bytes_of_owners_are_those_of_the_day_before_now_and_of_no_other(root: Path, capsys: Capture) -> None:
    found = ask(capsys, root, "owners", "orders")
    assert [(one["name"], one["bytes_day"], one["records_day"]) for one in found["writers"]] == [
        ("shop", 7500, 10),
        ("unknown", 2500, 10),
    ]
    assert [one["name"] for one in found["readers"]] == ["billing", "shop-app", "night-job"], "most bytes first"
    assert found["unattributed_share"] == 0.25
    lines, _ = show(capsys, root, "owners", "orders")
    assert lines[-1] == "bytes written through the gateway by unknown owners: 25.0 %"
    past = ask(capsys, root, "owners", "orders", "--as-of", AT_TWO)
    assert {(one["bytes_day"], one["records_day"]) for one in past["writers"] + past["readers"]} == {(None, None)}
    assert past["unattributed_share"] is None


def test_owners_of_a_topic_without_known_coverage(root: Path, capsys: Capture) -> None:
    lines, _ = show(capsys, root, "owners", "large", "--as-of", AT_TWO)
    assert "coverage of the last 24 hours: unknown, so there may be writers past the gateway" in lines
    cut = ask(capsys, root, "owners", "orders", "--as-of", AT_TWO, "--limit", "1")
    assert (len(cut["writers"]), len(cut["readers"]), cut["truncated"]) == (1, 1, True)
    assert ask(capsys, root, "owners", "orders", "--limit", "1")["unattributed_share"] == 0.25


def test_the_clients_of_all_owners_are_read_at_once(tmp_path: Path) -> None:
    class CountingEstate(Estate):
        def rows(self, name: str, *where: Condition, **more: Any) -> Iterator[Row]:
            read.append(name)
            return super().rows(name, *where, **more)

    read: list[str] = []
    write_shop(tmp_path)
    actors = [("client", f"shop-{number}") for number in range(30)] + [("connector", "shop-7")]
    write(tmp_path, "lineage_edges", [use(name, "orders", "write", kind) for kind, name in actors])
    clients = [
        {"client_id": f"{kind}-{seen}", "actor_kind": kind, "actor": name, "last_seen": seen}
        for kind, name in [*actors, ("client", "shop-70")]
        for seen in (*range(50, 60), *range(20))
    ]
    write(tmp_path, "client_identities", clients)
    estate = CountingEstate(tmp_path)
    found = owners(estate, "orders", now_ms=TWO, limit=100)
    estate.close()
    assert read.count("client_identities") == 1
    assert {(one["kind"], one["name"]) for one in found["writers"]} == set(actors)
    for one in found["writers"]:
        assert [client["client_id"] for client in one["clients"]] == [
            f"{one['kind']}-{seen}" for seen in range(59, 54, -1)
        ]


def test_coverage_begins_with_the_topics_that_are_written_past_the_gateway(root: Path, capsys: Capture) -> None:
    found = ask(capsys, root, "coverage", "--as-of", AT_TWO)
    assert [(one["topic"], one["past_gateway"], one["coverage"]) for one in found["topics"]] == [
        ("clicks", 1000, 0.0),
        ("orders", 10, 0.95),
        ("large", 0, None),
    ]
    assert [one["unknown_hours"] for one in found["topics"]] == [0, 0, 1]
    assert (found["seen_records"], found["all_records"], found["unknown_topics"]) == (190, 1200, 1)
    lines, _ = show(capsys, root, "coverage", "--as-of", AT_TWO, "--hours", "48")
    assert lines[-3:] == [
        "14.6 % of 1,300 records in 2 topics were written through the gateway",
        "1 topic with an unknown coverage",
        "without 1 dead-letter topic, which Headgate itself writes",
    ]
    assert ask(capsys, root, "coverage", "--as-of", "2026-01-01")["topics"] == []


def test_headgates_own_dead_letters_are_not_records_past_the_gateway(tmp_path: Path, capsys: Capture) -> None:
    write_shop(tmp_path)
    write(tmp_path, "topic_coverage", [hour("dlq.orders", 1, 0, 20)])
    found = ask(capsys, tmp_path, "coverage", "--as-of", AT_TWO)
    assert found["dead_letter_topics"] == 1
    assert "dlq.orders" not in {one["topic"] for one in found["topics"]}
    lines, _ = show(capsys, tmp_path, "owners", "dlq.orders", "--as-of", AT_TWO)
    assert "coverage of the last 24 hours: unknown, so there may be writers past the gateway" in lines


def test_an_hour_counts_when_all_of_its_uses_have_been_reported(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, "lineage_edges", [use("shop", "orders", "write", "client")])
    write(tmp_path, "client_identities", [])
    write(tmp_path, "topic_coverage", [hour("orders", 0, 20, 100)])
    at_19_past, at_20_past = "2026-11-15T13:19:00Z", "2026-11-15T13:20:00Z"
    for action in (["coverage"], ["owners", "orders"]):
        early = ask(capsys, tmp_path, *action, "--as-of", at_19_past)
        assert (early["coverage"], early["complete_hours"]) == (0.2, False)
        lines, _ = show(capsys, tmp_path, *action, "--as-of", at_19_past)
        assert any(line.startswith("no hour is complete yet") for line in lines)
    write(tmp_path, "topic_coverage", [hour("orders", 0, 20, 100), hour("orders", 1, 95, 100)])
    later = ask(capsys, tmp_path, "coverage", "--as-of", at_19_past)
    assert (later["coverage"], later["complete_hours"]) == (0.95, True)
    both = ask(capsys, tmp_path, "coverage", "--as-of", at_20_past)
    assert (both["coverage"], both["complete_hours"]) == (0.575, True)


def test_hours_with_records_that_were_not_counted_are_no_records_past_the_gateway(
    tmp_path: Path, capsys: Capture
) -> None:
    write(tmp_path, "lineage_edges", [use("shop", "orders", "write", "client")])
    write(tmp_path, "client_identities", [])
    hours = [hour("orders", 0, 3, 100, coverage=None), hour("orders", 1, 95, 100), hour("clicks", 0, 0, 0)]
    write(tmp_path, "topic_coverage", hours)
    found = ask(capsys, tmp_path, "coverage", "--as-of", AT_TWO)
    assert (found["past_gateway"], found["coverage"], found["uncounted_topics"]) == (5, 0.95, 1)
    of_topic = {one["topic"]: (one["unknown_hours"], one["uncounted_hours"]) for one in found["topics"]}
    assert of_topic == {"orders": (1, 1), "clicks": (1, 0)}
    lines, _ = show(capsys, tmp_path, "coverage", "--as-of", AT_TWO)
    assert lines[-1] == "1 topic with unknown hours, because records were not counted"
    lines, _ = show(capsys, tmp_path, "owners", "orders", "--as-of", AT_TWO)
    assert lines[-2:] == [
        "coverage of the last 24 hours: 95.0 %; 5 of 100 records were written past the gateway",
        "without 1 hour in which the records of some writes were not counted",
    ]


def test_idle_lists_what_was_not_seen_for_a_time(root: Path, capsys: Capture) -> None:
    found = ask(capsys, root, "idle", "--as-of", AT_TWO)
    assert [(one["name"], one["declared"], one["last_seen"], one["coverage"]) for one in found["applications"]] == [
        ("night-job", True, None, 0.95),
        ("old-group", False, NOON - 40 * 24 * 3_600_000, None),
    ]
    assert (found["idle"], found["all"], found["truncated"]) == (2, 5, False)
    later = ask(capsys, root, "idle", "--as-of", "2026-11-17T14:00:00Z", "--days", "1", "--limit", "1")
    assert (later["idle"], later["truncated"]) == (5, True)


def test_the_coverage_of_an_idle_application_is_unknown_when_that_of_one_topic_is(
    tmp_path: Path, capsys: Capture
) -> None:
    write(tmp_path, "lineage_edges", [use("job", topic, "read", "spark", last_seen=None) for topic in ("a", "b")])
    for hours, coverage in (([hour("a", 0, 90, 100)], None), ([hour("a", 0, 90, 100), hour("b", 0, 3, 4)], 0.75)):
        write(tmp_path, "topic_coverage", hours)
        (found,) = ask(capsys, tmp_path, "idle", "--as-of", AT_TWO)["applications"]
        assert found["coverage"] == coverage


@pytest.mark.usefixtures("utc")
def test_causes_are_those_of_the_last_trip(root: Path, capsys: Capture) -> None:
    found = ask(capsys, root, "causes", "billing", "--as-of", AT_TWO)
    assert [trip["event_id"] for trip in found["trips"]] == ["t1"]
    assert found["truncated"] is True
    assert [(one["cause_kind"], one["seconds_before"]) for one in found["trips"][0]["causes"]] == [
        ("new_producer", 60),
        ("config", 900),
    ]
    assert found["trips"][0]["causes"][0]["detail"] == {"a": 1}
    lines, errors = show(capsys, root, "causes", "billing", "--trips", "2", "--as-of", AT_TWO)
    assert lines[0] == "the breaker of billing tripped at 2026-11-15 14:00:00 (t1)"
    assert lines[2].split()[:6] == ["60", "high", "new_producer", "shop", "started", "orders"]
    assert lines[-2:] == [
        "the breaker of billing tripped at 2026-11-15 13:00:00 (t0)",
        "nothing is known to have changed in the 30 minutes before",
    ]
    assert errors == ""
    earlier = ask(capsys, root, "causes", "billing", "--as-of", "2026-11-15T13:30:00Z")
    assert [trip["event_id"] for trip in earlier["trips"]] == ["t0"]
    _, errors = show(capsys, root, "causes", "biling", code=1)
    assert "no trip of the share group 'biling' at this time; similar names: 'billing'" in errors


def test_a_table_that_is_not_there_yet_is_exit_code_1(tmp_path: Path, capsys: Capture) -> None:
    for arguments in (["impact", "a"], ["gaps"], ["owners", "a"], ["coverage"], ["idle"], ["causes", "a"]):
        _, errors = show(capsys, tmp_path, *arguments, code=1)
        assert errors.startswith("headgate: no table ")
        assert errors.endswith(f"yet; {WRITTEN_BY}\n")


def test_topics_of_several_clusters_are_kept_apart(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, "app_io", [pair("orders", "x"), pair("orders", "y", cluster_id="c2")])
    write(tmp_path, "lineage_edges", [use("g", "x", "read", cluster_id="c2")])
    _, errors = show(capsys, tmp_path, "impact", "orders", code=2)
    assert errors == (
        "headgate: the tables have several clusters, 'c1' and 'c2' among them: specify one with --cluster-id\n"
    )
    write(tmp_path, "lineage_gaps", [gap("mismatch", "a", "", ""), gap("mismatch", "a", "", "", cluster_id="c2")])
    _, errors = show(capsys, tmp_path, "gaps", "--as-of", AT_TWO, code=2)
    assert "specify one with --cluster-id" in errors
    assert ask(capsys, tmp_path, "gaps", "--as-of", AT_TWO, "--cluster-id", "c2")["open"] == 1
    nodes = ask(capsys, tmp_path, "impact", "orders", "--cluster-id", CLUSTER)["nodes"]
    assert [one["name"] for one in nodes] == ["shop-app", "x"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["impact", "orders", "--as-of", "17"], "--as-of 17: write now or a time such as 2026-11-15T12:00:00Z"),
        (["impact", "orders", "--limit", "0"], "--limit must be a whole number from 1"),
        (["coverage", "--hours", "0"], "--hours must be a whole number from 1"),
        (["idle", "--days", "99999"], "--days must be a whole number from 1"),
        (["causes", "g", "--trips", "-1"], "--trips must be a whole number from 1"),
        (["gaps", "--since", "noon"], "--since noon: write a time such as"),
    ],
)
def test_an_invalid_option_is_a_usage_error(root: Path, capsys: Capture, arguments: list[str], words: str) -> None:
    lines, errors = show(capsys, root, *arguments, code=2)
    assert lines == []
    assert words in errors


def test_now_is_the_time_without_as_of(root: Path, capsys: Capture) -> None:
    assert ask(capsys, root, "impact", "orders", "--as-of", "now") == ask(capsys, root, "impact", "orders")
