"""What `headgate tables` answers: the tables that are there, their rows, and what tidying them did."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from headgate.base.errors import HeadgateError, UsageError
from headgate.cli.logs import escaped
from headgate.cli.tables import SHOWN
from headgate.tables.definition import Table
from headgate.tables.reader import AsOf, AtOffset, AtTime, Condition, Now, Operator, TableReader, column_of, kind_of
from headgate.tables.registry import all_tables, table_named
from headgate.tables.writer import TableWriter

_CONDITION = re.compile(r"(\w+)(=|!=|<=|>=|<|>)(.*)", re.DOTALL)
_HIGHEST = 2**63 - 1


def list_tables(args: argparse.Namespace, root: Path) -> int:
    """0 also when there are no tables yet, 1 when one cannot be read; the others are listed."""
    reader = TableReader(root)

    def look(table: Table) -> dict[str, Any] | None:
        summary = reader.summary(table)
        return None if summary is None else {"name": table.name, **asdict(summary)}

    found, code = _of_each(look)
    if not found and not code:
        _tell(f"no tables in {escaped(str(root))} yet; `headgate pipeline run` makes them")
    _print_tables(args, found)
    return code


def show_rows(args: argparse.Namespace, root: Path) -> int:
    """0 with or without rows, 1 when the table is not there."""
    table = table_named(args.name)
    if args.limit is not None and not 0 <= args.limit < _HIGHEST:
        raise UsageError("--limit must be a whole number from 0")
    columns = list(dict.fromkeys(args.columns.split(","))) if args.columns else table.columns.names
    rows = TableReader(root).stream(
        table,
        where=[_condition(table, one) for one in args.where],
        as_of=None if args.as_of is None else _as_of(args.as_of),
        columns=columns,
        limit=args.limit if args.json or args.limit is not None else SHOWN + 1,
    )
    if rows is None:
        _tell(f"the table {table.name} is not in {escaped(str(root))} yet; `headgate pipeline run` makes it")
        return 1
    if args.json:
        for row in rows:
            print(json.dumps(row))
        return 0
    shown = [[row[name] for name in columns] for row in rows]
    more = args.limit is None and len(shown) > SHOWN
    print(_aligned(columns, shown[:SHOWN] if more else shown), end="")
    if more:
        _tell(f"there are more than {SHOWN} rows: --limit N shows more, --json shows all")
    return 0


def optimize_tables(args: argparse.Namespace, root: Path) -> int:
    """0 when all that are there are tidy, 1 when one could not be tidied; the others are."""

    def tidy(table: Table) -> dict[str, Any] | None:
        done = TableWriter(root, table).optimize()
        return None if done is None else {"name": table.name, **asdict(done)}

    found, code = _of_each(tidy)
    _print_tables(args, found)
    return code


def _of_each(work: Callable[[Table], dict[str, Any] | None]) -> tuple[list[dict[str, Any]], int]:
    """What the work says of each table that is there; a table that fails is told of, and stops no other."""
    found = []
    code = 0
    for table in all_tables().values():
        try:
            one = work(table)
        except HeadgateError as problem:
            _tell(str(problem))
            code = problem.exit_code
        else:
            found += [] if one is None else [one]
    return found, code


def _print_tables(args: argparse.Namespace, found: Sequence[dict[str, Any]]) -> None:
    if args.json:
        print(json.dumps({"tables": found}))
    elif found:
        print(_aligned(list(found[0]), [list(one.values()) for one in found]), end="")


def _condition(table: Table, words: str) -> Condition:
    parts = _CONDITION.fullmatch(words)
    if parts is None:
        raise UsageError(f"--where {escaped(words)}: write COLUMN=VALUE, or one of != < <= > >= for =")
    name, value = parts[1], parts[3]
    operator = cast("Operator", parts[2])
    kind = kind_of(column_of(table, name))
    if kind is str and not any("\ud800" <= char <= "\udfff" for char in value):
        return Condition(name, operator, value)
    if kind is bool and value in {"true", "false"}:
        return Condition(name, operator, value == "true")
    if kind is int and re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
        return Condition(name, operator, int(value))
    expected = {str: "a text", bool: "true or false", int: "a whole number"}[kind]
    raise UsageError(f"--where {escaped(words)}: {name} is {expected}")


def _as_of(words: str) -> AsOf:
    if words == "now":
        return Now()
    if re.fullmatch(r"\d{1,18}", words, re.ASCII):
        return AtOffset(int(words))
    try:
        time = datetime.fromisoformat(words)
    except ValueError:
        raise UsageError(
            f"--as-of {escaped(words)}: write now, an offset, or a time such as 2026-11-15T12:00:00Z"
        ) from None
    return AtTime(round(time.replace(tzinfo=time.tzinfo or UTC).timestamp() * 1000))


def _aligned(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A line a row under capital headings; null is -, and nothing moves the cursor."""
    lines = [[name.upper().replace("_", "-") for name in headings], *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in lines
    )


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else escaped(str(value))


def _tell(words: str) -> None:
    print(f"headgate: {words}", file=sys.stderr, flush=True)
