"""`headgate tables` from the outside."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.cli.main import main
from headgate.tables.definitions import TABLES, table_named
from headgate.tables.table import WRITTEN_BY
from tests.unit.tables.estate import ROWS, write, write_estate

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("estate")
    write_estate(folder)
    return folder


def test_list_gives_names_and_sizes(root: Path, capsys: Capture) -> None:
    assert main(["tables", "list", "--path", str(root), "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert {one["name"]: one["rows"] for one in tables} == {name: len(rows) for name, rows in ROWS.items()}
    for one in tables:
        assert list(one) == ["name", "version", "rows", "bytes", "updated"]
        assert one["version"] == 1
        assert one["bytes"] > 0
        assert abs(one["updated"] - time.time() * 1000) < 600_000


def test_list_is_aligned_for_people(root: Path, capsys: Capture) -> None:
    assert main(["tables", "list", "--path", str(root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "VERSION", "ROWS", "BYTES", "UPDATED"]
    assert [line.split()[0] for line in lines[1:]] == sorted(ROWS)
    assert len({line.index(line.split()[1]) for line in lines}) == 1


def test_no_tables_yet_is_an_empty_list(tmp_path: Path, capsys: Capture) -> None:
    assert main(["tables", "list", "--path", str(tmp_path / "none"), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"tables": []}
    assert said.err == f"headgate: no table in {tmp_path}/none yet; {WRITTEN_BY}\n"


def test_one_broken_table_does_not_hide_the_others(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, table_named("changes"), ROWS["changes"])
    (tmp_path / "applications").write_text("no folder")
    for action in ("list", "optimize"):
        assert main(["tables", action, "--path", str(tmp_path), "--json"]) == 1
        said = capsys.readouterr()
        assert [one["name"] for one in json.loads(said.out)["tables"]] == ["changes"]
        assert "applications: not a Delta table: move it away" in said.err


def test_show_gives_json_lines_with_every_column(root: Path, capsys: Capture) -> None:
    assert main(["tables", "show", "applications", "--path", str(root), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == sorted(ROWS["applications"], key=lambda row: (str(row["app_id"]), row["valid_from"]))


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--where", "app_id=orders-app"], [1, 3]),
        (["--where", "app_id!=orders-app"], [0]),
        (["--where", "valid_from>=1", "--where", "valid_from<3"], [1]),
        (["--where", "valid_from>1"], [3]),
        (["--where", "valid_from<=0"], [0]),
        (["--where", "valid_from=-1"], []),
        (["--where", "is_historic=false", "--limit", "2"], [0, 1]),
        (["--where", "is_historic=true"], []),
        (["--where", "app_id="], []),
        (["--where", "app_id=a=b\nc"], []),
        (["--limit", "0"], []),
        (["--as-of", "1"], [0, 1]),
        (["--as-of", "2"], [1]),
        (["--as-of", "2026-11-15T12:00:00Z"], [1]),
        (["--as-of", "2026-11-15T12:00:00+01:00"], [0, 1]),
        (["--as-of", "2026-11-15T10:00"], [0]),
        (["--as-of", "now"], [3]),
    ],
)
def test_rows_are_chosen(root: Path, capsys: Capture, options: list[str], offsets: list[int]) -> None:
    assert main(["tables", "show", "applications", "--path", str(root), "--json", *options]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(row["valid_from"] for row in rows) == offsets


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["nothing"], "there is no table 'nothing'; the tables are: activity_hours, activity_intervals,"),
        (["applications", "--where", "app_id"], "write COLUMN=VALUE"),
        (["applications", "--where", "size=1"], "applications has no column 'size'; its columns are: cluster_id,"),
        (["applications", "--where", "epoch=x"], "--where epoch=x: epoch is a whole number"),
        (["applications", "--where", f"epoch={'9' * 30}"], "epoch is a whole number"),
        (["applications", "--where", "is_historic=1"], "is_historic is true or false"),
        (["applications", "--where", "app_id=\udcff"], "app_id is a text"),
        (["dlq_rates", "--where", "dlq_rate>nan"], "dlq_rate is a number such as 0.25"),
        (["dlq_rates", "--where", "dlq_rate>1e3"], "dlq_rate is a number such as 0.25"),
        (["applications", "--as-of", "noon"], "--as-of noon: write now, an offset, or a time such as"),
        (["changes", "--as-of", "now"], "changes has no validity"),
        (["applications", "--limit", "-1"], "--limit must be a whole number from 0"),
        (["applications", "--columns", "app_id,"], "applications has no column ''"),
    ],
)
def test_an_invalid_condition_or_option_is_a_usage_error(
    root: Path, capsys: Capture, options: list[str], words: str
) -> None:
    assert main(["tables", "show", "--path", str(root), *options]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err


def test_show_escapes_control_characters(tmp_path: Path, capsys: Capture) -> None:
    row = ROWS["rejected_facts"][0] | {"reason": "\x1b[2J", "key": None}
    write(tmp_path, table_named("rejected_facts"), [row])
    columns = "reason,key,offset,is_historic"
    assert main(["tables", "show", "rejected_facts", "--path", str(tmp_path), "--columns", columns]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["REASON", "KEY", "OFFSET", "IS-HISTORIC"]
    assert line.split() == ["\\x1b[2J", "-", "4", "false"]


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_times_are_in_the_local_zone_for_people_and_numbers_in_json(root: Path, capsys: Capture) -> None:
    show = ["tables", "show", "dispositions", "--path", str(root), "--columns", "second,at", "--limit", "1"]
    assert main(show) == 0
    assert capsys.readouterr().out.splitlines()[1] == "2026-11-15 12:00:00  2026-11-15 12:00:01"
    assert main([*show, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"second": 1794740400, "at": 1794740401000}


@pytest.mark.parametrize("width", [40, 80, 100, 250])
def test_rows_fit_the_terminal_and_no_column_is_lost(
    root: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for name in ("activity_intervals", "rejected_facts", "pipeline_runs"):
        assert main(["tables", "show", name, "--path", str(root)]) == 0
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= width
        assert {column.upper().replace("_", "-") for column in table_named(name).columns.names} <= set(out.split())
        assert "2026-11-15 12:30:00" in out or name == "activity_intervals"
    assert ("…" in out) is (width < 100), "the problem of a run is shortened"


def test_show_prints_a_hundred_rows_and_says_that_there_are_more(tmp_path: Path, capsys: Capture) -> None:
    rows = [ROWS["rejected_facts"][0] | {"offset": offset} for offset in range(150)]
    write(tmp_path, table_named("rejected_facts"), rows)
    show = ["tables", "show", "rejected_facts", "--path", str(tmp_path)]
    for options, lines, told in [([], 101, True), (["--limit", "120"], 121, False), (["--json"], 150, False)]:
        assert main([*show, *options]) == 0
        said = capsys.readouterr()
        assert len(said.out.splitlines()) == lines
        assert ("there are more than 100 rows" in said.err) is told


def test_a_table_that_is_not_there_yet_is_not_there(tmp_path: Path, capsys: Capture) -> None:
    assert main(["tables", "show", "changes", "--path", str(tmp_path), "--json"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"headgate: no table changes in {tmp_path} yet; {WRITTEN_BY}\n"


def test_optimize_joins_files(tmp_path: Path, capsys: Capture) -> None:
    table = table_named("rejected_facts")
    for offset in range(3):
        write(tmp_path, table, [ROWS["rejected_facts"][0] | {"offset": offset}], offset)
    assert main(["tables", "optimize", "--path", str(tmp_path), "--json"]) == 0
    expected = {"name": "rejected_facts", "files_before": 3, "files_after": 1, "deleted": 0}
    assert json.loads(capsys.readouterr().out) == {"tables": [expected]}
    assert main(["tables", "optimize", "--path", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["NAME", "FILES-BEFORE", "FILES-AFTER", "DELETED"]


def test_the_folder_comes_from_the_configuration(
    root: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text(f'[tables]\npath = "{root}"\n')
    assert main(["tables", "list", "--config", str(file), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["tables"]) == len(TABLES)
    monkeypatch.setenv("HEADGATE_TABLES_PATH", str(root))
    assert main(["tables", "list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["tables"]) == len(TABLES)


def test_path_and_configuration_exclude_each_other(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        main(["tables", "list", "--path", "a", "--config", "b"])
    assert end.value.code == 2
    assert "not allowed with" in capsys.readouterr().err


def test_showing_rows_imports_no_pandas(root: Path) -> None:
    program = "import sys; from headgate.cli.main import main; main(sys.argv[1:]); print('pandas' in sys.modules)"
    command = [sys.executable, "-c", program, "tables", "show", "applications", "--path", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_process_ends_after_a_folder_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "a.parquet").write_text("x")
    command = [sys.executable, "-m", "headgate.cli.main", "tables", "show", "changes", "--path", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "not a Delta table" in done.stderr
