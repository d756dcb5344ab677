"""Makes the records of a replay plan from tables and a scan of the source topics: DataFrames in, a DataFrame out.

Why a dead letter is left out, in this order: it was replayed or parked before; it does not identify its record; its
record is gone and the dead letter has no copy; its partition has a later record of its key. What was replayed too
often is parked, or left out without a parking topic. Every dead letter that was selected is in the result, so that a
plan explains itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Final, assert_never

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from headgate.dead_letters.model.plans import (
    ALREADY_REPLAYED,
    NOT_REPLAYABLE,
    ORIGINAL,
    OVER_MAX_REPLAYS,
    PLANNABLE,
    SUPERSEDED,
    UNIDENTIFIED,
)
from headgate.dead_letters.model.topic_ids import NAMED
from headgate.dead_letters.model.where import AllOf, AnyOf, Compare, IsIn, IsLike, IsNull, Not, Where
from headgate.tables.definitions import TABLES

PLACE: Final = ("topic", "partition", "offset")
_IDENTITY: Final = ("source_id", "partition", "offset")
_GONE: Final = ("expired", "compacted", "recreated")
_COLUMNS: Final = tuple(TABLES["replay_plan_records"].columns.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSelection:
    """Which dead letters of a cluster a plan is about; times are epoch milliseconds, `until` is not included."""

    cluster_id: str
    group: str | None = None
    dlq_topic: str | None = None
    where: Where | None = None
    since: int | None = None
    until: int | None = None
    episode: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """`partitions` has the number of partitions of every target, the parking topic included; `ids` those of sources."""

    plan: str
    to: str
    partitions: Mapping[str, int]
    ids: Mapping[str, str]
    max_replays: int
    parking_topic: str | None = None
    include_superseded: bool = False


def select_letters(letters: DataFrame, selection: PlanSelection) -> DataFrame:
    """The dead letters that are selected; withdrawn ones never are."""
    conditions = [~sf.col("withdrawn"), sf.col("cluster_id") == selection.cluster_id]
    if selection.group is not None:
        conditions.append(sf.col("group") == selection.group)
    if selection.dlq_topic is not None:
        conditions.append(sf.col("dlq_topic") == selection.dlq_topic)
    if selection.where is not None:
        conditions.append(where_column(selection.where))
    if selection.since is not None:
        conditions.append(sf.col("dead_lettered_at") >= selection.since)
    if selection.until is not None:
        conditions.append(sf.col("dead_lettered_at") < selection.until)
    if selection.episode is not None:
        conditions.append(sf.col("cluster") == selection.episode)
    return letters.where(reduce(and_, conditions))


def with_replayed_ids(letters: DataFrame) -> DataFrame:
    """The dead letters with the ids that plans and replays have: empty where only the name of the topic is known."""
    is_named = sf.col("topic_id").startswith(NAMED)
    return letters.withColumn("topic_id", sf.when(is_named, "").otherwise(sf.col("topic_id")))


def with_source_ids(rows: DataFrame, ids: Mapping[str, str]) -> DataFrame:
    """The rows with `source_id`: the id of the record's topic. Where a dead letter has none, it is the one of now.

    `rows` are dead letters, or rows of `replay_audit`, which have the ids of the dead letters.
    """
    of_now = sf.coalesce(_mapped("topic", ids), sf.lit(""))
    return rows.withColumn("source_id", sf.when(sf.col("topic_id") == "", of_now).otherwise(sf.col("topic_id")))


def where_column(where: Where) -> Column:
    """The expression of `--where` as a condition of Spark, with the same result for every row."""
    match where:
        case Compare(column, operator, value):
            left, right = sf.col(f"`{column}`"), sf.lit(value)
            return {
                "=": left == right,
                "!=": left != right,
                "<": left < right,
                "<=": left <= right,
                ">": left > right,
                ">=": left >= right,
            }[operator]
        case IsIn(column, values):
            return sf.col(f"`{column}`").isin(*values)
        case IsLike(column, pattern):
            return sf.col(f"`{column}`").like(pattern)
        case IsNull(column):
            return sf.col(f"`{column}`").isNull()
        case Not(inner):
            return ~where_column(inner)
        case AllOf(parts):
            return reduce(and_, map(where_column, parts))
        case AnyOf(parts):
            return reduce(or_, map(where_column, parts))
        case _:
            assert_never(where)


def find_superseded(chosen: DataFrame, letters: DataFrame, scan: DataFrame, audit: DataFrame) -> DataFrame:
    """The places of the chosen dead letters after which their partition has another record of the same key.

    `scan` has the records of the source topics: place and key. `letters` are all dead letters of the group: a record
    that became one itself does not count. Whether the group has processed the others is not known. A record that a
    replay wrote is as old as the one that it is a copy of. Dead letters
    and audit have `source_id`; all dead letters are about topics with the ids of now.
    """
    keyed = scan.where(sf.col("key").isNotNull())
    of_chosen = chosen.select(*PLACE).join(keyed, [*PLACE]).withColumnRenamed("offset", "own")
    processed = (
        keyed.join(of_chosen.select("topic", "partition", "key").distinct(), ["topic", "partition", "key"], "left_semi")
        .join(letters.where(~sf.col("withdrawn")).select(*PLACE), [*PLACE], "left_anti")
        .join(_copies(audit), [*PLACE], "left")
        .withColumn("age", sf.coalesce("copy_of", "offset"))
    )
    newest = processed.groupBy("topic", "partition", "key").agg(sf.max("age").alias("newest"))
    later = of_chosen.join(newest, ["topic", "partition", "key"]).where(sf.col("newest") > sf.col("own"))
    return later.select("topic", "partition", sf.col("own").alias("offset")).distinct()


def _copies(audit: DataFrame) -> DataFrame:
    """Records that a replay wrote to their own partition, with the offset of the record that they are copies of."""
    back = (sf.col("target_topic") == sf.col("topic")) & (sf.col("target_partition") == sf.col("partition"))
    written = audit.where(back & (sf.col("target_topic_id") == sf.col("source_id")))
    return written.select(
        "topic", "partition", sf.col("target_offset").alias("offset"), sf.col("offset").alias("copy_of")
    )


def build_plan(chosen: DataFrame, superseded: DataFrame, audit: DataFrame, settings: PlanSettings) -> DataFrame:
    """The rows of `replay_plan_records`; `superseded` has places, `audit` the rows of the cluster, both `source_id`."""
    counted = _count_replays(chosen, audit, settings.max_replays)
    done = (
        audit.where(sf.col("outcome") != "skipped")
        .select("group", "topic", *_IDENTITY)
        .distinct()
        .withColumn("is_done", sf.expr("true"))
    )
    marked = counted.join(done, ["group", "topic", *_IDENTITY], "left").join(
        superseded.withColumn("is_superseded", sf.expr("true")), [*PLACE], "left"
    )
    is_gone = sf.col("source_state").isin(*_GONE) & ~sf.col("copied")
    is_superseded = sf.col("is_superseded").isNotNull() & sf.lit(not settings.include_superseded)
    is_over = sf.col("replays") >= settings.max_replays
    why = (
        sf.when(sf.col("is_done").isNotNull(), ALREADY_REPLAYED)
        .when(~where_column(PLANNABLE), UNIDENTIFIED)
        .when(is_gone, NOT_REPLAYABLE)
        .when(is_superseded, SUPERSEDED)
        .when(is_over, OVER_MAX_REPLAYS)
    )
    parks = sf.lit(settings.parking_topic is not None) & (sf.col("why") == OVER_MAX_REPLAYS)
    action = sf.when(sf.col("why").isNull(), "replay").when(parks, "park").otherwise("leave_out")
    to = sf.col("topic") if settings.to == ORIGINAL else sf.lit(settings.to)
    target = sf.when(sf.col("action") == "park", sf.lit(settings.parking_topic)).when(sf.col("action") == "replay", to)
    # A topic that was created again: the records of the old one come first.
    is_current = _mapped("topic", settings.ids) == sf.col("source_id")
    order = Window.orderBy(
        "lane", "partition", "topic", sf.coalesce(is_current, sf.expr("false")), "source_id", "offset"
    )
    placed = (
        marked.withColumn("why", why)
        .withColumn("topic", sf.coalesce("topic", "dlq_topic"))  # one that names no record has its own place
        .withColumn("action", action)
        .withColumn("lane", to)
        .withColumn("target_topic", target)
        .withColumn(
            "target_partition", (sf.col("partition") % _mapped("target_topic", settings.partitions)).cast("int")
        )
        .withColumn("plan", sf.lit(settings.plan))
        .withColumn("position", (sf.row_number().over(order) - 1).cast("long"))
    )
    return placed.select(*_COLUMNS)


def _mapped(column: str, values: Mapping[str, object]) -> Column:
    """The value of the column's text; null for another text."""
    if not values:
        return sf.lit(None)
    pairs: Sequence[Column] = [sf.lit(item) for pair in values.items() for item in pair]
    return sf.try_element_at(sf.create_map(*pairs), sf.col(column))


