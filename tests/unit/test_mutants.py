"""The mutants of tests/mutants.toml still fit the sources; that they are killed is what `make mutants` says."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "mutants"
PAGES = ("kip-1316.md", "kip-1331.md", "kip-558.md")


def test_every_mutant_fits_the_sources_and_names_tests_that_are_there() -> None:
    checked = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_row_of_the_kip_pages_names_a_test_that_fails_with_a_mutant() -> None:
    """Or it names no test and says why there is none, or which rows it repeats."""
    mutants = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text("utf-8"))["mutant"]
    failing = {test.rpartition("::")[2] for mutant in mutants for test in mutant["tests"]}
    rows = [
        line for page in PAGES for line in (ROOT / "docs" / page).read_text("utf-8").splitlines() if line[:2] == "| "
    ]
    assert len(rows) > 200
    assert [row for row in rows if (names := re.findall(r"`(test_\w+)`", row)) and failing.isdisjoint(names)] == []
