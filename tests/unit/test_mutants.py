"""The mutants of tests/mutants.toml still fit the sources; that they are killed is what `make mutants` says."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "mutants"
CONTRACT = ROOT / "src" / "headgate" / "plugin" / "conformance.py"
PAGES = ("kip-1316.md", "kip-1331.md", "kip-558.md")
REASONS = ("none: ", "the rows of ")
SLOW = ("tests/integration/", "tests/pipeline/test_facts_query.py")  # as in scripts/mutants


def files_of_tests() -> dict[str, set[str]]:
    """The names of the files that define each test; stores inherit those of their contract."""
    found: dict[str, set[str]] = {}
    for file in (*(ROOT / "tests").rglob("test_*.py"), CONTRACT):
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE):
            found.setdefault(name, set()).add(file.name)
    return found


FILES = files_of_tests()


def test_every_mutant_fits_the_sources_and_names_tests_that_are_there() -> None:
    checked = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def rows() -> list[str]:
    """The rows of all tables of the pages, without their heads."""
    lines = [line for page in PAGES for line in (ROOT / "docs" / page).read_text("utf-8").splitlines()]
    return [
        line for line, after in zip(lines, [*lines[1:], ""], strict=True) if line[:2] == "| " and after[:4] != "|---"
    ]


def named_tests(row: str) -> set[str]:
    """Its tests as FILE::NAME; the row says only the name where no other file has such a test."""
    found = set()
    for file, name in re.findall(r"`(?:(test_\w+\.py)::)?(test_\w+)`", row):
        files = {file} if file else FILES.get(name, set())
        assert len(files) == 1, f"{name} is in {sorted(files)}: write FILE::NAME in {row[:80]}"
        found.add(f"{next(iter(files))}::{name}")
    return found


def killers(*, is_slow: bool) -> set[str]:
    """The tests of mutants: of those that start a real Kafka (`scripts/mutants --slow`), or of the others."""
    mutants = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text("utf-8"))["mutant"]
    chosen = [one["tests"] for one in mutants if any(test.startswith(SLOW) for test in one["tests"]) == is_slow]
    pairs = [test.split("::") for tests in chosen for test in tests]
    files = [(CONTRACT if len(parts) > 2 else Path(parts[0])).name for parts in pairs]
    return {f"{file}::{parts[-1]}" for file, parts in zip(files, pairs, strict=True) if len(parts) > 1}


def test_every_row_of_the_kip_pages_names_a_test_that_fails_with_a_mutant() -> None:
    """Rows that only slow mutants hold say so; one without a test begins with a reason, or with the rows it repeats."""
    quick, slow = killers(is_slow=False), killers(is_slow=True)
    assert len(rows()) > 200
    for row in rows():
        if tests := named_tests(row):
            assert tests & (quick | slow), row
            assert ("slow mutant" in row) == (not tests & quick), row
        else:
            assert row.split(" | ")[-1].startswith(REASONS), row
