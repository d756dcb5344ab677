"""The tables as they must be, computed in plain Python from all records at once.

It shares only the rules for one description with the product (`topologies/model`, which has oracles of its own): no
batches, no windows, no merges.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headgate.facts import (
    ActivityObserved,
    DispositionsCounted,
    EventHappened,
    GroupLagsObserved,
    Rejected,
    TopologyDeleted,
    TopologyDescribed,
    decode,
)
from headgate.facts.topics import message_limit
from headgate.pipeline.fact_rows import description_text
from headgate.tables.definitions import table_named
from headgate.topologies.model.topology_graph import app_io, edge_rows, element_changes, node_rows

Row = dict[str, Any]
Rows = Mapping[tuple[Any, ...], Row]
TOPOLOGIES = ("app_io", "applications", "topology_edges", "topology_nodes", "topology_versions")
TABLES = ("breaker_events", "changes", "rejected_facts", *TOPOLOGIES)
APPENDED = ("activity_intervals", "dispositions", "group_lags")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def tables(records: Iterable[Record], *, prefix: str, own_cluster: str, ids: Mapping[str, str]) -> dict[str, Rows]:
    """Every table by its name; `own_cluster` is that of the topics, and has those with these `ids`."""
    found: dict[str, list[Row]] = {name: [] for name in (*TABLES, *APPENDED)}
    apps: dict[tuple[str, str], list[tuple[Record, TopologyDescribed | TopologyDeleted]]] = defaultdict(list)
    for record in sorted(records, key=lambda one: (one.topic, one.offset, one.partition)):
        limit = message_limit(4 * 1024 * 1024)
        match decode(record.topic.removeprefix(prefix), record.key, record.value, max_bytes=limit):
            case Rejected(reason=reason):
                found["rejected_facts"].append(rejected(record, reason, own_cluster))
            case ActivityObserved() as seen:
                found["activity_intervals"].append(activity(seen, own_cluster))
            case DispositionsCounted() as counted:
                found["dispositions"].append(disposed(record, counted, own_cluster))
            case GroupLagsObserved() as observed:
                found["group_lags"] += lags(observed, own_cluster)
            case EventHappened() as event:
                found["changes"].append(happened(record, event, own_cluster))
                if event.subject_kind == "share_group":
                    found["breaker_events"].append(of_breaker(event, own_cluster))
            case TopologyDescribed() | TopologyDeleted() as told:
                apps[told.cluster or own_cluster, told.group].append((record, told))
    for (cluster, app), history in apps.items():
        for name, rows in of_application(cluster, app, history).items():
            found[name] += rows
    for name in TABLES:
        found[name] = [
            {**row, **topic_ids(row, ids)} if row["cluster_id"] == own_cluster else row for row in found[name]
        ]
    return {name: by_key(name, rows) for name, rows in found.items()}


def topic_ids(row: Row, ids: Mapping[str, str]) -> Row:
    """The ids of the topics that a row is about."""
    named = {f"{name}_id": row[name] for name in ("topic", "in_topic", "out_topic") if name in row}
    kinds = (("kind", "node"), ("from_kind", "from_node"), ("to_kind", "to_node"))
    named |= dict([("topic_id", row[node]) for kind, node in kinds if node in row and row[kind] == "topic"][:1])
    return {column: ids.get(name) for column, name in named.items()}


def by_key(name: str, rows: list[Row]) -> Rows:
    """The last row of a key stays; a text that is no UTF-8 has its odd bytes in backslash form."""
    table = table_named(name)
    assert all(set(row) == set(table.columns.names) for row in rows), name
    shown = [{column: in_table(value) for column, value in row.items()} for row in rows]
    return {tuple(row[column] for column in table.key): row for row in shown}


def in_table(value: Any) -> Any:
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value


def place(record: Record) -> Row:
    return {"topic": record.topic, "topic_id": None, "partition": record.partition, "offset": record.offset}


def rejected(record: Record, reason: str, cluster: str) -> Row:
    return {
        **place(record),
        "cluster_id": cluster,
        "at": record.timestamp,
        "reason": reason,
        "key": None if record.key is None else record.key.decode("utf-8", "backslashreplace")[:1000],
        "value_bytes": None if record.value is None else len(record.value),
        "is_historic": False,
    }


def attributes(fact: Any, names: str) -> Row:
    return {name: getattr(fact, name) for name in names.split()}


def happened(record: Record, event: EventHappened, own_cluster: str) -> Row:
    return {
        **attributes(event, "event subject_kind subject by at"),
        **place(record),
        "cluster_id": event.cluster or own_cluster,
        "event_id": event.id,
        "detail": event.detail.text,
        "is_historic": False,
    }


def of_breaker(event: EventHappened, own_cluster: str) -> Row:
    detail = event.detail.value()
    bits = {"threshold_percent": 31} | dict.fromkeys(("generation", "dlq_written", "delivered"), 63)
    bits |= dict.fromkeys(("window_ms", "resume_at"), 63)

    def number(name: str) -> int | None:
        value = detail.get(name)
        is_whole = isinstance(value, int) and not isinstance(value, bool) and -(2 ** bits[name]) <= value
        return value if is_whole and value < 2 ** bits[name] else None

    reason = detail.get("reason")
    return {
        **attributes(event, "event by at"),
        **{name: number(name) for name in bits},
        "cluster_id": event.cluster or own_cluster,
        "event_id": event.id,
        "group": event.subject,
        "reason": reason if isinstance(reason, str) else None,
        "detail": event.detail.text,
        "is_historic": False,
    }


def activity(seen: ActivityObserved, own_cluster: str) -> Row:
    software = seen.software
    return {
        **attributes(seen, "writer boot seq topic topic_id direction since until bytes records at"),
        **attributes(seen, "principal client_id group transactional_id host"),
        **attributes(seen.actor, "rule confidence"),
        "cluster_id": seen.cluster or own_cluster,
        "actor_kind": seen.actor.kind,
        "actor": seen.actor.name,
        "software": None if software is None else software.name,
        "software_version": None if software is None else software.version,
        "is_historic": False,
    }


def disposed(record: Record, counted: DispositionsCounted, own_cluster: str) -> Row:
    unknown = {"writer": "", "boot": f"{record.topic}/{record.partition}", "seq": record.offset}
    return {
        **(unknown if counted.writer is None else attributes(counted, "writer boot seq")),
        **attributes(counted, "group member topic topic_id partition second generation at"),
        **attributes(counted, "accepted released rejected over_limit dead_lettered write_timeouts"),
        "cluster_id": counted.cluster or own_cluster,
        "by_delivery_count": json.dumps(dict(counted.by_delivery_count), separators=(",", ":")),
        "is_historic": False,
    }


def lags(observed: GroupLagsObserved, own_cluster: str) -> list[Row]:
    """The lists of a valid fact may differ in their lengths: what is not there is unknown."""
    columns = {"committed": observed.committed, "end": observed.ends, "lag": observed.lags}
    return [
        {
            **attributes(observed, "group kind topic topic_id at"),
            "cluster_id": observed.cluster or own_cluster,
            "partition": partition,
            **{name: values[place] if place < len(values) else None for name, values in columns.items()},
            "is_historic": False,
        }
        for place, partition in enumerate(observed.partitions)
    ]


def of_application(
    cluster: str, app: str, history: list[tuple[Record, TopologyDescribed | TopologyDeleted]]
) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    last: dict[tuple[Any, ...], tuple[Row, TopologyDescribed]] = {}
    current: tuple[Row, TopologyDescribed] | None = None
    for record, told in history:
        after = told if isinstance(told, TopologyDescribed) else None
        end = {"valid_to": record.offset, "ended_at": told.at}
        is_replaced = after is None or current is None or replaces(after, current[1])
        if is_replaced:
            before = None if current is None else current[1]
            if (before and before.hash) != (after and after.hash):
                found["changes"].append(changed(cluster, record, before, told))
            if current is not None:
                current[0].update(end)
            current = None
        if after is None:
            continue
        own = attributes(after, "incarnation epoch hash provenance")
        version = {"cluster_id": cluster, "app_id": app, **own}
        shared = {
            **version,
            "valid_from": record.offset,
            "valid_to": None,
            "at": after.at,
            "ended_at": None,
            "is_historic": False,
        }
        last[tuple(version.values())] = shared, after
        if not is_replaced:
            shared.update(end)
            continue
        current = shared, after
        found["applications"].append(shared)
    found["applications"] = [
        {**row, "kind": "spark" if row["provenance"] == "spark" else "streams"} for row in found["applications"]
    ]
    for shared, told in last.values():
        for name, rows in of_version(app, shared, told).items():
            found[name] += rows
    return found


def replaces(after: TopologyDescribed, current: TopologyDescribed) -> bool:
    """What members pushed, or Spark runs, before a partial description, and that before a pasted one."""
    order = ["pasted", "assignment", "pushed", "spark"]
    return order.index(after.provenance) >= min(order.index(current.provenance), order.index("pushed"))


def changed(
    cluster: str, record: Record, before: TopologyDescribed | None, told: TopologyDescribed | TopologyDeleted
) -> Row:
    after = told.description if isinstance(told, TopologyDescribed) else None
    changes = element_changes(None if before is None else before.description, after)
    counts = Counter(change.change for change in changes)
    detail = {
        "counts": {name: counts[name] for name in sorted(counts)},
        "changes": [{"element": one.element, "name": one.name, "change": one.change} for one in changes[:100]],
    }
    event = "topology_removed" if after is None else "topology_added" if before is None else "topology_changed"
    return {
        "cluster_id": cluster,
        "event_id": f"{record.topic}/{record.partition}/{record.offset}",
        "event": event,
        "subject_kind": "application",
        "subject": told.group,
        "by": None,
        "detail": json.dumps(detail, separators=(",", ":")),
        **place(record),
        "at": told.at,
        "is_historic": False,
    }


def of_version(app: str, shared: Row, told: TopologyDescribed) -> dict[str, list[Row]]:
    description = told.description
    nodes = [node for part in description.subtopologies for node in part.nodes]
    version = {
        "member": told.member,
        "process": told.process,
        "subtopologies": len(description.subtopologies),
        "nodes": len(nodes) + 2 * len(description.global_stores),
        "global_stores": len(description.global_stores),
        "description": description_text(description),
    }
    return {
        "topology_versions": [{**shared, **version}],
        "topology_nodes": [{**shared, **row._asdict(), "topic_id": None} for row in node_rows(description, app)],
        "topology_edges": [{**shared, **row._asdict(), "topic_id": None} for row in edge_rows(description, app)],
        "app_io": [
            {**shared, **pair._asdict(), "in_topic_id": None, "out_topic_id": None}
            for pair in app_io(description, app).pairs
        ],
    }
