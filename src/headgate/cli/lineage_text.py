"""Answers of `headgate lineage` as text for people. Names that clients chose are escaped."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from headgate.cli.escaping import escaped
from headgate.cli.row_text import cell_text, local_time, print_error, print_rows
from headgate.lineage.graph import TOPIC, Closure, LineageNode
from headgate.lineage.questions import Document

_MILLISECONDS: Final = "milliseconds"
_MORE: Final = "there are more: --limit N shows more"


def print_impact(topic: str, direction: str, closure: Closure) -> None:
    """The closure as a tree; a node is shown once, under the first node that leads to it."""
    children: dict[int, list[int]] = {}
    for place, one in enumerate(closure.nodes):
        if one.parent is not None:
            children.setdefault(one.parent, []).append(place)
    print("DEPTH")
    stack: list[tuple[int, str, str]] = [(0, "", "")]
    while stack:
        place, above, branch = stack.pop()
        one = closure.nodes[place]
        print(f"{one.depth:>5}  {above}{branch}{_node_text(one.node)}")
        below = above + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        under = children.get(place, [])
        stack += [(child, below, "└─ " if child == under[-1] else "├─ ") for child in reversed(under)]
    print()
    if not closure.actors:
        print(f"nothing is known to {'read' if direction == 'down' else 'write'} {escaped(topic)}")
        return
    topics, actors = _number(closure.topics, "topic"), _number(closure.actors, "application, group or client")
    if direction == "down":
        print(f"{actors} and {topics} depend on {escaped(topic)}")
    else:
        print(f"{escaped(topic)} depends on {actors} and {topics}")
    if closure.is_truncated:
        print_error(f"{len(closure.nodes) - 1} nodes are shown; {_MORE}")


def print_paths(paths: Iterable[Sequence[LineageNode]], *, truncated: bool) -> None:
    for number, path in enumerate(paths):
        if number:
            print()
        for step, node in enumerate(path):
            print(f"{'  ' * step}{'└─ ' if step else ''}{_node_text(node)}")
    if truncated:
        print_error(_MORE)


def print_gaps(found: Document) -> None:
    columns = ("kind", "actor_kind", "app_id", "topic", "direction", "opened_at", "closed_at", "state", "coverage")
    _print_documents(found["gaps"], columns, times=("opened_at", "closed_at"))
    print(f"{found['open']} open, {found['unknown']} unknown, {found['closed']} closed")
    if found["unknown"]:
        print("unknown: the gateway counted less than 95 % of the topic's records, or has nothing to compare with")
    _print_truncated(found)


def print_owners(found: Document) -> None:
    for direction in ("writers", "readers"):
        print(f"{direction.upper()} OF {escaped(found['topic'])}")
        rows = [one | {"client": _client_text(one["clients"])} for one in found[direction]]
        columns = ("kind", "name", "declared", "observed", "bytes_day", "records_day", "last_seen", "client")
        _print_documents(rows, columns, times=("last_seen",))
        print()
    if found["coverage"] is None:
        print("coverage of the last 24 hours: unknown, so there may be writers past the gateway")
    else:
        print(
            f"coverage of the last 24 hours: {_percent(found['coverage'])}; {found['past_gateway']:,} of "
            f"{found['all_records']:,} records were written past the gateway"
        )
    _print_incomplete(found)
    if found["uncounted_hours"]:
        print(
            f"without {_number(found['uncounted_hours'], 'hour')} in which the records of some writes were not counted"
        )
    if found["unattributed_share"] is not None:
        print(f"bytes written through the gateway by unknown owners: {_percent(found['unattributed_share'])}")
    _print_truncated(found)


def print_coverage(found: Document) -> None:
    columns = ("topic", "seen_records", "all_records", "past_gateway", "coverage", "hours", "unknown_hours")
    _print_documents(found["topics"], columns)
    since, until = (local_time(found[name], _MILLISECONDS) for name in ("since", "until"))
    print(f"\nfrom {since} to {until}")
    if found["coverage"] is None:
        print("no topic with a known coverage")
    else:
        print(
            f"{_percent(found['coverage'])} of {found['all_records']:,} records in "
            f"{_number(found['known_topics'], 'topic')} were written through the gateway"
        )
    _print_incomplete(found)
    if found["unknown_topics"]:
        print(f"{_number(found['unknown_topics'], 'topic')} with an unknown coverage")
    if found["dead_letter_topics"]:
        print(f"without {_number(found['dead_letter_topics'], 'dead-letter topic')}, which Headgate itself writes")
    if found["uncounted_topics"]:
        print(f"{_number(found['uncounted_topics'], 'topic')} with unknown hours, because records were not counted")
    _print_truncated(found)


def print_idle(found: Document) -> None:
    _print_documents(found["applications"], ("kind", "name", "declared", "last_seen", "coverage"), times=("last_seen",))
    since = local_time(found["since"], _MILLISECONDS)
    print(f"{found['idle']} of {found['all']} applications and groups were not seen since {since}")
    _print_truncated(found)


def print_causes(found: Document) -> None:
    for number, trip in enumerate(found["trips"]):
        if number:
            print()
        tripped = local_time(trip["tripped_at"], _MILLISECONDS)
        print(f"the breaker of {escaped(found['group'])} tripped at {tripped} ({escaped(trip['event_id'])})")
        if not trip["causes"]:
            print("nothing is known to have changed in the 30 minutes before")
            continue
        columns = ("seconds_before", "likelihood", "cause_kind", "subject", "what", "topic", "at")
        _print_documents(trip["causes"], columns, times=("at",))
        _print_truncated(trip)
    if found["truncated"]:
        print_error("there are earlier trips: --trips N shows more")


def _print_documents(rows: Sequence[Document], columns: Sequence[str], times: Sequence[str] = ()) -> None:
    if rows:
        print_rows(columns, [[_cell(row[name], name, times) for name in columns] for row in rows])


def _cell(value: Any, name: str, times: Sequence[str]) -> str:
    if isinstance(value, float):
        return _percent(value)
    return cell_text(value, _MILLISECONDS if name in times else None)


def _client_text(clients: Sequence[Document]) -> str | None:
    """The client that was seen last, and how many others there are in the document."""
    if not clients:
        return None
    first = clients[0]
    parts = [first["principal"], first["client_id"], first["host"]]
    more = f" and {len(clients) - 1} more" if len(clients) > 1 else ""
    return " ".join(part for part in parts if part) + more


def _node_text(node: LineageNode) -> str:
    kind = [] if node.kind == TOPIC else [escaped(node.kind.replace("_", " "))]
    component = [f"component {escaped(node.component)}"] if node.component else []
    words = kind + component + (["filled"] if node.filled else [])
    return f"{escaped(node.name)} ({', '.join(words)})" if words else escaped(node.name)


def _number(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    plural = {"application, group or client": "applications, groups and clients"}.get(noun, f"{noun}s")
    return f"{count:,} {plural}"


def _percent(share: float) -> str:
    """Rounded down, so that only a whole is 100 %."""
    return f"{int(share * 1000) / 10} %"


def _print_incomplete(found: Document) -> None:
    if not found["complete_hours"]:
        print("no hour is complete yet: uses are reported up to 15 minutes later, so the coverage is higher than this")


def _print_truncated(found: Document) -> None:
    if found["truncated"]:
        print_error(_MORE)
