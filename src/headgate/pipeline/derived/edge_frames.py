"""`lineage_edges` on Spark: brings the hours and descriptions of each edge together, and makes its rows on the workers.

Hours without a long pause between them are one use, which Spark's own functions find, so that few rows reach Python.
The rows of an edge lie one after another in a sorted partition, so that a worker holds one edge at a time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.lineage.edge_periods import (
    Edge,
    Period,
    Use,
    edge_rows,
    first_hour_of_day,
    is_internal_name,
)
from headgate.pipeline.derived.activity_hours import EDGE, total
from headgate.tables.definitions import table_named

VERSION = ("cluster_id", "app_id", "incarnation", "epoch", "hash", "provenance")
_OPEN = ("cluster_id", "actor_kind", "app_id", "direction")
_COLUMNS = ("is_use", "start", "end", "bytes", "records", "order", "topic_id", "is_internal")
_NAMES = table_named("lineage_edges").columns.names
_ROWS_AT_ONCE = 10_000
OpenEnded = Mapping[tuple[str, ...], Sequence[Period]]


def day_sums(hours: DataFrame, now_ms: int) -> DataFrame:
    """Bytes and records of each edge in the last day, and its last use in it."""
    return (
        hours.where(sf.col("hour") >= first_hour_of_day(now_ms))
        .groupBy(*EDGE)
        .agg(
            total("bytes").alias("bytes_day"),
            total("records").alias("records_day"),
            sf.max("last_seen").alias("last_use"),
        )
    )


def application_periods(applications: DataFrame) -> DataFrame:
    """The times at which each version was the current one."""
    end = sf.when(sf.col("ended_at").isNotNull(), sf.greatest(sf.col("ended_at"), sf.col("at") + 1))
    kind, start = sf.col("kind").alias("actor_kind"), sf.col("at").alias("start")
    return applications.select(*VERSION, kind, start, end.alias("end"))


def declared_periods(periods: DataFrame, topology_edges: DataFrame) -> DataFrame:
    """Edges that descriptions name, with `start`, `end`, `topic_id` and `is_internal`."""
    reads = sf.col("from_kind") == "topic"
    named = topology_edges.where(reads | (sf.col("to_kind") == "topic")).select(
        *VERSION,
        sf.when(reads, sf.col("from_node")).otherwise(sf.col("to_node")).alias("name"),
        sf.when(reads, "read").otherwise("write").alias("direction"),
        "topic_id",
        "is_internal",
    )
    own = sf.concat("app_id", sf.lit("-"))
    # A description names internal topics without the application id, with which the cluster has them.
    is_short = sf.col("is_internal") & ~sf.startswith("name", own)
    topic = sf.when(is_short, sf.concat(own, "name")).otherwise(sf.col("name"))
    return (
        periods.join(named, list(VERSION))
        .withColumn("topic", topic)
        .select(*EDGE, "start", "end", "topic_id", "is_internal")
    )


def open_ended_periods(periods: DataFrame, nodes: DataFrame, edges: DataFrame) -> OpenEnded:
    """Times in which a version reads by a pattern, or writes to topics that it chooses for each record."""
    to_topics = edges.where((sf.col("from_kind") == "sink") & (sf.col("to_kind") == "topic"))
    named = to_topics.select(*VERSION, sf.col("from_node").alias("node"))
    sinks = nodes.where(sf.col("kind") == "sink").join(named, [*VERSION, "node"], "left_anti")
    patterns = nodes.where((sf.col("kind") == "source") & sf.col("pattern").isNotNull())
    found = _directed(patterns, "read").union(_directed(sinks, "write")).distinct()
    rows = periods.join(found, list(VERSION)).select(*_OPEN, "start", "end").toArrow().to_pylist()
    open_ended: dict[tuple[str, ...], list[Period]] = {}
    for row in rows:
        open_ended.setdefault(tuple(row[name] for name in _OPEN), []).append(Period(row["start"], row["end"]))
    return open_ended


def _directed(nodes: DataFrame, direction: str) -> DataFrame:
    return nodes.select(*VERSION, sf.lit(direction).alias("direction"))


def long_uses(hours: DataFrame, *, now_ms: int, quiet_ms: int) -> DataFrame:
    """Uses without a pause of more than `quiet_ms`, by topic id, with the bytes and records of the last day."""
    by_time = Window.partitionBy(*EDGE).orderBy("first_seen", "last_seen")
    before = sf.max("last_seen").over(by_time.rowsBetween(Window.unboundedPreceding, -1))
    begins = sf.coalesce(sf.col("first_seen") - before > quiet_ms, sf.lit(False))
    numbered = hours.withColumn("begins", begins.cast("int"))
    numbered = numbered.withColumn("number", sf.sum("begins").over(by_time.rowsBetween(Window.unboundedPreceding, 0)))
    is_of_day = sf.col("hour") >= first_hour_of_day(now_ms)
    # Of two hours that end at the same time, the use of the second has no length.
    order = sf.col("last_seen") * 2 + (sf.col("first_seen") == sf.col("last_seen")).cast("int")
    # Spark adds up numbers by a hash, and sorts for texts: so the topic id is of the key.
    return numbered.groupBy(*EDGE, "number", "topic_id").agg(
        sf.min("first_seen").alias("start"),
        sf.max("last_seen").alias("end"),
        sf.max(order).alias("order"),
        sf.coalesce(total(sf.when(is_of_day, sf.col("bytes"))), sf.lit(0)).alias("bytes"),
        total(sf.when(is_of_day, sf.col("records"))).alias("records"),
    )


def lineage_rows(
    hours: DataFrame, declared: DataFrame, open_ended: OpenEnded, *, now_ms: int, quiet_ms: int
) -> DataFrame:
    """All rows of the edges in these hours and descriptions."""
    of_use = {"is_use": sf.lit(True), "is_internal": sf.lit(False)}
    nothing: dict[str, Column] = {name: sf.lit(None).cast("long") for name in ("bytes", "records", "order")}
    uses = long_uses(hours, now_ms=now_ms, quiet_ms=quiet_ms)
    together = uses.withColumns(of_use).select(*EDGE, *_COLUMNS)
    together = together.union(declared.withColumns({"is_use": sf.lit(False), **nothing}).select(*EDGE, *_COLUMNS))
    # Uses first, by time: the last topic id that a use had is known then.
    ordered = together.repartition(*EDGE).sortWithinPartitions(*EDGE, sf.desc("is_use"), "order", "end", "start")
    schema = from_arrow_schema(pa.schema([one.remove_metadata() for one in table_named("lineage_edges").columns]))
    return ordered.mapInArrow(_make_rows(open_ended, now_ms, quiet_ms), schema)


def _make_rows(
    open_ended: OpenEnded, now_ms: int, quiet_ms: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    columns = pa.schema([one.remove_metadata() for one in table_named("lineage_edges").columns])

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (
            row
            for batch in batches
            for row in zip(*(batch[name].to_pylist() for name in batch.schema.names), strict=True)
        )
        made: list[dict[str, Any]] = []
        for key, group in groupby(rows, key=lambda row: row[: len(EDGE)]):
            made += _rows_of(Edge(*key), [row[len(EDGE) :] for row in group], open_ended, now_ms, quiet_ms)
            if len(made) >= _ROWS_AT_ONCE:
                yield from pa.Table.from_pylist(made, columns).to_batches()
                made = []
        if made:
            yield from pa.Table.from_pylist(made, columns).to_batches()

    return make


def _rows_of(
    edge: Edge, parts: Sequence[tuple[Any, ...]], open_ended: OpenEnded, now_ms: int, quiet_ms: int
) -> Iterator[dict[str, Any]]:
    uses = [Use(start, end, size, records) for is_use, start, end, size, records, *_ in parts if is_use]
    declared = [Period(start, end) for is_use, start, end, *_ in parts if not is_use]
    is_internal = is_internal_name(edge) or any(part[-1] for part in parts)
    unnamed = open_ended.get((edge.cluster_id, edge.actor_kind, edge.app_id, edge.direction), ())
    # Uses come first, so of the ids that they had the last is the newest.
    ids = [part[-2] for part in parts if part[-2] is not None]
    seen = [part[-2] for part in parts if part[-2] is not None and part[0]]
    common = {"topic_id": (seen[-1:] or ids[-1:] or [None])[0], "is_internal": is_internal}
    found = edge_rows(uses, declared, () if is_internal_name(edge) else unnamed, now_ms=now_ms, quiet_ms=quiet_ms)
    return ({**edge._asdict(), **common, **row._asdict()} for row in found)
