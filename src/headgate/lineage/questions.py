"""The answers about an estate: the impact of a topic, and what needs no graph: gaps, owners, coverage, idle, causes.

Each answer is a document with plain values, which is printed as JSON or as text. It has at most `limit` rows, and
`truncated` says whether there are more; the counts beside the rows are those of all.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from typing import Any, Final

from headgate.lineage.estate import Estate, Row, absent
from headgate.lineage.graph import READ, SHARE_GROUP, WRITE, Closure, Direction
from headgate.tables.reader import Condition

Document = dict[str, Any]
Actor = tuple[str, str]  # its kind and name

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
UNATTRIBUTED: Final = "unattributed"
# Actors that are clients rather than applications: they come and go, and no one expects them to run.
_NO_APPLICATIONS: Final = frozenset({"client", UNATTRIBUTED})
CLIENT_COLUMNS: Final = ("principal", "client_id", "host", "software", "software_version", "last_seen")
MAX_CLIENTS: Final = 5  # of one actor
# A use that lasts is reported every 15 minutes, and the pipeline needs some more: until then an hour is not complete.
_SETTLED_MS: Final = HOUR_MS + 20 * 60_000


def impact(topic: str, direction: Direction, closure: Closure) -> Document:
    """An application is one node, at its least depth, although it can have several in the closure."""
    nodes: dict[tuple[str, str], Document] = {}
    for node, depth, _ in closure.nodes[1:]:
        found = {"kind": node.kind, "name": node.name, "depth": depth} | ({"filled": True} if node.filled else {})
        nodes.setdefault(node[:2], found)
    return {"root": topic, "direction": direction, "nodes": list(nodes.values()), "truncated": closure.is_truncated}


def gaps(
    estate: Estate,
    *,
    now_ms: int,
    limit: int,
    kind: str | None = None,
    state: str | None = "open",
    topic: str | None = None,
    app: str | None = None,
    since_ms: int | None = None,
) -> Document:
    """Where descriptions and use differ at this time. `state` None means all states; counts are of all states."""
    where = [
        Condition("opened_at", "<=", now_ms),
        *([] if kind is None else [Condition("kind", "=", kind)]),
        *([] if topic is None else [Condition("topic", "=", topic)]),
        *([] if app is None else [Condition("app_id", "=", app)]),
        *([] if since_ms is None else [Condition("opened_at", ">=", since_ms)]),
    ]
    counts: Counter[str] = Counter()
    listed: list[Document] = []
    for row in estate.of_one_cluster(estate.rows("lineage_gaps", *where)):
        closed = row["closed_at"]
        # A gap that was closed after this time was still there.
        at_the_time = "open" if row["state"] == "closed" and closed is not None and closed > now_ms else row["state"]
        counts[at_the_time] += 1
        if state in {None, at_the_time} and len(listed) <= limit:
            listed.append(row | {"state": at_the_time, "detail": _parsed(row["detail"])})
    return {
        "gaps": listed[:limit],
        "open": counts["open"],
        "unknown": counts["unknown"],
        "closed": counts["closed"],
        "truncated": len(listed) > limit,
    }


def owners(estate: Estate, topic: str, *, now_ms: int, limit: int) -> Document:
    """Who writes and reads a topic, how much of it passes the gateway, and how much of that has no known owner."""
    seen: Counter[str] = Counter()  # bytes of the last day, by kind of writer
    counts: Counter[str] = Counter()
    listed: dict[str, list[Row]] = {}
    for direction in (WRITE, READ):
        where = (Condition("topic", "=", topic), Condition("direction", "=", direction))
        rows = _count(estate.of_one_cluster(estate.rows("lineage_edges", *where, is_valid=True)), counts, seen)
        listed[direction] = nsmallest(limit, rows, key=_by_size)
    if not counts:
        names = (row["topic"] for row in estate.rows("lineage_edges", columns=("topic",), is_valid=True))
        raise absent("topic", topic, names)
    by_topic, is_complete = coverage_by_topic(estate, now_ms=now_ms, hours=24, topic=topic)
    clients = _clients(estate, [*listed[WRITE], *listed[READ]])
    writers, readers = (
        [_owner(row, clients.get((row["actor_kind"], row["app_id"]), [])) for row in listed[direction]]
        for direction in (WRITE, READ)
    )
    return {
        "topic": topic,
        "writers": writers,
        "readers": readers,
        "unattributed_share": seen[UNATTRIBUTED] / seen.total() if seen.total() else None,
        **by_topic.get(topic, Seen()).document(),
        "complete_hours": is_complete,
        "truncated": max(counts.values()) > limit,
    }


def _count(rows: Iterable[Row], counts: Counter[str], seen: Counter[str]) -> Iterator[Row]:
    for row in rows:
        counts[row["direction"]] += 1
        if row["direction"] == WRITE:
            seen[row["actor_kind"]] += row["bytes_day"] or 0
        yield row


def _by_size(row: Row) -> tuple[int, str, str]:
    return -(row["bytes_day"] or 0), row["actor_kind"], row["app_id"]


def _owner(row: Row, clients: list[Document]) -> Document:
    columns = ("declared", "observed", "filled", "bytes_day", "records_day", "last_seen")
    return {"kind": row["actor_kind"], "name": row["app_id"], **{name: row[name] for name in columns}} | {
        "clients": clients
    }


def _clients(estate: Estate, rows: Sequence[Row]) -> dict[Actor, list[Document]]:
    """The newest clients of these owners, by one pass over the table."""
    owning = {(row["actor_kind"], row["app_id"]) for row in rows}
    if not owning:
        return {}
    names = [name for _, name in owning]
    within = (Condition("actor", ">=", min(names)), Condition("actor", "<=", max(names)))
    found = estate.rows("client_identities", *within, columns=("actor_kind", "actor", *CLIENT_COLUMNS))
    return newest_clients(row for row in found if (row["actor_kind"], row["actor"]) in owning)


def newest_clients(rows: Iterable[Row]) -> dict[Actor, list[Document]]:
    """The clients of each actor that were seen last, the newest first; few more are in memory."""
    found: dict[Actor, list[Document]] = {}
    for row in rows:
        of_actor = found.setdefault((row["actor_kind"], row["actor"]), [])
        of_actor.append({name: row[name] for name in CLIENT_COLUMNS})
        if len(of_actor) > 4 * MAX_CLIENTS:
            of_actor[:] = _newest(of_actor)
    return {actor: _newest(clients) for actor, clients in found.items()}


def _newest(clients: Iterable[Document]) -> list[Document]:
    return nlargest(MAX_CLIENTS, clients, key=lambda one: one["last_seen"])


@dataclass(slots=True)
class Seen:
    """Records of the hours whose coverage is known, and how many hours there are.

    `uncounted_hours` are those of the unknown ones in which the gateway saw writes that it could not count.
    """

    seen: int = 0
    all: int = 0
    hours: int = 0
    unknown_hours: int = 0
    uncounted_hours: int = 0

    def add(self, row: Row) -> None:
        self.hours += 1
        if row["coverage"] is None:
            self.unknown_hours += 1
            self.uncounted_hours += row["all_records"] > 0
        else:
            self.all += row["all_records"]
            self.seen += min(row["seen_records"], row["all_records"])

    def document(self) -> Document:
        return {
            "seen_records": self.seen,
            "all_records": self.all,
            "past_gateway": self.all - self.seen,
            "coverage": self.seen / self.all if self.all else None,
            "hours": self.hours,
            "unknown_hours": self.unknown_hours,
            "uncounted_hours": self.uncounted_hours,
        }


def coverage(estate: Estate, *, now_ms: int, hours: int, limit: int) -> Document:
    """How many of the records of each topic were written through the gateway; most records past it first.

    An hour counts when all of its uses have been reported. `complete_hours` is false where there is no such hour yet:
    then the coverage is that of the hours so far, and too low.
    """
    by_topic, is_complete = coverage_by_topic(estate, now_ms=now_ms, hours=hours)
    first = nsmallest(limit, by_topic.items(), key=lambda one: (one[1].seen - one[1].all, one[0]))
    total = Seen()
    for one in by_topic.values():
        total.seen += one.seen
        total.all += one.all
    whole = total.document()
    return {
        "since": _first_hour(now_ms, hours),
        "until": now_ms,
        **{name: whole[name] for name in ("seen_records", "all_records", "past_gateway", "coverage")},
        "known_topics": sum(1 for one in by_topic.values() if one.all),
        "unknown_topics": sum(1 for one in by_topic.values() if not one.all),
        "uncounted_topics": sum(1 for one in by_topic.values() if one.uncounted_hours),
        "dead_letter_topics": len(dead_letter_topics(estate)),
        "complete_hours": is_complete,
        "topics": [{"topic": topic, **one.document()} for topic, one in first],
        "truncated": len(by_topic) > limit,
    }


def coverage_by_topic(
    estate: Estate, *, now_ms: int, hours: int, topic: str | None = None
) -> tuple[dict[str, Seen], bool]:
    """Coverage by topic in the complete hours of this time; if none is complete, in the others, and False."""
    complete, others = coverage_hours(estate, now_ms=now_ms, hours=hours, topic=topic)
    return (complete, True) if complete else (others, not others)


def coverage_hours(
    estate: Estate, *, now_ms: int, hours: int, topic: str | None = None
) -> tuple[dict[str, Seen], dict[str, Seen]]:
    """Coverage by topic in the complete hours of this time, and in its incomplete ones.

    Without dead-letter topics: Headgate writes them itself, not through the gateway, so the counts say nothing of
    other writers.
    """
    complete: dict[str, Seen] = {}
    others: dict[str, Seen] = {}
    where = [Condition("hour", ">=", _first_hour(now_ms, hours)), Condition("hour", "<=", now_ms)]
    if topic is not None:
        where.append(Condition("topic", "=", topic))
    columns = ("cluster_id", "topic", "hour", "seen_records", "all_records", "coverage")
    own = dead_letter_topics(estate)
    for row in estate.of_one_cluster(estate.rows("topic_coverage", *where, columns=columns)):
        if row["topic"] in own:
            continue
        found = complete if row["hour"] + _SETTLED_MS <= now_ms else others
        found.setdefault(row["topic"], Seen()).add(row)
    return complete, others


def dead_letter_topics(estate: Estate) -> set[str]:
    """The topics to which share groups write, which is Headgate for them."""
    where = (Condition("actor_kind", "=", SHARE_GROUP), Condition("direction", "=", WRITE))
    rows = estate.rows("lineage_edges", *where, columns=("cluster_id", "topic"))
    return {row["topic"] for row in estate.of_one_cluster(rows)}


def _first_hour(now_ms: int, hours: int) -> int:
    return now_ms - now_ms % HOUR_MS - hours * HOUR_MS


@dataclass(slots=True)
class _Actor:
    """What the edges of one application say of it."""

    declared: bool
    last_seen: int | None
    topics: set[str]


def idle(estate: Estate, *, now_ms: int, days: int, limit: int) -> Document:
    """Applications and groups that were not seen for so many days, those that have been silent for longest first.

    An application whose topics the gateway does not see may run all the same: `coverage` is the least coverage of a
    topic that it uses, over the last day.
    """
    since = now_ms - days * DAY_MS
    actors: dict[tuple[str, str], _Actor] = {}
    columns = ("cluster_id", "actor_kind", "app_id", "topic", "valid_to", "declared", "last_seen")
    rows = estate.rows("lineage_edges", Condition("valid_from", "<=", now_ms), columns=columns)
    for row in estate.of_one_cluster(rows):
        if row["actor_kind"] in _NO_APPLICATIONS:
            continue
        actor = actors.setdefault((row["actor_kind"], row["app_id"]), _Actor(False, None, set()))
        ended = row["valid_to"] is not None and row["valid_to"] <= now_ms
        actor.declared |= row["declared"] and not ended
        if row["last_seen"] is not None:
            actor.last_seen = max(actor.last_seen or 0, min(row["last_seen"], now_ms))
        if not ended:
            actor.topics.add(row["topic"])
    silent = [(key, one) for key, one in actors.items() if one.last_seen is None or one.last_seen < since]
    silent.sort(key=lambda item: (item[1].last_seen or 0, item[0]))
    seen = coverage_by_topic(estate, now_ms=now_ms, hours=24)[0] if silent else {}
    return {
        "since": since,
        "applications": [
            {
                "kind": kind,
                "name": name,
                "declared": one.declared,
                "last_seen": one.last_seen,
                "coverage": _least_coverage(one.topics, seen),
            }
            for (kind, name), one in silent[:limit]
        ],
        "idle": len(silent),
        "all": len(actors),
        "truncated": len(silent) > limit,
    }


def _least_coverage(topics: Iterable[str], seen: dict[str, Seen]) -> float | None:
    """The least coverage of these topics; None when that of one topic is not known."""
    shares = [seen.get(topic, Seen()).document()["coverage"] for topic in topics]
    known = [share for share in shares if share is not None]
    return min(known) if known and len(known) == len(shares) else None


def causes(estate: Estate, group: str, *, now_ms: int, trips: int, limit: int) -> Document:
    """What changed before the last trips of a share group's breaker."""
    by_trip: dict[str, list[Row]] = {}
    where = (Condition("group", "=", group), Condition("tripped_at", "<=", now_ms))
    for row in estate.of_one_cluster(estate.rows("breaker_causes", *where)):
        by_trip.setdefault(row["event_id"], []).append(row)
    if not by_trip:
        names = (row["group"] for row in estate.rows("breaker_causes", columns=("group",)))
        raise absent("trip of the share group", group, names)
    newest = sorted(by_trip.values(), key=lambda rows: rows[0]["tripped_at"], reverse=True)
    listed = [
        {
            "event_id": rows[0]["event_id"],
            "tripped_at": rows[0]["tripped_at"],
            "causes": list(_causes(rows[:limit])),
            "truncated": len(rows) > limit,
        }
        for rows in newest[:trips]
    ]
    return {"group": group, "trips": listed, "truncated": len(newest) > trips}


def _causes(rows: Iterable[Row]) -> Iterator[Document]:
    names = ("cause_kind", "likelihood", "subject_kind", "subject", "what", "topic", "at", "seconds_before")
    for row in rows:
        if row["cause_kind"] != "none":  # the row of a trip before which nothing changed
            yield {name: row[name] for name in names} | {"detail": _parsed(row["detail"])}


def _parsed(detail: str) -> Any:
    """The JSON of a detail; the text itself where it is none."""
    try:
        return json.loads(detail)
    except (ValueError, RecursionError):
        return detail
