"""Lineage by plain Python: what the tables should hold, from all intervals and descriptions at once.

Written from the rules in `docs/tables.md`, with lists and dictionaries, and without anything of the pipeline.
"""

import json
from collections import defaultdict
from typing import Any

Row = dict[str, Any]
Edge = tuple[str, str, str, str, str]
HOUR = 3_600_000
DAY = 24 * HOUR
INTERNAL = ("-repartition", "-changelog")


def each_once(intervals: list[Row]) -> list[Row]:
    found = {(row["cluster_id"], row["writer"], row["boot"], row["seq"]): row for row in intervals}
    return [row for row in found.values() if 0 <= row["until"] < 2**60]


def edge_of(row: Row) -> Edge:
    return row["cluster_id"], row["actor_kind"], row["actor"], row["topic"], row["direction"]


def parts(row: Row) -> list[tuple[int, int, int, int, int | None]]:
    """Hour, first, last, bytes and records of each part of an interval."""
    since, until = row["since"], row["until"]
    if not 0 <= until - since <= 31 * DAY:
        since = until
    found = []
    hour = since - since % HOUR
    while True:
        first, last = max(since, hour), min(until, hour + HOUR)

        def share(number: int | None, first: int = first, last: int = last) -> int | None:
            if number is None or until == since:
                return number
            length = until - since
            return int(number * (last - since) // length - number * (first - since) // length)

        found.append((hour, first, last, share(row["bytes"]) or 0, share(row["records"])))
        hour += HOUR
        if hour >= until:
            return found


def hours(intervals: list[Row]) -> dict[tuple[Any, ...], Row]:
    found: dict[tuple[Any, ...], Row] = {}
    ids: dict[tuple[Any, ...], tuple[int, str]] = {}
    for row in each_once(intervals):
        if row["rule"] == "end-offsets" or row["topic"] is None:
            continue
        cluster, *others = edge_of(row)
        for hour, first, last, size, records in parts(row):
            key = (cluster, hour, *others)
            known = found.setdefault(
                key, {"first_seen": first, "last_seen": last, "bytes": 0, "records": None, "topic_id": None}
            )
            known["first_seen"] = min(known["first_seen"], first)
            known["last_seen"] = max(known["last_seen"], last)
            known["bytes"] = min(known["bytes"] + size, 2**63 - 1)
            if records is not None:
                known["records"] = (known["records"] or 0) + records
            if row["topic_id"] is not None:
                ids[key] = max(ids.get(key, (-1, "")), (row["until"], row["topic_id"]))
                known["topic_id"] = ids[key][1]
    return found


def coverage(intervals: list[Row]) -> dict[tuple[Any, ...], tuple[int, int, float | None]]:
    seen: defaultdict[tuple[Any, ...], int] = defaultdict(int)
    growth: defaultdict[tuple[Any, ...], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    uncounted: set[tuple[Any, ...]] = set()
    for row in each_once(intervals):
        if row["direction"] != "write" or row["topic"] is None:
            continue
        for hour, _, _, _, records in parts(row):
            key = row["cluster_id"], row["topic"], hour
            seen[key] += 0
            if row["rule"] == "end-offsets":
                growth[key][row["writer"]] += records or 0
            else:
                seen[key] += records or 0
                if records is None:
                    uncounted.add(key)
    every = {key: max(growth[key].values(), default=0) for key in seen}
    known = {key for key in seen if every[key] and (key not in uncounted or seen[key] >= every[key])}
    return {key: (seen[key], every[key], min(1.0, seen[key] / every[key]) if key in known else None) for key in seen}


def identities(intervals: list[Row]) -> dict[tuple[Any, ...], tuple[int, int]]:
    found: dict[tuple[Any, ...], tuple[int, int]] = {}
    for row in each_once(intervals):
        if row["rule"] in {"end-offsets", "other"}:
            continue
        since = row["since"] if 0 <= row["until"] - row["since"] <= 31 * DAY else row["until"]
        client = tuple(row[name] or "" for name in ("principal", "client_id", "host"))
        key = (row["cluster_id"], *client, row["actor_kind"], row["actor"])
        first, last = found.get(key, (since, row["until"]))
        found[key] = min(first, since), max(last, row["until"])
    return found


Period = tuple[int, int | None]


def observed(uses: list[tuple[int, int]], now: int, quiet: int) -> list[tuple[int, int | None, int]]:
    """Beginning, end and last use of each period, from the first and last uses of hours."""
    uses = sorted(uses)
    pauses, last = [], uses[0][1]
    for first, end in uses[1:]:
        if first - last > quiet:
            pauses.append(first - last)
        last = max(last, end)
    three = pauses[-3:]
    if len(three) == 3 and max(three) <= 2 * min(three):
        quiet = max(quiet, min(max(three) + max(three) // 2, 400 * DAY))
    periods: list[list[int]] = []
    for first, end in uses:
        if periods and first - periods[-1][1] <= quiet:
            periods[-1][1] = max(periods[-1][1], end)
        else:
            periods.append([first, end])
    lasts = periods[-1][1] + quiet >= now
    return [
        (first, None if lasts and number == len(periods) - 1 else max(end, first + 1), end)
        for number, (first, end) in enumerate(periods)
    ]


Letters = tuple[dict[Edge, list[Period]], dict[tuple[Any, ...], Row]]


def dead_letters(events: list[Row], rates: list[Row]) -> Letters:
    """The times in which groups had dead-letter topics, and the hours in which they wrote to them."""
    name = "errors.deadletterqueue.topic.name"
    declared: defaultdict[Edge, list[Period]] = defaultdict(list)
    topics: defaultdict[str, list[tuple[int, int | None, str]]] = defaultdict(list)
    for group in {row["group"] for row in events}:
        own = [row for row in events if row["group"] == group and row["event"] == "config_changed"]
        changed = sorted((row["at"], json.loads(row["detail"])["changes"]) for row in own if name in row["detail"])
        for number, (at, changes) in enumerate(changed):
            end = changed[number + 1][0] if number + 1 < len(changed) else None
            if topic := (changes[name] or "").strip():
                declared["c", "share_group", group, topic, "write"].append((at, end))
                topics[group].append((at, end, topic))
    written: dict[tuple[Any, ...], Row] = {}
    for row in rates:
        hour = row["hour"]
        then = [one for one in topics[row["group"]] if overlap(one[:2], (hour, hour + HOUR))]
        if then and row["dead_lettered"]:
            start, _, topic = max(then)
            seen = max(start, hour)
            empty = {"first_seen": seen, "last_seen": seen, "bytes": 0, "records": 0, "topic_id": None}
            use = written.setdefault(("c", hour, "share_group", row["group"], topic, "write"), empty)
            use["records"] += row["dead_lettered"]
    return dict(declared), written


def edges(
    intervals: list[Row], descriptions: list[Row], letters: Letters, now: int, quiet: int
) -> dict[tuple[Any, ...], Row]:
    """Rows of `lineage_edges` by their keys.

    A description has the application, its kind, its time, the topics that it reads and writes as (name, is internal),
    and whether it reads by a pattern and writes to topics that it chooses.
    """
    of_hours = {**hours(intervals), **letters[1]}
    uses: defaultdict[Edge, list[tuple[int, int]]] = defaultdict(list)
    sums: defaultdict[Edge, list[int | None]] = defaultdict(lambda: [0, None])
    for (cluster, hour, *others), row in of_hours.items():
        edge = (cluster, *others)
        uses[edge].append((row["first_seen"], row["last_seen"]))
        if hour >= now - now % HOUR - 23 * HOUR:
            sums[edge][0] = min(sums[edge][0] + row["bytes"], 2**63 - 1)
            if row["records"] is not None:
                sums[edge][1] = (sums[edge][1] or 0) + row["records"]
    seen = {edge: observed(times, now, quiet) for edge, times in uses.items()}
    declared: defaultdict[Edge, list[Period]] = defaultdict(list, letters[0])
    filled: defaultdict[Edge, list[Period]] = defaultdict(list)
    internal: set[Edge] = set()
    for one in descriptions:
        time = one["at"], None if one["ended_at"] is None else max(one["ended_at"], one["at"] + 1)
        for direction in ("read", "write"):
            for name, is_internal in one[direction]:
                own = f"{one['app_id']}-"
                topic = own + name if is_internal and not name.startswith(own) else name
                edge = one["cluster_id"], one["kind"], one["app_id"], topic, direction
                declared[edge].append(time)
                if is_internal:
                    internal.add(edge)
            if one[f"{direction}_open"]:
                for edge, periods in seen.items():
                    if edge[:3] == (one["cluster_id"], one["kind"], one["app_id"]) and edge[4] == direction:
                        filled[edge] += [both for first, end, _ in periods if (both := overlap((first, end), time))]
    found: dict[tuple[Any, ...], Row] = {}
    for edge in seen.keys() | declared.keys():
        _, kind, app, topic, _ = edge
        made = kind == "streams" and topic.startswith(f"{app}-") and topic.endswith(INTERNAL)
        fill = [] if made else filled[edge]
        mine = seen.get(edge, [])
        spans = [(first, end) for first, end, _ in mine]
        moments = sorted(
            {time for periods in (spans, declared[edge], fill) for period in periods for time in period if time}
        )
        before = (False, False, False)
        key: tuple[Any, ...] = ()
        for moment in moments:
            is_declared, is_filled = holds(declared[edge], moment), holds(fill, moment)
            state = holds(spans, moment), is_declared or is_filled, is_filled and not is_declared
            if state == before:
                continue
            if key in found and found[key]["valid_to"] is None:
                found[key]["valid_to"] = moment
            before, key = state, (*edge, moment)
            if state[0] or state[1]:
                last = next((last for first, end, last in mine if holds([(first, end)], moment)), None)
                names = ("observed", "declared", "filled")
                found[key] = dict(zip(names, state, strict=True)) | {"valid_to": None, "last_seen": last}
                found[key] |= {"is_internal": made or edge in internal, "bytes_day": None, "records_day": None}
        for key, one in found.items():
            if key[:5] == edge and one["observed"]:
                if one["valid_to"] is None:
                    one["bytes_day"], one["records_day"] = sums[edge]
                else:
                    one["last_seen"] = min(one["last_seen"], one["valid_to"])
    return found


def overlap(one: Period, other: Period) -> Period | None:
    first = max(one[0], other[0])
    ends = [end for end in (one[1], other[1]) if end is not None]
    return None if ends and min(ends) <= first else (first, min(ends, default=None))


def holds(periods: list[Period], time: int) -> bool:
    return any(first <= time and (end is None or time < end) for first, end in periods)


def gaps(
    edge_rows: dict[tuple[Any, ...], Row],
    covered: dict[tuple[Any, ...], Row],
    descriptions: list[Row],
    now: int,
    quiet: int,
) -> dict[tuple[Any, ...], Row]:
    """The gaps of `lineage_gaps` that come from edges: their ends, coverage and state by their keys."""
    now -= 20 * 60_000
    now -= now % HOUR
    found: dict[tuple[Any, ...], Row] = {}
    seen_queries = {
        (cluster, app)
        for (cluster, kind, app, _, direction, _), row in edge_rows.items()
        if (kind, direction) == ("spark", "read") and row["observed"]
    }
    for (cluster, kind, app, topic, direction, start), row in edge_rows.items():
        is_compared = kind == "streams" or (kind == "spark" and direction == "read" and (cluster, app) in seen_queries)
        if not is_compared or row["is_internal"]:
            continue
        end = row["valid_to"]
        if row["declared"] and not row["filled"] and not row["observed"]:
            if (now if end is None else end) - start >= quiet:
                found[cluster, "declared_silent", kind, app, topic, direction, start] = {"closed_at": end}
        elif not row["declared"]:
            described = [
                both
                for one in descriptions
                if (one["cluster_id"], one["app_id"], one["kind"]) == (cluster, app, kind)
                if (direction == "read" or not one["is_partial"])
                if (both := overlap((start, end), (one["at"], one["ended_at"])))
            ]
            if described:
                ends = [until for _, until in described]
                closed = None if None in ends else max(until for until in ends if until is not None)
                opened = min(first for first, _ in described)
                found[cluster, "used_undeclared", kind, app, topic, direction, opened] = {"closed_at": closed}
    for key, gap in found.items():
        until = now if gap["closed_at"] is None else min(now, gap["closed_at"])
        since = max(key[6], until - quiet)
        since -= since % HOUR
        in_window = [
            row
            for (cluster, topic, hour), row in covered.items()
            if (cluster, topic) == (key[0], key[4]) and since <= hour < until and row["all_records"]
        ]
        every = sum(row["all_records"] for row in in_window)
        seen = sum(min(row["seen_records"], row["all_records"]) for row in in_window)
        is_known = every and seen / every >= 0.95
        is_counted = all(row["coverage"] is not None for row in in_window)
        gap["coverage"] = min(1.0, seen / every) if is_known or (every and is_counted) else None
        gap["state"] = "unknown" if not is_known else "open" if gap["closed_at"] is None else "closed"
    return found
