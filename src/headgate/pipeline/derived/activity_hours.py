"""Adds up the intervals of `activity_intervals` by hour, by client and by topic.

Copies of a fact count once: an hour is added up anew from all of its intervals whenever new ones touch it, and the
times of a client are minima and maxima. The growth of end offsets is no use: it is what `topic_coverage` compares with.
Every gateway reports that growth, so of several the largest counts. A use of a topic without a name is left out.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headgate.pipeline.derived.derivation import HOUR_MS, DerivedRun
from headgate.tables.definitions import ORIGIN_KEY

INTERVALS, HOURS, COVERAGE, IDENTITIES = "activity_intervals", "activity_hours", "topic_coverage", "client_identities"
EDGE = ("cluster_id", "actor_kind", "app_id", "topic", "direction")
_IDENTITY = ("cluster_id", "principal", "client_id", "host", "actor_kind", "actor")
_END_OFFSETS, _ADDED_UP = "end-offsets", "other"  # rules
# The beginning of a longer interval is a wrong clock: all of it counts at its end.
_MAX_INTERVAL_MS = 31 * 24 * HOUR_MS
_HIGHEST = 2**63 - 1
_LAST_TIME_MS = 253_402_300_800_000  # the year 10000: sums of times beyond it may not fit
_ROWS_AT_ONCE = 1_000_000
_PART = (*EDGE, "topic_id", "is_growth")
_TIMES = ("since", "until", "first_hour", "last_hour")
_BOTH_TIMES = ("last_seen", "first_seen")


def with_hours(intervals: DataFrame) -> DataFrame:
    """Intervals with the hours in which they begin and end, and the actor as `app_id`; impossible ones are left out."""
    intervals = intervals.where(sf.col("until").between(0, _LAST_TIME_MS))
    is_sensible = sf.col("since").between(sf.col("until") - _MAX_INTERVAL_MS, sf.col("until"))
    since = sf.when(is_sensible, sf.col("since")).otherwise(sf.col("until"))
    intervals = intervals.withColumn("since", since).withColumn("app_id", sf.col("actor"))
    last = sf.greatest(sf.col("since"), sf.col("until") - 1)
    return intervals.withColumns({"first_hour": _hour(sf.col("since")), "last_hour": _hour(last)})


def uses(intervals: DataFrame) -> DataFrame:
    """The intervals in which an actor used a topic that has a name."""
    return intervals.where((sf.col("rule") != _END_OFFSETS) & sf.col("topic").isNotNull())


def _hour(time: Column) -> Column:
    return time - sf.pmod(time, sf.lit(HOUR_MS))


def last_known(column: str, at: str) -> Column:
    """The value of the latest row that has one."""
    return sf.max(sf.when(sf.col(column).isNotNull(), sf.struct(at, column)))[column]


def total(column: str | Column) -> Column:
    """The sum of whole numbers, at most the highest number of 64 bits; null without one."""
    # The sum is null where it does not fit. Decimals would not, but are several times slower.
    return sf.when(sf.count(column) > 0, sf.coalesce(sf.try_sum(column), sf.lit(_HIGHEST)))


# --- hours and coverage -----------------------------------------------------------------------------------------------


def touched_hours(run: DerivedRun, new: DataFrame) -> dict[int, int]:
    """The hours that new intervals touch, with the number of these."""
    hour = sf.explode(sf.sequence("first_hour", "last_hour", sf.lit(HOUR_MS))).alias("hour")
    counted = new.groupBy("first_hour", "last_hour").count().select(hour, "count")
    if run.is_full:  # rows of hours that have no intervals any more are removed
        stored = run.stored(HOURS).select("hour").union(run.stored(COVERAGE).select("hour")).distinct()
        counted = counted.union(stored.withColumn("count", sf.lit(0).cast("long")))
    rows = counted.groupBy("hour").agg(sf.sum("count").alias("count")).toArrow()
    return dict(zip(rows["hour"].to_pylist(), rows["count"].to_pylist(), strict=True))


def write_hours(run: DerivedRun, touched: Mapping[int, int], new: DataFrame | None) -> None:
    """Add up the hours that are touched; with `new` intervals, only for the topics that these name."""
    for hours in _batches(touched):
        topics = None if new is None else _touched_topics(new, hours)
        within = pa.table({"hour": pa.array(hours, pa.int64())}) if topics is None else topics
        of_topics = None if topics is None else run.session.createDataFrame(topics)
        parts = hour_parts(run.rows(INTERVALS), hours, of_topics).persist()
        try:
            run.replace(COVERAGE, topic_coverage(parts), within=within)
            run.replace(HOURS, activity_hours(parts), within=within)
        finally:
            parts.unpersist()


def _touched_topics(new: DataFrame, hours: Sequence[int]) -> pa.Table:
    """The topics that new intervals name, with the hours."""
    named = new.where(sf.col("topic").isNotNull()).select("cluster_id", "topic", "first_hour", "last_hour").distinct()
    found = named.select("cluster_id", "topic", _hours_between(hours)).distinct().toArrow()
    return found.filter(pc.is_in(found["hour"], pa.array(hours, pa.int64())))


def _batches(hours: Mapping[int, int]) -> Iterator[list[int]]:
    """The hours in ascending order, as many at a time as fit in memory."""
    some: list[int] = []
    rows = 0
    for hour in sorted(hours):
        if some and rows + hours[hour] > _ROWS_AT_ONCE:
            yield some
            some, rows = [], 0
        some.append(hour)
        rows += hours[hour]
    if some:
        yield some


def hour_parts(intervals: DataFrame, hours: Sequence[int], topics: DataFrame | None = None) -> DataFrame:
    """Uses of topics and their growth in each of these hours, each fact once: bytes and records are divided by time.

    A row has one writer and one topic id, so that both results are added up from it. `topics` are those that count in
    an hour; None: all.
    """
    end = hours[-1] + HOUR_MS
    is_near = (sf.col("until") >= hours[0]) & ((sf.col("since") <= end) | (sf.col("until") <= end))
    near = with_hours(intervals.where(is_near & sf.col("topic").isNotNull()))
    if topics is not None:
        near = near.join(sf.broadcast(topics.select("cluster_id", "topic")), ["cluster_id", "topic"], "left_semi")
    near = near.withColumn("is_growth", sf.col("rule") == _END_OFFSETS)
    # Copies have equal values. One partition has all rows of a topic: they are exchanged once for all that follows.
    once = near.select(*_PART, *ORIGIN_KEY[1:], *_TIMES, "bytes", "records").repartition("cluster_id", "topic")
    parts = once.distinct().withColumn("hour", _hours_between(hours))
    if topics is not None:
        parts = parts.join(sf.broadcast(topics), ["cluster_id", "topic", "hour"], "left_semi")
    elif len(hours) <= (hours[-1] - hours[0]) // HOUR_MS:
        parts = parts.where(sf.col("hour").isin(*hours))
    parts = parts.withColumns(
        {
            "first_seen": sf.greatest("since", "hour"),
            "last_seen": sf.least(sf.col("until"), sf.col("hour") + HOUR_MS),
        }
    )
    parts = parts.withColumns({name: _share(name) for name in ("bytes", "records")})
    # Spark adds up numbers by a hash, and sorts for texts: so the topic id is of the key here.
    return parts.groupBy(*_PART, "writer", "hour").agg(
        sf.min("first_seen").alias("first_seen"),
        sf.max("last_seen").alias("last_seen"),
        sf.max("until").alias("until"),
        total("bytes").alias("bytes"),
        total("records").alias("records"),
        sf.min(sf.col("is_growth") | sf.col("records").isNotNull()).alias("is_counted"),
    )


def _hours_between(hours: Sequence[int]) -> Column:
    """The hours of an interval, of those from the first of these hours to the last; a row for each."""
    first, last = sf.greatest(sf.col("first_hour"), sf.lit(hours[0])), sf.least(sf.col("last_hour"), sf.lit(hours[-1]))
    some = sf.when(first <= last, sf.sequence(first, last, sf.lit(HOUR_MS))).otherwise(sf.array().cast("array<bigint>"))
    return sf.explode(some).alias("hour")


def _share(column: str) -> Column:
    """The share of an interval's number in its part: shares are whole, and add up to the number."""

    def part(number: str) -> str:
        value = f"cast({column} as {number})"
        last, first = (f"({value} * cast({time} - since as {number})) div (until - since)" for time in _BOTH_TIMES)
        return f"cast({last} - {first} as bigint)"

    # An interval has less than 2^32 milliseconds; with a larger number the product may need more than 64 bits.
    share = f"if({column} between 0 and {2**31 - 1}, {part('bigint')}, {part('decimal(19,0)')})"
    return sf.expr(f"if(first_hour = last_hour, {column}, {share})")


