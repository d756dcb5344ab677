"""`headgate topology status`: why a group's topology is shown or not, as the gateway has it.

The ACLs of the cluster apply: the command needs DESCRIBE on the group. Back-off and last push are those of the worker
that answers, which is the one that the group's members are connected to; other gateways have their own.
Exit codes: 0 success, 1 failure or unknown group, 2 usage.
"""

import argparse
from datetime import datetime
from typing import Any

from headgate.base.errors import UsageError
from headgate.cli.cluster_calls import Outcome, add_arguments, check_timeout, dialler_of, show
from headgate.cli.columns import or_dash, table
from headgate.cli.escaping import escaped
from headgate.kafka.connections import Connections, Dialler
from headgate.topologies.admin import DescribedStatus, description_status
from headgate.topologies.model.group_status import BackoffStatus, LastPush

_HEADINGS = ("GROUP", "STATE", "STATUS", "TOPOLOGY-EPOCH", "VERSION", "UNCONFIRMED", "FAILED-EPOCH")


# argparse gives the type of add_subparsers() no public name.
def add_action(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "status",
        help="show why the gateway shows, requests or rejects the description of a group",
        description="Show whether the description of a Streams group is stored, unconfirmed or failed, when members of "
        "the group are asked again, and the last push. Back-off and last push are those of the worker that answers.",
    )
    parser.add_argument("group", metavar="GROUP", help="the Streams group, which is its application id")
    parser.add_argument(
        "--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="the gateway's address(es)"
    )
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if not args.group:
        raise UsageError("GROUP must not be empty")
    check_timeout(args)
    return show(args, _answer(args.group, dialler_of(args)))


async def _answer(group: str, dialler: Dialler) -> Outcome:
    async with Connections(dialler) as connections:
        found = await description_status(connections, group)
    return Outcome(status_text(found), status_json(found), note=_note(found))


def status_json(found: DescribedStatus) -> dict[str, Any]:
    """Times are epoch milliseconds."""
    return {
        "group": found.group,
        "state": found.state,
        "status": found.shown.name,
        "topology_epoch": found.topology_epoch,
        **found.description.document(),
    }


def status_text(found: DescribedStatus) -> str:
    """Names and texts are escaped: clients choose them."""
    of_gateway = found.description
    row = (
        found.group,
        found.state,
        found.shown.name,
        or_dash(found.topology_epoch),
        or_dash(of_gateway.version),
        {True: "yes", False: "no", None: "-"}[of_gateway.unconfirmed],
        or_dash(of_gateway.failed_epoch),
    )
    rows = [_HEADINGS, tuple(map(escaped, row))]
    widths = [max(len(one[place]) for one in rows) for place in range(len(_HEADINGS) - 1)]
    worker = f"worker {or_dash(of_gateway.worker)}"
    lines = [_push_line(of_gateway.last_push, worker), _backoff_line(of_gateway.backoff, worker)]
    if of_gateway.pushed_by is not None:
        lines.insert(0, f"The stored description was pushed by member {escaped(of_gateway.pushed_by)}.")
    return table(rows, widths) + "\n" + "".join(f"{line}\n" for line in lines)


def _push_line(push: LastPush | None, worker: str) -> str:
    if push is None:
        return f"Last push: none since {worker} started."
    result = "accepted" if push.error_code == 0 else f"failed with error code {or_dash(push.error_code)}, see the log"
    by = f"by member {escaped(or_dash(push.member))} at epoch {or_dash(push.epoch)}"
    return f"Last push: {_time(push.at)} {by}, {result}."


def _backoff_line(backoff: BackoffStatus | None, worker: str) -> str:
    own = f"Other workers and gateways have a back-off of their own; this is that of {worker}."
    if backoff is None or not backoff.active:
        return f"Back-off: none. {own}"
    until, attempts = _time(backoff.until), or_dash(backoff.attempts)
    if backoff.epoch is None:
        return (
            f"Back-off: the store is not asked to delete for a classic join before {until}, attempt {attempts}. {own}"
        )
    return f"Back-off: no member is asked before {until}, attempt {attempts} at epoch {backoff.epoch}. {own}"


def _note(found: DescribedStatus) -> str | None:
    if found.description.selected is False:
        return "the gateway stores no description of this group: see topologies.store and topologies.groups"
    if found.description.available is False:
        return "the gateway has not read the stored descriptions yet: the status is incomplete"
    return None


def _time(value: int | None) -> str:
    """Epoch milliseconds in the zone of the reader."""
    if value is None:
        return "-"
    try:
        return datetime.fromtimestamp(value / 1000).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return str(value)
