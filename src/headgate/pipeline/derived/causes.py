"""Which trips get their causes, and when again: the derivation of `breaker_causes`.

A trip gets its causes once it is known, and again when facts come that were written by an hour after it: the queries of
the pipeline read topics at different speeds, and an interval of activity is written when it has ended. A trip without
any cause has a row too, so that every trip is known to be explained.

New lags alone are no reason to look at a trip again: they come every minute, and those before a trip are there when its
dispositions are. Their table keeps two days, so a rebuild finds no lags of older trips.
"""

from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.pipeline.derived.derivation import Derivation, DerivedRun
from headgate.pipeline.derived.source_tables import net_changes
from headgate.pipeline.derived.trip_causes import (
    LAG_KNOWN_MS,
    MEMBER_SEEN_MS,
    TRIPPED,
    WINDOW_MS,
    WRITTEN_WITHIN_MS,
    CauseSources,
    source_topics,
    trip_causes,
    trips_of,
    upstream_writers,
)
from headgate.tables.definitions import table_named

_RESULT, _EVENTS, _LAGS = "breaker_causes", "breaker_events", "group_lags"
_SOURCES = (
    "activity_intervals",
    "app_io",
    "applications",
    _EVENTS,
    "changes",
    "dispositions",
    "members_tasks",
)
# At most a hundred causes are stored for each, and all are collected in this process.
_TRIPS_AT_ONCE = 200
_NEVER = 2**62  # later than every trip
# A condition with more values is not pushed down to the files.
_MAX_NAMED_TOPICS = 500


def _derive(run: DerivedRun) -> None:
    if not run.has_value(_EVENTS, "event", TRIPPED):  # most clusters have none, and new facts every minute
        return
    trips = _due_trips(run)
    parts = [trips.slice(start, _TRIPS_AT_ONCE) for start in range(0, trips.num_rows, _TRIPS_AT_ONCE)]
    for number, part in enumerate(parts, start=1):
        within = part.select(["cluster_id", "event_id"])
        run.replace(_RESULT, _causes(run, part), within=within, is_last=number == len(parts))


def _due_trips(run: DerivedRun) -> pa.Table:
    """The trips whose causes are to be found now."""
    trips = trips_of(run.rows(_EVENTS))
    oldest = None if run.is_full else _oldest_change(run)
    if oldest is not None:
        explained = run.stored(_RESULT).select("cluster_id", "event_id").distinct()
        known = explained.withColumn("is_known", sf.lit(True))
        is_recent = sf.col("tripped_at") >= oldest - WRITTEN_WITHIN_MS
        joined = trips.join(known, ["cluster_id", "event_id"], "left")
        trips = joined.where(is_recent | sf.col("is_known").isNull()).drop("is_known")
    return trips.toArrow().sort_by([("tripped_at", "ascending"), ("event_id", "ascending")])


def _oldest_change(run: DerivedRun) -> int | None:
    """The time of the oldest fact that came since the last run; None when it is not known what came."""
    times: list[DataFrame] = []
    for source in _SOURCES:
        if not run.has_changed(source):
            continue
        changed = run.changed_rows(source)
        if changed is None:
            return None
        times.append(change_times(changed, source))
    if not times:
        return _NEVER
    oldest = reduce(DataFrame.unionAll, times).agg(sf.min("at")).toArrow()["min(at)"][0].as_py()
    return _NEVER if oldest is None else int(oldest)


def change_times(changed: DataFrame, source: str) -> DataFrame:
    """When each change of a source happened: for a row with a validity, its beginning or else its end."""
    table = table_named(source)
    if table.appended:
        return changed.select("at")
    changed = net_changes(changed)
    if not table.has_validity:
        return changed.select("at")
    # A row that has ended is there twice, with and without its end.
    return changed.groupBy(*table.key).agg(sf.max(sf.coalesce("ended_at", "at")).alias("at")).select("at")


def _causes(run: DerivedRun, trips: pa.Table) -> DataFrame:
    of_trips = _small(run, trips)
    dispositions = _recent_dispositions(run, trips)
    # Topics and applications are few, and both are used several times.
    topics = source_topics(of_trips, dispositions).toArrow()
    of_topics = _small(run, topics)
    writers = upstream_writers(of_topics, run.rows("applications"), run.rows("app_io")).toArrow()
    activity = run.rows("activity_intervals")
    names = sorted(set(topics["topic"].to_pylist()))
    if len(names) <= _MAX_NAMED_TOPICS:
        activity = activity.where(sf.col("topic").isin(names) | sf.col("topic").isNull())
    sources = CauseSources(
        activity=activity,
        breaker_events=run.rows(_EVENTS),
        changes=run.rows("changes"),
        dispositions=dispositions,
        group_lags=_recent_lags(run, trips),
        members_tasks=run.rows("members_tasks"),
    )
    return trip_causes(of_trips, of_topics, _small(run, writers), sources)


def _recent_dispositions(run: DerivedRun, trips: pa.Table) -> DataFrame:
    """Reads the dispositions of the last day before each trip; files and row groups of other times are skipped."""
    tripped = trips["tripped_at"].to_pylist()
    first, last = (min(tripped) - MEMBER_SEEN_MS) // 1000, max(tripped) // 1000
    return run.rows("dispositions").where(sf.col("second").between(first, last))


def _recent_lags(run: DerivedRun, trips: pa.Table) -> DataFrame:
    """Reads the lags of the time before each trip, as they are stored now."""
    tripped = trips["tripped_at"].to_pylist()
    return run.stored(_LAGS).where(sf.col("at").between(min(tripped) - WINDOW_MS - LAG_KNOWN_MS, max(tripped)))


def _small(run: DerivedRun, rows: pa.Table) -> DataFrame:
    return sf.broadcast(run.session.createDataFrame(rows))


CAUSES = Derivation(name="causes", sources=_SOURCES, results=(_RESULT,), derive=_derive)
