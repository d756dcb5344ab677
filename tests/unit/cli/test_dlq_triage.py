"""`headgate dlq triage`: the verdict with its numbers and the next command, as text and as JSON."""

import json
import time
from pathlib import Path

import pytest

from headgate.cli.main import main
from headgate.dead_letters.model.clusters import Letter, clusters_of
from headgate.dead_letters.model.episodes import Attempts
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


def test_records_that_expire_soon_are_warned_of(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "--group", "billing") == 0
    out = capsys.readouterr().out
    assert "billing  OUTAGE: the downstream of the group failed, for most members at once\n" in out
    assert "WARNING   3 records expire within 24 hours" in out
    assert "next      headgate share-groups --bootstrap-server HOST:PORT --resume --group billing" in out


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
    assert f"headgate tables show dead_letters --where cluster={row['cluster']}" in out