def activity_hours(parts: DataFrame) -> DataFrame:
    return (
        parts.where(~sf.col("is_growth"))
        .groupBy("cluster_id", "hour", *EDGE[1:])
        .agg(
            last_known("topic_id", "until").alias("topic_id"),
            sf.min("first_seen").alias("first_seen"),
            sf.max("last_seen").alias("last_seen"),
            total("bytes").alias("bytes"),
            total("records").alias("records"),
        )
    )


def topic_coverage(parts: DataFrame) -> DataFrame:
    is_growth = sf.col("is_growth")
    nothing = sf.lit(0).cast("long")
    of_writer = (
        parts.where(sf.col("direction") == "write")
        .groupBy("cluster_id", "topic", "hour", "writer")
        .agg(
            last_known("topic_id", "until").alias("topic_id"),
            sf.max("until").alias("until"),
            sf.coalesce(total(sf.when(~is_growth, sf.col("records"))), nothing).alias("seen"),
            sf.coalesce(total(sf.when(is_growth, sf.col("records"))), nothing).alias("growth"),
            sf.min("is_counted").alias("is_counted"),
        )
    )
    return (
        of_writer.groupBy("cluster_id", "topic", "hour")
        .agg(
            last_known("topic_id", "until").alias("topic_id"),
            total("seen").alias("seen_records"),
            sf.max("growth").alias("all_records"),
            sf.min("is_counted").alias("is_counted"),
        )
        .withColumn("coverage", share(sf.col("seen_records"), sf.col("all_records"), sf.col("is_counted"), least=1.0))
        .drop("is_counted")
    )


