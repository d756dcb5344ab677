"""The mutants of tests/mutants.toml still fit the sources; that they are killed is what `make mutants` says."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "mutants"


def test_every_mutant_fits_the_sources_and_names_tests_that_are_there() -> None:
    checked = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
