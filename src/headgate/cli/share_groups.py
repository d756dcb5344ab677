"""`headgate share-groups`: the commands that KIP-1316 adds to `kafka-share-groups.sh`, sent to the gateway.

The flags are those of the KIP, and the ACLs of the cluster apply: describing a group needs DESCRIBE on it, pausing and
resuming ALTER_CONFIGS. `--backtest` reads tables instead (`cli/backtest.py`). Exit codes: 0 success, 1 failure or
unknown group, 2 usage.
"""

import argparse
import asyncio
from pathlib import Path

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError, PlatformError, UsageError
from headgate.cli import share_groups_text as text
from headgate.cli.cluster_calls import Outcome, add_arguments, check_timeout, dialler_of, show
from headgate.cli.escaping import escaped
from headgate.cli.table_places import root_of, table_location
from headgate.kafka.connections import Connections, Dialler
from headgate.share_groups.admin import DescribedBreaker, breaker_status, dlq_topology, pause_or_resume
from headgate.share_groups.model.group_configs import MAX_REASON_CHARACTERS, PAUSE, RESUME

_PAUSE_S = 0.1
# Another worker or gateway than the one that took the change reads it a moment later.
_SETTLED_S = 3.0


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
            raise UsageError("--backtest takes --group, --days, --path and --config only")
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
            return Outcome(text.topology_text(topology), text.topology_json(topology), note=note)
        [group] = args.group
        if args.describe:
            found = await breaker_status(connections, group)
            return Outcome(text.breaker_text(found.status), found.status.document(), note=text.breaker_note(found))
        await pause_or_resume(connections, group, PAUSE if args.pause else RESUME, args.reason)
        found_after: DescribedBreaker | None = None
        problem = None
        try:
            found_after = await _wait_for_change(connections, group, SystemClock(), paused=args.pause)
        except ClusterError as failure:
            problem = f"change applied, but the new status could not be read: {escaped(str(failure))}"
        status = None if found_after is None else found_after.status
        return Outcome(
            text.action_text(group, status, paused=args.pause),
            text.action_json(group, status, args.reason, paused=args.pause),
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
