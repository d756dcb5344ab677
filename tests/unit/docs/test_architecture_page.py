"""`docs/architecture.md` names files that exist, and its table counts the files of each flow."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
FILE = re.compile(r"`([a-z_0-9]+(?:/[a-z_0-9]+)+\.py)`")


def test_every_file_that_the_page_names_exists() -> None:
    named = set(FILE.findall(PAGE))
    assert len(named) > 40
    assert {file for file in named if not (ROOT / "src" / "headgate" / file).exists()} == set()


def test_the_table_of_flows_counts_the_files_of_their_steps() -> None:
    counted = [int(number) for number in re.findall(r"^\| .+ \| \d+ \| (\d+) \|$", PAGE, re.MULTILINE)]
    steps = re.findall(r"^### .+?\n\n(1\. .+?)\n\n", PAGE, re.MULTILINE | re.DOTALL)
    assert len(steps) == 4
    assert counted == [len(set(FILE.findall(step))) for step in steps]


def test_what_the_table_does_not_count_is_in_no_step_of_any_flow() -> None:
    rule = PAGE.partition("## Four flows")[2].partition("\n|")[0]
    left_out = re.findall(r"`([a-z_/]+(?:\.py|/))`", rule)
    assert {"wire/", "facts/", "kafka/connections.py"} <= set(left_out)
    steps = re.findall(r"^### .+?\n\n(1\. .+?)\n\n", PAGE, re.MULTILINE | re.DOTALL)
    assert [file for step in steps for file in FILE.findall(step) if file.startswith(tuple(left_out))] == []
