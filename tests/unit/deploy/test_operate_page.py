"""`docs/operate.md` explains every cause of an end and every log line that the gateway has."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from headgate.proxy.interceptor import CloseCause

ROOT = Path(__file__).parents[3]
OPERATE = (ROOT / "docs" / "operate.md").read_text("utf-8")
LEVELS = {"info": "info", "warning": "warning", "error": "error", "exception": "error"}


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", OPERATE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def log_lines() -> Iterator[tuple[str, str]]:
    """Text and level of every `log.<level>("text", ...)` of the gateway."""
    folders = [
        ROOT / "src" / "headgate" / name
        for name in ("cli", "kafka", "proxy", "topologies", "share_groups", "activity", "lags")
    ]
    for file in sorted(file for folder in folders for file in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[ast.Constant(value=str(text)), *_]
                ) if level in LEVELS:
                    yield text, LEVELS[level]


def test_every_cause_of_an_end_is_explained_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", section("Why connections end"), re.MULTILINE)
    assert rows == [cause.value for cause in CloseCause]


def test_every_log_line_is_explained_and_no_other() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \| .+ \|$", section("Log lines"), re.MULTILINE)
    assert sorted(rows) == sorted(set(log_lines()))


def test_the_capacity_table_names_where_its_figures_come_from() -> None:
    assert "bench/RESULTS.md" in section("Capacity")
