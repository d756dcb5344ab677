"""`headgate dlq audit`: a row for each record that was replayed, parked or skipped, from its table."""

import argparse
import json

from headgate.base.errors import UsageError
from headgate.cli.dlq import DEFAULT_ROWS
from headgate.cli.row_text import cell_text, print_error, print_rows
from headgate.cli.table_places import root_of
from headgate.tables.definitions import TABLES
from headgate.tables.reader import Condition, TableReader
from headgate.tables.table import time_unit

_FILTERS = ("plan", "group", "topic", "outcome")
_SHOWN = (
    *("at", "plan", "topic", "partition", "offset", "outcome", "why"),
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
        found = reader.stream(table, where=where, limit=limit)
        if args.json:
            for row in found or ():
                print(json.dumps(row))
            return 0
        rows = list(found or ())
    finally:
        reader.close()
    if not rows:
        print_error("no record was replayed, parked or skipped")
        return 1
    shown = rows if args.limit is not None else rows[:DEFAULT_ROWS]
    units = {column.name: time_unit(column) for column in table.columns}
    print_rows(_SHOWN, [[cell_text(row[name], units[name]) for name in _SHOWN] for row in shown])
    if len(shown) < len(rows):
        print_error(f"only the first {DEFAULT_ROWS} rows are shown: use --limit N")
    return 0
