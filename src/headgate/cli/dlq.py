"""`headgate dlq`: the parser of the commands for dead letters after an incident.

The commands are in modules of their own, which are imported when one runs.
"""

import argparse
from typing import Final

from headgate.base.errors import PlatformError
from headgate.cli.table_places import add_places

_EXAMPLES: Final = """\
examples:
  why records became dead letters, what to do   headgate dlq triage
  of one group, since a time                    headgate dlq triage --group billing --since 2026-11-15T12:00:00Z
"""


def define_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _define_triage(actions.add_parser("triage", help="show why records became dead letters, and what to do next"))


def _define_triage(triage: argparse.ArgumentParser) -> None:
    triage.description = (
        "Show the episodes in which records of share groups became dead letters, the newest first: the verdict, the "
        "numbers behind it, what to do, and the command for it. Reads the tables, without Spark."
    )
    triage.add_argument("--group", metavar="GROUP", help="only this group")
    triage.add_argument("--since", metavar="TIME", help="only episodes that lasted then or later, 2026-11-15T12:00:00Z")
    triage.add_argument("--cluster", metavar="ID", help="the Kafka cluster, where the tables have several")
    add_places(triage, json_help="print one JSON object")
    triage.set_defaults(run=_triage)


def _triage(args: argparse.Namespace) -> int:
    try:
        from headgate.cli.dlq_triage import run  # noqa: PLC0415 - see the docstring
    except ModuleNotFoundError as missing:
        raise _not_installed(missing) from None
    return run(args)


def _not_installed(missing: ModuleNotFoundError) -> PlatformError:
    return PlatformError(f"{missing.name} is not installed: pip install 'headgate[pipeline]'")
