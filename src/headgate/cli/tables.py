"""`headgate tables`: the parser of the commands that list, show and optimize the pipeline's tables, without Spark.

The commands are in `tables_commands.py`, which is imported when one runs: no other command loads the table libraries.
"""

import argparse
from typing import Final

from headgate.base.errors import PlatformError
from headgate.cli.table_places import add_places, root_of

DEFAULT_ROWS = 100


_EXAMPLES: Final = """\
examples:
  all tables and their sizes        headgate tables list --path DIR
  the topics of an application      headgate tables show app_io --where app_id=orders --config FILE
  yesterday's map, as JSON          headgate tables show lineage_edges --as-of 2026-11-15T12:00:00Z --json --path DIR
"""


def define_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "Read the tables that the pipeline writes, without Spark, and keep their files few."
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    listing = actions.add_parser("list", help="list the tables and their sizes")
    listing.set_defaults(run=_run)

    showing = actions.add_parser("show", help="show rows of a table, in the order of their keys")
    showing.add_argument("name", metavar="NAME", help="the table")
    showing.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="only rows with this value; also !=, <, <=, >, >=; repeat for rows that meet all",
    )
    showing.add_argument(
        "--as-of",
        metavar="now|OFFSET|TIME",
        help="only rows that are valid now, at an offset of the facts' topic, or at a time like 2026-11-15T12:00:00Z",
    )
    showing.add_argument("--columns", metavar="A,B,...", help="only these columns")
    showing.add_argument(
        "--limit", type=int, metavar="N", help=f"at most N rows (all with --json, else {DEFAULT_ROWS})"
    )
    showing.set_defaults(run=_run)

    tidying = actions.add_parser("optimize", help="join small files, and delete unused ones")
    tidying.set_defaults(run=_run)

    for action in (listing, showing, tidying):
        add_places(action, json_help="print JSON; rows as one object a line")


def _run(args: argparse.Namespace) -> int:
    try:
        from headgate.cli import tables_commands as commands  # noqa: PLC0415 - see the docstring
    except ModuleNotFoundError as missing:
        raise PlatformError(f"{missing.name} is not installed: pip install 'headgate[pipeline]'") from None
    command = {"list": commands.list_tables, "show": commands.show_rows, "optimize": commands.optimize_tables}
    return command[args.action](args, root_of(args))
