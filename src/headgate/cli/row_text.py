"""Rows of tables as text: aligned columns, times in the local zone, control characters escaped; and errors."""

import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from headgate.base.errors import UsageError
from headgate.cli.escaping import escaped

_MIN_WIDTH: Final = len("2026-11-16 01:58:44")  # no cell is shortened further
_SEPARATOR: Final = "  "


def parse_time(option: str, words: str, others: str = "") -> int:
    """A time of the command line in epoch milliseconds, in UTC where it names no zone; `others` can stand for it."""
    try:
        time = datetime.fromisoformat(words)
        return round(time.replace(tzinfo=time.tzinfo or UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageError(f"{option} {escaped(words)}: write {others}a time such as 2026-11-15T12:00:00Z") from None


def print_rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A line for each row under its headings; on a terminal, cells are shortened so that a line fits.

    Where a line has too many columns for the terminal, each cell has a line of its own.
    """
    names = [name.upper().replace("_", "-") for name in headings]
    lines = [names, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if sys.stdout.isatty():
        available = shutil.get_terminal_size().columns
        fitting = _fit(widths, available - len(_SEPARATOR) * (len(widths) - 1))
        if fitting is None:
            _print_cells(names, rows, available)
            return
        widths = fitting
    for line in lines:
        cells = (f"{_shorten(cell, width):<{width}}" for cell, width in zip(line, widths, strict=True))
        print(_SEPARATOR.join(cells).rstrip())


def _print_cells(names: Sequence[str], rows: Sequence[Sequence[str]], available: int) -> None:
    width = max(map(len, names))
    for number, row in enumerate(rows):
        if number:
            print()
        for name, cell in zip(names, row, strict=True):
            print(f"{name:<{width}}{_SEPARATOR}{_shorten(cell, max(_MIN_WIDTH, available - width - len(_SEPARATOR)))}")


def _fit(widths: Sequence[int], available: int) -> list[int] | None:
    """The widths with the widest of them reduced to what is available; None when that is too little."""
    fitting = list(widths)
    while sum(fitting) > available:
        widest = max(fitting)
        if widest <= _MIN_WIDTH:
            return None
        fitting[fitting.index(widest)] -= 1
    return fitting


def _shorten(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - 1] + "…"


def cell_text(value: object, unit: str | None = None) -> str:
    """A value as text: null is -, a time is in the local zone, control characters are escaped, fractions rounded."""
    if value is None:
        return "-"
    if unit is not None and isinstance(value, int):
        return local_time(value, unit)
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).lower() if isinstance(value, bool) else escaped(str(value))


def local_time(value: int, unit: str) -> str:
    try:
        time = datetime.fromtimestamp(value / 1000 if unit == "milliseconds" else value, UTC)
        return f"{time.astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):  # a fact's time can be any number
        return str(value)


def print_error(words: str) -> None:
    print(f"headgate: {words}", file=sys.stderr, flush=True)
