"""`dlq_rates` and `dlq_rates_hourly`: how many records of share groups became dead letters, from `dispositions`.

A minute is made of all its dispositions, each once: copies of a fact do not count, and a fact that comes late amends
its minute. Only the minutes of new dispositions are made again, and the hours of these from the minutes.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headgate.pipeline.derived.derivation import COMPILED_FROM, HOUR_MS, Derivation, DerivedRun
from headgate.pipeline.session import set_compiling
from headgate.tables.definitions import ORIGIN_KEY, table_named

_DISPOSITIONS, _MINUTES, _HOURS = "dispositions", "dlq_rates", "dlq_rates_hourly"
_MINUTE_S, _MINUTE_MS = 60, 60_000
_HOUR_S = HOUR_MS // 1000
# A time beyond the year 9999 is an error of its writer, and in milliseconds it may not fit into a number.
_LAST_SECOND = 253_402_300_799
_COUNTS = ("accepted", "released", "rejected", "over_limit", "dead_lettered", "write_timeouts")
_LARGEST = 2**63 - 1
# Rows of a part are collected in this process; a disposition makes at most one of them.
_PART_ROWS = 1_000_000


def minute_rates(dispositions: DataFrame) -> DataFrame:
    """The rows of `dlq_rates` for these dispositions, which are whole minutes of a group."""
    used = (*ORIGIN_KEY, "group", "topic", "topic_id", "partition", "second", *_COUNTS)
    # Copies have equal values. One partition has all rows of a group: they are exchanged once for all that follows.
    once = _valid(dispositions).select(*used).repartition("cluster_id", "group").distinct()
    named = once.select(
        "cluster_id",
        "group",
        sf.coalesce("topic", "topic_id", sf.lit("")).alias("topic"),
        "topic_id",
        "partition",
        _start("second", _MINUTE_S).alias("minute"),
        sf.col("second").alias("at"),
        *_COUNTS,
    )
    return _rates(named, "cluster_id", "group", "topic", "partition", "minute")


def hour_rates(minutes: DataFrame) -> DataFrame:
    """The rows of `dlq_rates_hourly` for these rows of `dlq_rates`, which are whole hours of a group."""
    hour = sf.col("minute") - sf.pmod("minute", sf.lit(HOUR_MS))
    named = minutes.select(
        "cluster_id", "group", "topic", "topic_id", hour.alias("hour"), sf.col("minute").alias("at"), *_COUNTS
    )
    return _rates(named, "cluster_id", "group", "topic", "hour")


def _rates(counted: DataFrame, *key: str) -> DataFrame:
    last_id = sf.max(sf.when(sf.col("topic_id").isNotNull(), sf.struct("at", "topic_id")))["topic_id"]
    sums = [sf.coalesce(sf.try_sum(name), sf.lit(_LARGEST)).alias(name) for name in _COUNTS]
    # First by topic id, because Spark adds up numbers by a hash, and sorts for texts.
    counted = counted.groupBy(*key, "topic_id").agg(sf.max("at").alias("at"), *sums)
    processed = sf.coalesce(sf.try_add("accepted", "dead_lettered"), sf.lit(_LARGEST))
    rate = sf.when(sf.col("processed") > 0, sf.col("dead_lettered").cast("double") / sf.col("processed"))
    added = counted.groupBy(*key).agg(last_id.alias("topic_id"), *sums)
    return added.withColumn("processed", processed).withColumn("dlq_rate", rate)


def _valid(dispositions: DataFrame) -> DataFrame:
    return dispositions.where(sf.col("second").between(0, _LAST_SECOND))


def _start(second: str, length_s: int) -> Column:
    """The beginning of the minute or hour of a second, in epoch milliseconds."""
    return (sf.col(second) - sf.pmod(second, sf.lit(length_s))) * 1000


# --- the derivation ---------------------------------------------------------------------------------------------------


def _derive(run: DerivedRun) -> None:
    try:
        _derive_rates(run)
    finally:
        set_compiling(run.session, is_on=False)  # other derivations share the session


def _derive_rates(run: DerivedRun) -> None:
    changed = run.changed_rows(_DISPOSITIONS)
    new = _valid(run.rows(_DISPOSITIONS) if changed is None else changed)
    set_compiling(run.session, is_on=changed is None and run.row_count(_DISPOSITIONS) >= COMPILED_FROM)
    sizes = _hour_sizes(new)
    set_compiling(run.session, is_on=sum(sizes.values()) >= COMPILED_FROM)
    parts = list(hour_parts(sizes, _PART_ROWS))
    for number, (first, last) in enumerate(parts, start=1):
        within_part = sf.col("second").between(first // 1000, last // 1000 + _HOUR_S - 1)
        of_part = run.rows(_DISPOSITIONS).where(within_part)
        if changed is not None:
            touched = new.where(within_part).select("cluster_id", "group", _start("second", _MINUTE_S).alias("minute"))
            is_touched = touched.distinct()
            of_part = of_part.withColumn("minute", _start("second", _MINUTE_S)).join(
                is_touched, ["cluster_id", "group", "minute"], "left_semi"
            )
        minutes = _collect(minute_rates(of_part), _MINUTES)
        is_last = number == len(parts)
        # A whole table in one part is compared as a whole; otherwise the groups and minutes that are there.
        is_whole = changed is None and len(parts) == 1
        run.replace(
            _MINUTES, minutes, within=None if is_whole else _distinct(minutes, ("cluster_id", "group", "minute"))
        )
        hours = _hours_of(run, minutes, first, last, is_whole_hours=changed is None)
        within = None if is_whole else _distinct(hours, ("cluster_id", "group", "hour"))
        run.replace(_HOURS, hours, within=within, is_last=is_last)


def _hours_of(run: DerivedRun, minutes: pa.Table, first: int, last: int, *, is_whole_hours: bool) -> pa.Table:
    """The hours of these minutes; unless they are whole, the rest of each hour is stored."""
    made = run.session.createDataFrame(minutes)
    if is_whole_hours:
        return _collect(hour_rates(made), _HOURS)
    hour = sf.col("minute") - sf.pmod("minute", sf.lit(HOUR_MS))
    touched = made.select("cluster_id", "group", hour.alias("hour")).distinct()
    stored = run.stored(_MINUTES).where(sf.col("minute").between(first, last + HOUR_MS - 1))
    of_hours = stored.withColumn("hour", hour).join(touched, ["cluster_id", "group", "hour"], "left_semi")
    return _collect(hour_rates(of_hours), _HOURS)


def _hour_sizes(dispositions: DataFrame) -> dict[int, int]:
    """The number of rows in each hour, which is few numbers even for years."""
    counted = dispositions.groupBy(_start("second", _HOUR_S).alias("hour")).count().toArrow()
    return dict(zip(counted["hour"].to_pylist(), counted["count"].to_pylist(), strict=True))


def hour_parts(sizes: dict[int, int], most: int) -> Iterator[tuple[int, int]]:
    """The first and the last hour of each part, in the order of time: as many hours as have together `most` rows."""
    first = last = None
    rows = 0
    for hour in sorted(sizes):
        if first is not None and last is not None and rows + sizes[hour] > most:
            yield first, last
            first, rows = None, 0
        first = hour if first is None else first
        last = hour
        rows += sizes[hour]
    if first is not None and last is not None:
        yield first, last


def _collect(rows: DataFrame, result: str) -> pa.Table:
    return rows.select(*table_named(result).columns.names).toArrow()


def _distinct(rows: pa.Table, names: Iterable[str]) -> pa.Table:
    return rows.select(list(names)).group_by(list(names)).aggregate([])


RATES = Derivation(name="rates", sources=(_DISPOSITIONS,), results=(_MINUTES, _HOURS), derive=_derive)
