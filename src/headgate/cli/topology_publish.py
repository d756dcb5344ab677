"""`headgate topology publish`: keeps the topology of a file as a version of a group, through a gateway.

It is for builds: the version is there before a member runs it, and `headgate topology diff` compares it with what runs.
Its provenance is `pasted`; it never replaces what members push. The command needs READ on the group.
Exit codes: 0 success, 1 failure or a text that cannot be read, 2 usage.
"""

import argparse
import sys
from itertools import islice

from headgate.base.errors import UsageError
from headgate.cli.cluster_calls import Outcome, add_arguments, check_timeout, dialler_of, show
from headgate.cli.columns import json_text
from headgate.cli.escaping import escaped
from headgate.cli.topology_files import read_topology
from headgate.facts.json_form import INT32_MAX
from headgate.facts.topology import Description, content_hash, findings
from headgate.kafka.connections import Connections, Dialler
from headgate.topologies.admin import publish_topology
from headgate.topologies.wire_descriptions import from_wire, to_wire

MOST_FINDINGS = 20


# argparse gives the type of add_subparsers() no public name.
def add_action(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "publish",
        help="keep the topology in a file as a version of a group, for instance from a build",
        description="Read the text that Topology.describe() returns and keep it as a version of a Streams group, with "
        "the provenance pasted. It never replaces what members of the group push. Needs READ on the group.",
    )
    parser.add_argument("file", metavar="FILE", help="the file with the text, - for standard input")
    parser.add_argument(
        "--group", required=True, metavar="GROUP", help="the Streams group, which is its application id"
    )
    parser.add_argument(
        "--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="the gateway's address(es)"
    )
    parser.add_argument("--epoch", type=int, default=0, metavar="N", help="the topology epoch (default: 0)")
    parser.add_argument("--dry-run", action="store_true", help="read and check the text, and send nothing")
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if not args.group:
        raise UsageError("--group must not be empty")
    if not 0 <= args.epoch <= INT32_MAX:
        raise UsageError(f"--epoch must be from 0 to {INT32_MAX}")
    check_timeout(args)
    dialler = dialler_of(args)
    description = _as_pushed(read_topology(args.file))
    for finding in islice(findings(description), MOST_FINDINGS):
        print(f"headgate: {escaped(finding.text)}", file=sys.stderr)
    if args.dry_run:
        outcome = _outcome(args.group, description, None)
        print(json_text(outcome.document) if args.json else outcome.text, end="")
        return outcome.exit_code
    return show(args, _publish(args.group, args.epoch, description, dialler))


def _as_pushed(description: Description) -> Description:
    """The description as a push carries it, which has no patterns: its hash is that of the version."""
    read = from_wire(to_wire(description))
    assert isinstance(read, Description)
    return read


async def _publish(group: str, epoch: int, description: Description, dialler: Dialler) -> Outcome:
    async with Connections(dialler) as connections:
        version = await publish_topology(connections, group, description, epoch=epoch)
    return _outcome(group, description, version)


def _outcome(group: str, description: Description, version: str | None) -> Outcome:
    """`version` is None when nothing was sent."""
    name, content = escaped(group), content_hash(description)
    text = f"The topology for streams group '{name}' has the hash {content}. Nothing was sent."
    if version is not None:
        text = f"Published version {escaped(version)} of the topology of streams group '{name}'."
    published = version is not None
    document = {"group": group, "published": published, "version": version, "hash": content, "provenance": "pasted"}
    return Outcome(text + "\n", document)
