"""The commands of `headgate tables`: list the tables, show rows, optimize. Times are shown in the local zone."""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, cast

from headgate.base.errors import HeadgateError, UsageError
from headgate.base.locations import Location
from headgate.cli.escaping import escaped
from headgate.cli.row_text import cell_text, parse_time, print_error, print_rows
from headgate.cli.tables import DEFAULT_ROWS
from headgate.tables.definitions import TABLES, table_named
from headgate.tables.reader import AsOf, AtOffset, AtTime, Condition, Now, Operator, TableReader, column_of, kind_of
from headgate.tables.table import WRITTEN_BY, Table, time_unit
from headgate.tables.writer import TableWriter

_CONDITION = re.compile(r"(\w+)(=|!=|<=|>=|<|>)(.*)", re.DOTALL)
_HIGHEST = 2**63 - 1


def list_tables(args: argparse.Namespace, root: Location) -> int:
    """List all tables; returns 1 when one cannot be read, and 0 also when there are none."""
    reader = TableReader(root)

    def summarize(table: Table) -> dict[str, Any] | None:
        summary = reader.summary(table)
        return None if summary is None else {"name": table.name, **asdict(summary)}

    found, code = _each_table(summarize)
    if not found and not code:
        print_error(f"no table in {escaped(str(root))} yet; {WRITTEN_BY}")
    _print_tables(args, found)
    return code


def show_rows(args: argparse.Namespace, root: Location) -> int:
    """Show the matching rows; returns 1 when there is no table, and 0 also when no row matches."""
    table = table_named(args.name)
    if args.limit is not None and not 0 <= args.limit < _HIGHEST:
        raise UsageError("--limit must be a whole number from 0")
    columns = list(dict.fromkeys(args.columns.split(","))) if args.columns else table.columns.names
    rows = TableReader(root).stream(
        table,
        where=[_condition(table, one) for one in args.where],
        as_of=None if args.as_of is None else _as_of(args.as_of),
        columns=columns,
        limit=args.limit if args.json or args.limit is not None else DEFAULT_ROWS + 1,
    )
    if rows is None:
        print_error(f"no table {table.name} in {escaped(str(root))} yet; {WRITTEN_BY}")
        return 1
    if args.json:
        for row in rows:
            print(json.dumps(row))
        return 0
    units = {name: time_unit(column_of(table, name)) for name in columns}
    shown = [[cell_text(row[name], units[name]) for name in columns] for row in rows]
    more = args.limit is None and len(shown) > DEFAULT_ROWS
    print_rows(columns, shown[:DEFAULT_ROWS] if more else shown)
    if more:
        print_error(f"there are more than {DEFAULT_ROWS} rows: --limit N shows more, --json shows all")
    return 0


def optimize_tables(args: argparse.Namespace, root: Location) -> int:
    """Optimize all tables; returns 1 when one could not be optimized."""

    def optimize(table: Table) -> dict[str, Any] | None:
        done = TableWriter(root, table).optimize()
        return None if done is None else {"name": table.name, **asdict(done)}

    found, code = _each_table(optimize)
    _print_tables(args, found)
    return code


def _each_table(work: Callable[[Table], dict[str, Any] | None]) -> tuple[list[dict[str, Any]], int]:
    """The results for all existing tables; an error is printed, and the other tables go on."""
    found = []
    code = 0
    for table in TABLES.values():
        try:
            one = work(table)
        except HeadgateError as problem:
            print_error(str(problem))
            code = problem.exit_code
        else:
            found += [] if one is None else [one]
    return found, code


def _print_tables(args: argparse.Namespace, found: Sequence[dict[str, Any]]) -> None:
    if args.json:
        print(json.dumps({"tables": found}))
    elif found:
        units = {"updated": "milliseconds"}
        print_rows(
            list(found[0]), [[cell_text(value, units.get(name)) for name, value in one.items()] for one in found]
        )


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
    if kind is float and re.fullmatch(r"-?\d{1,18}(\.\d{1,18})?", value, re.ASCII):
        return Condition(name, operator, float(value))
    expected = {str: "a text", bool: "true or false", int: "a whole number", float: "a number such as 0.25"}[kind]
    raise UsageError(f"--where {escaped(words)}: {name} is {expected}")


def _as_of(words: str) -> AsOf:
    if words == "now":
        return Now()
    if re.fullmatch(r"\d{1,18}", words, re.ASCII):
        return AtOffset(int(words))
    return AtTime(parse_time("--as-of", words, "now, an offset, or "))
