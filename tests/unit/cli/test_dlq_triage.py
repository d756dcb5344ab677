"""`headgate dlq triage`: the verdict with its numbers and the next command, as text and as JSON."""

import json
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.main import main, parse_arguments
from headgate.dead_letters.model.clusters import Letter, clusters_of
from headgate.dead_letters.model.episodes import Attempts
from headgate.dead_letters.model.plans import PLANNABLE
from headgate.dead_letters.model.where import is_selected
from headgate.dead_letters.triage import Document, TriageTables
from headgate.tables.definitions import TABLES
from tests.unit.tables.estate import Row, write

NOW = int(time.time()) * 1000
HOUR = 3_600_000
KINDS = {
    "alone": {"b": (20, 0)},
    "outage": {"a": (20, 0), "b": (20, 0)},
    "member": {"a": (20, 0), "b": (0, 20), "c": (0, 20)},
    "poison": {"a": (0, 20), "b": (0, 20)},
}


def cluster_row(group: str, kind: str, *, begin: int = NOW - HOUR) -> tuple[Row, list[int]]:
    """The row of an episode of one minute, as the pipeline writes it, and the times of its letters."""
    attempts = [
        Attempts(at=begin + second * 1000, member=member, failed=failed, succeeded=good)
        for second in range(60)
        for member, (failed, good) in KINDS[kind].items()
    ]
    attempts += [Attempts(at=begin, member="b", failed=1, succeeded=0)]
    times = [begin + 1000 * one for one in range(3)]
    letters = [
        Letter(topic="orders", topic_id="t", partition=0, offset=one, at=at, delivery_count=1)
        for one, at in enumerate(times)
    ]
    [found] = clusters_of("c", group, letters, attempts, (), {}, now=begin + 61_000)
    row: Row = {
        "cluster_id": "c",
        "group": group,
        "cluster": found.id,
        "verdict": found.verdict.cause.value,
        "action": found.verdict.action.value,
        "count": len(found.letters),
        "first_at": found.episode.since,
        "last_at": found.episode.until,
        "ended_at": found.episode.ended_at,
        "topics": json.dumps(found.topics),
        "member": found.verdict.member,
        "feature": found.verdict.feature,
        "evidence": json.dumps(found.verdict.evidence),
    }
    return row, times


def letter_rows(group: str, cluster: object, times: list[int], **values: object) -> list[Row]:
    columns = TABLES["dead_letters"].columns
    empty: Row = {one.name: None if one.nullable else "" for one in columns}
    shared: Row = {
        "cluster_id": "c",
        "group": group,
        "topic": "orders",
        "topic_id": "t",
        "partition": 0,
        "dlq_partition": 0,
        "copied": False,
        "withdrawn": False,
        "copies": 1,
        "source_state": "found",
        "cluster": cluster,
    }
    return [
        empty | shared | {"offset": number, "dlq_offset": number, "dead_lettered_at": at} | values
        for number, at in enumerate(times)
    ]


def write_events(root: Path, group: str, *events: str) -> None:
    columns = TABLES["breaker_events"].columns
    empty: Row = {one.name: None if one.nullable else "" for one in columns} | {"cluster_id": "c", "is_historic": False}
    rows = [
        empty | {"event_id": str(number), "group": group, "event": event, "at": NOW - HOUR + 30_000 + number}
        for number, event in enumerate(events)
    ]
    write(root, TABLES["breaker_events"], rows)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    outage, times = cluster_row("billing", "outage")
    broken, member_times = cluster_row("mail", "member", begin=NOW - 2 * HOUR)
    write(tmp_path, TABLES["dead_letter_clusters"], [outage, broken])
    letters = [
        *letter_rows("billing", outage["cluster"], times, source_expires_at=NOW + HOUR),
        *letter_rows("mail", broken["cluster"], member_times[:2]),
        *letter_rows("mail", broken["cluster"], member_times[2:], offset=7, source_state="expired"),
        *letter_rows("sink-a", None, [NOW], copied=True, source_state="expired"),
        *letter_rows("mail", None, [NOW], offset=8, withdrawn=True),
    ]
    write(tmp_path, TABLES["dead_letters"], letters)
    write_events(tmp_path, "billing", "tripped")
    return tmp_path


def run(root: Path, *arguments: str) -> int:
    return main(["dlq", "triage", *arguments, "--path", str(root)])


def test_of_a_group_with_one_member_nothing_is_said_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, TABLES["dead_letter_clusters"], [cluster_row("solo", "alone")[0]])
    assert run(tmp_path) == 0
    out = capsys.readouterr().out
    assert "evidence  the only member b: 1201 of 1201 (100 to 100 %)\n" in out
    assert "others" not in out


