"""`headgate tables`: what the pipeline has made of the facts, without Spark.

One rule: the libraries that read tables are loaded when a table is read, so that no other command pays for them. What
the command does is in `tables_answers.py`.
"""

import argparse
import os
from pathlib import Path

from headgate.base.errors import PlatformError
from headgate.config import load

SHOWN = 100


# argparse gives the type of add_subparsers() no public name.
def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("tables", help="list, show and tidy the tables that the pipeline makes")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    listing = actions.add_parser("list", help="the tables that are there, and their sizes")
    listing.set_defaults(run=_run)

    showing = actions.add_parser("show", help="rows of a table, in the order of their keys")
    showing.add_argument("name", metavar="NAME", help="the table")
    showing.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="only rows whose column is so; also !=, <, <=, >, >=; several hold together",
    )
    showing.add_argument(
        "--as-of",
        metavar="now|OFFSET|TIME",
        help="only rows that hold now, or held at that offset of the facts' topic, or at 2026-11-15T12:00:00Z",
    )
    showing.add_argument("--columns", metavar="A,B,...", help="only these columns")
    showing.add_argument("--limit", type=int, metavar="N", help=f"at most N rows (all with --json, else {SHOWN})")
    showing.set_defaults(run=_run)

    tidying = actions.add_parser("optimize", help="join small files, and delete those that nobody reads any more")
    tidying.set_defaults(run=_run)

    for action in (listing, showing, tidying):
        places = action.add_mutually_exclusive_group()
        places.add_argument("--path", type=Path, metavar="DIR", help="the folder of the tables")
        places.add_argument("--config", type=Path, metavar="FILE", help="the TOML file whose [tables] path to take")
        action.add_argument("--json", action="store_true", help="JSON on standard output; of rows, one a line")


def _run(args: argparse.Namespace) -> int:
    try:
        from headgate.cli import tables_answers as answers  # noqa: PLC0415 - see the rule of this module
    except ModuleNotFoundError as missing:
        raise PlatformError(f"{missing.name} is not installed: pip install 'headgate[pipeline]'") from None
    root = args.path if args.path is not None else load(args.config, os.environ).tables.path
    answer = {"list": answers.list_tables, "show": answers.show_rows, "optimize": answers.optimize_tables}[args.action]
    return answer(args, root)
