"""`headgate lineage`: the parser of the commands that answer questions about an estate from its tables, without Spark.

The commands are in `lineage_commands.py`, which is imported when one runs: no other command loads the table libraries.
"""

import argparse
from typing import Final

from headgate.base.errors import PlatformError
from headgate.cli.table_places import add_places, root_of

DEFAULT_LIMIT: Final = 1000
MAX_LIMIT: Final = 1_000_000

_EXAMPLES: Final = """\
examples:
  what breaks if the topic orders stops       headgate lineage impact orders
  what the topic totals is made from          headgate lineage impact totals --direction up
  how orders becomes totals                   headgate lineage path orders totals
  where descriptions and use differ           headgate lineage gaps
  who writes orders, and past the gateway     headgate lineage owners orders
  how much of the estate the gateway sees     headgate lineage coverage
  which applications have not run this month  headgate lineage idle --days 30
  what changed before a breaker tripped       headgate lineage causes billing
"""


def define_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    impact = actions.add_parser("impact", help="show what depends on a topic, or what it depends on")
    impact.add_argument("topic", metavar="TOPIC")
    impact.add_argument(
        "--direction",
        choices=("down", "up"),
        default="down",
        help="down: what depends on the topic (default); up: what the topic depends on",
    )

    path = actions.add_parser("path", help="show the shortest ways of data from one topic or application to another")
    path.add_argument("start", metavar="A", help="a topic, or the name of an application, group or client")
    path.add_argument("end", metavar="B", help="the same")

    gaps = actions.add_parser("gaps", help="list where descriptions of applications and their use of topics differ")
    gaps.add_argument("--kind", choices=("declared_silent", "used_undeclared", "mismatch"), help="only this kind")
    gaps.add_argument(
        "--state",
        choices=("open", "unknown", "closed", "all"),
        default="open",
        help="open (default); unknown: the gateway sees too little of the topic to tell; closed; all",
    )
    gaps.add_argument("--topic", metavar="TOPIC", help="only gaps of this topic")
    gaps.add_argument("--application", metavar="NAME", help="only gaps of this application, group or client")
    gaps.add_argument("--since", metavar="TIME", help="only gaps that began then or later, 2026-11-15T12:00:00Z")

    owners = actions.add_parser("owners", help="show who writes and reads a topic, and how much passes the gateway")
    owners.add_argument("topic", metavar="TOPIC")

    coverage = actions.add_parser("coverage", help="show how many records are written through the gateway, by topic")
    coverage.add_argument("--hours", type=int, default=24, metavar="N", help="of the last N hours (24)")

    idle = actions.add_parser("idle", help="list applications and groups that have not been seen for a time")
    idle.add_argument("--days", type=int, default=30, metavar="N", help="for N days (30)")

    causes = actions.add_parser("causes", help="show what changed before the circuit breaker of a share group tripped")
    causes.add_argument("group", metavar="GROUP", help="the share group")
    causes.add_argument("--trips", type=int, default=1, metavar="N", help="of its last N trips (1)")

    for action in (impact, path, gaps, owners, coverage, idle, causes):
        action.set_defaults(run=_run)
        action.add_argument("--as-of", metavar="now|TIME", help="at a time, such as 2026-11-15T12:00:00Z (now)")
        action.add_argument("--cluster-id", metavar="ID", help="the Kafka cluster, where the tables have several")
        action.add_argument(
            "--limit",
            type=int,
            default=DEFAULT_LIMIT if action is not path else 10,
            metavar="N",
            help="at most N nodes, paths or rows (%(default)s)",
        )
        add_places(action, json_help="print JSON")


def _run(args: argparse.Namespace) -> int:
    try:
        from headgate.cli import lineage_commands as commands  # noqa: PLC0415 - see the docstring
    except ModuleNotFoundError as missing:
        raise PlatformError(f"{missing.name} is not installed: pip install 'headgate[pipeline]'") from None
    return commands.run(args, root_of(args))
