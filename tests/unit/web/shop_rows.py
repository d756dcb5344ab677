"""More of the shop of `tests/unit/lineage/shop.py`: versions of its application, tasks, changes and dead letters."""

import json
from pathlib import Path
from typing import Any

from headgate.facts.topology import DESCRIPTION, Description, content_hash
from headgate.topologies.model.topology_parser import parse
from tests.unit.lineage.shop import HOUR, NOON, OLD, ONE, TWO, VERSION, write

Row = dict[str, Any]

OLD_TEXT = """Topologies:
   Sub-topology: 0
    Source: orders-in (topics: [orders])
      --> totals-out
    Sink: totals-out (topic: old-totals)
      <-- orders-in
"""
NEW_TEXT = """Topologies:
   Sub-topology: 0
    Source: orders-in (topics: [orders])
      --> count
    Processor: count (stores: [counts])
      --> totals-out, large-out
      <-- orders-in
    Sink: totals-out (topic: totals)
      <-- count
    Sink: large-out (topic: large)
      <-- count
   Sub-topology: 1
    Source: clicks-in (topics: [clicks])
      --> sessions-out
    Sink: sessions-out (topic: sessions)
      <-- clicks-in
"""
MINUTE = 60_000


def described(text: str) -> Row:
    found = parse(text)
    assert isinstance(found, Description)
    nodes = sum(len(part.nodes) for part in found.subtopologies)
    return {
        "hash": content_hash(found),
        "description": json.dumps(DESCRIPTION.write(found)),
        "subtopologies": len(found.subtopologies),
        "nodes": nodes,
        "member": "m-1",
        "process": "p-1",
    }


CURRENT: Row = {"valid_from": 3, "at": NOON}
VERSIONS = [VERSION | OLD | described(OLD_TEXT), VERSION | CURRENT | described(NEW_TEXT)]
NEWER, OLDER = (f"9f/0/{row['hash'].removeprefix('sha256:')[:12]}" for row in reversed(VERSIONS))
_OF_APPLICATION = ("app_id", "incarnation", "hash", "provenance", "valid_from", "valid_to", "at", "ended_at")


def _task(member: str, task: str, **more: Any) -> Row:
    known: Row = {"group": "shop-app", "member": member, "process": f"p-{member}", "client_id": "shop", "at": NOON}
    return known | {"task": task, "host": "10.0.0.7", "valid_from": 5, "stores": "[]", "role": "active"} | more


def _event(number: int, event: str, at: int, **more: Any) -> Row:
    return {"event_id": f"e-{number}", "event": event, "at": at, "detail": "{}"} | more


def _hour(actor: str, kind: str, direction: str, hours_ago: int, size: int) -> Row:
    at = TWO - hours_ago * HOUR
    known: Row = {"hour": at, "actor_kind": kind, "app_id": actor, "topic": "orders", "direction": direction}
    return known | {"bytes": size, "first_seen": at, "last_seen": at + 5 * MINUTE}


EXTRA: dict[str, list[Row]] = {
    "applications": [
        {name: row[name] for name in _OF_APPLICATION if name in row} | {"kind": "streams"} for row in VERSIONS
    ],
    "topology_versions": VERSIONS,
    "members_tasks": [
        _task("m-1", "0_0", subtopology="0", partition=0, stores='["counts"]', lag=7),
        _task("m-1", "1_0", subtopology="1", partition=0),
        _task("m-2", "0_0", subtopology="0", partition=0, role="standby", stores='["counts"]', host="10.0.0.8"),
        _task("m-3", "", role=None),
        _task("m-4", "0_1", subtopology="0", partition=1, valid_to=6, ended_at=ONE),
    ],
    "changes": [
        _event(1, "topology_added", NOON - HOUR, subject_kind="application", subject="shop-app"),
        _event(
            2, "topology_changed", NOON, subject_kind="application", subject="shop-app", detail='{"added":["count"]}'
        ),
        _event(3, "tripped", TWO - 5 * MINUTE, subject_kind="share_group", subject="billing", detail="not JSON"),
        _event(4, "started", NOON - 9 * 24 * HOUR, subject_kind="connector", subject="old"),
    ],
    "breaker_events": [
        _event(3, "tripped", TWO - 5 * MINUTE, group="billing", dlq_written=25, delivered=75, threshold_percent=20),
        _event(5, "resumed", TWO - 2 * MINUTE, group="billing", by="User:ops", reason="the database is back"),
        _event(6, "paused", TWO, group="other"),
    ],
    "dead_letter_clusters": [
        {"group": "billing", "cluster": "5f1c0d2a9b3e", "verdict": "content", "action": "fix_first", "count": 2}
        | {"first_at": TWO - 6 * MINUTE, "last_at": TWO - 5 * MINUTE, "topics": '["orders","secret"]'}
        | {"feature": "schema_id=7", "evidence": '{"recall":1.0}'},
        {"group": "other", "cluster": "0a1b", "verdict": "poison", "action": "quarantine", "count": 1}
        | {"first_at": NOON, "last_at": NOON, "ended_at": ONE, "topics": "[]", "evidence": "{}"},
    ],
    "dead_letters": [
        {"group": "billing", "topic": topic, "topic_id": "t", "offset": offset, "dlq_topic": "dlq.orders", "copies": 1}
        | {"dlq_offset": offset, "dead_lettered_at": TWO - 6 * MINUTE + offset, "format": "kafka", "cluster": episode}
        | {"source_state": "found", "withdrawn": offset == 9, "source_expires_at": expires_at}
        for topic, offset, episode, expires_at in (
            ("orders", 7, "5f1c0d2a9b3e", TWO + 2 * HOUR),
            ("secret", 8, "5f1c0d2a9b3e", TWO + HOUR),
            ("orders", 9, None, TWO + MINUTE),
            ("orders", 10, None, None),
        )
    ],
    "dlq_rates": [
        {"group": "billing", "topic": "orders", "partition": partition, "minute": TWO - 6 * MINUTE}
        | {"processed": 50, "accepted": 40, "dead_lettered": 10, "dlq_rate": 0.2}
        for partition in (0, 1)
    ]
    + [{"group": "billing", "topic": "orders", "minute": NOON - HOUR, "processed": 1}],
    "activity_hours": [
        _hour("shop", "client", "write", 0, 700),
        _hour("shop", "client", "write", 1, 500),
        _hour("shop-app", "streams", "read", 1, 900),
        _hour("shop", "client", "write", 30 * 24, 1),
    ],
    "activity_intervals": [
        {"writer": "gw-a/0", "boot": boot, "seq": number, "actor": "shop", "topic": "orders", "at": at}
        for number, (boot, at) in enumerate((("b1", TWO - HOUR), ("b2", TWO - MINUTE), ("b0", TWO - 9 * HOUR)))
    ],
    "rejected_facts": [
        {"topic": "headgate.activity", "offset": number, "at": NOON + number, "reason": "no JSON"}
        for number in range(30)
    ],
    "pipeline_runs": [
        {"run_id": "r1", "query": "facts", "state": "stopped", "started_at": NOON - HOUR, "ended_at": NOON, "at": NOON},
        {"run_id": "r0", "query": "facts", "state": "running", "started_at": NOON, "at": TWO, "lag": 3},
    ],
}


def write_extra(root: Path) -> None:
    for name, rows in EXTRA.items():
        write(root, name, rows)
