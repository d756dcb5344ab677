"""Builds of the tables that are made of topology descriptions, from facts with their validity.

Validity is in offset order: a version is valid from its fact to the group's next fact about topologies that is not
*outranked*: a partial description (`assignment`) does not end one that was pushed or is Spark's, and a pasted one ends
neither. An outranked version is valid at no offset. A fact of an earlier batch that this batch ends is among the facts
again (`earlier`), so that its rows are written with their end.
The rows of a description come from the pure functions of `topologies.model`, which run on Spark's workers.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headgate.facts.topology import Description
from headgate.pipeline.fact_rows import DELETED, DESCRIBED, parse_description, utf8_text
from headgate.topologies.model.topology_graph import TopicPair, app_io, edge_rows, element_changes, node_rows

_VERSION = ("cluster_id", "name", "incarnation", "epoch", "hash", "provenance")
# Columns that all rows of a version share.
_SHARED = (
    *("cluster_id", "app_id", "incarnation", "epoch", "hash", "provenance"),
    *("valid_from", "valid_to", "at", "ended_at", "is_historic"),
)
# What is known of a running application before what a build has made, and whole descriptions before partial ones.
_RANKS = (("pushed", 3), ("spark", 3), ("assignment", 2), ("pasted", 1))
_SIZES = "subtopologies array<struct<nodes:array<string>>>, global_stores array<string>"
_MAX_LISTED_CHANGES = 100

DescriptionRows = Callable[[Description, str], Iterable[tuple[str | bool | None, ...]]]


def add_validity(facts: DataFrame) -> DataFrame:
    """Add `valid_from`, `valid_to` and `ended_at`, for topologies, `outranked`, and `last`: a version's last fact here.

    `valid_to` of an outranked fact is its own offset.
    """
    is_topology = sf.col("kind").isin(DESCRIBED, DELETED)
    of_app = Window.partitionBy("topic", is_topology, "cluster_id", "name").orderBy("offset")
    of_life = Window.partitionBy("topic", is_topology, "cluster_id", "name", "deletions").orderBy("offset")
    own_key = sf.when(sf.col("kind") != DESCRIBED, sf.concat_ws("/", "partition", "key"))
    of_version = Window.partitionBy("topic", "kind", *_VERSION, own_key)
    is_described = sf.col("kind") == DESCRIBED
    rank = sf.when(is_described, sf.coalesce(*(sf.when(sf.col("provenance") == name, at) for name, at in _RANKS)))
    highest_before = sf.max("rank").over(of_life.rowsBetween(Window.unboundedPreceding, -1))

    def end(column: str) -> Column:
        """The value in the fact that ends a version: the next one that is not outranked."""
        after = of_app.rowsBetween(1, Window.unboundedFollowing)
        following = sf.first(sf.when(~sf.col("outranked"), sf.col(column)), ignorenulls=True).over(after)
        return sf.when(is_topology, sf.when(sf.col("outranked"), sf.col(column)).otherwise(following))

    return (
        facts.withColumn("deletions", sf.sum((sf.col("kind") == DELETED).cast("int")).over(of_app))
        .withColumn("rank", rank)
        .withColumn("outranked", sf.coalesce(sf.col("rank") < highest_before, sf.lit(False)))
        .withColumn("valid_from", sf.when(is_topology, sf.col("offset")))
        .withColumn("valid_to", end("offset"))
        .withColumn("ended_at", end("at"))
        .withColumn("last", sf.col("offset") == sf.max("offset").over(of_version))
        .drop("deletions", "rank")
    )


def without_validity(facts: DataFrame) -> DataFrame:
    """The same columns for facts of which none is about a topology: there is nothing to find."""
    nothing = sf.lit(None).cast("long")
    return facts.withColumns(
        {
            "outranked": sf.lit(False),
            "valid_from": nothing,
            "valid_to": nothing,
            "ended_at": nothing,
            "last": sf.lit(True),
        }
    )


def build_applications(facts: DataFrame) -> DataFrame:
    """A row from each description that became current to the fact that ends it."""
    described = facts.where((sf.col("kind") == DESCRIBED) & ~sf.col("outranked"))
    return (
        described.withColumn("app_id", sf.col("name"))
        .withColumn("kind", sf.when(sf.col("provenance") == "spark", "spark").otherwise("streams"))
        .withColumn("is_historic", sf.lit(False))
    )


def build_topology_versions(facts: DataFrame) -> DataFrame:
    """A row for each version, from its last fact, with its sizes."""
    sizes = sf.from_json("description", _SIZES)
    of_subtopologies = sf.aggregate(sizes["subtopologies"], sf.lit(0), lambda total, one: total + sf.size(one["nodes"]))
    return (
        _versions(facts)
        .withColumn("subtopologies", sf.size(sizes["subtopologies"]))
        .withColumn("global_stores", sf.size(sizes["global_stores"]))
        # A global store is one source and one processor.
        .withColumn("nodes", of_subtopologies + 2 * sf.size(sizes["global_stores"]))
    )


def build_topology_nodes(facts: DataFrame) -> DataFrame:
    texts = ("kind", "node", "subtopology", "pattern")
    rows = _description_rows(facts, node_rows, texts=texts, flags=("is_internal", "is_global"))
    return rows.withColumn("topic_id", sf.when(sf.col("kind") == "topic", sf.col("node")))


def build_topology_edges(facts: DataFrame) -> DataFrame:
    texts = ("from_kind", "from_node", "to_kind", "to_node")
    rows = _description_rows(facts, edge_rows, texts=texts, flags=("is_internal",))
    at_one_end = sf.when(sf.col("from_kind") == "topic", sf.col("from_node")).when(
        sf.col("to_kind") == "topic", sf.col("to_node")
    )
    return rows.withColumn("topic_id", at_one_end)


def build_app_io(facts: DataFrame) -> DataFrame:
    rows = _description_rows(facts, _pairs, texts=("component", "in_topic", "out_topic"))
    return rows.withColumns({"in_topic_id": sf.col("in_topic"), "out_topic_id": sf.col("out_topic")})


def _pairs(description: Description, application: str) -> tuple[TopicPair, ...]:
    return app_io(description, application).pairs


def _versions(facts: DataFrame) -> DataFrame:
    described = facts.where((sf.col("kind") == DESCRIBED) & sf.col("last"))
    return described.withColumn("app_id", sf.col("name")).withColumn("is_historic", sf.lit(False))


def _description_rows(
    facts: DataFrame, rows: DescriptionRows, *, texts: tuple[str, ...], flags: tuple[str, ...] = ()
) -> DataFrame:
    """A row for each tuple that `rows(description, app_id)` returns: first the `texts`, then the `flags`."""
    shared = _versions(facts).select(*_SHARED, "description")
    fields = [(name, pa.string()) for name in texts] + [(name, pa.bool_()) for name in flags]
    schema = StructType([*shared.drop("description").schema, *from_arrow_schema(pa.schema(fields))])

    def expand(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts: list[int] = []
            found: list[tuple[str | bool | None, ...]] = []
            for app, description in zip(batch["app_id"].to_pylist(), batch["description"].to_pylist(), strict=True):
                made = tuple(rows(parse_description(description), app))
                counts.append(len(made))
                found += made
            repeated = pa.array([row for row, count in enumerate(counts) for _ in range(count)], pa.int64())
            table = pa.Table.from_batches([batch.drop_columns(["description"])]).take(repeated)
            for place, (name, kind) in enumerate(fields):
                values = (row[place] for row in found)
                utf8 = [utf8_text(value) if isinstance(value, str) else value for value in values]
                table = table.append_column(name, pa.array(utf8, kind))
            yield from table.to_batches()

    return shared.mapInArrow(expand, schema)


def topology_changes(facts: DataFrame) -> DataFrame:
    """Rows of `changes`: topologies that were added, changed and removed.

    A description with the content of the one before it is not a change, whatever its origin; an outranked one is none.
    """
    of_app = Window.partitionBy("cluster_id", "name").orderBy("offset")
    of_current = sf.col("kind").isin(DESCRIBED, DELETED) & ~sf.col("outranked")
    with_before = facts.where(of_current).withColumns(
        {"before": sf.lag("description").over(of_app), "hash_before": sf.lag("hash").over(of_app)}
    )
    changed = with_before.where(~sf.col("earlier") & ~sf.col("hash").eqNullSafe(sf.col("hash_before")))
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
        *("topic", "partition", "offset", "at", "before"),
        sf.col("description").alias("after"),
    )
    return rows.mapInArrow(_add_detail, rows.drop("before", "after").schema.add("detail", "string"))


def _add_detail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sides = zip(batch["before"].to_pylist(), batch["after"].to_pylist(), strict=True)
        details = pa.array([_detail(before, after) for before, after in sides], pa.string())
        yield batch.drop_columns(["before", "after"]).append_column("detail", details)


def _detail(before: str | None, after: str | None) -> str:
    """The counts of all changes, and the first of them."""
    changes = element_changes(
        None if before is None else parse_description(before), None if after is None else parse_description(after)
    )
    counts = Counter(change.change for change in changes)
    listed = [change._asdict() for change in changes[:_MAX_LISTED_CHANGES]]
    # Escaped, for names that are not UTF-8.
    return json.dumps({"counts": dict(sorted(counts.items())), "changes": listed}, separators=(",", ":"))
