"""Counts the dead letters of a group in the minutes of an episode and around it, for a small picture.

The counts are those of gateways (`dlq_rates`), so they are there before the dead letters themselves were read, and the
minutes before and after an episode tell whether it rose and fell at once.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from headgate.tables.definitions import TABLES
from headgate.tables.reader import Condition, TableReader

_MINUTE_MS: Final = 60_000
_AROUND_MS: Final = 5 * _MINUTE_MS
_MOST_POINTS: Final = 60
_MOST_EPISODES: Final = 30  # the newest ones
_MOST_ROWS: Final = 200_000

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSpan:
    """The minutes that are shown of one episode: `points` figures of `step_ms`, from `since_ms`."""

    group: str
    since_ms: int
    step_ms: int
    points: int

    @property
    def until_ms(self) -> int:
        return self.since_ms + self.points * self.step_ms


def span_of(row: Row) -> EpisodeSpan:
    """The episode with five minutes on both sides, in as few minutes for each figure as fit."""
    since = (row["first_at"] - _AROUND_MS) // _MINUTE_MS * _MINUTE_MS
    until = (row["ended_at"] or row["last_at"]) + _AROUND_MS
    minutes = max(1, -(-(until - since) // _MINUTE_MS))
    step = -(-minutes // _MOST_POINTS)
    return EpisodeSpan(group=row["group"], since_ms=since, step_ms=step * _MINUTE_MS, points=-(-minutes // step))


def counted(span: EpisodeSpan, minutes: Iterable[tuple[int, int]]) -> list[int]:
    """The figures of the span from minutes and their counts."""
    points = [0] * span.points
    for minute, count in minutes:
        if span.since_ms <= minute < span.until_ms:
            points[(minute - span.since_ms) // span.step_ms] += count
    return points


def add_points(reader: TableReader, cluster: str | None, rows: Sequence[Row], listed: Sequence[Row]) -> list[Row]:
    """`listed`, which are made of `rows`, each with the figures of its episode; without any where there are none."""
    spans = [span_of(row) for row in rows[:_MOST_EPISODES]]
    by_group: defaultdict[str, list[EpisodeSpan]] = defaultdict(list)
    for span in spans:
        by_group[span.group].append(span)
    minutes: dict[str, list[tuple[int, int]]] = {}
    left = _MOST_ROWS
    for group, of_group in by_group.items():
        found = _minutes(reader, cluster, of_group, left)
        left -= len(found)
        # Of a group that has too many rows a part would look like an end.
        minutes[group] = found if left > 0 else []
    shown: list[Row] = []
    for place, row in enumerate(listed):
        points = counted(spans[place], minutes[spans[place].group]) if place < len(spans) else []
        has_any = any(points)
        shown.append(
            row
            | {"points": points if has_any else []}
            | {"points_from": spans[place].since_ms if has_any else None}
            | {"points_ms": spans[place].step_ms if has_any else None}
        )
    return shown


def _minutes(
    reader: TableReader, cluster: str | None, spans: Sequence[EpisodeSpan], most: int
) -> list[tuple[int, int]]:
    where = [
        *([] if cluster is None else [Condition("cluster_id", "=", cluster)]),
        Condition("group", "=", spans[0].group),
        Condition("minute", ">=", min(span.since_ms for span in spans)),
        Condition("minute", "<=", max(span.until_ms for span in spans)),
        Condition("dead_lettered", ">", 0),
    ]
    rows = reader.stream(TABLES["dlq_rates"], where=where, columns=("minute", "dead_lettered"))
    return [(row["minute"], row["dead_lettered"]) for row in islice(rows or (), max(0, most))]
