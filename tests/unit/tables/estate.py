"""A small estate as the pipeline would write it: the rows behind the answers in `docs/tables.md`.

orders-app counts orders by customer. At 11:00 it came, at 12:30 it got another filter; old-app went at 11:30.
"""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from headgate.tables.definitions import TABLES
from headgate.tables.table import Table
from headgate.tables.writer import TableWriter

Row = dict[str, object]

NINE, ELEVEN, HALF_PAST_ELEVEN, HALF_PAST_TWELVE = 1794733200000, 1794740400000, 1794742200000, 1794745800000
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
REPARTITION = "orders-app-by-customer-repartition"
ORDERS_ID = "Yl8yUgEGQ8-3nUUGLFGGsA"
AS_BEFORE = "the table is as it was before this batch"


# Offset and time: old-app came, orders-app came, old-app went, orders-app changed.
_OLD_CAME, _CAME, _OLD_WENT, _CHANGED = (0, NINE), (1, ELEVEN), (2, HALF_PAST_ELEVEN), (3, HALF_PAST_TWELVE)


def _version(app: str, digest: str, start: tuple[int, int], end: tuple[int, int] | None = None) -> Row:
    valid_to, ended_at = (None, None) if end is None else end
    validity: Row = {"valid_from": start[0], "at": start[1], "valid_to": valid_to, "ended_at": ended_at}
    version: Row = {"app_id": app, "incarnation": "9f2c", "hash": f"sha256:{digest}", "provenance": "pushed"}
    return version | validity


VERSIONS = [
    _version("old-app", "00aa", _OLD_CAME, _OLD_WENT),
    _version("orders-app", "ab12", _CAME, _CHANGED),
    _version("orders-app", "cd34", _CHANGED),
]


def _rows(names: str, rows: Iterable[tuple[object, ...]]) -> list[Row]:
    return [dict(zip(names.split(), row, strict=True)) for row in rows]


def _each_version(rows: list[Row]) -> list[Row]:
    return [version | row for version in VERSIONS[1:] for row in rows]


