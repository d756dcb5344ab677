"""`headgate dlq audit`: a row for each record that was replayed, parked or skipped, from its table.

The reason of the dead letter comes from the plan. Both tables are read in the order of their keys, which are the same.
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from headgate.base.errors import UsageError
from headgate.cli.dlq import DEFAULT_ROWS
from headgate.cli.row_text import cell_text, print_error, print_rows
from headgate.cli.table_places import root_of
from headgate.tables.definitions import TABLES
from headgate.tables.reader import Condition, TableReader
from headgate.tables.table import time_unit

_FILTERS = ("plan", "group", "topic", "outcome")
_KEY = TABLES["replay_audit"].key
_SHOWN = (
    *("at", "plan", "topic", "partition", "offset", "outcome", "why", "reason"),
    *("target_topic", "target_partition", "target_offset", "by"),
)


def run(args: argparse.Namespace) -> int:
    if args.limit is not None and args.limit < 1:
        raise UsageError("--limit must be a whole number from 1")
    table = TABLES["replay_audit"]
    where = [Condition(name, "=", getattr(args, name)) for name in _FILTERS if getattr(args, name) is not None]
    reader = TableReader(root_of(args))
    try:
        limit = args.limit if args.limit is not None or args.json else DEFAULT_ROWS + 1
        found = _with_reasons(reader.stream(table, where=where, limit=limit) or iter(()), reader, args.plan)
        if args.json:
            for row in found:
                print(json.dumps(row))
            return 0
        rows = list(found)
    finally:
        reader.close()
    if not rows:
        print_error("no record was replayed, parked or skipped")
        return 1
    shown = rows if args.limit is not None else rows[:DEFAULT_ROWS]
    units = {column.name: time_unit(column) for column in table.columns}
    print_rows(_SHOWN, [[cell_text(row[name], units.get(name)) for name in _SHOWN] for row in shown])
    if len(shown) < len(rows):
        print_error(f"only the first {DEFAULT_ROWS} rows are shown: use --limit N")
    return 0


def _with_reasons(rows: Iterator[dict[str, Any]], reader: TableReader, plan: str | None) -> Iterator[dict[str, Any]]:
    """The rows with the `reason` of their dead letters; null where the plan is not in the tables any more."""
    where = [] if plan is None else [Condition("plan", "=", plan)]
    planned = reader.stream(TABLES["replay_plan_records"], where=where, columns=(*_KEY, "reason")) or iter(())
    record = next(planned, None)
    for row in rows:
        while record is not None and _place(record) < _place(row):
            record = next(planned, None)
        has_record = record is not None and _place(record) == _place(row)
        yield row | {"reason": record["reason"] if record is not None and has_record else None}


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)
