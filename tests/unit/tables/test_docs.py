"""`docs/tables.md` says what the definitions say, and its answers are what the commands really print."""

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.cli.main import main
from headgate.tables.definitions import TABLES
from headgate.tables.table import Table, meaning, time_unit
from tests.unit.tables.estate import write_estate

DOC = (Path(__file__).parents[3] / "docs" / "tables.md").read_text("utf-8")
SECTIONS = {
    match[1]: match[2] for match in re.finditer(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", DOC, flags=re.MULTILINE | re.DOTALL)
}
TYPES = {
    "string": "text",
    "int32": "32-bit number",
    "int64": "64-bit number",
    "double": "number",
    "bool": "true or false",
}
each_table = pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_estate(folder / ".headgate" / "tables")
    return folder


def test_every_table_has_its_section() -> None:
    assert set(SECTIONS) == set(TABLES)


@each_table
def test_columns_are_those_of_the_definition(table: Table) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", SECTIONS[table.name], flags=re.MULTILINE)
    assert rows == [
        (column.name, type_words(column) + (", or null" if column.nullable else ""), meaning(column))
        for column in table.columns
    ]


def type_words(column: pa.Field) -> str:
    unit = time_unit(column)
    return f"epoch {unit}" if unit else TYPES[str(column.type)]


@each_table
def test_description_key_and_question_are_those_of_the_definition(table: Table) -> None:
    section = " ".join(SECTIONS[table.name].split())
    assert section.startswith(table.description)
    buckets = f" {table.buckets} buckets by {_names(table.bucket_by)}." if table.buckets else ""
    assert f"Key: {_names(table.key)}.{buckets} | column" in section
    assert f"**{table.question}**" in section


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("utc")
@each_table
def test_the_printed_answer_is_that_of_the_command(
    table: Table, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    example = re.search(r"```console\n\$ headgate (.*?)\n(.*?)```", SECTIONS[table.name], flags=re.DOTALL)
    assert example is not None
    command, answer = example.groups()
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == answer


def test_the_question_in_python_works(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    example = re.search(r"```python\n(.*?)```", DOC, flags=re.DOTALL)
    assert example is not None
    exec(example[1], {})
    assert "orders-app" in capsys.readouterr().out


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in columns)