def share(seen: Column, everything: Column, is_counted: Column, *, least: float) -> Column:
    """The share that was seen, at most 1; null where it is unknown.

    Where some writes were not counted it is higher than what was counted, so it is known only from `least` on.
    """
    counted = sf.least(sf.lit(1.0), seen / everything)
    return sf.when((everything > 0) & (is_counted | (counted >= least)), counted)


# --- clients ----------------------------------------------------------------------------------------------------------


def write_identities(run: DerivedRun, new: DataFrame) -> None:
    """Widen the times of the clients that new intervals name."""
    found = client_identities(new)
    stored = run.stored(IDENTITIES)
    if not run.is_full:
        stored = stored.join(found.select(*_IDENTITY), list(_IDENTITY), "left_semi")
        found = _widest(found.unionByName(stored.select(*found.columns)))
    rows = found.toArrow()
    within = None if run.is_full else rows.select(list(_IDENTITY))
    run.replace(IDENTITIES, rows, within=within)


def client_identities(intervals: DataFrame) -> DataFrame:
    """Each client and its actor; uses that were added up for several clients are not of one."""
    of_client = intervals.where(~sf.col("rule").isin(_END_OFFSETS, _ADDED_UP))
    texts = {name: sf.coalesce(name, sf.lit("")) for name in ("principal", "client_id", "host")}
    # First by software, because Spark adds up numbers by a hash, and sorts for texts.
    by_software = (
        of_client.withColumns(texts)
        .groupBy(*_IDENTITY, "software", "software_version")
        .agg(sf.min("since").alias("first_seen"), sf.max("until").alias("last_seen"))
    )
    return _widest(by_software)


def _widest(clients: DataFrame) -> DataFrame:
    software = sf.struct("last_seen", "software", "software_version")
    rows = clients.groupBy(*_IDENTITY).agg(
        sf.max(sf.when(sf.col("software").isNotNull(), software)).alias("newest"),
        sf.min("first_seen").alias("first_seen"),
        sf.max("last_seen").alias("last_seen"),
    )
    columns = {name: sf.col(f"newest.{name}") for name in ("software", "software_version")}
    return rows.withColumns(columns).drop("newest")
