"""The examples in docs/topologies.md are what the commands print."""

import re
from pathlib import Path

import pytest

from headgate.cli.main import main

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "topologies.md").read_text("utf-8")
EXAMPLES = re.findall(r"^    \$ headgate topology diff (\S+) (\S+)\n((?:(?:    .*)?\n)+)", PAGE, re.MULTILINE)


def test_the_page_has_examples_of_every_verdict() -> None:
    verdicts = re.findall(r"^    Verdict: (.+)$", PAGE, re.MULTILINE)
    assert verdicts == ["safe to roll", "needs a reset", "state is lost"]
    assert len(EXAMPLES) == len(verdicts)


@pytest.mark.parametrize(("before", "after", "shown"), EXAMPLES)
def test_an_example_is_what_the_command_prints(
    before: str, after: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ROOT / "tests" / "fixtures" / "topologies" / "generated"
    assert main(["topology", "diff", str(folder / before), str(folder / after)]) == 1
    expected = "\n".join(line.removeprefix("    ") for line in shown.rstrip("\n").split("\n"))
    assert capsys.readouterr().out == expected + "\n"
