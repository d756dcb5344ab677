"""`docs/kip-1331.md` tells the truth: every test that it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs" / "kip-1331.md").read_text("utf-8")


def defined() -> set[str]:
    """The names of all tests, rules and invariants, the stores' contract included."""
    files = [*(ROOT / "tests").rglob("*.py"), ROOT / "src" / "headgate" / "testing" / "topology_store.py"]
    pattern = re.compile(r"^\s*(?:async )?(?:def|class) (\w+)|^(Test\w+)\b", flags=re.MULTILINE)
    return {match[1] or match[2] for path in files for match in pattern.finditer(path.read_text("utf-8"))}


def test_every_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+|Test\w+|an?_\w+)`", DOC))
    assert len(named) > 100
    assert named - defined() == set()
