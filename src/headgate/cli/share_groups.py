"""`headgate share-groups`: the commands that KIP-1316 adds to `kafka-share-groups.sh`, sent to the gateway.

The flags are those of the KIP, and the ACLs of the cluster apply: describing a group needs DESCRIBE on it, pausing and
resuming ALTER_CONFIGS. `--backtest` reads tables instead (`cli/backtest.py`). Exit codes: 0 success, 1 failure or
unknown group, 2 usage.

The output is tables in the style of Kafka's own tool, or JSON. A value that is not known is a dash; names and reasons
are escaped, because clients choose them.
"""

import argparse
import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, assert_never

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError, PlatformError, UsageError
from headgate.cli.cluster_calls import Outcome, add_arguments, check_timeout, dialler_of, show
from headgate.cli.columns import NAME_WIDTH, or_dash, table, widest
from headgate.cli.escaping import escaped
from headgate.cli.table_places import root_of, table_location
from headgate.kafka.connections import Connections, Dialler
from headgate.share_groups.admin import (
    DescribedBreaker,
    DlqTopology,
    StatusSource,
    breaker_status,
    dlq_topology,
    pause_or_resume,
)
from headgate.share_groups.model.breaker import BreakerStatus, PauseReason, json_of
from headgate.share_groups.model.group_configs import MAX_REASON_CHARACTERS, PAUSE, RESUME
from headgate.share_groups.model.group_state import OPERATOR

_PAUSE_S = 0.1
# Another worker or gateway than the one that took the change reads it a moment later.
_SETTLED_S = 3.0

_BREAKER = (
    "GROUP",
    "ENABLED",
    "PAUSED",
    "GENERATION",
    "DELIVERED",
    "DLQ-WRITTEN",
    "DLQ-RATE",
    "THRESHOLD",
    "MIN-MESSAGES",
    "WINDOW-MS",
    "LIMIT",
    "DLQ-TOPIC",
)
_REASONS = ("PAUSE-REASON", "SINCE", "BY", "TEXT")
_TOPOLOGY = ("DLQ-TOPIC", "SHARED", "CONFLICT", "GROUPS")


def define_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show the circuit breaker of a share group or the dead-letter topics of all share groups, pause a "
        "group, or resume it, with the flags of KIP-1316; or compare other settings of its breaker."
    )
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT[,...]", help="the gateway's address(es)")
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument("--describe", action="store_true", help="with --circuit-breaker or --dlq-topology")
    actions.add_argument("--pause", action="store_true", help="stop the delivery of records; no record is lost")
    actions.add_argument("--resume", action="store_true", help="end every pause, including that of the circuit breaker")
    actions.add_argument(
        "--backtest",
        action="store_true",
        help="show what other settings of the breaker would have done, from the tables",
    )
    parser.add_argument("--group", action="append", metavar="GROUP", help="the share group to act on")
    views = parser.add_mutually_exclusive_group()
    views.add_argument("--circuit-breaker", action="store_true", help="with --describe: show the breaker of --group")
    views.add_argument("--dlq-topology", action="store_true", help="with --describe: show all dead-letter topics")
    parser.add_argument("--reason", metavar="TEXT", help="with --pause and --resume: the reason, which is logged")
    parser.add_argument(
        "--days", type=int, default=7, metavar="N", help="with --backtest: the last N days (default: 7)"
    )
    places = parser.add_mutually_exclusive_group()
    places.add_argument("--path", type=table_location, metavar="DIR", help="with --backtest: where the tables are")
    places.add_argument("--config", type=Path, metavar="FILE", help="with --backtest: the configuration file")
    parser.add_argument(
        "--cluster-id", metavar="ID", help="with --backtest: the Kafka cluster, where the tables have several"
    )
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    _check(args)
    if args.backtest:
        try:
            from headgate.cli import backtest  # noqa: PLC0415 - no other command of share groups loads table libraries
        except ModuleNotFoundError as missing:
            raise PlatformError(f"{missing.name} is not installed: pip install 'headgate[pipeline]'") from None
        return backtest.run(args, root_of(args))
    return show(args, _answer(args, dialler_of(args)))


