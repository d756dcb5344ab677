"""`headgate streams-groups`: the operations of `kafka-streams-groups.sh`, against a broker or through Headgate.

Flags and texts are Kafka's. Results go to standard output, also "no topology is stored" and "could not be deleted";
other failures go to standard error. Exit codes: 0 success, 1 failed or not found, 2 usage. (The shipped tool ends with
0 when a deletion fails; here that is 1.)
"""

import argparse
import shutil
from collections.abc import Sequence

from headgate.base.errors import ClusterError, UsageError
from headgate.cli import streams_groups_text as text
from headgate.cli.cluster_calls import Outcome, add_arguments, check_timeout, dialler_of, show
from headgate.cli.escaping import escaped
from headgate.cli.streams_tasks_text import tasks_json, tasks_text
from headgate.facts.topology import Description
from headgate.kafka.connections import Connections, Dialler
from headgate.kafka.group_admin import (
    GroupError,
    TopologyStatus,
    delete_group,
    describe_group,
    find_coordinators,
    list_streams_groups,
)
from headgate.topologies.group_offsets import group_offsets
from headgate.topologies.wire_descriptions import Refusal, from_wire
from headgate.wire.messages.streams import DescribedStreamsGroup

_STATES = ("Empty", "NotReady", "Stable", "Assigning", "Reconciling", "Dead")
_WIDTH = 120  # where there is no terminal


def define_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "List all streams groups, describe some, show their topologies, or delete them, with the flags and "
        "output of kafka-streams-groups.sh. Through Headgate, topologies are shown for brokers before 4.4 too."
    )
    parser.add_argument(
        "--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="the server(s) to connect to"
    )
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument("--list", action="store_true", help="list all streams groups")
    actions.add_argument("--describe", action="store_true", help="describe groups; by default their offset lag")
    actions.add_argument("--delete", action="store_true", help="delete groups that have no members")
    parser.add_argument(
        "--group", action="append", metavar="GROUP", help="the streams group to describe or delete; can be repeated"
    )
    parser.add_argument("--all-groups", action="store_true", help="describe or delete every streams group")
    views = parser.add_mutually_exclusive_group()
    views.add_argument("--topology", action="store_true", help="with --describe: the topology description of the group")
    views.add_argument("--offsets", action="store_true", help="with --describe: the offset lag of each partition")
    views.add_argument("--members", action="store_true", help="with --describe: the members and their tasks")
    views.add_argument("--tasks", action="store_true", help="with --describe: which host has which task")
    views.add_argument(
        "--state",
        nargs="?",
        const="",
        metavar="STATES",
        help="with --describe: the state of the group; with --list: show states, or only groups in STATES",
    )
    parser.add_argument("--verbose", action="store_true", help="with --describe: also epochs and target assignments")
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 0 for success, 1 for a failure or a missing group, 2 for wrong usage."""
    _check(args)
    return show(args, _answer(args, dialler_of(args)))


def _check(args: argparse.Namespace) -> None:
    """Reject combinations of flags that make no sense."""
    if args.list:
        if args.group or args.all_groups:
            raise UsageError("--list lists all groups: remove --group and --all-groups")
        if args.topology or args.offsets or args.members or args.tasks:
            raise UsageError("--topology, --offsets, --members and --tasks can only be used with --describe")
        states_of(args.state or "")
    elif bool(args.group) == args.all_groups:
        raise UsageError(f"specify --group or --all-groups with {'--describe' if args.describe else '--delete'}")
    if args.describe and args.state:
        raise UsageError("--describe does not take a value for --state")
    views = args.topology or args.offsets or args.members or args.tasks or args.state is not None
    if args.delete and views:
        raise UsageError("--topology, --offsets, --members, --tasks and --state can only be used with --describe")
    if args.verbose and not args.describe:
        raise UsageError("--verbose can only be used with --describe")
    check_timeout(args)


def states_of(names: str) -> tuple[str, ...]:
    """The states of `--list --state NAMES`, as Kafka writes them; none for an empty text."""
    known = {state.lower(): state for state in _STATES}
    wanted = [name.strip().lower() for name in names.split(",")] if names else []
    if not set(wanted) <= known.keys():
        raise UsageError(f"Invalid state list '{escaped(names)}'. Valid states are: {', '.join(_STATES)}")
    return tuple(known[name] for name in wanted)


async def _answer(args: argparse.Namespace, dialler: Dialler) -> Outcome:
    async with Connections(dialler) as connections:
        if args.list:
            return await _listed(args, connections)
        if args.all_groups:
            groups = [listing.group for listing in await list_streams_groups(connections)]
        else:
            groups = list(dict.fromkeys(args.group))
            if len(groups) == 1:
                return await _one(args, connections, groups[0])
        return combined([await _one_of_several(args, connections, group) for group in groups])


async def _one(args: argparse.Namespace, connections: Connections, group: str) -> Outcome:
    if args.delete:
        failure = await delete_group(connections, group)
        code = 0 if failure is None else 1
        return Outcome(text.deletion_text(group, failure), text.deletion_json(group, failure), code)
    described = await describe_group(connections, group, with_topology=args.topology)
    if isinstance(described, GroupError):
        raise ClusterError(f"streams group '{group}' cannot be described: {described.text}")
    if args.topology:
        return topology_outcome(described)
    return await _described(args, connections, described)


async def _one_of_several(args: argparse.Namespace, connections: Connections, group: str) -> Outcome:
    """A group that fails does not keep the others from being shown."""
    try:
        return await _one(args, connections, group)
    except ClusterError as failure:
        problem = escaped(str(failure))
        return Outcome("", {"group": group, "error": problem}, exit_code=1, note=problem)


def combined(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcomes of several groups, one after the other; 0 if all succeeded."""
    return Outcome(
        "\n".join(outcome.text for outcome in outcomes if outcome.text),
        {"groups": [outcome.document for outcome in outcomes]},
        exit_code=max((outcome.exit_code for outcome in outcomes), default=0),
        note="\n".join(outcome.note for outcome in outcomes if outcome.note) or None,
    )