_NODES = _rows(
    "kind node subtopology topic_id is_internal",
    [
        ("source", "orders-in", "0", None, False),
        ("processor", "filter", "0", None, False),
        ("sink", "by-customer-out", "0", None, False),
        ("source", "by-customer-in", "1", None, False),
        ("processor", "count", "1", None, False),
        ("store", "counts", "1", None, False),
        ("sink", "totals-out", "1", None, False),
        ("topic", "orders", None, ORDERS_ID, False),
        ("topic", REPARTITION, None, None, True),
        ("topic", "totals", None, None, False),
    ],
)
_EDGES = _rows(
    "from_kind from_node to_kind to_node topic_id is_internal",
    [
        ("topic", "orders", "source", "orders-in", ORDERS_ID, False),
        ("source", "orders-in", "processor", "filter", None, False),
        ("processor", "filter", "sink", "by-customer-out", None, False),
        ("sink", "by-customer-out", "topic", REPARTITION, None, True),
        ("topic", REPARTITION, "source", "by-customer-in", None, True),
        ("source", "by-customer-in", "processor", "count", None, False),
        ("processor", "count", "store", "counts", None, False),
        ("processor", "count", "sink", "totals-out", None, False),
        ("sink", "totals-out", "topic", "totals", None, False),
    ],
)
_CHANGES = [
    {"event_id": f"headgate.topologies/0/{offset}", "event": event, "subject": app, "offset": offset, "at": at}
    for (offset, at), event, app in [
        (_OLD_CAME, "topology_added", "old-app"),
        (_CAME, "topology_added", "orders-app"),
        (_OLD_WENT, "topology_removed", "old-app"),
        (_CHANGED, "topology_changed", "orders-app"),
    ]
]
_ACTIVITY = _rows(
    "seq actor_kind actor direction since bytes confidence",
    [
        (811, "client", "shop", "write", NINE, 120_000, "likely"),
        (812, "connector", "src-b", "write", ELEVEN, 48_000, "certain"),
        (813, "streams", "orders-app", "read", ELEVEN, 47_500, "certain"),
        (814, "connector", "src-b", "write", ELEVEN + 60_000, 51_000, "certain"),
    ],
)
_DISPOSITIONS = _rows(
    "seq second at accepted rejected by_delivery_count",
    [
        (1, ELEVEN // 1000, ELEVEN + 1000, 10, 0, '{"1":11}'),
        (2, ELEVEN // 1000 + 1, ELEVEN + 2000, 8, 2, '{"1":9,"2":2}'),
        (3, ELEVEN // 1000 + 2, ELEVEN + 3000, 9, 0, '{"1":10}'),
    ],
)
_BREAKER_EVENTS = _rows(
    "event_id event by reason at dlq_written delivered threshold_percent detail",
    [
        ("e-1", "config_changed", "User:ops", None, HALF_PAST_TWELVE - 900_000, None, None, None, "{}"),
        ("e-2", "tripped", None, None, HALF_PAST_TWELVE, 25, 75, 20, '{"dlq_written":25,"delivered":75}'),
        ("e-3", "resumed", "User:ops", "src-c is stopped", HALF_PAST_TWELVE + 600_000, None, None, None, "{}"),
    ],
)
_COUNTS = "processed accepted dead_lettered dlq_rate"
_RATES = _rows(
    f"partition minute {_COUNTS}",
    [
        (0, HALF_PAST_TWELVE - 120_000, 80, 80, 0, 0.0),
        (0, HALF_PAST_TWELVE - 60_000, 60, 45, 15, 0.25),
        (1, HALF_PAST_TWELVE - 60_000, 40, 30, 10, 0.25),
    ],
)
_HOURS = _rows(f"hour {_COUNTS}", [(ELEVEN, 4800, 4800, 0, 0.0), (HALF_PAST_TWELVE - 1_800_000, 2500, 2475, 25, 0.01)])
_BACKTEST = {"group": "sg", "day": NINE - 9 * 3_600_000, "left_out_s": 0}
_BACKTESTED = _rows(
    "config_hash threshold_percent window_ms min_messages is_live trips paused_s avoided false_trips",
    [
        ("10/60000/100", 10, 60_000, 100, False, 2, 600, 14, 1),
        ("20/30000/100", 20, 30_000, 100, False, 1, 300, 11, 0),
        ("20/60000/100", 20, 60_000, 100, True, 1, 300, 9, 0),
        ("50/60000/100", 50, 60_000, 100, False, 0, 0, 0, 0),
    ],
)
_CAUSES = [
    {"event_id": "e-2", "group": "sg", "tripped_at": HALF_PAST_TWELVE, "detail": "{}"} | row
    for row in _rows(
        "number cause_kind likelihood subject_kind subject what topic seconds_before",
        [
            (1, "connector", "high", "connector", "src-c", "started", "orders", 130),
            (2, "config", "high", "share_group", "sg", "config_changed", None, 900),
            (3, "member", "medium", "share_group", "m-2", "joined", None, 1205),
        ],
    )
]
_LETTERS = _rows(
    "partition offset dlq_offset dead_lettered_at source_state delivery_count copies",
    [
        (0, 4711, 7, HALF_PAST_TWELVE - 30_000, "found", 2, 1),
        (0, 4712, 8, HALF_PAST_TWELVE - 29_000, "expired", 5, 2),
        (1, 9, 3, HALF_PAST_TWELVE - 28_000, "found", 1, 1),
    ],
)
_LETTER: Row = {
    "group": "sg",
    "topic": "orders",
    "topic_id": ORDERS_ID,
    "dlq_topic": "dlq.orders",
    "format": "kafka",
    "cluster": "5f1c0d2a9b3e",
}
_CLUSTER: Row = {
    "group": "sg",
    "cluster": "5f1c0d2a9b3e",
    "verdict": "content",
    "action": "fix_first",
    "count": 25,
    "first_at": HALF_PAST_TWELVE - 30_000,
    "last_at": HALF_PAST_TWELVE,
    "topics": '["orders"]',
    "feature": "schema_id=7",
    "evidence": "{}",
}
_PLAN = "6a187a28-91c0"
_OF_ORDERS: Row = {"plan": _PLAN, "topic": "orders", "topic_id": ORDERS_ID}
_PLAN_RECORDS = _rows(
    "position partition offset dlq_offset action why target_topic target_partition",
    [
        (0, 0, 4711, 7, "replay", None, "orders", 0),
        (1, 0, 4712, 8, "leave_out", "expired", None, None),
        (2, 1, 9, 3, "replay", None, "orders", 1),
    ],
)
_AUDIT = _rows(
    "position partition offset outcome why target_topic target_partition target_offset",
    [
        (0, 0, 4711, "replayed", None, "orders", 0, 5012),
        (2, 1, 9, "skipped", "source_missing", None, None, None),
    ],
)
_REPLAY_PLAN: Row = {
    "plan": _PLAN,
    "at": HALF_PAST_TWELVE,
    "by": "User:ops",
    "group": "sg",
    "selection": '{"group":"sg"}',
    "to": "original",
    "targets": f'{{"orders":"{ORDERS_ID}"}}',
    "records": 2,
    "expired": 1,
    "reasons": '{"Offset rejected by client.":2}',
    "readers": "[]",
}
_TASKS = [
    {"group": "orders-app", "process": f"p-{member[-1]}", "client_id": "orders", "at": ELEVEN} | row
    for row in _rows(
        "member host task subtopology partition role stores valid_from valid_to",
        [
            ("m-1", "10.0.0.7", "1_0", "1", 0, "active", '["counts"]', 4, None),
            ("m-1", "10.0.0.7", "0_0", "0", 0, "active", "[]", 4, None),
            ("m-2", "10.0.0.8", "0_1", "0", 1, "active", "[]", 2, 5),
            ("m-2", "10.0.0.8", "1_0", "1", 0, "standby", '["counts"]', 5, None),
        ],
    )
    for member in [str(row["member"])]
]
_HOURS_OF_USE = _rows(
    "hour actor_kind app_id direction first_seen last_seen bytes records",
    [
        (NINE, "client", "shop", "write", NINE, NINE + 60_000, 120_000, 400),
        (ELEVEN, "connector", "src-b", "write", ELEVEN, ELEVEN + 120_000, 99_000, 330),
        (ELEVEN, "streams", "orders-app", "read", ELEVEN, ELEVEN + 60_000, 47_500, None),
    ],
)
_IDENTITIES = [
    {"principal": "User:orders", "software": "apache-kafka-java", "actor_kind": "streams", "actor": "orders-app"} | row
    for row in _rows(
        "client_id host software_version first_seen last_seen",
        [
            ("orders-1", "10.0.0.7", "4.3.1", ELEVEN, ELEVEN + 60_000),
            ("orders-2", "10.0.0.8", "4.4.0", HALF_PAST_ELEVEN, HALF_PAST_TWELVE),
        ],
    )
]
_EDGES_OF_ACTORS = _rows(
    "actor_kind app_id topic direction valid_from valid_to declared observed filled bytes_day records_day last_seen",
    [
        ("client", "shop", "orders", "write", NINE, NINE + 60_000, False, True, False, None, None, NINE + 60_000),
        ("connector", "src-b", "orders", "write", ELEVEN, None, False, True, False, 99_000, 330, ELEVEN + 120_000),
        ("streams", "orders-app", "orders", "read", ELEVEN, None, True, True, False, 47_500, None, ELEVEN + 60_000),
        ("streams", "orders-app", "totals", "write", ELEVEN, None, True, False, False, None, None, None),
    ],
)
_GAPS: list[Row] = [
    {
        "kind": "declared_silent",
        "actor_kind": "streams",
        "app_id": "orders-app",
        "topic": "totals",
        "direction": "write",
        "opened_at": ELEVEN,
        "state": "open",
        "coverage": 0.98,
        "detail": "{}",
    }
]
_COVERAGE = _rows(
    "hour seen_records all_records coverage",
    [(NINE, 400, 400, 1.0), (ELEVEN, 330, 440, 0.75), (ELEVEN + 3_600_000, 5, 0, None)],
)
_IMPACT = _rows(
    "topic downstream_topics downstream_apps upstream_topics upstream_apps depth_down depth_up readers writers",
    [("orders", 1, 1, 0, 1, 1, 0, 1, 1), ("totals", 0, 0, 1, 2, 0, 1, 0, 1)],
)
_LAGS = _rows(
    "partition committed end lag at",
    [
        (0, 17, 20, 3, ELEVEN),
        (0, 20, 1020, 1000, ELEVEN + 60_000),
        (1, 4, 4, 0, ELEVEN),
    ],
)
_RUNS = _rows(
    "run_id query state started_at at batch table problem",
    [
        (
            "5b1d",
            "facts",
            "failed",
            ELEVEN,
            HALF_PAST_TWELVE,
            2,
            "changes",
            "the disk is full: make room; " + AS_BEFORE,
        ),
        ("77c0", "facts", "done", ELEVEN, HALF_PAST_TWELVE, 3, None, None),
    ],
)
_REJECTED = {"topic": "headgate.topologies", "offset": 4, "at": HALF_PAST_TWELVE, "key": "test"}
_IO: Row = {"component": "0", "in_topic": "orders", "in_topic_id": ORDERS_ID, "out_topic": "totals"}
_EMPTY: dict[pa.DataType, object] = {pa.string(): "", pa.bool_(): False}


def _whole(name: str, rows: list[Row]) -> list[Row]:
    """The rows with all columns of the table: null where that is possible, else empty."""
    columns = TABLES[name].columns
    empty: Row = {one.name: None if one.nullable else _EMPTY.get(one.type, 0) for one in columns}
    return [empty | {"cluster_id": CLUSTER} | row for row in rows]


ROWS = {
    name: _whole(name, rows)
    for name, rows in {
        "activity_hours": [row | {"topic": "orders", "topic_id": ORDERS_ID} for row in _HOURS_OF_USE],
        "activity_intervals": [{"writer": "gw-a/0", "boot": "b1", "topic": "orders"} | row for row in _ACTIVITY],
        "app_io": _each_version([_IO]),
        "applications": [row | {"kind": "streams"} for row in VERSIONS],
        "breaker_causes": _CAUSES,
        "breaker_events": [{"group": "sg"} | row for row in _BREAKER_EVENTS],
        "changes": _CHANGES,
        "client_identities": _IDENTITIES,
        "dead_letter_clusters": [_CLUSTER],
        "dead_letters": [_LETTER | row for row in _LETTERS],
        "dispositions": [
            {"writer": "gw-a/0", "boot": "b1", "group": "sg", "member": "m-1", "topic": "orders"} | row
            for row in _DISPOSITIONS
        ],
        "dlq_rates": [{"group": "sg", "topic": "orders", "topic_id": ORDERS_ID} | row for row in _RATES],
        "breaker_backtest": [_BACKTEST | row for row in _BACKTESTED],
        "dlq_rates_hourly": [{"group": "sg", "topic": "orders", "topic_id": ORDERS_ID} | row for row in _HOURS],
        "impact_summary": _IMPACT,
        "lineage_edges": _EDGES_OF_ACTORS,
        "lineage_gaps": _GAPS,
        "group_lags": [{"group": "billing", "kind": "consumer", "topic": "orders"} | row for row in _LAGS],
        "members_tasks": _TASKS,
        "pipeline_runs": _RUNS,
        "replay_audit": [
            _OF_ORDERS | {"at": HALF_PAST_TWELVE, "by": "User:ops", "group": "sg"} | row for row in _AUDIT
        ],
        "replay_plan_records": [_OF_ORDERS | {"dlq_topic": "dlq.orders"} | row for row in _PLAN_RECORDS],
        "replay_plans": [_REPLAY_PLAN],
        "rejected_facts": [_REJECTED | {"reason": "the key is no JSON list"}],
        "topic_coverage": [row | {"topic": "orders", "topic_id": ORDERS_ID} for row in _COVERAGE],
        "topology_edges": _each_version(_EDGES),
        "topology_nodes": _each_version(_NODES),
        "topology_versions": VERSIONS,
    }.items()
}


def write_estate(root: Path) -> None:
    for name, rows in ROWS.items():
        write(root, TABLES[name], rows)


def write(root: Path, table: Table, rows: list[Row], number: int = 0) -> None:
    TableWriter(root, table).upsert(pa.Table.from_pylist(rows, schema=table.columns), query="facts", batch=number)
