"""Random rows of the tables that rates and causes are made from, in the order in which they might come."""

import json
import random
from typing import Any

import pyarrow as pa

from headgate.tables.definitions import TABLES

Row = dict[str, Any]
Step = dict[str, list[Row]]
MINUTE = 60_000
BEGIN = 1_794_700_800_000  # a full hour
HOURS = 5
GROUPS = ("sg", 'odd "é😀"\n')
TOPICS: tuple[tuple[str | None, str | None], ...] = (("t0", "id0"), ("t0", None), ("t1", "id1"), (None, "id2"))
FLOWS = (("app0", "x", "t0"), ("app1", "y", "x"), ("app2", "z", "y"), ("app3", "w", "z"), ("app4", "q", "t1"))
ACTORS = (("connector", "c"), ("client", "shop"), ("client", "new"), ("streams", "app0"), ("share_group", "sg"))
_EMPTY: dict[pa.DataType, object] = {pa.string(): "", pa.bool_(): False}


def whole_row(name: str, **values: object) -> Row:
    columns = TABLES[name].columns
    empty = {one.name: None if one.nullable else _EMPTY.get(one.type, 0) for one in columns}
    return {**empty, "cluster_id": "c", **values}


def disposition(number: int, second: int, *, group: str = "sg", member: str = "m", **values: object) -> Row:
    origin = {"writer": "gw", "boot": "b", "seq": number, "by_delivery_count": "{}"}
    shared = {"group": group, "member": member, "topic": "t0", "topic_id": "id0", "second": second}
    return whole_row("dispositions", **{**origin, **shared, "at": second * 1000 + 1500, **values})


def letter(offset: int, at: int, *, group: str = "sg", **values: object) -> Row:
    record = {"group": group, "topic_id": "id0", "offset": offset, "format": "kafka", "key_hash": "k"}
    return whole_row("dead_letters", **{**record, "dead_lettered_at": at, **values})


def trip(name: str, at: int, *, group: str = "sg") -> Row:
    return whole_row("breaker_events", event_id=name, group=group, event="tripped", detail="{}", at=at)


def use(number: int, since: int, *, actor: tuple[str, str], **values: object) -> Row:
    origin = {"writer": "gw", "boot": "b", "seq": number, "rule": "principal", "confidence": "likely"}
    kind, name = actor
    shared = {"actor_kind": kind, "actor": name, "topic": "t0", "direction": "write", "since": since}
    until = since + MINUTE
    return whole_row("activity_intervals", **{**origin, **shared, "until": until, "at": until + 500, **values})


