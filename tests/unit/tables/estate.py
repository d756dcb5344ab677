"""A small estate as the pipeline would write it: the rows behind the answers in `docs/tables.md`.

orders-app counts orders by customer. At 11:00 it came, at 12:30 it got another filter; old-app went at 11:30.
"""

from pathlib import Path

import pyarrow as pa

from headgate.tables.definition import Table
from headgate.tables.registry import all_tables
from headgate.tables.writer import TableWriter

Row = dict[str, object]

NINE, ELEVEN, HALF_PAST_ELEVEN, HALF_PAST_TWELVE = 1794733200000, 1794740400000, 1794742200000, 1794745800000
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
REPARTITION = "orders-app-by-customer-repartition"


def version(app: str, digest: str) -> Row:
    return {
        "cluster_id": CLUSTER,
        "app_id": app,
        "incarnation": "9f2c",
        "epoch": 0,
        "hash": f"sha256:{digest}",
        "provenance": "pushed",
    }


def held(start: tuple[int, int], end: tuple[int, int] | None = None) -> Row:
    valid_to, ended_at = (None, None) if end is None else end
    return {"valid_from": start[0], "valid_to": valid_to, "at": start[1], "ended_at": ended_at, "is_historic": False}


# Offset and time: old-app came, orders-app came, old-app went, orders-app changed.
_OLD_CAME, _CAME, _OLD_WENT, _CHANGED = (0, NINE), (1, ELEVEN), (2, HALF_PAST_ELEVEN), (3, HALF_PAST_TWELVE)
VERSIONS = [
    (version("old-app", "00aa"), held(_OLD_CAME, _OLD_WENT)),
    (version("orders-app", "ab12"), held(_CAME, _CHANGED)),
    (version("orders-app", "cd34"), held(_CHANGED)),
]


def _versions() -> list[Row]:
    counts = {"member": "m-1", "process": "p-1", "subtopologies": 2, "nodes": 6, "global_stores": 0}
    description = '{"subtopologies":[],"global_stores":[]}'
    return [{**one, **counts, "description": description, **validity} for one, validity in VERSIONS]


def _applications() -> list[Row]:
    return [{**one, "kind": "streams", **validity} for one, validity in VERSIONS]


def _nodes() -> list[Row]:
    names = ("kind", "node", "subtopology", "topic_id", "is_internal")
    nodes = [
        ("source", "orders-in", "0", None, False),
        ("processor", "filter", "0", None, False),
        ("sink", "by-customer-out", "0", None, False),
        ("source", "by-customer-in", "1", None, False),
        ("processor", "count", "1", None, False),
        ("store", "counts", "1", None, False),
        ("sink", "totals-out", "1", None, False),
        ("topic", "orders", None, "Yl8yUgEGQ8-3nUUGLFGGsA", False),
        ("topic", REPARTITION, None, None, True),
        ("topic", "totals", None, None, False),
    ]
    return [
        {**one, **dict(zip(names, node, strict=True)), "pattern": None, "is_global": False, **validity}
        for one, validity in VERSIONS[1:]
        for node in nodes
    ]


def _edges() -> list[Row]:
    names = ("from_kind", "from_node", "to_kind", "to_node", "topic_id", "is_internal")
    edges = [
        ("topic", "orders", "source", "orders-in", "Yl8yUgEGQ8-3nUUGLFGGsA", False),
        ("source", "orders-in", "processor", "filter", None, False),
        ("processor", "filter", "sink", "by-customer-out", None, False),
        ("sink", "by-customer-out", "topic", REPARTITION, None, True),
        ("topic", REPARTITION, "source", "by-customer-in", None, True),
        ("source", "by-customer-in", "processor", "count", None, False),
        ("processor", "count", "store", "counts", None, False),
        ("processor", "count", "sink", "totals-out", None, False),
        ("sink", "totals-out", "topic", "totals", None, False),
    ]
    return [
        {**one, **dict(zip(names, edge, strict=True)), **validity} for one, validity in VERSIONS[1:] for edge in edges
    ]


def _app_io() -> list[Row]:
    ends = {"in_topic": "orders", "in_topic_id": "Yl8yUgEGQ8-3nUUGLFGGsA", "out_topic": "totals", "out_topic_id": None}
    return [{**one, "component": "0", **ends, **validity} for one, validity in VERSIONS[1:]]


