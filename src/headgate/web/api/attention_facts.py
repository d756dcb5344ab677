"""Reads the data of *Now* from the tables: dead letters and lags by minute, gaps, mismatches, causes and changes.

It is read once for each version of the tables and each minute, for all callers; `attention.py` makes answers of it.
A table that does not exist yet is empty, and named in `missing`. Every part is bounded: what was not read to its end is
named in `incomplete`, so that the page does not claim to watch it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import islice
from typing import Any, Final, TypeVar

from headgate.lineage.estate import SPARK, STREAMS, Estate, NoTableError
from headgate.lineage.questions import DAY_MS, HOUR_MS
from headgate.tables.reader import Condition
from headgate.web.api.estate_tables import EstateTables, LoadedEstate, Stamps
from headgate.web.api.mismatches import open_mismatches

MINUTE_MS: Final = 60_000
LAG_WINDOW_MS: Final = 30 * MINUTE_MS
TABLES_READ: Final = ("applications", "breaker_causes", "changes", "dlq_rates", "group_lags", "lineage_gaps")
# A lag that does not change is written again after at most an hour, and the poll may be late.
_LAG_KNOWN_MS: Final = 65 * MINUTE_MS
_CHANGES_MS: Final = DAY_MS + HOUR_MS
_CAUSES_MS: Final = 30 * DAY_MS
_MOST_ROWS: Final = 200_000
_MOST_CHANGES: Final = 2_000
_MOST_GAPS: Final = 10_000
_MAX_DETAIL: Final = 8 * 1024  # a longer one, of a topology with long names, is left out
_CHANGE_COLUMNS: Final = ("event_id", "event", "subject_kind", "subject", "by", "at", "detail")
_CAUSE_COLUMNS: Final = (
    *("event_id", "group", "tripped_at", "number", "cause_kind", "likelihood"),
    *("what", "subject_kind", "subject", "topic", "at", "detail"),
)

Row = dict[str, Any]
T = TypeVar("T")


@dataclass(slots=True)
class MinuteDispositions:
    """Dead letters and processed records of a share group, by minute of the last two hours."""

    minutes: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, minute: int, dead_lettered: int, processed: int) -> None:
        minute -= minute % MINUTE_MS
        before = self.minutes.get(minute, (0, 0))
        self.minutes[minute] = before[0] + dead_lettered, before[1] + processed

    def dead_letters(self, since_ms: int, until_ms: int) -> int:
        return sum(dead for minute, (dead, _) in self.minutes.items() if since_ms <= minute < until_ms)


@dataclass(slots=True)
class LagHistory:
    """The lag of a group, all partitions together, at each minute of the window; the first is that before it."""

    kind: str
    points: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFacts:
    stamps: Stamps
    now_ms: int
    dispositions: dict[str, MinuteDispositions]
    lags: dict[str, LagHistory]
    gaps: list[Row]
    mismatches: dict[str, Row]
    causes: dict[str, list[Row]]  # of the last trip of a group
    changes: list[Row]  # the newest first
    spark_queries: frozenset[str]  # described queries whose name no Streams application has
    missing: tuple[str, ...]
    incomplete: tuple[str, ...]


async def attention_facts(tables: EstateTables, cluster: str | None, estate: LoadedEstate | None) -> AttentionFacts:
    now_ms = tables.now_ms() + MINUTE_MS  # the end of this minute

    def load(stamps: Stamps) -> AttentionFacts:
        known = cluster if estate is None else estate.cluster
        return _AttentionReading(tables.open_estate(cluster=known, as_of_ms=None), now_ms).facts(stamps)

    also = (now_ms, *(() if estate is None else estate.stamps))
    return await tables.loaded("attention", (cluster, None), TABLES_READ, load, also=also)


class _AttentionReading:
    """One reading of all parts."""

    def __init__(self, estate: Estate, now_ms: int) -> None:
        self._estate = estate
        self._now_ms = now_ms
        self._missing: list[str] = []
        self._incomplete: list[str] = []

    def facts(self, stamps: Stamps) -> AttentionFacts:
        return AttentionFacts(
            stamps=stamps,
            now_ms=self._now_ms,
            dispositions=self._of("dlq_rates", self._dispositions, {}),
            lags=self._of("group_lags", self._lags, {}),
            gaps=self._of("lineage_gaps", self._gaps, []),
            mismatches=self._of("lineage_gaps", lambda: open_mismatches(self._estate), {}),
            causes=self._of("breaker_causes", self._causes, {}),
            changes=self._of("changes", self._changes, []),
            spark_queries=self._spark_queries(),
            missing=tuple(dict.fromkeys(self._missing)),
            incomplete=tuple(self._incomplete),
        )

    def _of(self, table: str, read: Callable[[], T], empty: T) -> T:
        try:
            return read()
        except NoTableError:
            self._missing.append(table)
            return empty

    def _rows(self, table: str, *where: Condition, columns: Iterable[str]) -> Iterator[Row]:
        rows = self._estate.rows(table, *where, columns=("cluster_id", *columns))
        return self._bounded(table, self._estate.of_one_cluster(rows), _MOST_ROWS)

    def _bounded(self, table: str, rows: Iterator[Row], most: int) -> Iterator[Row]:
        yield from islice(rows, most)
        if next(rows, None) is not None:
            self._incomplete.append(table)

    def _dispositions(self) -> dict[str, MinuteDispositions]:
        found: defaultdict[str, MinuteDispositions] = defaultdict(MinuteDispositions)
        since = Condition("minute", ">=", self._now_ms - 2 * HOUR_MS)
        for row in self._rows("dlq_rates", since, columns=("group", "minute", "dead_lettered", "processed")):
            found[row["group"]].add(row["minute"], row["dead_lettered"], row["processed"])
        return dict(found)

    def _lags(self) -> dict[str, LagHistory]:
        """Rows come by partition and in order of time; what is known of a partition holds until its next row."""
        begin = self._now_ms - LAG_WINDOW_MS
        found: dict[str, LagHistory] = {}
        since = Condition("at", ">=", begin - _LAG_KNOWN_MS)
        partition: tuple[object, ...] = ()
        readings: list[tuple[int, int]] = []

        def add(group: str, kind: str) -> None:
            history = found.setdefault(group, LagHistory(kind, [0] * (LAG_WINDOW_MS // MINUTE_MS + 1)))
            history.kind = kind
            at = 0
            for place in range(len(history.points)):
                while at + 1 < len(readings) and readings[at + 1][0] <= begin + place * MINUTE_MS:
                    at += 1
                history.points[place] += readings[at][1]

        last: Row = {}
        for row in self._rows("group_lags", since, columns=("group", "kind", "topic", "partition", "lag", "at")):
            key = (row["group"], row["topic"], row["partition"])
            if key != partition:
                if readings:
                    add(last["group"], last["kind"])
                partition, readings = key, []
            if row["lag"] is not None:
                readings.append((row["at"], row["lag"]))
                last = row
        if readings:
            add(last["group"], last["kind"])
        return found

    def _gaps(self) -> list[Row]:
        """Open ones, the newest first."""
        columns = ("kind", "actor_kind", "app_id", "topic", "direction", "opened_at")
        rows = self._rows("lineage_gaps", Condition("state", "=", "open"), columns=columns)
        listed = (row for row in rows if row["kind"] != "mismatch")
        return nlargest(_MOST_GAPS, listed, key=lambda row: (row["opened_at"], row["app_id"], row["topic"]))

    def _causes(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        since = Condition("tripped_at", ">=", self._now_ms - _CAUSES_MS)
        for row in map(_with_short_detail, self._rows("breaker_causes", since, columns=_CAUSE_COLUMNS)):
            known = found.get(row["group"])
            if known is None or row["tripped_at"] > known[0]["tripped_at"]:
                found[row["group"]] = [row]
            elif row["tripped_at"] == known[0]["tripped_at"]:
                known.append(row)
        for rows in found.values():
            rows.sort(key=lambda row: row["number"])
        return found

    def _spark_queries(self) -> frozenset[str]:
        names: dict[str, set[str]] = {SPARK: set(), STREAMS: set()}
        try:
            for row in self._rows("applications", columns=("app_id", "kind")):
                names[row["kind"]].add(row["app_id"])
        except NoTableError:
            pass  # nothing is described
        return frozenset(names[SPARK] - names[STREAMS])

    def _changes(self) -> list[Row]:
        since = Condition("at", ">=", self._now_ms - _CHANGES_MS)
        rows = map(_with_short_detail, self._rows("changes", since, columns=_CHANGE_COLUMNS))
        return nlargest(_MOST_CHANGES, rows, key=lambda row: (row["at"], row["event_id"]))


def _with_short_detail(row: Row) -> Row:
    return row if len(row["detail"]) <= _MAX_DETAIL else row | {"detail": None}
