"""changes: topologies that came, changed and went, and the facts of `events`.

A description that says what the one before it said is no change, whoever told it. What changed is listed up to a
bound; the counts are whole.
"""

import json
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from headgate.facts import EventHappened
from headgate.pipeline.parsing import DELETED, DESCRIBED, description_of
from headgate.topologies.model.topology_graph import element_changes

KINDS = (DESCRIBED, DELETED, EventHappened.__name__)
_MOST_LISTED = 100


def build(facts: DataFrame) -> DataFrame:
    rows = _of_topologies(facts).unionByName(_of_events(facts))
    return rows.withColumn("topic_id", sf.col("topic")).withColumn("is_historic", sf.lit(False))


def _of_events(facts: DataFrame) -> DataFrame:
    """Once for each id: of copies the last, which is the one that a later batch would leave."""
    happened = facts.where(sf.col("kind") == EventHappened.__name__)
    of_id = Window.partitionBy("cluster_id", "event_id").orderBy(sf.desc("offset"), sf.desc("partition"))
    field = {
        name: sf.get_json_object("fields", f"$.{name}") for name in ("id", "event", "subject_kind", "by", "detail")
    }
    return (
        happened.select(
            "cluster_id",
            field["id"].alias("event_id"),
            field["event"].alias("event"),
            field["subject_kind"].alias("subject_kind"),
            sf.col("name").alias("subject"),
            field["by"].alias("by"),
            field["detail"].alias("detail"),
            "topic",
            "partition",
            "offset",
            "at",
        )
        .withColumn("copy", sf.row_number().over(of_id))
        .where(sf.col("copy") == 1)
        .drop("copy")
    )


def _of_topologies(facts: DataFrame) -> DataFrame:
    of_app = Window.partitionBy("cluster_id", "name").orderBy("offset")
    told = facts.where(sf.col("kind").isin(DESCRIBED, DELETED)).withColumns(
        {"before": sf.lag("description").over(of_app), "hash_before": sf.lag("hash").over(of_app)}
    )
    changed = told.where(~sf.col("earlier") & ~sf.col("hash").eqNullSafe(sf.col("hash_before")))
    event = (
        sf.when(sf.col("kind") == DELETED, "topology_removed")
        .when(sf.col("before").isNull(), "topology_added")
        .otherwise("topology_changed")
    )
    rows = changed.select(
        "cluster_id",
        sf.concat_ws("/", "topic", "partition", "offset").alias("event_id"),
        event.alias("event"),
        sf.lit("application").alias("subject_kind"),
        sf.col("name").alias("subject"),
        sf.lit(None).cast("string").alias("by"),
        "topic",
        "partition",
        "offset",
        "at",
        "before",
        sf.col("description").alias("after"),
    )
    schema = rows.drop("before", "after").schema.add("detail", "string")
    return rows.mapInArrow(_detailed, schema)


def _detailed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sides = zip(batch["before"].to_pylist(), batch["after"].to_pylist(), strict=True)
        details = pa.array([_detail(before, after) for before, after in sides], pa.string())
        yield batch.drop_columns(["before", "after"]).append_column("detail", details)


def _detail(before: str | None, after: str | None) -> str:
    changes = element_changes(
        None if before is None else description_of(before), None if after is None else description_of(after)
    )
    counts = Counter(change.change for change in changes)
    listed = [change._asdict() for change in changes[:_MOST_LISTED]]
    # Escaped, so that a name that is no UTF-8 passes.
    return json.dumps({"counts": dict(sorted(counts.items())), "changes": listed}, separators=(",", ":"))