def _count_replays(chosen: DataFrame, audit: DataFrame, most: int) -> DataFrame:
    """The dead letters with `replays`: how often their content was replayed, by following the audit backwards.

    KIP-1191 copies no headers, so a record cannot carry this number itself. It is counted up to `most`.
    """
    came = audit.where(sf.col("outcome") == "replayed").select(
        sf.col("target_topic_id").alias("now_id"),
        sf.col("target_partition").alias("now_partition"),
        sf.col("target_offset").alias("now_offset"),
        *(sf.col(name).alias(f"before_{name}") for name in _IDENTITY),
    )
    counted = chosen.withColumns(
        {
            "replays": sf.lit(0),
            "now_id": sf.col("source_id"),
            "now_partition": sf.col("partition"),
            "now_offset": sf.col("offset"),
        }
    )
    for _ in range(most):
        counted = counted.join(came, ["now_id", "now_partition", "now_offset"], "left").withColumns(
            {
                "replays": sf.col("replays") + sf.col("before_offset").isNotNull().cast("int"),
                "now_id": sf.col("before_source_id"),
                "now_partition": sf.col("before_partition"),
                "now_offset": sf.col("before_offset"),
            }
        )
        counted = counted.drop(*(f"before_{name}" for name in _IDENTITY))
    return counted.drop("now_id", "now_partition", "now_offset")
