"""The pages that list a document's rules tell the truth: every test that they name is there."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs").glob("kip-*.md"))


@cache
def defined() -> set[str]:
    """The names of all tests, rules and invariants, the stores' contract included."""
    files = [*(ROOT / "tests").rglob("*.py"), ROOT / "src" / "headgate" / "plugin" / "conformance.py"]
    pattern = re.compile(r"^\s*(?:async )?(?:def|class) (\w+)|^(Test\w+)\b", flags=re.MULTILINE)
    return {match[1] or match[2] for path in files for match in pattern.finditer(path.read_text("utf-8"))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_test_that_the_page_names_is_there(page: Path) -> None:
    named = set(re.findall(r"`(test_\w+|Test\w+|an?_\w+)`", page.read_text("utf-8")))
    assert len(named) > 20
    assert named - defined() == set()


def test_there_are_such_pages() -> None:
    assert "kip-1331" in {page.stem for page in PAGES}
