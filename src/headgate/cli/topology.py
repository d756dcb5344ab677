"""`headgate topology`: topology descriptions as text, their versions, the status of a stored one, and its deletion.

`parse` checks a `Topology.describe()` text and prints it as Headgate reads it. `forget` deletes the stored description
of a group, or its permanent failure, without a gateway: the gateways read the deletion from the topics, and solicit
the group's members again.
While a gateway has the file of `sqlite:` open, the description stays in it until the next push, and is not shown.
With `--purge` the topics do not keep the group's earlier versions either; the tables of the pipeline do.
`status` is in `topology_status`, `versions` and `show` are in `topology_versions`, `diff` is in `topology_diffs`, and
`publish` is in `topology_publish`.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import HeadgateError, UsageError
from headgate.cli import logs, topology_diffs, topology_publish, topology_status, topology_versions
from headgate.cli.escaping import escaped
from headgate.cli.topology_files import read_topology
from headgate.config import Config, load
from headgate.config.values import Store
from headgate.facts.topology import DESCRIPTION, Description, content_hash, findings
from headgate.topologies.model.topology_text import render
from headgate.topologies.resources import open_resources
from headgate.topologies.retention import purge
from headgate.topologies.service import TopologyService
from headgate.topologies.stores.sqlite_store import is_in_use

_PATIENCE_S, _QUIET_S, _PURGE_S = 60.0, 2.0, 600.0


_EXAMPLES: Final = """\
examples:
  the versions of a group          headgate topology versions orders --config FILE
  the newest one as a picture      headgate topology show orders --config FILE --mermaid
  what changed, and is it safe     headgate topology diff orders@previous orders@latest --config FILE
  before a release, in a build     headgate topology diff orders@latest new.txt --config FILE
  why nothing is shown             headgate topology status orders --bootstrap-server HOST:PORT
"""


def define_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "Work with the topologies of Streams applications, as texts and as versions that are kept."
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    reading = actions.add_parser("parse", help="check the text that Topology.describe() returns")
    reading.add_argument("file", metavar="FILE", help="the file with the text, - for standard input")
    reading.add_argument("--json", action="store_true", help="print one JSON object")
    reading.set_defaults(run=run)
    forgetting = actions.add_parser(
        "forget", help="delete the stored description of a group, or its permanent failure, to get it anew"
    )
    forgetting.add_argument("group", metavar="GROUP", help="the Streams group, which is its application id")
    forgetting.add_argument("--config", type=Path, required=True, metavar="FILE", help="the gateway's TOML file")
    forgetting.add_argument(
        "--purge",
        action="store_true",
        help="also remove all records of the group from Headgate's topics; tables keep their rows",
    )
    forgetting.add_argument("--json", action="store_true", help="print one JSON object")
    forgetting.set_defaults(run=forget)
    topology_status.add_action(actions)
    topology_versions.add_actions(actions)
    topology_diffs.add_action(actions)
    topology_publish.add_action(actions)


def forget(args: argparse.Namespace) -> int:
    """Exit code 0 when something was deleted, 1 when there was nothing. The service account does it."""
    logs.configure("error")
    done = asyncio.run(_forget(load(args.config, os.environ), args.group, purging=args.purge))
    found = done.forgotten or bool(done.records)
    if args.json:
        records = {} if done.records is None else {"records": done.records}
        print(json.dumps({"group": args.group, "forgotten": done.forgotten, **records}))
        return 0 if found else 1
    if done.forgotten:
        what = "" if done.is_stored else "permanent failure of the "
        text = f"Deleted the {what}topology description of streams group '{args.group}'."
        print(text, "Its members are asked for it again.")
    elif not found:
        print(f"No topology description is stored for streams group '{args.group}'.", file=sys.stderr)
    if done.records:
        print(f"Records of '{args.group}' removed from Headgate's topics: {done.records}. Tables keep their rows.")
    return 0 if found else 1


class _Forgotten(NamedTuple):
    """`is_stored`: not only a permanent failure. `records` is how many were removed, None without `--purge`."""

    forgotten: bool
    is_stored: bool
    records: int | None = None


async def _forget(config: Config, group: str, *, purging: bool) -> _Forgotten:
    if config.topologies.owner != "gateway" or config.topologies.store.scheme == "none":
        raise UsageError("this gateway stores no descriptions: check topologies.owner and topologies.store")
    store = config.topologies.store
    in_use = store.scheme == "sqlite" and await is_in_use(Path(store.target))
    if in_use and purging:
        raise UsageError(f"a gateway has {store.target} open: stop it, or leave out --purge")
    if in_use:  # by the gateway, which reads from the state topic that the description is not to be shown
        config = replace(config, topologies=replace(config.topologies, store=Store("memory")))
    with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
        cache = str(Path(folder) / "topologies.db")
        opening = partial(open_resources, config, cache_name=cache, clock=SystemClock(), environment=os.environ)
        service = TopologyService(config, opening)
        async with service.running():
            await _wait_until_ready(service, SystemClock())
            is_stored = service.must_delete(group)
            found = _Forgotten(forgotten=service.is_stored_or_failed(group), is_stored=is_stored)
            if purging:
                return found._replace(records=await _purge(service, group))
            if not found.forgotten:
                return found
            failed = await (service.disown(group) if in_use and is_stored else service.delete(group))
    if failed is not None:
        raise HeadgateError(f"the description of {group!r} was not deleted: {failed.text}")
    return found


async def _purge(service: TopologyService, group: str) -> int:
    try:
        async with asyncio.timeout(_PURGE_S):
            return await purge(service, group)
    except TimeoutError:
        raise HeadgateError(f"the records of {group!r} were not all removed in {_PURGE_S:g} s: try again") from None


async def _wait_until_ready(service: TopologyService, clock: Clock) -> None:
    began, is_announced = clock.monotonic(), False
    while not service.is_ready:
        waited = clock.monotonic() - began
        if waited > _PATIENCE_S:
            raise HeadgateError(f"the stored topology descriptions cannot be read: {service.problem}")
        if waited > _QUIET_S and not is_announced:
            is_announced = True
            print("headgate: reading the stored topology descriptions", file=sys.stderr)
        await asyncio.sleep(0.05)


def run(args: argparse.Namespace) -> int:
    """Exit code 0 with the topology on standard output; findings about it go to standard error."""
    read = read_topology(args.file)
    for finding in islice(findings(read), topology_publish.MOST_FINDINGS):
        print(f"headgate: {escaped(finding.text)}", file=sys.stderr)
    print(
        _json(read) if args.json else "\n".join(map(escaped, render(read).split("\n"))), end="\n" if args.json else ""
    )
    return 0


def _json(description: Description) -> str:
    return json.dumps({"hash": content_hash(description), "description": DESCRIPTION.write(description)})
