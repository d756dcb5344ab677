"""The estate of `estate.py` on a bad night: gaps, a mismatch, growing lags and dead letters, members, and hours."""

import json
import random
from pathlib import Path

from headgate.share_groups.model.group_configs import THRESHOLD_PERCENT
from tests.e2e.estate import APP, HOSTILE, NEW_HASH, write_estate
from tests.unit.lineage.shop import DAY, HOUR, Row, cause, gap, write

MINUTE = 60_000
PLAN = "6afbde83-dac6"
HOSTS = ("10.0.0.21", "10.0.0.22", "10.0.0.23")
REJECTED = "unknown field <script>alert(1)</script>"


def write_busy_estate(root: Path, now: int) -> None:
    write_estate(root, now)
    write(root, "dlq_rates", _rates(now - now % MINUTE))
    write(root, "group_lags", _lags(now))
    write(root, "lineage_gaps", _gaps(now))
    write(root, "changes", _changes(now))
    write(root, "members_tasks", _tasks(now))
    write(root, "activity_hours", _hours(now - now % HOUR))
    write(root, "breaker_causes", _causes(now))
    write(root, "rejected_facts", _rejected(now))
    write(root, "activity_intervals", _reports(now))
    write(root, "dead_letter_clusters", _episodes(now))
    write(root, "dead_letters", _letters(now))
    write(root, "replay_plans", _plans(now))
    write(root, "replay_plan_records", _plan_records(now))


def _rates(minute: int) -> list[Row]:
    chance = random.Random(7)
    rows: list[Row] = []
    for back in range(120):
        at = {"minute": minute - back * MINUTE, "topic": "enriched-orders", "processed": 400}
        rows.append(at | {"group": "billing", "dead_lettered": 90 if 3 < back < 8 else chance.randrange(0, 3)})
        grown = max(0, 40 - back) // 4
        rows.append(at | {"group": "shipping", "dead_lettered": grown + chance.randrange(0, 2)})
    return rows


def _lags(now: int) -> list[Row]:
    def one(group: str, kind: str, partition: int, back: int, lag: int) -> Row:
        known: Row = {"group": group, "kind": kind, "topic": "enriched-orders", "partition": partition}
        return known | {"lag": lag, "at": now - back * MINUTE}

    grows = [
        one("fraud-detector", "streams", partition, back, 900 + max(0, 25 - back) * 1_100)
        for partition in range(4)
        for back in range(40, -1, -1)
    ]
    return [*grows, *(one("mailer", "consumer", 0, back, 12) for back in (60, 5))]


def _gaps(now: int) -> list[Row]:
    return [
        gap("declared_silent", APP, "audit", "write", opened_at=now - 2 * HOUR),
        gap("used_undeclared", "session-builder", "customers", "read", opened_at=now - 5 * HOUR),
        gap("used_undeclared", "session-builder", HOSTILE, "write", opened_at=now - 6 * HOUR),
        gap("declared_silent", "fraud-detector", "fraud-alerts", "write", opened_at=now - 9 * DAY),
        gap("mismatch", APP, "", "", opened_at=now - 22 * MINUTE, detail='{"kind":"assignment","topology_count":2}'),
    ]


