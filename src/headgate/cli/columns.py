"""Tables of text as Kafka's own tools print them, and JSON on one line.

The caller escapes names that clients chose.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

NAME_WIDTH = 15


def table(rows: Iterable[Sequence[str]], widths: Sequence[int]) -> str:
    """One line a row; cells without a width are not padded."""
    lines = []
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        lines.append(" ".join([*cells, *row[len(widths) :]]) + "\n")
    return "".join(lines)


def widest(rows: Iterable[Sequence[str]], place: int, least: int = NAME_WIDTH) -> int:
    """The width of a column by its longest cell; as in Kafka's tools the heading does not count."""
    return max([least, *(len(row[place]) for row in list(rows)[1:])])


def or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def json_text(document: dict[str, Any]) -> str:
    return json.dumps(document) + "\n"
