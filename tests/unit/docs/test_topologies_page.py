"""The examples in docs/topologies.md are what the commands print."""

import re
from pathlib import Path

import pytest

from headgate.cli.main import main
from headgate.facts.topology import content_hash
from tests.unit.topologies.topologies import generated

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "topologies.md").read_text("utf-8")
EXAMPLES = re.findall(r"^    \$ headgate topology diff (\S+) (\S+)\n((?:(?:    .*)?\n)+)", PAGE, re.MULTILINE)
FOLDER = ROOT / "tests" / "fixtures" / "topologies" / "generated"


def test_the_page_has_examples_of_every_verdict() -> None:
    verdicts = [re.findall(r"^    Verdict: (.+)$", shown, re.MULTILINE) for _, _, shown in EXAMPLES]
    assert verdicts == [["safe to roll"], ["needs a reset"], ["state is lost"]]


@pytest.mark.parametrize(("before", "after", "shown"), EXAMPLES)
def test_an_example_is_what_the_command_prints(
    before: str, after: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topology", "diff", str(FOLDER / before), str(FOLDER / after)]) == 1
    expected = "\n".join(line.removeprefix("    ") for line in shown.rstrip("\n").split("\n"))
    assert capsys.readouterr().out == expected + "\n"


def test_the_roll_out_of_pushed_versions_is_that_of_the_texts() -> None:
    before, after, of_texts = EXAMPLES[0]
    [of_versions] = re.findall(
        r"^    \$ headgate topology diff orders@previous orders@latest --config headgate.toml\n((?:(?:    .*)?\n)+)",
        PAGE,
        re.MULTILINE,
    )
    assert of_versions.rstrip() == of_texts.rstrip()
    hashes = re.findall(r"^    \w+/0/(\w+) \S+ \S+ pushed ", PAGE, re.MULTILINE)
    pushed = [generated(name.removesuffix(".txt")) for name in (after, before)]
    assert hashes == [content_hash(one).removeprefix("sha256:")[:12] for one in pushed]
