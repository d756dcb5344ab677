"""Rates of dead letters and causes of trips as they must be, in plain Python from all rows of the tables at once."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

Row = dict[str, Any]
Tables = Mapping[str, Iterable[Row]]
MINUTE = 60_000
COUNTS = ("accepted", "released", "rejected", "over_limit", "dead_lettered", "write_timeouts")
RANKS = {"high": 0, "medium": 1, "low": 2}


def rates(dispositions: Iterable[Row], length_ms: int, column: str) -> list[Row]:
    """By minute with partitions, by hour without."""
    once = {(row["cluster_id"], row["writer"], row["boot"], row["seq"]): row for row in dispositions}
    found: dict[tuple[Any, ...], Row] = {}
    for row in sorted(once.values(), key=lambda one: (one["second"], one["topic_id"] or "")):
        topic = row["topic"] if row["topic"] is not None else row["topic_id"] or ""
        start = row["second"] * 1000 // length_ms * length_ms
        key = {"cluster_id": row["cluster_id"], "group": row["group"], "topic": topic, column: start}
        key |= {"partition": row["partition"]} if column == "minute" else {}
        into = found.setdefault(tuple(key.values()), {**key, "topic_id": None, **dict.fromkeys(COUNTS, 0)})
        into.update({name: into[name] + row[name] for name in COUNTS})
        into["topic_id"] = row["topic_id"] or into["topic_id"]
    for row in found.values():
        row["processed"] = row["accepted"] + row["dead_lettered"]
        row["dlq_rate"] = row["dead_lettered"] / row["processed"] if row["processed"] else None
    return list(found.values())


def causes(tables: Tables) -> list[Row]:
    found: list[Row] = []
    for trip in tables["breaker_events"]:
        if trip["event"] == "tripped":
            found += of_trip(trip, tables)
    return found


def of_trip(trip: Row, tables: Tables) -> list[Row]:
    end = trip["at"]
    start = end - 30 * MINUTE

    def own(name: str) -> list[Row]:
        return [row for row in tables[name] if row["cluster_id"] == trip["cluster_id"]]

    disposed = [
        {**row, "used": row["second"] * 1000}
        for row in own("dispositions")
        if row["group"] == trip["group"] and row["second"] * 1000 <= end and row["at"] <= end + 60 * MINUTE
    ]
    topics: dict[str, str | None] = {}
    for row in disposed:
        name = row["topic"] if row["topic"] is not None else row["topic_id"]
        if row["used"] >= start and name is not None:
            topics[name] = max(filter(None, (topics.get(name), row["topic_id"])), default=None)
    found = [
        *of_group(trip, own("breaker_events"), start),
        *of_members(disposed, start, end),
        *of_applications(own, topics, start, end),
        *of_clients(trip, own("activity_intervals"), topics, start),
        *of_lags(trip, own, topics, start),
    ]
    found.sort(
        key=lambda one: (RANKS[one[1]], -one[7], one[0], *one[2:5], one[5] is not None, one[5] or "", str(one[8]))
    )
    found = found or [("none", "low", "share_group", trip["group"], "none", None, None, end, {})]
    names = ("cause_kind", "likelihood", "subject_kind", "subject", "what", "topic", "topic_id", "at", "detail")
    shared = {name: trip[name] for name in ("cluster_id", "event_id", "group")}
    return [
        {
            **shared,
            **dict(zip(names, cause, strict=True)),
            "tripped_at": end,
            "number": number,
            "seconds_before": (end - cause[7]) // 1000,
            "left_out": max(0, len(found) - 100),
        }
        for number, cause in enumerate(found[:100], start=1)
    ]


Cause = tuple[Any, ...]


def of_group(trip: Row, events: list[Row], start: int) -> Iterable[Cause]:
    for row in events:
        if row["group"] == trip["group"] and start <= row["at"] <= trip["at"]:
            kinds = {"config_changed": ("config", "high"), "resumed": ("resumed", "medium")}
            if row["event"] in kinds:
                yield (*kinds[row["event"]], "share_group", row["group"], row["event"], None, None, row["at"], {})


def of_members(disposed: list[Row], start: int, end: int) -> Iterable[Cause]:
    used: dict[str, list[int]] = defaultdict(list)
    for row in disposed:
        if row["used"] >= end - 24 * 60 * MINUTE:
            used[row["member"]].append(row["used"])
    newest = max((max(times) for times in used.values()), default=0)
    for member, times in used.items():
        shared = ("share_group_member", member)
        if min(times) >= start:
            yield ("member", "medium", *shared, "joined", None, None, min(times), {})
        if start <= max(times) <= newest - 5 * MINUTE:
            yield ("member", "low", *shared, "silent", None, None, max(times), {})


def of_lags(trip: Row, own: Any, topics: Mapping[str, str | None], start: int) -> Iterable[Cause]:
    readers = {trip["group"]: (0, None)} | dict(writers_of(own, topics, start, trip["at"]))
    read: dict[tuple[str, str], dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in own("group_lags"):
        if row["group"] in readers and row["lag"] is not None and start - 65 * MINUTE <= row["at"] <= trip["at"]:
            read[row["group"], row["topic"]][row["partition"]].append(row)
    for (group, topic), partitions in read.items():
        before = after = 0
        for rows in partitions.values():
            rows.sort(key=lambda one: (one["at"], one["lag"]))
            early = [row for row in rows if row["at"] <= start]
            before += early[-1]["lag"] if early else rows[0]["lag"]
            after += rows[-1]["lag"]
        if after - before >= max(100, before):
            depth, through = readers[group]
            every = [row for rows in partitions.values() for row in rows]
            topic_id = max((row["topic_id"] for row in every if row["topic_id"]), default=None)
            where = (topic, topic_id) if depth == 0 else (through, topics[str(through)])
            kind = ("lag", "low", "application") if depth else ("lag", "medium", "share_group")
            detail = {"lag_before": before, "lag": after, "depth": depth, "read_topic": topic}
            yield (*kind, group, "grew", *where, max(row["at"] for row in every), detail)


def of_applications(own: Any, topics: Mapping[str, str | None], start: int, end: int) -> Iterable[Cause]:
    nearest = writers_of(own, topics, start, end)
    for row in own("changes"):
        if row["subject"] in nearest and row["event"].startswith("topology_") and start <= row["at"] <= end:
            depth, topic = nearest[row["subject"]]
            likelihood = "low" if row["event"] == "topology_removed" else "high" if depth == 1 else "medium"
            detail = {"event_id": row["event_id"], "depth": depth, **json.loads(row["detail"])}
            what = ("application", row["subject"], row["event"])
            yield ("topology", likelihood, *what, topic, topics[topic], row["at"], detail)
    members: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in own("members_tasks"):
        if nearest.get(row["group"], (0, ""))[0] == 1 and row["at"] <= end:
            members[row["group"], row["member"]].append(row)
    for (app, member), rows in members.items():
        topic = nearest[app][1]
        shared = ("member", "low", "streams_member", member)
        detail = {"app_id": app, "host": max(rows, key=lambda one: (one["valid_from"], one["host"]))["host"]}
        first = min(row["at"] for row in rows)
        if first >= start:
            yield (*shared, "joined", topic, topics[topic], first, detail)
        ends = [row["ended_at"] for row in rows]
        if all(one is not None and one <= end for one in ends) and max(ends) >= start:
            yield (*shared, "left", topic, topics[topic], max(ends), detail)


def writers_of(own: Any, topics: Mapping[str, str | None], start: int, end: int) -> dict[str, tuple[int, str]]:
    """The applications that feed these topics, with their least depth and the topic."""
    version = ("app_id", "incarnation", "epoch", "hash", "provenance")
    current = {
        tuple(row[name] for name in version)
        for row in own("applications")
        if row["at"] <= end and (row["ended_at"] is None or row["ended_at"] >= start)
    }
    flows = {
        (row["app_id"], row["in_topic"], row["out_topic"])
        for row in own("app_io")
        if tuple(row[name] for name in version) in current and row["out_topic"]
    }
    nearest: dict[str, tuple[int, str]] = {}
    for topic in topics:
        reached = {topic}
        for depth in (1, 2, 3):
            writers = [(app, source) for app, source, target in flows if target in reached]
            for app, _ in writers:
                nearest[app] = min(nearest.get(app, (depth, topic)), (depth, topic))
            reached = {source for _, source in writers if source}
    return nearest


def of_clients(trip: Row, activity: list[Row], topics: Mapping[str, str | None], start: int) -> Iterable[Cause]:
    uses: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in activity:
        topic = row["topic"] if row["topic"] is not None else row["topic_id"]
        is_use = row["rule"] != "end-offsets" and topic in topics
        if is_use and row["since"] <= trip["at"] and row["at"] <= trip["at"] + 60 * MINUTE:
            uses[row["actor_kind"], row["actor"], row["direction"], topic].append(row)
    is_known = any(row["since"] < start for rows in uses.values() for row in rows)
    for (kind, actor, direction, topic), rows in uses.items():
        before = [row["until"] for row in rows if row["since"] < start]
        after = [row for row in rows if row["since"] >= start]
        if not after or (kind == "share_group" and actor == trip["group"]):
            continue
        fields = ("rule", "confidence", "principal", "client_id", "host")
        first = min(
            after, key=lambda one: (one["since"], *((one[name] is not None, one[name] or "") for name in fields))
        )
        is_again = bool(before) and kind == "connector" and first["since"] - max(before) >= 30 * MINUTE
        writes = direction == "write"
        if not (is_again or (not before and (writes or kind == "connector"))):
            continue
        likelihood = "low"
        if writes:
            likelihood = "medium" if is_again else "high" if is_known else "low"
        yield (
            *("connector" if kind == "connector" else "new_producer", likelihood, kind, actor),
            *("started_again" if is_again else "started", topic, topics[topic], first["since"]),
            {"direction": direction} | {name: first[name] for name in fields if first[name] is not None},
        )