def _changes() -> list[Row]:
    events = [
        (_OLD_CAME, "topology_added", "old-app"),
        (_CAME, "topology_added", "orders-app"),
        (_OLD_WENT, "topology_removed", "old-app"),
        (_CHANGED, "topology_changed", "orders-app"),
    ]
    place: Row = {"topic": "headgate.topologies", "topic_id": None, "partition": 0}
    return [
        {
            "cluster_id": CLUSTER,
            "event_id": f"headgate.topologies/0/{offset}",
            "event": event,
            "subject_kind": "application",
            "subject": app,
            "by": None,
            "detail": "{}",
            **place,
            "offset": offset,
            "at": at,
            "is_historic": False,
        }
        for (offset, at), event, app in events
    ]


def _activity_intervals() -> list[Row]:
    names = ("seq", "actor_kind", "actor", "direction", "since", "bytes", "confidence")
    seen = [
        (811, "client", "shop", "write", NINE, 120_000, "likely"),
        (812, "connector", "src-b", "write", ELEVEN, 48_000, "certain"),
        (813, "streams", "orders-app", "read", ELEVEN, 47_500, "certain"),
        (814, "connector", "src-b", "write", ELEVEN + 60_000, 51_000, "certain"),
    ]
    same: Row = {"cluster_id": CLUSTER, "writer": "gw-a/0", "boot": "b1", "rule": "connector-client-id"}
    topic: Row = {"topic": "orders", "topic_id": "Yl8yUgEGQ8-3nUUGLFGGsA", "records": None, "principal": None}
    client: Row = {"client_id": "c", "group": None, "transactional_id": None, "host": "10.0.0.7"}
    software: Row = {"software": "apache-kafka-java", "software_version": "4.3.1", "is_historic": False}
    rows: list[Row] = []
    for one in seen:
        since = int(str(one[4]))
        row = {**same, **dict(zip(names, one, strict=True)), **topic, **client, **software}
        rows.append({**row, "until": since + 60_000, "at": since + 61_000})
    return rows


def _dispositions() -> list[Row]:
    second = ELEVEN // 1000
    same: Row = {"cluster_id": CLUSTER, "writer": "gw-a/0", "boot": "b1", "group": "sg", "member": "m-1"}
    topic: Row = {"topic": "orders", "topic_id": "Yl8yUgEGQ8-3nUUGLFGGsA", "partition": 0, "generation": 4}
    counts: Row = {"released": 1, "over_limit": 0, "write_timeouts": 0, "is_historic": False}
    seconds = [
        (1, second, 10, 0, '{"1":11}'),
        (2, second + 1, 8, 2, '{"1":9,"2":2}'),
        (3, second + 2, 9, 0, '{"1":10}'),
    ]
    return [
        {
            **same,
            "seq": seq,
            **topic,
            **counts,
            "second": at,
            "accepted": accepted,
            "rejected": rejected,
            "dead_lettered": rejected,
            "by_delivery_count": deliveries,
            "at": at * 1000 + 1000,
        }
        for seq, at, accepted, rejected, deliveries in seconds
    ]


def _rejected_facts() -> list[Row]:
    return [
        {
            "cluster_id": CLUSTER,
            "topic": "headgate.topologies",
            "topic_id": None,
            "partition": 0,
            "offset": 4,
            "at": HALF_PAST_TWELVE,
            "reason": "the key is no JSON list",
            "key": "test",
            "value_bytes": 5,
            "is_historic": False,
        }
    ]


def _pipeline_runs() -> list[Row]:
    mend = "the disk is full: make room; the table is as it was before this batch"
    done: Row = {"state": "done", "batch": 3, "rows": 5, "rejected": 1, "lag": 0, "table": None, "problem": None}
    failed: Row = {"state": "failed", "batch": 2, "rows": 3, "rejected": 0, "lag": 2, "table": "changes"}
    times: Row = {"started_at": ELEVEN, "ended_at": HALF_PAST_TWELVE, "at": HALF_PAST_TWELVE, "batch_ms": 812}
    return [
        {"cluster_id": CLUSTER, "run_id": "5b1d", "query": "facts", **times, **failed, "problem": mend},
        {"cluster_id": CLUSTER, "run_id": "77c0", "query": "facts", **times, **done},
    ]


ROWS = {
    "activity_intervals": _activity_intervals,
    "app_io": _app_io,
    "applications": _applications,
    "changes": _changes,
    "dispositions": _dispositions,
    "pipeline_runs": _pipeline_runs,
    "rejected_facts": _rejected_facts,
    "topology_edges": _edges,
    "topology_nodes": _nodes,
    "topology_versions": _versions,
}


def write_estate(root: Path) -> None:
    for name, rows in ROWS.items():
        write(root, all_tables()[name], rows())


def write(root: Path, table: Table, rows: list[Row], number: int = 0) -> None:
    TableWriter(root, table).upsert(pa.Table.from_pylist(rows, schema=table.columns), query="facts", batch=number)
