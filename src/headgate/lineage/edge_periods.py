"""When an actor read or wrote a topic: from its descriptions, and from the hours in which it was seen. No Spark.

An edge is observed from its first use to its last, as long as no pause is longer than `quiet_after_ms`. The edge of a
batch job that comes back after longer, regular pauses stays observed through them: when its last three pauses are
alike, it is given half as long again. A row of `lineage_edges` begins and ends where one of `declared`, `observed` and
`filled` changes.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
INTERNAL = ("-repartition", "-changelog")
_PAUSES = 3
_HIGHEST = 2**63 - 1
_LONGEST_PAUSE_MS = 400 * DAY_MS


class Edge(NamedTuple):
    cluster_id: str
    actor_kind: str
    app_id: str
    topic: str
    direction: str


class Period(NamedTuple):
    """The time from `start` up to, but not including, `end`; without an end the period is still open."""

    start: int
    end: int | None


class Use(NamedTuple):
    """Uses of an edge without a long pause, and the bytes and records of those in the last day."""

    first_seen: int
    last_seen: int
    bytes: int
    records: int | None


class LineagePeriod(NamedTuple):
    """A row of `lineage_edges` but for the edge, its topic id and whether the topic is internal."""

    valid_from: int
    valid_to: int | None
    declared: bool
    observed: bool
    filled: bool
    bytes_day: int | None
    records_day: int | None
    last_seen: int | None


def is_internal_name(edge: Edge) -> bool:
    """Whether Kafka Streams made the topic for the application, by its name."""
    return edge.actor_kind == "streams" and edge.topic.startswith(f"{edge.app_id}-") and edge.topic.endswith(INTERNAL)


def first_hour_of_day(now_ms: int) -> int:
    """The first of the 24 hours that count as the last day: the hour of `now_ms` is the last."""
    return now_ms - now_ms % HOUR_MS - 23 * HOUR_MS


def edge_rows(
    uses: Sequence[Use], declared: Sequence[Period], open_ended: Sequence[Period], *, now_ms: int, quiet_ms: int
) -> list[LineagePeriod]:
    """The rows of one edge; `open_ended` are the times in which the application reads or writes unnamed topics."""
    observed = observed_periods(uses, now_ms, quiet_ms)
    times = [period for period, _ in observed]
    filled = [both for one in times for other in open_ended if (both := _overlap(one, other)) is not None]
    last_uses = {period.start: last for period, last in observed}
    deltas: dict[int, list[int]] = {}
    for place, periods in enumerate((times, declared, filled)):
        for period in periods:
            deltas.setdefault(period.start, [0, 0, 0])[place] += 1
            if period.end is not None:
                deltas.setdefault(period.end, [0, 0, 0])[place] -= 1
    rows: list[LineagePeriod] = []
    counts, before, last_use = [0, 0, 0], (False, False, False), 0
    for time in sorted(deltas):
        counts = [count + delta for count, delta in zip(counts, deltas[time], strict=True)]
        last_use = last_uses.get(time, last_use)
        is_observed, is_declared, is_filled = (count > 0 for count in counts)
        state = (is_declared or is_filled, is_observed, is_filled and not is_declared)
        if state == before:
            continue
        if rows and rows[-1].valid_to is None:
            rows[-1] = _ended(rows[-1], time)
        if state[0] or state[1]:
            rows.append(LineagePeriod(time, None, *state, None, None, last_use if is_observed else None))
        before = state
    if rows and rows[-1].observed and rows[-1].valid_to is None:
        size, records = _day_sums(uses)
        rows[-1] = rows[-1]._replace(bytes_day=size, records_day=records)
    return rows


def observed_periods(uses: Sequence[Use], now_ms: int, quiet_ms: int) -> list[tuple[Period, int]]:
    """The periods in which the edge was in use, each with its last use."""
    if not uses:
        return []
    ordered = sorted(uses)
    quiet = _learned_quiet(ordered, quiet_ms)
    found: list[list[int]] = []
    for use in ordered:
        if found and use.first_seen - found[-1][1] <= quiet:
            found[-1][1] = max(found[-1][1], use.last_seen)
        else:
            found.append([use.first_seen, use.last_seen])
    lasts = found[-1][1] + quiet >= now_ms
    periods = [(Period(start, max(last, start + 1)), last) for start, last in found]
    if lasts:
        periods[-1] = (periods[-1][0]._replace(end=None), periods[-1][1])
    return periods


def _learned_quiet(ordered: Iterable[Use], quiet_ms: int) -> int:
    """How long this edge may be silent: longer than configured when its last long pauses were alike."""
    pauses: list[int] = []
    last: int | None = None
    for use in ordered:
        if last is not None and use.first_seen - last > quiet_ms:
            pauses.append(use.first_seen - last)
        last = use.last_seen if last is None else max(last, use.last_seen)
    recent = pauses[-_PAUSES:]
    if len(recent) < _PAUSES or max(recent) > 2 * min(recent):
        return quiet_ms
    return max(quiet_ms, min(max(recent) + max(recent) // 2, _LONGEST_PAUSE_MS))


def _overlap(one: Period, other: Period) -> Period | None:
    ends = [end for end in (one.end, other.end) if end is not None]
    both = Period(max(one.start, other.start), min(ends, default=None))
    return None if both.end is not None and both.end <= both.start else both


def _ended(row: LineagePeriod, time: int) -> LineagePeriod:
    return row._replace(valid_to=time, last_seen=None if row.last_seen is None else min(row.last_seen, time))


def _day_sums(uses: Sequence[Use]) -> tuple[int, int | None]:
    counted = [use.records for use in uses if use.records is not None]
    return min(sum(use.bytes for use in uses), _HIGHEST), min(sum(counted), _HIGHEST) if counted else None
