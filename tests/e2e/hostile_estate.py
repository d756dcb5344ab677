"""An estate in which everything that clients may name has a hostile name: topics, applications, groups, hosts."""

import json
from pathlib import Path
from typing import Any

from tests.e2e.estate import HOSTILE_NAMES, NEW_HASH
from tests.unit.lineage.shop import HOUR, Row, gap, use, write

SHARED, HELD = "shared", "held"  # a topic that all of them read, and one that they write
_MINUTE = 60_000


def write_hostile_estate(root: Path, now: int) -> None:
    names = list(HOSTILE_NAMES.values())
    write(root, "lineage_edges", [edge for name in names for edge in _edges(name, now)])
    current: Row = {"incarnation": "9f2c41d07a3e", "hash": NEW_HASH, "provenance": "pushed"}
    versions: list[Row] = [current | {"app_id": name, "valid_from": 3, "at": now - HOUR, "epoch": 1} for name in names]
    write(root, "applications", [one | {"kind": "streams"} for one in versions])
    described = {"nodes": 3, "subtopologies": 1}
    write(
        root,
        "topology_versions",
        [one | described | {"member": one["app_id"], "description": _description(one["app_id"])} for one in versions],
    )
    write(root, "app_io", [one | {"component": "0", "in_topic": SHARED, "out_topic": HELD} for one in versions])
    write(root, "members_tasks", [_task(name, now) for name in names])
    write(root, "client_identities", [_identity(name, now) for name in names])
    write(root, "lineage_gaps", [gap("used_undeclared", name, name, "read", opened_at=now - HOUR) for name in names])
    write(root, "changes", [_change(number, name, now) for number, name in enumerate(names)])
    write(root, "rejected_facts", [_rejected(number, name, now) for number, name in enumerate(names)])
    write(root, "dead_letters", [_dead_letter(number, name, now) for number, name in enumerate(names)])
    write(root, "dlq_rates", [_rate(name, now) for name in names])
    for name in ("topic_coverage", "breaker_events", "breaker_backtest", "group_lags", "pipeline_runs"):
        write(root, name, [])


def _edges(name: str, now: int) -> list[Row]:
    seen: Row = {"valid_from": now - HOUR, "last_seen": now - _MINUTE}
    return [
        use(name, SHARED, "read", "streams", declared=True, **seen),
        use(name, HELD, "write", "streams", declared=True, **seen),
        use(name, name, "read", "streams", **seen),
        use(name, name, "write", "client", **seen),
        use(name, SHARED, "read", "share_group", **seen),
        use(name, SHARED, "read", "consumer_group", **seen),
        use(name, SHARED, "write", "connector", **seen),
    ]


def _description(name: str) -> str:
    nodes: list[dict[str, Any]] = [
        {"name": f"in {name}", "type": "source", "topics": [SHARED, name], "pattern": None, "successors": [name]},
        {"name": name, "type": "processor", "stores": [name], "successors": [f"out {name}"]},
        {"name": f"out {name}", "type": "sink", "topic": HELD, "successors": []},
    ]
    return json.dumps({"subtopologies": [{"id": "0", "nodes": nodes}], "global_stores": []})


def _task(name: str, now: int) -> Row:
    place: Row = {"group": name, "member": name, "process": name, "client_id": name, "host": name}
    return place | {"task": "0_0", "role": "active", "stores": json.dumps([name]), "subtopology": "0", "at": now - HOUR}


def _identity(name: str, now: int) -> Row:
    return {"client_id": name, "principal": name, "actor_kind": "client", "actor": name, "last_seen": now}


def _change(number: int, name: str, now: int) -> Row:
    told: Row = {"topic": "headgate.events", "detail": json.dumps({"reason": name}), "by": name}
    of_group: Row = {"event": "config_changed", "subject_kind": "share_group", "subject": name}
    return told | of_group | {"event_id": f"e{number}", "at": now - number * _MINUTE}


def _rejected(number: int, name: str, now: int) -> Row:
    place: Row = {"topic": "headgate.activity", "partition": 0, "offset": number, "at": now - _MINUTE}
    return place | {"reason": name, "key": name, "value_bytes": 12}


def _dead_letter(number: int, name: str, now: int) -> Row:
    place: Row = {"group": name, "topic": SHARED, "topic_id": "AAAA", "offset": number, "dlq_topic": name}
    known: Row = {"format": "kafka", "copies": 1, "delivery_count": 5, "source_state": "found", "reason": name}
    return place | known | {"cluster": "5f1c0d2a9b3e", "dead_lettered_at": now - _MINUTE}


def _rate(name: str, now: int) -> Row:
    return {"group": name, "topic": SHARED, "minute": now - now % _MINUTE, "processed": 100, "dead_lettered": 60}