async def _listed(args: argparse.Namespace, connections: Connections) -> Outcome:
    listings = await list_streams_groups(connections, states_of(args.state or ""))
    shown = text.names_text(listings) if args.state is None else text.states_text(listings)
    return Outcome(shown, text.listings_json(listings))


async def _described(args: argparse.Namespace, connections: Connections, group: DescribedStreamsGroup) -> Outcome:
    note = text.no_members_text(group)
    if args.state is not None:
        found = (await find_coordinators(connections, [group.group_id]))[group.group_id]
        if isinstance(found, GroupError):
            raise ClusterError(f"the coordinator of '{group.group_id}' is not known: {found.text}")
        return Outcome(text.state_text(group, found, verbose=args.verbose), text.state_json(group, found))
    if args.members:
        shown = text.members_text(group, verbose=args.verbose) if group.members else ""
        return Outcome(shown, text.members_json(group), note=note)
    if args.tasks:
        width = shutil.get_terminal_size((_WIDTH, 0)).columns
        return Outcome(tasks_text(group, width=width) if group.members else "", tasks_json(group), note=note)
    offsets = await group_offsets(connections, group)
    shown = text.offsets_text(group, offsets, verbose=args.verbose) if group.members else ""
    return Outcome(shown, text.offsets_json(group, offsets), note=note)


def topology_outcome(group: DescribedStreamsGroup) -> Outcome:
    """A described group's topology: 0 with one, 1 without."""
    try:
        status = TopologyStatus(group.topology_description_status)
    except ValueError:
        raise ClusterError(
            f"the server sent an unknown TopologyDescriptionStatus: {group.topology_description_status}"
        ) from None
    description = None
    if status is TopologyStatus.AVAILABLE:
        description = _description(group)
    return Outcome(
        text.topology_text(group.group_id, status, description),
        text.topology_json(group, status, description),
        exit_code=1 if description is None else 0,
    )


def _description(group: DescribedStreamsGroup) -> Description:
    if group.topology_description is None:
        raise ClusterError("the server sent status AVAILABLE without a topology description")
    read = from_wire(group.topology_description)
    if isinstance(read, Refusal):
        raise ClusterError(f"the server sent an invalid topology description: {read.text}")
    return read
