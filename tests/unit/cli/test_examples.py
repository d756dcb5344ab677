"""The examples in the help of commands are commands."""

import re
import shlex

import pytest

from headgate.cli.main import COMMANDS, parse_arguments


def examples(command: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    with pytest.raises(SystemExit):
        parse_arguments([command, "--help"])
    return re.findall(r"^  .*? {2,}headgate (.+)$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_of_a_command_can_be_typed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for line in examples(command, capsys):
        assert callable(parse_arguments(shlex.split(line)).run), line


@pytest.mark.parametrize("command", ["topology", "tables", "lineage", "dlq"])
def test_a_command_with_several_actions_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(examples(command, capsys)) >= 3
