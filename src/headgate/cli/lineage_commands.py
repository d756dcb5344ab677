"""The commands of `headgate lineage`. Each prints one document as JSON, or the same as text."""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any, Final

from headgate.base.errors import UsageError
from headgate.base.locations import Location
from headgate.cli import lineage_text
from headgate.cli.escaping import escaped
from headgate.cli.lineage import MAX_LIMIT
from headgate.cli.row_text import parse_time, print_error
from headgate.lineage import questions
from headgate.lineage.estate import Estate, absent
from headgate.lineage.graph import LineageNode
from headgate.lineage.questions import Document

_MAX_HOURS: Final = 24 * 366
_MAX_DAYS: Final = 36_600


def run(args: argparse.Namespace, root: Location) -> int:
    _check_range("--limit", args.limit, MAX_LIMIT)
    as_of_ms = None if args.as_of in {None, "now"} else parse_time("--as-of", args.as_of, "now or ")
    estate = Estate(root, as_of_ms=as_of_ms, cluster=args.cluster_id)
    now_ms = as_of_ms if as_of_ms is not None else time.time_ns() // 1_000_000
    try:
        return _COMMANDS[args.action](args, estate, now_ms)
    finally:
        estate.close()


def _impact(args: argparse.Namespace, estate: Estate, _now_ms: int) -> int:
    graph = estate.graph()
    if not graph.has_topic(args.topic):
        raise absent("topic", args.topic, graph.topics)
    closure = graph.closure(args.topic, args.direction, limit=args.limit)
    if args.json:
        print(json.dumps(questions.impact(args.topic, args.direction, closure)))
    else:
        lineage_text.print_impact(args.topic, args.direction, closure)
    return 0


def _path(args: argparse.Namespace, estate: Estate, _now_ms: int) -> int:
    graph = estate.graph()
    try:
        found, truncated = graph.paths(args.start, args.end, limit=args.limit)
    except KeyError as unknown:
        raise absent("topic or application", unknown.args[0], [*graph.topics, *graph.actors]) from None
    if args.json:
        paths = [[_path_node(node) for node in path] for path in found]
        print(json.dumps({"from": args.start, "to": args.end, "paths": paths, "truncated": truncated}))
    else:
        lineage_text.print_paths(found, truncated=truncated)
    if found:
        return 0
    back, _ = graph.paths(args.end, args.start, limit=1)
    hint = "; there is one in the other direction" if back else ""
    print_error(f"no data flows from {escaped(args.start)} to {escaped(args.end)} at this time{hint}")
    return 1


def _path_node(node: LineageNode) -> dict[str, Any]:
    more = {"component": node.component, "filled": node.filled}
    return {"kind": node.kind, "name": node.name} | {name: value for name, value in more.items() if value}


def _gaps(args: argparse.Namespace, estate: Estate, now_ms: int) -> int:
    found = questions.gaps(
        estate,
        now_ms=now_ms,
        limit=args.limit,
        kind=args.kind,
        state=None if args.state == "all" else args.state,
        topic=args.topic,
        app=args.application,
        since_ms=None if args.since is None else parse_time("--since", args.since),
    )
    return _print(args, found, lineage_text.print_gaps)


def _owners(args: argparse.Namespace, estate: Estate, now_ms: int) -> int:
    found = questions.owners(estate, args.topic, now_ms=now_ms, limit=args.limit)
    return _print(args, found, lineage_text.print_owners)


def _coverage(args: argparse.Namespace, estate: Estate, now_ms: int) -> int:
    _check_range("--hours", args.hours, _MAX_HOURS)
    found = questions.coverage(estate, now_ms=now_ms, hours=args.hours, limit=args.limit)
    return _print(args, found, lineage_text.print_coverage)


def _idle(args: argparse.Namespace, estate: Estate, now_ms: int) -> int:
    _check_range("--days", args.days, _MAX_DAYS)
    found = questions.idle(estate, now_ms=now_ms, days=args.days, limit=args.limit)
    return _print(args, found, lineage_text.print_idle)


def _causes(args: argparse.Namespace, estate: Estate, now_ms: int) -> int:
    _check_range("--trips", args.trips, MAX_LIMIT)
    found = questions.causes(estate, args.group, now_ms=now_ms, trips=args.trips, limit=args.limit)
    return _print(args, found, lineage_text.print_causes)


def _print(args: argparse.Namespace, document: Document, as_text: Callable[[Document], None]) -> int:
    if args.json:
        print(json.dumps(document))
    else:
        as_text(document)
    return 0


def _check_range(option: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise UsageError(f"{option} must be a whole number from 1 to {most}")


_COMMANDS: Final[dict[str, Callable[[argparse.Namespace, Estate, int], int]]] = {
    "impact": _impact,
    "path": _path,
    "gaps": _gaps,
    "owners": _owners,
    "coverage": _coverage,
    "idle": _idle,
    "causes": _causes,
}
