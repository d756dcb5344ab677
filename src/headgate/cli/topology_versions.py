"""`headgate topology versions` and `show`: the versions of a group's topology that are kept, as a list and one by one.

They are read from `headgate.topologies` with the service account of a gateway's configuration, without a gateway.
Exit codes: 0 success, 1 failure or no such version, 2 usage.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headgate.base.errors import HeadgateError
from headgate.cli import logs
from headgate.cli.columns import json_text, or_dash, table, widest
from headgate.cli.escaping import escaped
from headgate.config import load
from headgate.facts.topology import DESCRIPTION
from headgate.topologies.kept_versions import KeptVersion, read_versions, select_version
from headgate.topologies.model.topology_pictures import Picture, picture_of, to_dot, to_mermaid
from headgate.topologies.model.topology_text import render

PARTIAL = (
    "Partial description: members of the group have pushed none. It has what they send to be assigned tasks: "
    "sub-topologies, source topics and, unless the group is a classic one, repartition topics and stores with "
    "changelogs. Processors, output topics and global stores are not known."
)
_HEADINGS = ("VERSION", "WHEN", "PROVENANCE", "NODES", "STATE", "MEMBER", "PROCESS", "GATEWAY", "PUBLISHED-BY")


# argparse gives the type of add_subparsers() no public name.
def add_actions(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    listing = actions.add_parser("versions", help="list the versions of a group's topology that are kept")
    showing = actions.add_parser("show", help="show a version of a group's topology, as text or as a picture")
    for parser in (listing, showing):
        parser.add_argument("group", metavar="GROUP", help="the Streams group, which is its application id")
        parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the gateway's TOML file")
    listing.add_argument("--json", action="store_true", help="print one JSON object")
    listing.set_defaults(run=list_versions)
    showing.add_argument(
        "--version",
        default="latest",
        metavar="VERSION",
        help="a version as `versions` lists it, the beginning of its hash, latest (the default) or previous",
    )
    add_formats(showing)
    showing.set_defaults(run=show)


def add_formats(parser: argparse.ArgumentParser) -> None:
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print one JSON object")
    formats.add_argument("--dot", action="store_true", help="print a picture for Graphviz")
    formats.add_argument("--mermaid", action="store_true", help="print a picture for Mermaid")


def print_format(
    args: argparse.Namespace,
    text: Callable[[], str],
    document: Callable[[], dict[str, Any]],
    picture: Callable[[], Picture],
) -> None:
    if args.json:
        shown = json_text(document())
    elif args.dot:
        shown = to_dot(picture())
    elif args.mermaid:
        shown = to_mermaid(picture())
    else:
        shown = text()
    print(shown, end="")


def versions_of(group: str, config: Path) -> tuple[KeptVersion, ...]:
    logs.configure("error")
    versions = asyncio.run(read_versions(load(config, os.environ), group))
    if not versions:
        raise HeadgateError(f"no version of the topology of group '{escaped(group)}' is kept")
    return versions


def version_of(group: str, wanted: str, config: Path) -> KeptVersion:
    try:
        return select_version(versions_of(group, config), wanted)
    except HeadgateError as failure:
        raise type(failure)(f"{escaped(group)}@{escaped(wanted)}: {failure}") from None


def list_versions(args: argparse.Namespace) -> int:
    versions = versions_of(args.group, args.config)
    if args.json:
        print(json_text(versions_json(args.group, versions)), end="")
    else:
        print(versions_text(versions), end="")
    return 0


def versions_text(versions: Sequence[KeptVersion]) -> str:
    """The newest first; times in the local zone."""
    rows = [_HEADINGS, *(_row(one) for one in reversed(versions))]
    widths = [max(widest(rows, place, 0), len(_HEADINGS[place])) for place in range(len(_HEADINGS) - 1)]
    return table(rows, widths)


def _row(version: KeptVersion) -> tuple[str, ...]:
    fact = version.fact
    cells = (
        version.name,
        _local_time(fact.at),
        fact.provenance,
        str(_node_count(version)),
        _state(version),
        or_dash(fact.member),
        or_dash(fact.process),
        or_dash(fact.writer),
        _publisher(version),
    )
    return tuple(map(escaped, cells))


def _publisher(version: KeptVersion) -> str:
    """The principal and the client id that published a version; a member pushes, and does not publish."""
    parts = [part for part in (version.fact.by, version.fact.client_id) if part]
    return " ".join(parts) or "-"


def _state(version: KeptVersion) -> str:
    state = "current" if version.is_current else "kept" if version.deleted_at is None else "deleted"
    return f"{state}, partial" if version.is_partial else state


def _node_count(version: KeptVersion) -> int:
    description = version.fact.description
    return sum(len(part.nodes) for part in description.subtopologies) + 2 * len(description.global_stores)


def _local_time(at: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at / 1000, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):  # a fact's time can be any number
        return str(at)


def versions_json(group: str, versions: Sequence[KeptVersion]) -> dict[str, Any]:
    """The oldest first; times are epoch milliseconds."""
    return {"group": group, "versions": [_version_json(one) for one in versions]}


def _version_json(version: KeptVersion) -> dict[str, Any]:
    fact = version.fact
    return {
        "version": version.name,
        "incarnation": fact.incarnation,
        "topology_epoch": fact.epoch,
        "hash": fact.hash,
        "provenance": fact.provenance,
        "at": fact.at,
        "member": fact.member,
        "process": fact.process,
        "writer": fact.writer,
        "by": fact.by,
        "client_id": fact.client_id,
        "nodes": _node_count(version),
        "current": version.is_current,
        "partial": version.is_partial,
        "deleted_at": version.deleted_at,
    }


def show(args: argparse.Namespace) -> int:
    version = version_of(args.group, args.version, args.config)
    description = version.fact.description

    def document() -> dict[str, Any]:
        return {"group": args.group, **_version_json(version), "description": DESCRIPTION.write(description)}

    def text() -> str:
        lines = render(description).split("\n")
        return "\n".join(map(escaped, (PARTIAL, *lines) if version.is_partial else lines))

    print_format(args, text, document, lambda: picture_of(description))
    if version.is_partial and (args.dot or args.mermaid):
        print(f"headgate: {PARTIAL}", file=sys.stderr)
    return 0