def _changes(now: int) -> list[Row]:
    sides = [
        {"fingerprint": "ab12ab12", "refused": False, "member_count": 1, "members": [_seen(1)]},
        {"fingerprint": "cd34cd34", "refused": False, "member_count": 2, "members": [_seen(2), _seen(3)]},
    ]
    mismatch = {"state": "open", "kind": "assignment", "topology_count": 2, "topologies": sides}
    config = {"changes": {THRESHOLD_PERCENT: "20"}, "before": {THRESHOLD_PERCENT: "30"}}
    trip = {"delivered": 310, "dlq_written": 90, "threshold_percent": 20, "window_ms": 60_000}
    added = {"element": "input", "name": HOSTILE, "change": "added"}
    app: Row = {"subject_kind": "application", "subject": APP, "topic": "headgate.events", "detail": "{}"}
    return [
        app
        | {"event_id": "e1", "event": "topology_changed", "at": now - HOUR}
        | {"detail": json.dumps({"counts": {"added": 1}, "changes": [added]})},
        app | {"event_id": "e2", "event": "topology_mismatch", "at": now - 22 * MINUTE, "detail": json.dumps(mismatch)},
        app
        | {"event_id": "e3", "event": "config_changed", "subject_kind": "share_group", "subject": "billing"}
        | {"at": now - HOUR // 2, "by": "User:ops", "detail": json.dumps(config)},
        app
        | {"event_id": "e4", "event": "topology_changed", "subject": "revenue-totals", "at": now - 27 * MINUTE}
        | {"detail": json.dumps({"counts": {"added": 2, "removed": 1}, "changes": []})},
        app
        | {"event_id": "e5", "event": "tripped", "subject_kind": "share_group", "subject": "billing", "at": now}
        | {"detail": json.dumps(trip)},
    ]


def _seen(number: int) -> Row:
    return {"member": f"enricher-{number}", "process": f"p-{number}", "host": HOSTS[number - 1]}


def _tasks(now: int) -> list[Row]:
    def one(member: int, task: str, role: str, stores: list[str], lag: int | None = None) -> Row:
        part, partition = task.split("_")
        known: Row = {"group": APP, "member": f"enricher-{member}", "process": f"p-{member}", "at": now - HOUR}
        known |= {"client_id": f"{APP}-StreamThread-{member}", "host": HOSTS[member - 1], "valid_from": 5}
        known |= {"task": task, "role": role, "stores": json.dumps(stores), "lag": lag}
        return known | {"subtopology": part, "partition": int(partition)}

    store = ["customer-store"]
    return [
        one(1, "0_0", "active", []),
        one(2, "0_1", "active", []),
        one(3, "0_2", "active", []),
        one(1, "1_0", "active", store),
        one(2, "1_1", "active", store),
        one(3, "1_2", "active", store),
        one(2, "1_0", "standby", store, 14),
        one(3, "1_1", "standby", store, 0),
        one(1, "1_2", "warmup", store, 48_210),
    ]


def _hours(hour: int) -> list[Row]:
    chance = random.Random(3)
    rows: list[Row] = []
    for back in range(7 * 24):
        at = hour - back * HOUR
        load = 2 + (10 - abs(12 - (at // HOUR) % 24)) // 2 + chance.randrange(0, 2)
        for name, kind, direction in (
            ("web-shop", "client", "write"),
            ("mobile-gateway", "client", "write"),
            (APP, "streams", "read"),
        ):
            if name == "mobile-gateway" and back > 60:
                continue
            size = load * (3_000_000 if name == "web-shop" else 1_000_000)
            rows.append(
                {"hour": at, "actor_kind": kind, "app_id": name, "topic": "orders", "direction": direction}
                | {"first_seen": at, "last_seen": at + MINUTE, "bytes": size, "records": size // 200}
            )
    return rows


def _causes(now: int) -> list[Row]:
    tripped: Row = {"tripped_at": now - 240_000, "at": now - 7 * MINUTE}
    return [
        cause("t1", 1, "topology", subject_kind="application", subject=APP, what="topology_changed", **tripped),
        cause("t1", 2, "config", subject_kind="share_group", subject="billing", what="config_changed", **tripped)
        | {"likelihood": "medium"},
    ]


def _rejected(now: int) -> list[Row]:
    known: Row = {"topic": "headgate.activity", "partition": 3, "at": now - HOUR, "value_bytes": 812}
    return [
        known | {"offset": 4711, "reason": REJECTED, "key": '["gw-a/0","b1",812]'},
        known
        | {"offset": 4712, "reason": f"the value is not JSON ({NEW_HASH[:12]})", "key": None, "at": now - 2 * HOUR},
    ]


def _reports(now: int) -> list[Row]:
    known: Row = {"actor_kind": "client", "actor": "web-shop", "topic": "orders", "direction": "write"}
    writers = (("gw-a/0", "b1", 50), ("gw-a/0", "b2", 4), ("gw-a/1", "b2", 2), ("gw-b/0", "b7", 95))
    return [
        known | {"writer": writer, "boot": boot, "seq": 1, "at": now - minutes * MINUTE}
        for writer, boot, minutes in writers
    ]


def _episodes(now: int) -> list[Row]:
    """One that lasts, by what its records share, and an outage that is over."""
    rate = {"failed": 9, "attempts": 50, "lower": 0.1, "upper": 0.31}
    evidence = json.dumps(
        {"attempts": rate, "base_rate": 0.001, "worst_bucket": rate, "members": 2, "worst_members": [], "paused_ms": 0}
        | {"worst_features": [rate | {"feature": "schema_id=7"}]}
    )
    shared: Row = {"evidence": evidence, "topics": json.dumps(["enriched-orders"])}
    lasting: Row = {"group": "shipping", "cluster": "5f1c0d2a9b3e", "verdict": "content", "action": "fix_first"}
    over: Row = {"group": "billing", "cluster": "77aa", "verdict": "outage", "action": "replay_now", "count": 412}
    return [
        shared | lasting | {"feature": "schema_id=7", "count": 2, "first_at": now - HOUR, "last_at": now - MINUTE},
        shared | over | {"first_at": now - DAY, "last_at": now - DAY + HOUR, "ended_at": now - DAY + HOUR},
    ]


def _letters(now: int) -> list[Row]:
    of_group: Row = {"group": "shipping", "topic": "enriched-orders", "dlq_topic": "dlq.shipping", "topic_id": "AAAA"}
    known: Row = {"cluster": "5f1c0d2a9b3e", "format": "kafka", "copies": 1, "delivery_count": 5}
    return [
        of_group
        | known
        | {"offset": 41, "dead_lettered_at": now - 2 * MINUTE, "source_state": "found", "reason": HOSTILE}
        | {"source_expires_at": now + 5 * HOUR},
        of_group | known | {"offset": 42, "dead_lettered_at": now - MINUTE, "source_state": "expired"},
    ]


def _plans(now: int) -> list[Row]:
    """One that puts back what the episode of `shipping` has, and leaves some of it out."""
    selection = {"group": "shipping", "cluster": "5f1c0d2a9b3e", "where": "schema_id = 7"}
    made: Row = {"plan": PLAN, "at": now - 10 * MINUTE, "by": "token alice", "group": "shipping", "to": "original"}
    counts: Row = {"records": 60, "expired": 1, "superseded": 2, "oldest_at": now - HOUR}
    reasons = {"the downstream timed out after 5 s": 47, HOSTILE: 13}
    texts = {"selection": selection, "targets": {"enriched-orders": "AAAA"}, "reasons": reasons}
    return [made | counts | {name: json.dumps(one) for name, one in texts.items()} | {"readers": '["streams totals"]'}]


def _plan_records(now: int) -> list[Row]:
    known: Row = {"plan": PLAN, "group": "shipping", "topic": "enriched-orders", "topic_id": "AAAA"}
    known |= {"source_at": now - HOUR, "dlq_topic": "dlq.shipping", "reason": "the downstream timed out after 5 s"}
    replayed: Row = {"action": "replay", "target_topic": "enriched-orders", "target_partition": 0}
    left: Row = {"action": "leave_out", "why": "superseded", "target_topic": None, "target_partition": None}
    return [
        known | (left if position == 1 else replayed) | {"position": position, "offset": 41 + position}
        for position in range(60)
    ]
