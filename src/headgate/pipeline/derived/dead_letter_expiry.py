"""Brings up to date, once an hour, until when records of dead letters can be had: retention and first offsets change.

Nothing is read from the topics. Only rows that differ are written, and a bounded number of them: a changed retention
reaches the rest of very many dead letters in the next hours.

A row has no timestamp of its dead letter in the topic, only the time at which its record failed: often milliseconds
before, and hours where the dead letter waited in the spool. So a stored time of expiry is corrected only when it is
farther than an hour from what the retention of now gives.
"""

from collections.abc import Collection, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate.dead_letters.model.topic_ids import NAMED
from headgate.pipeline.derived.dead_letter_topics import LAST_MS, KnownTopic
from headgate.pipeline.derived.derivation import HOUR_MS

# Parts of dead letters that are written in an hour at most.
REFRESHED_PARTS: Final = 4
_LATE_MS: Final = HOUR_MS
_MAY_CHANGE: Final = ("found", "unknown", "unreadable", "expired")
_TOPICS: Final = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("is_there", pa.bool_()),
        pa.field("id", pa.string()),
        pa.field("has_configs", pa.bool_()),
        pa.field("kept_ms", pa.int64()),
    ]
)
_BOUNDS: Final = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("number", pa.int32()),
        pa.field("first", pa.int64()),
        pa.field("end", pa.int64()),
    ]
)


def topics_of(letters: DataFrame) -> list[str]:
    """The names of all topics that these dead letters are in or about."""
    names = letters.select(sf.explode(sf.array("topic", "dlq_topic")).alias("name")).distinct().toArrow()
    return sorted(name for name in names["name"].to_pylist() if name is not None)


def outdated_letters(
    session: SparkSession, letters: DataFrame, known: Mapping[str, KnownTopic], gone: Collection[str], now_ms: int
) -> DataFrame:
    """The dead letters whose source, or whose time of expiry, is no longer what their row says, with what is true now.

    What is not known of a topic that may not be described, or whose leaders are away, stays as it is.
    """
    places = _places(session, known, gone)
    joined = letters
    for side, topic, partition in (("source", "topic", "partition"), ("dlq", "dlq_topic", "dlq_partition")):
        of_topic, of_partition = (one.toDF(*(f"{side}_{name}" for name in one.columns)) for one in places)
        has_place = (sf.col(f"{side}_first_name") == sf.col(topic)) & (sf.col(f"{side}_number") == sf.col(partition))
        of_partition = of_partition.withColumnRenamed(f"{side}_name", f"{side}_first_name")
        joined = joined.join(sf.broadcast(of_topic), sf.col(f"{side}_name") == sf.col(topic), "left")
        joined = joined.join(sf.broadcast(of_partition), has_place, "left")
    has_no_id = (sf.col("topic_id") == "") | sf.col("topic_id").startswith(NAMED)
    is_of_now = has_no_id | (sf.col("topic_id") == sf.col("source_id"))
    # What it was before its topic could not be seen for a time; triage finds the unknown ones that it reads.
    seen = sf.when(sf.col("source_at").isNotNull(), "found").otherwise("unknown")
    state = (
        sf.when(~sf.col("source_state").isin(*_MAY_CHANGE), sf.col("source_state"))
        .when(~sf.col("source_is_there"), "expired")
        .when(~is_of_now, "recreated")
        .when(sf.col("offset") < sf.col("source_first"), "expired")
        .when((sf.col("source_state") == "expired") & (sf.col("offset") < sf.col("source_end")), seen)
        .otherwise(sf.col("source_state"))
    )
    is_found = (state == "found") & sf.col("source_has_configs") & is_of_now
    source_ends = sf.when(is_found, _end("source_at", "source_kept_ms")).otherwise(sf.col("source_expires_at"))
    is_deleted = (
        ~sf.col("dlq_is_there")
        | (sf.col("dlq_topic_id") != sf.col("dlq_id"))
        | (sf.col("dlq_offset") < sf.col("dlq_first"))
    )
    by_retention = _end("dead_lettered_at", "dlq_kept_ms")
    is_close = sf.coalesce(sf.abs(sf.col("letter_expires_at") - by_retention) <= _LATE_MS, sf.lit(False))
    letter_ends = (
        sf.when(is_deleted, sf.least(sf.col("letter_expires_at"), sf.lit(now_ms)))
        .when(sf.col("dlq_has_configs") & ~is_close, by_retention)
        .otherwise(sf.col("letter_expires_at"))
    )
    true_now = {"source_state": state, "source_expires_at": source_ends, "letter_expires_at": letter_ends}
    made = joined.select("*", *(column.alias(f"now_{name}") for name, column in true_now.items()))
    is_same = [sf.col(name).eqNullSafe(sf.col(f"now_{name}")) for name in true_now]
    differs = ~(is_same[0] & is_same[1] & is_same[2])
    columns = [sf.col(f"now_{name}").alias(name) if name in true_now else sf.col(name) for name in letters.columns]
    return made.where(differs).select(*columns)


def _places(
    session: SparkSession, known: Mapping[str, KnownTopic], gone: Collection[str]
) -> tuple[DataFrame, DataFrame]:
    """What is known of the topics, and the offsets of their partitions; nothing of those that are hidden."""
    topics = [
        {"name": name, "is_there": True, "id": one.topic_id, "has_configs": bool(one.configs), "kept_ms": one.kept_ms}
        for name, one in known.items()
    ]
    topics += [{"name": name, "is_there": False} for name in gone]
    bounds = [
        {"name": name, "number": number, "first": first, "end": end}
        for name, topic in known.items()
        for number, (first, end) in topic.bounds.items()
    ]
    return (
        session.createDataFrame(pa.Table.from_pylist(topics, _TOPICS)),
        session.createDataFrame(pa.Table.from_pylist(bounds, _BOUNDS)),
    )


def _end(written_at: str, kept_ms: str) -> Column:
    """As `KnownTopic.expires_at`."""
    end = sf.least(sf.col(written_at), sf.lit(LAST_MS)) + sf.col(kept_ms)
    return sf.when(sf.col(written_at).isNotNull() & sf.col(kept_ms).isNotNull(), sf.least(end, sf.lit(LAST_MS)))