def test_the_text_has_verdict_numbers_action_and_the_next_command(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(root, "--group", "mail") == 0
    out = capsys.readouterr().out
    assert out.startswith("mail  MEMBER: the member a fails, all others work\n")
    assert "3 dead letters of orders; 2 can be replayed, 1 are gone at their source and not copied" in out
    assert "worst of 3 members a: 1200 of 1200 (100 to 100 %); all others: 1 of 2401 (0 to 0 %)" in out
    assert "action    restart_member: restart or remove this member, then replay the records" in out
    assert "next      headgate dlq plan --group mail --cluster " in out
    assert "billing" not in out


def test_dead_letters_that_were_left_out_of_a_verdict_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row, _ = cluster_row("sg", "outage")
    row["evidence"] = json.dumps(json.loads(str(row["evidence"])) | {"dead_letters_left_out": 4711})
    write(tmp_path, TABLES["dead_letter_clusters"], [row])
    assert run(tmp_path) == 0
    text = "  evidence  4711 older dead letters of the group were too many to be compared\n"
    assert text in capsys.readouterr().out


@pytest.mark.parametrize("state", ["unknown", "unreadable"])
def test_a_record_that_could_not_be_looked_at_is_not_gone(
    state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan takes it, and reads it with the operator's rights."""
    row, times = cluster_row("sg", "outage")
    write(tmp_path, TABLES["dead_letter_clusters"], [row])
    letters = [
        *letter_rows("sg", row["cluster"], times[:1]),
        *letter_rows("sg", row["cluster"], times[:1], offset=1, source_state=state),
        *letter_rows("sg", row["cluster"], times[:1], offset=2, source_state=state, copied=True),
        *letter_rows("sg", None, [NOW], offset=3, source_state=state),
    ]
    write(tmp_path, TABLES["dead_letters"], letters)
    assert run(tmp_path) == 0
    out = capsys.readouterr().out
    assert "2 can be replayed, 1 are not known: " in out
    assert "belong to no episode, 0 can be replayed, 1 are not known: " in out
    assert "READ on the source" in out
    assert "gone" not in out
    assert run(tmp_path, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    records = document["clusters"][0]["records"]
    assert (records["readable"], records["unknown"], records["gone"]) == (2, 1, 0)
    assert document["unassigned"]["sg"]["unknown"] == 1


@pytest.mark.parametrize(
    "values",
    [
        {"topic": None, "topic_id": "dlq-id"},
        {"topic": None, "topic_id": "dlq-id", "copied": True, "source_state": "unknown"},
        {"topic_id": ""},
        {"topic_id": "", "copied": True},
        {"topic_id": "name:orders"},
        {"topic_id": "name:orders", "copied": True},
        {"copied": True},
        {},
    ],
)
def test_what_no_plan_replays_is_not_counted_as_replayable(values: Row, tmp_path: Path) -> None:
    write(tmp_path, TABLES["dead_letter_clusters"], [cluster_row("other", "outage")[0]])
    [letter] = letter_rows("sg", None, [NOW], **values)
    write(tmp_path, TABLES["dead_letters"], [letter])
    counts = triage(tmp_path)["unassigned"]["sg"]
    expected = (1, 0) if is_selected(PLANNABLE, letter) else (0, 1)
    assert (counts["readable"], counts["unplannable"]) == expected
    assert counts["gone"] + counts["unknown"] == 0


def test_what_no_plan_replays_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, TABLES["dead_letter_clusters"], [cluster_row("other", "outage")[0]])
    write(tmp_path, TABLES["dead_letters"], letter_rows("sg", None, [NOW], topic=None, copied=True))
    assert run(tmp_path, "--group", "sg") == 0
    assert "0 can be replayed, 1 do not identify their record, so that no plan replays them" in capsys.readouterr().out


def test_without_a_topic_id_only_the_copy_counts_because_only_that_is_replayed(tmp_path: Path) -> None:
    write(tmp_path, TABLES["dead_letter_clusters"], [cluster_row("other", "outage")[0]])
    copy = {"topic_id": "", "copied": True, "letter_expires_at": NOW + HOUR, "source_expires_at": None}
    write(tmp_path, TABLES["dead_letters"], letter_rows("sg", None, [NOW], **copy))
    counts = triage(tmp_path)["unassigned"]["sg"]
    assert (counts["readable"], counts["expire_soon"], counts["next_expiry"]) == (1, 1, NOW + HOUR)


def test_the_newest_episodes_are_shown_whatever_the_order_of_their_groups(tmp_path: Path) -> None:
    rows = [
        cluster_row(group, "outage", begin=NOW - hours * HOUR)[0]
        for group, hours in (("a", 9), ("b", 2), ("y", 8), ("z", 1))
    ]
    write(tmp_path, TABLES["dead_letter_clusters"], rows)
    found = triage(tmp_path, most=2)
    assert [one["group"] for one in found["clusters"]] == ["z", "b"]
    assert found["truncated"] is True
    assert triage(tmp_path, most=4)["truncated"] is False


def test_since_leaves_out_no_dead_letter_of_an_episode_that_lasted_then(tmp_path: Path) -> None:
    row, times = cluster_row("sg", "outage")
    write(tmp_path, TABLES["dead_letter_clusters"], [row])
    early = times[0] - 2 * HOUR
    letters = [*letter_rows("sg", row["cluster"], times), *letter_rows("sg", None, [early, times[2]], partition=1)]
    write(tmp_path, TABLES["dead_letters"], letters)
    found = triage(tmp_path, since_ms=times[0] + 1500)
    [episode] = found["clusters"]
    assert (episode["count"], episode["records"]["letters"]) == (3, 3)
    assert found["unassigned"]["sg"]["letters"] == 1


def triage(root: Path, **asked: Any) -> Document:
    tables = TriageTables(root)
    try:
        return tables.triage(now_ms=NOW, **asked)
    finally:
        tables.close()


def test_records_that_expire_soon_are_warned_of(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "--group", "billing") == 0
    out = capsys.readouterr().out
    assert "billing  OUTAGE: the downstream of the group failed, for most members at once\n" in out
    assert "WARNING   3 records expire within 24 hours" in out
    assert "action    resume_and_watch: when the downstream works, resume the group" in out
    assert "next      headgate share-groups --bootstrap-server HOST:PORT --resume --group billing" in out


@pytest.mark.parametrize("events", [(), ("tripped", "resumed")])
def test_a_group_that_is_not_paused_is_not_to_be_resumed(
    events: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row, _ = cluster_row("sg", "outage")
    write(tmp_path, TABLES["dead_letter_clusters"], [row])
    write_events(tmp_path, "sg", *events)
    assert run(tmp_path) == 0
    out = capsys.readouterr().out
    assert "action    resume_and_watch: the group is not paused: " in out
    assert "next      headgate share-groups --bootstrap-server HOST:PORT --describe --group sg --circuit-breaker" in out
    assert "--resume" not in out


def test_the_newest_episode_comes_first_and_letters_without_one_last(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(root) == 0
    out = capsys.readouterr().out
    assert out.index("billing  OUTAGE") < out.index("mail  MEMBER") < out.index("sink-a: 1 dead letters belong to no")
    assert "sink-a: 1 dead letters belong to no episode, 1 can be replayed" in out


def test_json_is_one_object_with_the_clusters(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    first, second = document["clusters"]
    assert {"id", "verdict", "count", "action", "evidence"} <= first.keys()
    assert (first["verdict"], second["verdict"], second["member"]) == ("outage", "member", "a")
    assert second["records"]["gone"] == 1
    assert document["unassigned"]["sink-a"]["readable"] == 1
    assert document["truncated"] is False


def test_episodes_that_were_over_before_since_are_left_out(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime((NOW - HOUR - 60_000) // 1000))
    assert run(root, "--since", since, "--json") == 0
    assert [one["group"] for one in json.loads(capsys.readouterr().out)["clusters"]] == ["billing"]


def test_the_kafka_cluster_is_chosen_by_its_id_and_an_episode_is_not_taken_for_one(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(root, "--cluster-id", "c", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["clusters"]) == 2
    assert run(root, "--cluster-id", "another") == 1
    with pytest.raises(SystemExit):
        run(root, "--cluster", "c")
    assert "unrecognized arguments: --cluster" in capsys.readouterr().err


def test_a_group_without_dead_letters_is_said_and_fails(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "--group", "other\x1b[2J") == 1
    assert capsys.readouterr().err == "headgate: there are no dead letters of other\\x1b[2J\n"


def test_without_tables_the_command_that_makes_them_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path) == 2
    assert "headgate pipeline run" in capsys.readouterr().err


def test_a_time_that_is_none_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "--since", "yesterday") == 2
    assert "--since yesterday" in capsys.readouterr().err


def test_poison_is_left_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row, times = cluster_row("sg", "poison")
    write(tmp_path, TABLES["dead_letter_clusters"], [row])
    write(tmp_path, TABLES["dead_letters"], letter_rows("sg", row["cluster"], times))
    assert run(tmp_path) == 0
    out = capsys.readouterr().out
    assert "sg  POISON: single records fail whatever is tried, all others work" in out
    [command] = [line.removeprefix("  next      headgate ") for line in out.splitlines() if "  next " in line]
    assert command.startswith(f"tables show dead_letters --where cluster={row['cluster']}")
    assert parse_arguments(shlex.split(command)).config == Path("FILE")
