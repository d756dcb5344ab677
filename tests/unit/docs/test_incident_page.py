"""`docs/incident.md`: its commands exist, it prints one real incident, and it has every verdict with its limits.

`tests/fixtures/runbook` has the rows of that incident as its pipeline and its replay wrote them: dead letters and
episode before and after the resume, the plan, and the trail. What the page shows is what the commands print of them.
"""

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.dlq_text import ReplayBar, print_plan, replay_text
from headgate.cli.dlq_triage import print_triage
from headgate.cli.main import main, parse_arguments
from headgate.cli.share_groups import action_text, breaker_text
from headgate.dead_letters.model import episodes, verdict
from headgate.dead_letters.plan_store import load_plan, plan_records
from headgate.dead_letters.replayer import ReplayResult
from headgate.dead_letters.triage import TriageTables
from headgate.share_groups.model.breaker import BreakerStatus, LastResume, PauseReason
from headgate.tables.definitions import TABLES
from headgate.tables.reader import TableReader
from tests.unit.tables.estate import Row, write

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "incident.md").read_text("utf-8")
FIXTURE = ROOT / "tests" / "fixtures" / "runbook"
COMMANDS = re.findall(r"^(?:\$ |    )headgate ([^#\n]*)$", PAGE, flags=re.MULTILINE)
# What each command of the page prints, up to the next command or the end of the block.
EXAMPLES = re.findall(r"^\$ headgate (.*)\n((?:(?!```|\$ ).*\n)*)", PAGE, flags=re.MULTILINE)
GROUP, EPISODE, PLAN = "sample-notices", "7ced5bb86ad8", "6aff0a87-2fdc"
TRIAGE_AT = {"before": 1795098769000, "after": 1795099208000}  # when the page's two triages were printed


def shown(beginning: str) -> list[str]:
    """What the examples of the commands with this beginning print, in the order of the page."""
    found = [text for command, text in EXAMPLES if command.startswith(beginning)]
    assert found, beginning
    return found


