"""`bench/SOAK.md`: one section a campaign, each with when, on what and by which command it was measured.

One rule: a run replaces its own section and leaves the others as they are; figures are written as they were measured,
also those that missed their target.
"""

import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.machine import facts

PAGE = Path(__file__).resolve().parents[2] / "bench" / "SOAK.md"
_TITLE = """# Soak

Results of `make soak` (`make soak MINUTES=10`) and `make soak-pipeline`, each section as its last run wrote it. The
tests are in `tests/soak`.
"""


def write_section(name: str, lines: Iterable[str], *, is_first: bool = False, page: Path = PAGE) -> None:
    """Put the section into the page: where its predecessor stood, or at the end, or first."""
    sections = _sections(page.read_text(encoding="utf-8") if page.exists() else "")
    if is_first:
        sections = {name: "", **sections}
    sections[name] = "\n".join(["", *_measured(), "", *lines]).rstrip() + "\n"
    text = _TITLE + "".join(f"\n## {title}\n{body}" for title, body in sections.items())
    page.write_text(text, encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table; the first column is text, the others are figures."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def _sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)[1:]
    return {title: body.rstrip() + "\n" for title, body in zip(parts[::2], parts[1::2], strict=True)}


def _measured() -> list[str]:
    """Date, command and machine."""
    minutes = os.environ.get("HEADGATE_TEST_MINUTES") or "10"
    machine = ", ".join(f"{name} {value}" for name, value in facts().items())
    return [f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, `make soak MINUTES={minutes}`. {machine}."]
