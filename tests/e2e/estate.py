"""A small estate in tables for the tests of the page: a shop with applications, groups and hostile names."""

import json
from pathlib import Path
from typing import Any

from tests.unit.lineage.shop import DAY, HOUR, Row, use, write

APP = "order-enricher"
HOSTILE = '<img src=x onerror=alert(1)>"\u202egnp.exe'
# Kafka allows each of these as a client id, and as the name of a group, an application or a processor.
HOSTILE_NAMES = {
    "html": HOSTILE,
    "script": "</script><script>alert(2)</script>",
    "ansi": "\x1b[31mred\x1b[0m\x1b]8;;http://x.invalid\x07link",
    "nul": "nul\x00byte",
    "bidi": "\u2066bidi\u2069\u202egnp.exe\u200b\u200d",
    "lines": "first\r\nsecond\u2028third",
    "path": "../..%2f?a=b#c&d;e",
    "template": "{{7*7}}${7*7}javascript:alert(3)",
    "marks": "z\u0335\u0336\u0337" * 40,
    "all": "<b>\u202e\x1b[2J\x00\r\n\u2028\u200f'\"`$(id)\\",
    "long": "n" * 32_767,
    "wide": "\u00fc" * 6_000,  # a name in a path has at most 40,000 characters when it is encoded
}
OLD_HASH, NEW_HASH = "sha256:" + "ab12" * 16, "sha256:" + "cd34" * 16
REPARTITION = "order-enricher-by-customer-repartition"


def edges(now: int) -> list[Row]:
    seen: Row = {"valid_from": now - 3 * DAY, "last_seen": now - 20_000}
    silent: Row = {"observed": False, "bytes_day": None, "records_day": None, "last_seen": None}

    def one(actor: str, topic: str, direction: str, kind: str, **more: Any) -> Row:
        return use(actor, topic, direction, kind, **(seen | more))

    both: Row = {"declared": True}
    declared_only: Row = both | silent
    return [
        one("web-shop", "orders", "write", "client", bytes_day=81_000_000, records_day=412_000),
        one("web-shop", "clicks", "write", "client", bytes_day=940_000_000, records_day=9_100_000),
        one("mobile-gateway", "orders", "write", "client", bytes_day=22_000_000, records_day=120_000),
        one("mobile-gateway", "clicks", "write", "client", bytes_day=310_000_000),
        one("postgres-customers", "customers", "write", "connector", bytes_day=3_200_000),
        one("postgres-stock", "inventory", "write", "connector", bytes_day=12_000_000),
        one("unknown", "payments", "write", "unattributed", bytes_day=5_000_000),
        one(APP, "orders", "read", "streams", **both, bytes_day=103_000_000),
        one(APP, "customers", "read", "streams", **both, bytes_day=3_200_000),
        one(APP, REPARTITION, "write", "streams", **both, is_internal=True, bytes_day=100_000_000),
        one(APP, REPARTITION, "read", "streams", **both, is_internal=True, bytes_day=100_000_000),
        one(APP, "enriched-orders", "write", "streams", **both, bytes_day=190_000_000),
        one(APP, "audit", "write", "streams", **declared_only),
        one("revenue-totals", "enriched-orders", "read", "streams", **both, bytes_day=190_000_000),
        one("revenue-totals", "order-totals", "write", "streams", **both, bytes_day=700_000),
        one("fraud-detector", "enriched-orders", "read", "streams", **both, bytes_day=190_000_000),
        one("fraud-detector", "payments", "read", "streams", **both, bytes_day=5_000_000),
        one("fraud-detector", "fraud-alerts", "write", "streams", **declared_only),
        one("session-builder", "clicks", "read", "streams", **both, filled=True, bytes_day=1_250_000_000),
        one("session-builder", "sessions", "write", "streams", **both, bytes_day=60_000_000),
        one("billing", "enriched-orders", "read", "share_group", bytes_day=190_000_000),
        one("billing", "dlq.billing", "write", "share_group", bytes_day=120_000),
        one("shipping", "enriched-orders", "read", "share_group", bytes_day=180_000_000),
        one("shipping", "inventory", "read", "share_group", bytes_day=12_000_000),
        one("shipping", "dlq.shipping", "write", "share_group", **silent | {"observed": True}),
        one("dashboard", "order-totals", "read", "consumer_group", bytes_day=2_100_000),
        one("mailer", "fraud-alerts", "read", "consumer_group", bytes_day=0),
        one("night-report", "sessions", "read", "spark", **declared_only),
        one("night-report", "order-totals", "read", "spark", **declared_only),
        one("night-report", "daily-report", "write", "spark", **declared_only),
        one("s3-archive", "sessions", "read", "connector", bytes_day=60_000_000),
        one("s3-archive", "enriched-orders", "read", "connector", bytes_day=190_000_000),
        one(HOSTILE, "audit", "read", "consumer_group", bytes_day=10),
        one("old-reader", "orders", "read", "consumer_group", valid_to=now - DAY, last_seen=now - DAY),
    ]