class RandomEstate:
    """All rows, and in which of the steps they come; a row with an end comes without it first."""

    def __init__(self, seed: int, steps: int) -> None:
        self._chance = random.Random(seed)
        self._length_ms = HOURS * 60 * MINUTE
        self.steps: list[Step] = [{} for _ in range(steps)]
        self._add_dispositions()
        self._add_events()
        self._add_applications()
        self._add_members()
        self._add_activity()
        self._add_lags()

    def _at(self) -> int:
        return BEGIN + self._chance.randrange(self._length_ms)

    def _add(self, table: str, row: Row) -> int:
        """Mostly in the order of time, now and then late; returns the step."""
        by_time: int = (row["at"] - BEGIN) * len(self.steps) // (self._length_ms + 60 * MINUTE)
        late = self._chance.choice([0, 0, 0, 1])
        step = max(0, min(by_time + late, len(self.steps) - 1))
        self.steps[step].setdefault(table, []).append(row)
        return step

    def _add_dispositions(self) -> None:
        chance = self._chance
        for number in range(400):
            topic, topic_id = chance.choice(TOPICS)
            counts = {name: chance.choice([0, 0, 1, 9]) for name in ("accepted", "released", "rejected")}
            counts |= {name: chance.choice([0, 0, 3]) for name in ("over_limit", "dead_lettered", "write_timeouts")}
            row = disposition(
                number,
                self._at() // 1000,
                group=chance.choice(GROUPS),
                member=f"m{number // 40}",
                topic=topic,
                topic_id=topic_id,
                partition=chance.randrange(2),
                **counts,
            )
            if number % 9 == 0:  # a client that was away for long
                row["at"] += chance.choice([50, 70]) * MINUTE
            for _ in range(chance.choice([1, 1, 1, 2])):  # a copy may come in a later step
                self._add("dispositions", row)

    def _add_events(self) -> None:
        chance = self._chance
        for number in range(24):
            event = ("tripped", "tripped", "config_changed", "resumed", "paused")[number % 5]
            shared = {"event_id": f"e{number}", "group": chance.choice(GROUPS), "event": event, "detail": "{}"}
            self._add("breaker_events", whole_row("breaker_events", **shared, at=self._at()))
        for number in range(24):
            event = chance.choice(["topology_added", "topology_changed", "topology_removed", "topology_mismatch"])
            detail = json.dumps({"counts": {"added": number}})
            shared = {"event_id": f"c{number}", "event": event, "subject_kind": "application", "detail": detail}
            self._add("changes", whole_row("changes", **shared, subject=f"app{chance.randrange(5)}", at=self._at()))

    def _add_applications(self) -> None:
        for app, source, target in FLOWS:
            began = BEGIN - 1 if self._chance.random() < 0.6 else self._at()
            for number, digest in enumerate(("h1", "h2")):
                version = {"app_id": app, "hash": digest}
                pair = {"in_topic": source, "out_topic": target if digest == "h1" else f"{target}-other"}
                self._add("app_io", whole_row("app_io", **version, **pair, at=began))
                ended = None if number else began + self._chance.randrange(60, 300) * MINUTE
                row = whole_row("applications", **version, valid_from=number, at=began, ended_at=ended)
                self._add_with_end("applications", row)
                began = ended or began

    def _add_members(self) -> None:
        for number in range(16):
            began = self._at()
            ended = None if self._chance.random() < 0.4 else began + self._chance.randrange(90) * MINUTE
            shared = {"group": f"app{number % 2}", "member": f"s{number // 2}", "task": "0_0", "host": f"h{number}"}
            row = whole_row("members_tasks", **shared, valid_from=number, at=began, ended_at=ended)
            self._add_with_end("members_tasks", row)

    def _add_with_end(self, table: str, row: Row) -> None:
        """The row, and in the step after it the same row with its end."""
        step = self._add(table, {**row, "ended_at": None})
        if row["ended_at"] is not None:
            if step == len(self.steps) - 1:
                self.steps[step][table].pop()
            into = self.steps[min(step + 1, len(self.steps) - 1)].setdefault(table, [])
            into.append({**row, "valid_to": row["valid_from"] + 1})

    def _add_lags(self) -> None:
        """In the first step, because they alone do not make causes again; some of them twice."""
        chance = self._chance
        for _ in range(300):
            lag = chance.choice([None, 0, 40, 100, 150, 400, 5000])
            row = whole_row(
                "group_lags",
                group=chance.choice([*GROUPS, "app0", "app1", "app2", "app3", "other"]),
                kind="share",
                topic=chance.choice(["t0", "x", "y"]),
                topic_id=chance.choice([None, "id0"]),
                partition=chance.randrange(2),
                lag=lag,
                at=self._at(),
            )
            self.steps[0].setdefault("group_lags", []).extend([row] * chance.choice([1, 1, 2]))

    def _add_activity(self) -> None:
        chance = self._chance
        for number in range(160):
            topic, topic_id = chance.choice(TOPICS)
            since = self._at() + (number < 8) * -self._length_ms
            client = chance.choice([None, "client-1"])
            rule = "end-offsets" if number % 20 == 0 else "principal"
            shared = {"topic": topic, "topic_id": topic_id, "client_id": client, "rule": rule}
            actor = (chance.choice(["connector", "client"]), f"a{number // 8}")
            direction = chance.choice(["write", "write", "read"])
            row = use(number, since, actor=chance.choice([actor, *ACTORS]), direction=direction, **shared)
            row["at"] = max(row["at"], BEGIN)
            self._add("activity_intervals", row)
