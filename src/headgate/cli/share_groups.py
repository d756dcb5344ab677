"""`headgate share-groups`: what KIP-1316 adds to `kafka-share-groups.sh`, asked through Headgate.

One rule: the flags are the KIP's, the rights the cluster's own: describing a group needs DESCRIBE on it, pausing and
resuming ALTER_CONFIGS. Exit codes: 0 done, 1 failed or not there, 2 usage.
"""

import argparse
import asyncio

from headgate.base.errors import ClusterError, UsageError
from headgate.cli import share_groups_text as text
from headgate.cli.cluster_calls import Outcome, add_arguments, check_timeout, dialler_of, show
from headgate.cli.logs import escaped
from headgate.kafka.connections import Connections, Dialler
from headgate.share_groups.admin import BreakerStatus, breaker_status, dlq_topology, steer
from headgate.share_groups.model.group_configs import MOST_REASON_CHARACTERS, PAUSE, RESUME

_PAUSE_S = 0.1
# The gateway that took the change has it; another that minds the group reads it a moment later.
_SETTLED_S = 3.0


# argparse gives the type of add_subparsers() no public name.
def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "share-groups",
        help="show circuit breakers and dead-letter topics of share groups, pause and resume",
        description="Show the circuit breaker of a share group or the dead-letter topics of all, pause a group, or "
        "resume it: as KIP-1316 names it, asked through Headgate.",
    )
    parser.add_argument(
        "--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="the gateway's address(es)"
    )
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument("--describe", action="store_true", help="with --circuit-breaker or --dlq-topology")
    actions.add_argument("--pause", action="store_true", help="stop the delivery of records; nothing is lost")
    actions.add_argument("--resume", action="store_true", help="end every pause, the circuit breaker's too")
    parser.add_argument("--group", action="append", metavar="GROUP", help="the share group to act on")
    views = parser.add_mutually_exclusive_group()
    views.add_argument("--circuit-breaker", action="store_true", help="with --describe: the breaker of a group")
    views.add_argument("--dlq-topology", action="store_true", help="with --describe: all dead-letter topics")
    parser.add_argument("--reason", metavar="TEXT", help="with --pause and --resume: why; it is logged")
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 done, 1 the group is not there or the thing failed, 2 usage."""
    _check(args)
    return show(args, _answer(args, dialler_of(args)))


def _check(args: argparse.Namespace) -> None:
    """What the flags say together."""
    groups: list[str] = args.group or []
    if args.describe:
        if not (args.circuit_breaker or args.dlq_topology):
            raise UsageError("--describe takes --circuit-breaker or --dlq-topology; kafka-share-groups.sh has the rest")
        if args.reason is not None:
            raise UsageError("--reason is for --pause and --resume")
        if args.dlq_topology and groups:
            raise UsageError("--dlq-topology takes no --group: it shows them all")
    elif args.circuit_breaker or args.dlq_topology:
        raise UsageError("--circuit-breaker and --dlq-topology are for --describe")
    elif args.reason is None or not args.reason.strip():
        raise UsageError(f"{'--pause' if args.pause else '--resume'} takes a --reason")
    elif len(args.reason) > MOST_REASON_CHARACTERS:
        raise UsageError(f"--reason must not have more than {MOST_REASON_CHARACTERS} characters")
    if not args.dlq_topology and (len(groups) != 1 or not groups[0]):
        raise UsageError("take one --group")
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
            return Outcome(text.breaker_text(found), dict(found.document), note=text.breaker_note(found))
        await steer(connections, group, PAUSE if args.pause else RESUME, args.reason)
        status: BreakerStatus | None = None
        problem = None
        try:
            status = await _settled(connections, group, paused=args.pause)
        except ClusterError as failure:  # it is done all the same
            problem = f"it is done, and cannot be described: {escaped(str(failure))}"
        return Outcome(
            text.steering_text(group, status, paused=args.pause),
            text.steering_json(group, status, args.reason, paused=args.pause),
            note=problem,
        )


async def _settled(connections: Connections, group: str, *, paused: bool) -> BreakerStatus:
    """The group when it is described as it should be now, or as it is after a while."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _SETTLED_S
    while True:
        status = await breaker_status(connections, group)
        if status.document.get("paused") in {paused, None} or loop.time() >= until:
            return status
        await asyncio.sleep(_PAUSE_S)
