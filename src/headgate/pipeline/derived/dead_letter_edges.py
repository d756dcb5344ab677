"""The edges from share groups to their dead-letter topics, for `lineage_edges`.

An edge is declared while the group's config names the topic: the events `config_changed` say since when. The gateway
writes the dead letters itself, so no client is seen to write them. The edge is observed in the hours in which records
of the group became dead letters, to the hour, and their number is known but not their bytes. In an hour in which the
config changed they count for the last topic.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from headgate.pipeline.derived.activity_hours import EDGE, total
from headgate.pipeline.derived.derivation import HOUR_MS
from headgate.share_groups.model.group_configs import DLQ_TOPIC

_GROUP = ("cluster_id", "actor_kind", "app_id", "direction")


def dead_letter_periods(breaker_events: DataFrame) -> DataFrame:
    """The times in which the config of a share group named a dead-letter topic, as those of `declared_periods`."""
    changes = sf.from_json("detail", "changes map<string,string>")["changes"]
    changed = breaker_events.where(sf.col("event") == "config_changed").withColumn("changes", changes)
    named = changed.where(sf.array_contains(sf.map_keys("changes"), DLQ_TOPIC)).select(
        "cluster_id",
        sf.lit("share_group").alias("actor_kind"),
        sf.col("group").alias("app_id"),
        sf.trim(sf.col("changes")[DLQ_TOPIC]).alias("topic"),
        sf.lit("write").alias("direction"),
        sf.col("at").alias("start"),
        "event_id",
    )
    of_group = Window.partitionBy("cluster_id", "app_id").orderBy("start", "event_id")
    ended = named.withColumn("end", sf.lead("start").over(of_group))
    nothing = sf.lit(None).cast("string")
    return ended.where(sf.col("topic") != "").select(
        *EDGE, "start", "end", nothing.alias("topic_id"), sf.lit(False).alias("is_internal")
    )


def dead_letter_hours(periods: DataFrame, hourly_rates: DataFrame) -> DataFrame:
    """The hours in which dead letters were written to these topics, with columns of `activity_hours`."""
    counted = (
        hourly_rates.where(sf.col("dead_lettered") > 0)
        .groupBy("cluster_id", sf.col("group").alias("app_id"), "hour")
        .agg(total("dead_lettered").alias("records"))
    )
    is_then = (sf.col("start") < sf.col("hour") + HOUR_MS) & (sf.col("end").isNull() | (sf.col("end") > sf.col("hour")))
    written = (
        counted.join(periods, ["cluster_id", "app_id"])
        .where(is_then)
        .groupBy(*_GROUP, "hour", "records")
        .agg(sf.max(sf.struct("start", "topic")).alias("last"))
    )
    seen = sf.greatest("hour", "last.start")
    return written.select(
        *_GROUP,
        sf.col("last.topic").alias("topic"),
        "hour",
        seen.alias("first_seen"),
        seen.alias("last_seen"),
        sf.lit(0).cast("long").alias("bytes"),
        "records",
        sf.lit(None).cast("string").alias("topic_id"),
    )