def _check(args: argparse.Namespace) -> None:
    groups: list[str] = args.group or []
    if not args.backtest and args.bootstrap_server is None:
        raise UsageError("--bootstrap-server is missing")
    if args.backtest:
        if args.circuit_breaker or args.dlq_topology or args.reason is not None:
            raise UsageError("--backtest takes --group, --days, --path, --config and --cluster-id only")
    elif args.describe:
        if not (args.circuit_breaker or args.dlq_topology):
            raise UsageError(
                "--describe needs --circuit-breaker or --dlq-topology; see kafka-share-groups.sh for the rest"
            )
        if args.reason is not None:
            raise UsageError("--reason applies to --pause and --resume only")
        if args.dlq_topology and groups:
            raise UsageError("--dlq-topology shows all groups: omit --group")
    elif args.circuit_breaker or args.dlq_topology:
        raise UsageError("--circuit-breaker and --dlq-topology apply to --describe only")
    elif args.reason is None or not args.reason.strip():
        raise UsageError(f"{'--pause' if args.pause else '--resume'} needs a --reason")
    elif len(args.reason) > MAX_REASON_CHARACTERS:
        raise UsageError(f"--reason has more than {MAX_REASON_CHARACTERS} characters")
    if not args.dlq_topology and (len(groups) != 1 or not groups[0]):
        raise UsageError("specify exactly one --group")
    check_timeout(args)


async def _answer(args: argparse.Namespace, dialler: Dialler) -> Outcome:
    async with Connections(dialler) as connections:
        if args.dlq_topology:
            topology = await dlq_topology(connections)
            note = "; ".join(topology.gaps) or None
            return Outcome(topology_text(topology), topology_json(topology), note=note)
        [group] = args.group
        if args.describe:
            found = await breaker_status(connections, group)
            return Outcome(breaker_text(found.status), found.status.document(), note=breaker_note(found))
        await pause_or_resume(connections, group, PAUSE if args.pause else RESUME, args.reason)
        found_after: DescribedBreaker | None = None
        problem = None
        try:
            found_after = await _wait_for_change(connections, group, SystemClock(), paused=args.pause)
        except ClusterError as failure:
            problem = f"change applied, but the new status could not be read: {escaped(str(failure))}"
        status = None if found_after is None else found_after.status
        return Outcome(
            action_text(group, status, paused=args.pause),
            action_json(group, status, args.reason, paused=args.pause),
            note=problem,
        )


async def _wait_for_change(connections: Connections, group: str, clock: Clock, *, paused: bool) -> DescribedBreaker:
    """Describes the group until its status shows the change, for a few seconds at most."""
    until = clock.monotonic() + _SETTLED_S
    while True:
        found = await breaker_status(connections, group)
        if found.status.paused in {paused, None} or clock.monotonic() >= until:
            return found
        await asyncio.sleep(_PAUSE_S)


# --- output -----------------------------------------------------------------------------------------------------------


def breaker_text(status: BreakerStatus) -> str:
    """The breaker, the reasons of its pause, when it resumes automatically, and who resumed it last."""
    row = (
        _cell(status.group),
        _yes_no(status.enabled),
        _yes_no(status.paused),
        _cell(status.generation),
        _cell(status.delivered),
        _cell(status.dlq_written),
        "-" if status.dlq_rate is None else f"{100 * status.dlq_rate:.2f}%",
        "-" if status.threshold_percent is None else f"{status.threshold_percent}%",
        _cell(status.min_messages),
        _cell(status.window_ms),
        _cell(status.limit) + (" (unprotected)" if status.limit_unprotected else ""),
        _cell(status.dlq_topic),
    )
    shown = _fitted([_BREAKER, row])
    if status.pause_reasons:
        shown += "\n" + _reasons_table(status.pause_reasons)
    if status.spooled:
        shown += f"\nDead letters in the spool: {status.spooled}, the oldest since {_time(status.oldest_spooled_at)}.\n"
    if status.auto_resume_at is not None:
        shown += f"\nResumes automatically at {_time(status.auto_resume_at)}.\n"
    if (last := status.last_resume) is not None:
        shown += f"\nLast resumed by {_cell(last.by)} at {_time(last.at)}: {_cell(last.reason)}\n"
    return shown