def standard_output(text: str) -> str:
    """Without what goes to standard error."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("headgate: "))


def rows_of(name: str) -> list[Row]:
    """Rows of a file; a column that is not in it is null, or empty where the table needs a value."""
    table = TABLES[name.partition(".")[0]]
    empty: Row = {one.name: None if one.nullable else "" for one in table.columns}
    lines = (FIXTURE / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [empty | json.loads(line) for line in lines]


def _time_of(row: Row) -> int:
    assert isinstance(row["at"], int)
    return row["at"]


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Writes the tables as they were at a stage of the incident, in a folder with the configuration of the page."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.chdir(tmp_path)
    settings = re.search(r"with this file:\n\n((?:    .*\n)+)", PAGE)
    assert settings is not None
    Path("headgate.toml").write_text(settings.group(1).replace("    ", ""), encoding="utf-8")

    def at(stage: str) -> Path:
        root = tmp_path / ".headgate" / "tables"
        for name in ("dead_letters", "dead_letter_clusters"):
            write(root, TABLES[name], rows_of(f"{name}.{stage}"))
        events = [
            row | {"is_historic": False} for row in rows_of("breaker_events") if _time_of(row) <= TRIAGE_AT[stage]
        ]
        write(root, TABLES["breaker_events"], events)
        for name in ("replay_plans", "replay_plan_records", "replay_audit"):
            write(root, TABLES[name], rows_of(name))
        return root

    yield at
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_is_one(command: str) -> None:
    assert parse_arguments(shlex.split(command)).run


def test_there_are_such_commands() -> None:
    assert len(COMMANDS) >= 12


def test_one_incident_runs_through_the_page() -> None:
    for named, pattern in (
        (GROUP, r"--group (\S+)"),
        (EPISODE, r"--cluster (\w+)"),
        (PLAN, r"\bplan[= ]([0-9a-f-]{13})\b"),
    ):
        assert {one for command in COMMANDS for one in re.findall(pattern, command)} == {named}
    assert set(re.findall(r"\bplan ([0-9a-f]{8}-[0-9a-f]{4})\b", PAGE)) == {PLAN}


@pytest.mark.parametrize("stage", ["before", "after"])
def test_triage_prints_what_the_page_shows(
    stage: str, tables: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    triage = TriageTables(tables(stage))
    print_triage(triage.triage(now_ms=TRIAGE_AT[stage], group=GROUP))
    triage.close()
    printed = capsys.readouterr().out
    before, after = shown("dlq triage")
    assert printed == (before if stage == "before" else after)
    warning = [line for line in printed.splitlines() if "WARNING" in line]
    assert len(warning) == (1 if stage == "before" else 0)
    assert all(PAGE.count(line) == 2 for line in warning), "step 2 repeats it"


@pytest.mark.parametrize("beginning", ["tables show dead_letters", "tables show replay_plan_records", "dlq audit"])
def test_tables_and_trail_have_the_rows_of_the_page(
    beginning: str, tables: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    tables("after")
    for command in [one for one, _ in EXAMPLES if one.startswith(beginning)]:
        assert main(shlex.split(command)) == 0
        assert capsys.readouterr().out == dict(EXAMPLES)[command]


def test_the_plan_is_printed_as_the_page_shows_it(
    tables: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    reader = TableReader(tables("after"))
    plan = load_plan(reader, PLAN)
    assert [one.offset for one in plan_records(reader, plan)] == [1561, 1562, 1563]  # of the file, which has the first
    reader.close()
    print_plan(plan, f"headgate dlq replay {PLAN} --config headgate.toml --command-config OPERATOR.properties")
    refused, made = shown(f"dlq plan --group {GROUP} --cluster")
    assert standard_output(made) == capsys.readouterr().out
    assert [f"headgate:   {reader}" for reader in plan.readers] == re.findall(r"^headgate:   .*", refused, re.MULTILINE)


def test_progress_and_end_of_the_replay_are_printed_as_the_page_shows_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    dry_run, stopped, done = shown(f"dlq replay {PLAN}")
    assert dry_run == replay_text(_result("PLANNED", 67), dry_run=True)
    lines = [line for line in (stopped + done).splitlines() if "records/s" in line]
    for line in lines:
        [(number, rate, state)] = re.findall(r"(\d+) of .* (\d+) records/s, (\w+)$", line)
        seconds = 0.0
        bar = ReplayBar(67, now=lambda: seconds)  # noqa: B023 - called within this turn of the loop
        bar.show(_result(state, int(number) - 2 * int(rate)))
        seconds = 2.0
        bar.show(_result(state, int(number)))
        assert capsys.readouterr().err == f"{line}\n"
    states = [line.rpartition(", ")[2] for line in lines]
    assert states == ["RUNNING"] * 3 + ["PAUSED"] * 4 + ["RUNNING"] * 6
    assert standard_output(stopped) == replay_text(_result("PAUSED", 32), dry_run=False)
    assert standard_output(done) == replay_text(_result("DONE", 67), dry_run=False)


def _result(state: Any, written: int) -> ReplayResult:
    return ReplayResult(plan=PLAN, state=state, written=written)


def test_the_breaker_is_described_as_the_page_shows_it() -> None:
    running: dict[str, Any] = {"group": GROUP, "enabled": True, "paused": False, "generation": 1, "dlq_written": 0}
    running |= {"dlq_rate": 0.0, "threshold_percent": 50, "min_messages": 100, "window_ms": 60_000, "limit": 5}
    running |= {"dlq_topic": "dlq.shipments", "delivered": 0}
    tripped = PauseReason(
        code="DLQ_CIRCUIT_BREAKER_TRIPPED",
        text="60 of 120 records became dead letters within 60 s, and 50 % is the threshold",
        by="headgate",
        since=1795098549471,
    )
    resumed = LastResume(reason="the mail provider answers again", by="User:ANONYMOUS", at=1795098853884)
    paused, after, replayed = shown("share-groups --bootstrap-server HOST:PORT --describe")
    assert paused == breaker_text(BreakerStatus(**running | {"paused": True, "pause_reasons": (tripped,)}))
    for text, delivered in ((after, 614), (replayed, 155)):
        assert text == breaker_text(BreakerStatus(**running | {"delivered": delivered, "last_resume": resumed}))
    assert shown("share-groups --bootstrap-server HOST:PORT --resume") == [action_text(GROUP, None, paused=False)]


def test_every_verdict_and_every_action_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (.+) \|$", PAGE, flags=re.MULTILINE)
    assert {name for name, _ in rows} == {one.value for one in verdict.EpisodeCause}
    assert {one for _, actions in rows for one in re.findall(r"`(\w+)`", actions)} == {
        one.value for one in verdict.OperatorAction
    }


@pytest.mark.parametrize(
    "words",
    [
        f"fewer than {verdict.MIN_ATTEMPTS} attempts",
        f"one member is at least {verdict.MEMBER_LOWER}, and",
        f"all others together at most {verdict.OTHERS_UPPER:.2f}",
        f"one value of a feature at least {verdict.CONTENT_LOWER} fail",
        f"a lower bound of at least {verdict.OUTAGE_LOWER}",
        f"at least {verdict.OUTAGE_MEMBERS:.0%} of the members".replace("%", " %"),
        f"upper bound above {verdict.OUTAGE_MEMBER_UPPER}",
        f"an upper bound of at most {verdict.POISON_UPPER}",
        f"lower bound above {verdict.POISON_BUCKET_LOWER}",
        f"joined until they have {episodes.BUCKET_ATTEMPTS} attempts",
    ],
)
def test_the_limits_are_those_of_the_rule(words: str) -> None:
    assert words in " ".join(PAGE.split())
