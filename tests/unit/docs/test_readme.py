"""README's commands are commands that this release has, and name what the sample of `make run` has."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from headgate.cli.main import COMMANDS, parse_arguments
from headgate.sample import shop
from headgate.sample.share_consumers import BILLING_SWITCH

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text("utf-8")
LINES = [line.strip() for line in re.findall(r"^    (.+)$", README, re.MULTILINE)]
EXAMPLES = [line for line in LINES if line.startswith("headgate ")]
SAMPLE = {value for name, value in vars(shop).items() if name.isupper() and isinstance(value, str)}


def test_the_readme_shows_the_features_by_commands() -> None:
    assert {shlex.split(line)[1] for line in EXAMPLES} >= {
        "streams-groups",
        "share-groups",
        "connectors",
        "tables",
        "lineage",
    }


@pytest.mark.parametrize("line", EXAMPLES)
def test_a_command_of_the_readme_is_valid(line: str) -> None:
    arguments = shlex.split(line, comments=True)[1:]
    assert callable(parse_arguments(arguments).run)


@pytest.mark.parametrize("line", EXAMPLES)
def test_a_command_of_the_readme_names_what_the_sample_has(line: str) -> None:
    arguments = shlex.split(line, comments=True)
    named = [value for option, value in pairwise(arguments) if option == "--group"]
    named += arguments[-1:] if arguments[1] == "connectors" else []
    named += arguments[3:4] if arguments[1:3] == ["lineage", "impact"] else []
    assert set(named) <= SAMPLE


def test_commands_in_sentences_exist() -> None:
    named = set(re.findall(r"`headgate ([a-z-]+)", README))
    assert named
    assert named <= set(COMMANDS)


def test_the_switch_of_the_outage_is_the_one_that_the_sample_looks_at() -> None:
    touched = [shlex.split(line)[1] for line in LINES if line.startswith(("touch ", "rm "))]
    assert touched == [f".headgate/{BILLING_SWITCH}"] * 2


def test_files_of_the_readme_exist() -> None:
    files = set(re.findall(r"`((?:docs|bench|deploy)/[\w.-]+|[A-Z]+\.md)`", README))
    assert len(files) > 20
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []


def test_the_installation_names_the_folders_of_the_unit() -> None:
    unit = (ROOT / "deploy" / "headgate.service").read_text("utf-8")
    page = (ROOT / "docs" / "operate.md").read_text("utf-8")
    [section] = re.findall(r"^## Install\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    [program] = re.findall(r"^ExecStart=(\S+)/bin/headgate ", unit, re.MULTILINE)
    assert f"python3 -m venv {program}" in section
    [user] = re.findall(r"^User=(\w+)", unit, re.MULTILINE)
    assert re.search(rf"^    useradd .* {user}$", section, re.MULTILINE)
