"""`docs/security.md` has one table a section, and every test that it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
HEAD = "| who | may or can do | bound | test |"
TEST = re.compile(r"`(test_\w+)`")


def test_each_section_has_one_table_and_each_row_names_a_test() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert [section[:2] for section in sections] == ["A.", "B.", "C.", "D.", "E.", "F.", "G."]
    for section in sections:
        head, line, *rows = [row for row in section.splitlines() if row.startswith("|")]
        assert (head, line) == (HEAD, "|---|---|---|---|")
        assert [row for row in rows if not TEST.search(row.split(" | ")[-1]) or row.count(" | ") != 3] == []


def test_every_test_that_the_page_names_exists() -> None:
    named = set(TEST.findall(PAGE))
    defined = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
    }
    assert len(named) > 25
    assert named - defined == set()
