"""A small estate in tables, with gaps: what the commands of `headgate lineage` are tested with.

shop-app makes totals and large from orders, and in another component sessions from clicks; until noon it made
old-totals. A share group bills orders, a consumer group reads totals, and clicks are written past the gateway.
"""

from typing import Any

import pyarrow as pa

from headgate.base.locations import Location
from headgate.tables.definitions import TABLES
from headgate.tables.writer import TableWriter

Row = dict[str, Any]

HOUR = 3_600_000
DAY = 24 * HOUR
NOON = 1794744000000  # 2026-11-15T12:00:00Z
ONE, TWO = NOON + HOUR, NOON + 2 * HOUR
CLUSTER = "c1"
# The version that was current until noon, the one after it, and its pairs.
OLD: Row = {"hash": "sha256:ab12", "valid_from": 1, "valid_to": 3, "at": NOON - HOUR, "ended_at": NOON}
VERSION: Row = {"app_id": "shop-app", "incarnation": "9f", "hash": "sha256:cd34", "provenance": "pushed"}
_EMPTY: dict[pa.DataType, object] = {pa.string(): "", pa.bool_(): False, pa.float64(): 0.0}


def use(actor: str, topic: str, direction: str, kind: str = "streams", **more: Any) -> Row:
    edge: Row = {"app_id": actor, "topic": topic, "direction": direction, "actor_kind": kind, "valid_from": NOON - DAY}
    return edge | {"observed": True, "bytes_day": 1000, "records_day": 10, "last_seen": TWO} | more


def pair(in_topic: str, out_topic: str, component: str = "0", app: str = "shop-app", **more: Any) -> Row:
    since: Row = {"app_id": app, "valid_from": 3, "at": NOON}
    return VERSION | since | {"component": component, "in_topic": in_topic, "out_topic": out_topic} | more


def gap(kind: str, actor: str, topic: str, direction: str, **more: Any) -> Row:
    known: Row = {"kind": kind, "actor_kind": "streams", "app_id": actor, "topic": topic, "direction": direction}
    return known | {"opened_at": ONE, "state": "open", "coverage": 0.99, "detail": "{}"} | more


def hour(topic: str, number: int, seen: int, everything: int, **more: Any) -> Row:
    counts: Row = {"topic": topic, "hour": NOON - number * HOUR, "seen_records": seen, "all_records": everything}
    return counts | {"coverage": min(1.0, seen / everything) if everything else None} | more


def cause(event: str, number: int, kind: str, **more: Any) -> Row:
    of_trip: Row = {"event_id": event, "number": number, "group": "billing", "tripped_at": TWO, "cause_kind": kind}
    return of_trip | {"likelihood": "high", "subject": "shop", "what": "started", "at": ONE, "detail": '{"a":1}'} | more


ROWS: dict[str, list[Row]] = {
    "applications": [VERSION | OLD, VERSION | {"valid_from": 3, "at": NOON}],
    "app_io": [
        pair("orders", "totals"),
        pair("orders", "large"),
        pair("clicks", "sessions", "1"),
        pair("orders", "old-totals", **OLD),
    ],
    "client_identities": [
        {"client_id": "shop-1", "host": "10.0.0.7", "actor_kind": "client", "actor": "shop", "last_seen": TWO},
        {"client_id": "shop-2", "principal": "User:shop", "actor_kind": "client", "actor": "shop", "last_seen": ONE},
    ],
    "lineage_edges": [
        use("shop-app", "orders", "read", declared=True),
        use("shop-app", "totals", "write", declared=True),
        use("shop-app", "large", "write", declared=True, observed=False, bytes_day=None, last_seen=None),
        use("shop-app", "clicks", "read", declared=True, observed=False, bytes_day=None, last_seen=None),
        use("shop-app", "sessions", "write", declared=True),
        use("shop-app", "old-totals", "write", declared=True, valid_from=NOON - HOUR, valid_to=NOON),
        use("billing", "orders", "read", "share_group"),
        use("billing", "dlq.orders", "write", "share_group"),
        use("reports", "totals", "read", "consumer_group"),
        use("shop", "orders", "write", "client", bytes_day=7500),
        use("unknown", "orders", "write", "unattributed", bytes_day=2500),
        use("night-job", "orders", "read", "spark", declared=True, observed=False, bytes_day=None, last_seen=None),
        use("old-group", "orders", "read", "consumer_group", valid_to=NOON - DAY, last_seen=NOON - 40 * DAY),
    ],
    "lineage_gaps": [
        gap("declared_silent", "shop-app", "large", "write"),
        gap("declared_silent", "shop-app", "clicks", "read", state="unknown", coverage=0.0),
        gap("used_undeclared", "shop-app", "audit", "write", state="closed", opened_at=NOON, closed_at=TWO),
    ],
    "topic_coverage": [
        hour("orders", 0, 90, 100),
        hour("orders", 1, 120, 100),
        hour("orders", 30, 0, 100),
        hour("clicks", 0, 0, 1000),
        hour("large", 0, 5, 0),
    ],
    "breaker_causes": [
        cause("t1", 1, "new_producer", topic="orders", seconds_before=60),
        cause("t1", 2, "config", subject="billing", what="config_changed", seconds_before=900),
        cause("t0", 1, "none", tripped_at=ONE, detail="{}"),
    ],
}


def whole(name: str, rows: list[Row]) -> list[Row]:
    """The rows with all columns of the table: null where that is possible, else empty."""
    columns = TABLES[name].columns
    empty: Row = {one.name: None if one.nullable else _EMPTY.get(one.type, 0) for one in columns}
    return [empty | {"cluster_id": CLUSTER} | row for row in rows]


def write(root: Location, name: str, rows: list[Row]) -> None:
    made = pa.Table.from_pylist(whole(name, rows), schema=TABLES[name].columns)
    TableWriter(root, TABLES[name]).replace_all(made)


def write_shop(root: Location) -> None:
    for name, rows in ROWS.items():
        write(root, name, rows)
