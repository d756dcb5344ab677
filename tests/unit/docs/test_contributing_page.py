"""`CONTRIBUTING.md` lists the tiers of `make test` with their quotas, and its rules about names and sizes hold."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
SOURCES = sorted((ROOT / "src" / "headgate").rglob("*.py"))
LONGEST = 500


def test_the_table_of_tiers_is_that_of_make_test() -> None:
    tiers = re.findall(r"^\tscripts/tier (\w+) (\d+) ", MAKEFILE, re.MULTILINE)
    assert len(tiers) > 5
    assert re.findall(r"^\| (\w+) \| (\d+) \|", PAGE, re.MULTILINE) == tiers


def test_every_target_that_the_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))
    named = {
        target
        for line in re.findall(r"`make ([a-z -]+)`|^    make ([a-z -]+?)  ", PAGE, re.MULTILINE)
        for target in "".join(line).split()
    }
    assert {"check", "format", "mutants"} <= named
    assert named - targets == set()


def test_no_two_classes_of_the_sources_have_the_same_name() -> None:
    declared = re.compile(r"^class (\w+)[(:\[]", re.MULTILINE)
    names = Counter(name for path in SOURCES for name in declared.findall(path.read_text("utf-8")))
    assert len(names) > 300
    assert [name for name, times in names.items() if times > 1] == []


def test_no_source_file_is_longer_than_one_idea() -> None:
    lines = {path: path.read_text("utf-8").count("\n") for path in SOURCES}
    assert {path.name: count for path, count in lines.items() if count > LONGEST} == {}