def breaker_note(described: DescribedBreaker) -> str | None:
    """Explains a status that does not come from the gateway itself."""
    name = escaped(described.status.group)
    match described.source:
        case StatusSource.GATEWAY if described.status.enabled is None:
            return f"configs of share group '{name}' are not shown: they require DESCRIBE_CONFIGS on the group"
        case StatusSource.GATEWAY:
            return None
        case StatusSource.CONFIGS:
            return (
                f"share group '{name}' has no members yet: its status is derived from its configs, and whether it is "
                "paused is shown when a member has joined"
            )
        case StatusSource.NO_CONFIGS:
            return f"share group '{name}' has none of Headgate's configs: it is neither counted nor paused"
        case _:
            assert_never(described.source)


def action_text(group: str, status: BreakerStatus | None, *, paused: bool) -> str:
    reasons = () if status is None else status.pause_reasons or ()
    state = "paused" if paused else "still paused" if reasons else "resumed"
    return f"Share group '{escaped(group)}' is {state}.\n" + ("\n" + _reasons_table(reasons) if reasons else "")


def action_json(group: str, status: BreakerStatus | None, reason: str, *, paused: bool) -> dict[str, Any]:
    """The status after a pause or resume; while the group cannot be described, the change that was requested."""
    if status is None or status.paused is None:
        remaining = [PauseReason(code=OPERATOR, text=reason, by=None, since=None)] if paused else []
        is_paused = paused
    else:
        remaining, is_paused = list(status.pause_reasons or ()), status.paused
    return {
        "group": group,
        "paused": is_paused,
        "reason": reason,
        "remaining_reasons": [json_of(one) for one in remaining],
    }


def topology_text(topology: DlqTopology) -> str:
    if not topology.topics:
        return "No share group has a dead-letter topic.\n"
    rows = [
        (
            escaped(one.topic),
            _yes_no(one.is_shared),
            _yes_no(one.has_conflict),
            ", ".join(map(escaped, one.groups)) or "-",
        )
        for one in topology.topics
    ]
    parked = "".join(
        f"{escaped(one.topic)}: {some.number} dead letters of share group '{escaped(some.group)}' are parked in the "
        f"spool: {escaped(some.reason)}\n"
        for one in topology.topics
        for some in one.parked
    )
    return _fitted([_TOPOLOGY, *rows]) + (f"\n{parked}" if parked else "")


def topology_json(topology: DlqTopology) -> dict[str, Any]:
    return {
        "dlq_topics": [
            {
                "topic": one.topic,
                "groups": list(one.groups),
                "shared": one.is_shared,
                "conflict": one.has_conflict,
                "parked": [{"group": some.group, "reason": some.reason, "number": some.number} for some in one.parked],
            }
            for one in topology.topics
        ]
    }


def _fitted(rows: Sequence[Sequence[str]]) -> str:
    """The first column is at least as wide as in Kafka's tool, the others as wide as their widest cell."""
    columns = range(len(rows[0]) - 1)
    widths = [widest(rows, place, max(len(rows[0][place]), NAME_WIDTH if place == 0 else 0)) for place in columns]
    return table(rows, widths)


def _reasons_table(reasons: Sequence[PauseReason]) -> str:
    rows = [(_cell(one.code), _time(one.since), _cell(one.by), _cell(one.text)) for one in reasons]
    return _fitted([_REASONS, *rows])


def _cell(value: object) -> str:
    return escaped(or_dash(value))


def _yes_no(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


def _time(value: int | None) -> str:
    """Epoch milliseconds as UTC."""
    if value is None:
        return "-"
    try:
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return _cell(value)
