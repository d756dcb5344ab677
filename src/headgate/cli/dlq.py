"""`headgate dlq`: the parser of the commands for dead letters after an incident.

The commands are in modules of their own, which are imported when one runs.
"""

import argparse
from pathlib import Path
from typing import Final

from headgate.base.errors import PlatformError
from headgate.cli.table_places import add_places

DEFAULT_ROWS: Final = 100

_EXAMPLES: Final = """\
examples:
  why records became dead letters  headgate dlq triage
  of one group, since a time       headgate dlq triage --group billing --since 2026-11-15T12:00:00Z
  what a replay would do           headgate dlq plan --group billing --to original --config FILE
  only those of one kind           headgate dlq plan --group billing --where "partition = 3" --to original --config FILE
  replay it, 50 records a second   headgate dlq replay PLAN --rate 50 --config FILE --command-config OPS
  what became of each record       headgate dlq audit --plan PLAN --config FILE
"""


def define_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    triage = "show why records became dead letters, and what to do next"
    # Not abbreviated: `--cluster` of `plan` is an episode, and would be taken for `--cluster-id` here.
    _define_triage(actions.add_parser("triage", help=triage, allow_abbrev=False))
    _define_plan(actions.add_parser("plan", help="list which dead letters a replay would write, in which order, where"))
    _define_replay(actions.add_parser("replay", help="write the records of a plan, once and in order"))
    _define_audit(actions.add_parser("audit", help="show what became of every record that was replayed"))


def _define_triage(triage: argparse.ArgumentParser) -> None:
    triage.description = (
        "Show the episodes in which records of share groups became dead letters, the newest first: the verdict, the "
        "numbers behind it, what to do, and the command for it. Reads the tables, without Spark."
    )
    triage.add_argument("--group", metavar="GROUP", help="only this group")
    triage.add_argument("--since", metavar="TIME", help="only episodes that lasted then or later, 2026-11-15T12:00:00Z")
    triage.add_argument("--cluster-id", metavar="ID", help="the Kafka cluster, where the tables have several")
    add_places(triage, json_help="print one JSON object")
    triage.set_defaults(run=_triage)


def _define_plan(plan: argparse.ArgumentParser) -> None:
    plan.description = (
        "Make a plan: an immutable list of records, which `headgate dlq replay` writes. Nothing is replayed yet. The "
        "running pipeline makes it; it is asked through the cluster, with the operator's own rights."
    )
    chosen = plan.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--group", metavar="GROUP", help="the dead letters of this group")
    chosen.add_argument("--topic", metavar="DLQ", help="the dead letters in this dead-letter topic, of one group")
    plan.add_argument(
        "--where", metavar="EXPR", help="only those, such as \"reason like '%%timed out%%' and partition = 3\""
    )
    plan.add_argument("--since", metavar="TIME", help="only those from this time on, 2026-11-15T12:00:00Z")
    plan.add_argument("--until", metavar="TIME", help="only those before this time")
    plan.add_argument(
        "--cluster", metavar="EPISODE", help="only those of the episode with this id, as `headgate dlq triage` shows it"
    )
    plan.add_argument(
        "--to", required=True, metavar="TOPIC|original", help="the topic to write to, or each record's own"
    )
    plan.add_argument(
        "--accept-fanout", action="store_true", help="other readers of the target may get the records again"
    )
    plan.add_argument(
        "--include-superseded",
        action="store_true",
        help="also records after which their partition has a later one of the same key",
    )
    plan.add_argument(
        "--local", action="store_true", help="run Spark in this process instead, with the service account"
    )
    _add_operator_options(plan, to="ask")
    plan.set_defaults(run=_plan)


def _define_replay(replay: argparse.ArgumentParser) -> None:
    replay.description = (
        "Write the records of a plan with the operator's own rights, never with the service account. A replay that was "
        "stopped or killed goes on where it was when it is started again. SIGUSR1 pauses it, SIGUSR2 lets it go on, "
        "SIGINT and SIGTERM stop it after the running transaction. It stops when the group's circuit breaker trips."
    )
    replay.add_argument("plan", metavar="PLAN", help="the id of the plan")
    replay.add_argument("--rate", type=float, metavar="N", help="at most N records a second (as fast as possible)")
    how = replay.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="check rights and limits, read all records, write nothing")
    how.add_argument(
        "--abort", action="store_true", help="stop a running replay of the plan, and end the plan for good"
    )
    replay.add_argument(
        "--timestamp",
        choices=("original", "now"),
        default="original",
        help="the timestamps of the written records (original)",
    )
    _add_operator_options(replay, to="write")
    replay.set_defaults(run=_replay)


def _add_operator_options(parser: argparse.ArgumentParser, *, to: str) -> None:
    """Where the cluster is, and as whom; not those of `cluster_calls`, which imports what only clients need."""
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the configuration file")
    parser.add_argument(
        "--bootstrap-server", metavar="HOST:PORT[,...]", help=f"where to {to} (the gateway of the configuration)"
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="properties file with the operator's client configs, as for Kafka's own tools",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _define_audit(audit: argparse.ArgumentParser) -> None:
    audit.description = "Show a row for each record that was replayed, parked or skipped, from the table replay_audit."
    audit.add_argument("--plan", metavar="PLAN", help="only records of this plan")
    audit.add_argument("--group", metavar="GROUP", help="only records of this group")
    audit.add_argument("--topic", metavar="TOPIC", help="only records of this source topic")
    audit.add_argument("--outcome", choices=("replayed", "parked", "skipped"), help="only records with this outcome")
    audit.add_argument("--limit", type=int, metavar="N", help=f"at most N rows (all with --json, else {DEFAULT_ROWS})")
    add_places(audit, json_help="print one JSON object a line")
    audit.set_defaults(run=_audit)


def _triage(args: argparse.Namespace) -> int:
    try:
        from headgate.cli.dlq_triage import run  # noqa: PLC0415 - see the docstring
    except ModuleNotFoundError as missing:
        raise _not_installed(missing) from None
    return run(args)


def _plan(args: argparse.Namespace) -> int:
    try:
        from headgate.cli.dlq_plan import run  # noqa: PLC0415 - see the docstring
    except ModuleNotFoundError as missing:
        raise _not_installed(missing) from None
    return run(args)


def _replay(args: argparse.Namespace) -> int:
    try:
        from headgate.cli.dlq_replay import run  # noqa: PLC0415 - see the docstring
    except ModuleNotFoundError as missing:
        raise _not_installed(missing) from None
    return run(args)


def _audit(args: argparse.Namespace) -> int:
    try:
        from headgate.cli.dlq_audit import run  # noqa: PLC0415 - see the docstring
    except ModuleNotFoundError as missing:
        raise _not_installed(missing) from None
    return run(args)


def _not_installed(missing: ModuleNotFoundError) -> PlatformError:
    return PlatformError(f"{missing.name} is not installed: pip install 'headgate[pipeline]'")