def description(*, has_audit: bool) -> dict[str, Any]:
    def source(name: str, topics: list[str], *successors: str) -> dict[str, Any]:
        return {"name": name, "type": "source", "topics": topics, "pattern": None, "successors": list(successors)}

    def processor(name: str, stores: list[str], *successors: str) -> dict[str, Any]:
        return {"name": name, "type": "processor", "stores": stores, "successors": list(successors)}

    def sink(name: str, topic: str) -> dict[str, Any]:
        return {"name": name, "type": "sink", "topic": topic, "successors": []}

    second = [
        source("by-customer-source", [REPARTITION], "join-customer"),
        source("customers-source", ["customers"], "customer-table"),
        processor("customer-table", ["customer-store"], "join-customer"),
        processor("join-customer", ["customer-store"], "enriched-sink", *(["audit-sink"] if has_audit else [])),
        sink("enriched-sink", "enriched-orders"),
        *([sink("audit-sink", "audit")] if has_audit else []),
    ]
    return {
        "subtopologies": [
            {
                "id": "0",
                "nodes": [
                    source("orders-source", ["orders"], "drop-test-orders"),
                    processor("drop-test-orders", [], "key-by-customer"),
                    processor("key-by-customer", [], "by-customer-sink"),
                    sink("by-customer-sink", REPARTITION),
                ],
            },
            {"id": "1", "nodes": second},
        ],
        "global_stores": [],
    }


def versions(now: int) -> list[Row]:
    common: Row = {"app_id": APP, "incarnation": "9f2c41d07a3e", "provenance": "pushed", "subtopologies": 2}
    old = common | {"hash": OLD_HASH, "valid_from": 1, "valid_to": 3, "at": now - 2 * DAY, "ended_at": now - HOUR}
    new = common | {"hash": NEW_HASH, "valid_from": 3, "at": now - HOUR, "epoch": 1}
    return [
        old | {"nodes": 9, "member": "enricher-1", "description": json.dumps(description(has_audit=False))},
        new | {"nodes": 10, "member": "enricher-2", "description": json.dumps(description(has_audit=True))},
    ]


def write_estate(root: Path, now: int) -> None:
    described = versions(now)
    keys = ("app_id", "incarnation", "epoch", "hash", "provenance", "valid_from", "valid_to", "at", "ended_at")
    pairs = [
        ("orders", "enriched-orders"),
        ("customers", "enriched-orders"),
        ("orders", "audit"),
        ("customers", "audit"),
    ]
    current = {key: value for key, value in described[1].items() if key in keys}
    write(root, "lineage_edges", edges(now))
    write(root, "topology_versions", described)
    write(
        root, "applications", [{k: v for k, v in one.items() if k in keys} | {"kind": "streams"} for one in described]
    )
    write(root, "app_io", [current | {"component": "0", "in_topic": one, "out_topic": two} for one, two in pairs])
    hour = now - now % HOUR - 2 * HOUR
    write(
        root,
        "topic_coverage",
        [
            {"topic": "orders", "hour": hour, "seen_records": 9_990, "all_records": 10_000, "coverage": 0.999},
            {"topic": "payments", "hour": hour, "seen_records": 400, "all_records": 1_000, "coverage": 0.4},
        ],
    )
    write(
        root,
        "client_identities",
        [
            {
                "client_id": "web-shop-1",
                "host": "10.0.0.7",
                "actor_kind": "client",
                "actor": "web-shop",
                "last_seen": now,
            },
            {
                "client_id": "web-shop-2",
                "host": "10.0.0.8",
                "actor_kind": "client",
                "actor": "web-shop",
                "last_seen": now,
            },
        ],
    )
    changes: Row = {"topic": "headgate.events", "detail": "{}", "subject_kind": "application", "subject": APP}
    write(
        root,
        "changes",
        [
            changes | {"event_id": "e1", "event": "topology_changed", "at": now - HOUR, "by": None},
            changes
            | {"event_id": "e2", "event": "config_changed", "subject_kind": "share_group", "subject": "billing"}
            | {"at": now - HOUR // 2, "by": "User:ops"},
        ],
    )
    minute = now - now % 60_000
    rates = [
        {"minute": minute - back * 60_000, "processed": 100, "dead_lettered": 30 if back == 4 else 1}
        for back in range(1, 30)
    ]
    write(root, "breaker_backtest", _backtest(now))
    write(root, "dlq_rates", [one | {"group": "billing", "topic": "enriched-orders"} for one in rates])
    lags = [
        ("billing", "share", "enriched-orders", 1_240),
        (APP, "streams", "orders", 35),
        ("dashboard", "consumer", "order-totals", 0),
    ]
    behind: Row = {"partition": 0, "at": now - 30_000}
    write(
        root,
        "group_lags",
        [behind | {"group": group, "kind": kind, "topic": topic, "lag": lag} for group, kind, topic, lag in lags],
    )
    trip: Row = {
        "event_id": "t1",
        "group": "billing",
        "event": "tripped",
        "at": now - 240_000,
        "topic": "headgate.events",
    }
    write(
        root,
        "breaker_events",
        [trip | {"dlq_written": 30, "delivered": 70, "threshold_percent": 20, "window_ms": 60_000}],
    )
    run: Row = {"state": "running", "started_at": now - DAY, "at": now - 2_000, "batch": 812, "rows": 91_204, "lag": 0}
    write(
        root,
        "pipeline_runs",
        [run | {"run_id": f"r-{query}", "query": query} for query in ("append", "derived", "facts")],
    )


def _backtest(now: int) -> list[Row]:
    """A day of the live setting, which trips late, and of two others."""
    day: Row = {"group": "billing", "day": now // 86_400_000 * 86_400_000 - 86_400_000, "left_out_s": 240}
    rows = []
    for percent, window_ms, trips, avoided, false_trips in (
        (20, 60_000, 1, 40, 0),
        (10, 30_000, 1, 310, 0),
        (5, 10_000, 4, 350, 3),
    ):
        setting: Row = {
            "threshold_percent": percent,
            "window_ms": window_ms,
            "min_messages": 100,
            "is_live": percent == 20,
        }
        counts: Row = {"trips": trips, "paused_s": 300 * trips, "avoided": avoided, "false_trips": false_trips}
        rows.append(day | setting | counts | {"config_hash": f"{percent}/{window_ms}/100"})
    return rows
