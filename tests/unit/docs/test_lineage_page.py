"""`docs/lineage.md` shows every command of `headgate lineage`, and each example is one that the parser accepts."""

import argparse
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.cli import lineage
from headgate.cli.main import main, parse_arguments
from tests.unit.lineage.shop import write_shop

PAGE = (Path(__file__).parents[3] / "docs" / "lineage.md").read_text("utf-8")
EXAMPLES = re.findall(r"^\$ headgate (lineage .*)$", PAGE, flags=re.MULTILINE)


def actions() -> set[str]:
    parser = argparse.ArgumentParser()
    lineage.define_arguments(parser)
    (group,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return set(group.choices)


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_is_accepted(example: str) -> None:
    assert parse_arguments(shlex.split(example)).action in actions()


def test_the_page_has_all_commands_and_an_example_of_each() -> None:
    assert set(re.findall(r"^    headgate lineage (\w+)", PAGE, flags=re.MULTILINE)) == actions()
    assert {shlex.split(example)[1] for example in EXAMPLES} == actions()


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("utc")
def test_the_gaps_of_the_example_are_what_the_command_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shop(tmp_path / ".headgate" / "tables")
    monkeypatch.chdir(tmp_path)
    section = PAGE[PAGE.index("## Gaps, by example") :]
    example = re.search(r"```console\n\$ headgate (.*?)\n(.*?)```", section, flags=re.DOTALL)
    assert example is not None
    command, answer = example.groups()
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == answer
