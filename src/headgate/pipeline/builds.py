"""How each table is made of facts: `build(facts) -> rows`, from a DataFrame of facts to the table's columns.

An appended table, of which each row is one fact, is made of the column `FACT`, all others of those of `SCHEMA`.
A build never collects and never reads a table. A column `*topic_id` of an upserted table gets the topic's name here,
and its id when it is written (`batches.TopicIds`); the facts of appended tables carry the ids themselves.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from headgate.facts import ActivityObserved, DispositionsCounted, EventHappened, Fact, GroupLagsObserved
from headgate.facts.codec import FORMS, spark_schema
from headgate.pipeline import topology_builds as topologies
from headgate.pipeline.fact_rows import DELETED, DESCRIBED, FACT, REJECTED
from headgate.pipeline.task_builds import TASK_KINDS, build_members_tasks
from headgate.tables.definitions import ORIGIN, table_named
from headgate.tables.table import Table

_KEY_CHARACTERS = 1000
_SHARE_GROUP = "share_group"
# Fields of the details of events of share groups that are columns too; a value of another type is null.
_BREAKER_DETAIL = (
    "reason string, generation long, dlq_written long, delivered long, threshold_percent int, window_ms long, "
    "resume_at long"
)


class BuildPart(NamedTuple):
    """How rows of a table are made of facts of these kinds."""

    build: Callable[[DataFrame], DataFrame]
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """The build of one table, of facts of one kind or of several."""

    table: Table
    parts: tuple[BuildPart, ...]

    @property
    def kinds(self) -> frozenset[str]:
        """The facts that the table is made of."""
        return frozenset[str]().union(*(part.kinds for part in self.parts))

    @property
    def fact(self) -> type[Fact]:
        """The fact of an appended table."""
        (form,) = (form for form in FORMS if form.cls.__name__ in self.kinds)
        return form.cls

    def rows(self, facts: DataFrame, kinds: Collection[str] | None = None) -> DataFrame:
        """The rows with exactly the table's columns, in their order; `kinds` are those of the facts, if they are known.

        A part that has no facts is left out: Spark would plan and run it all the same.
        """
        parts = [part for part in self.parts if kinds is None or not part.kinds.isdisjoint(kinds)]
        rows = (part.build(facts).select(*self.table.columns.names) for part in parts)
        return reduce(DataFrame.unionAll, rows)


def build_activity_intervals(facts: DataFrame) -> DataFrame:
    return _fact_columns(facts, table_named("activity_intervals"))


def build_dispositions(facts: DataFrame) -> DataFrame:
    rows = _fact_columns(facts, table_named("dispositions"))
    return rows.withColumn("by_delivery_count", sf.to_json("by_delivery_count"))


def _fact_columns(facts: DataFrame, table: Table) -> DataFrame:
    """A row for each fact; a fact without an origin is identified by its place in the topic."""
    writer, boot, seq = (sf.col(f"{FACT}.{column.name}") for column in ORIGIN)
    return facts.select(
        "cluster_id",
        sf.coalesce(writer, sf.lit("")).alias("writer"),
        sf.coalesce(boot, sf.concat_ws("/", "topic", "partition")).alias("boot"),
        sf.coalesce(seq, "offset").alias("seq"),
        "at",
        sf.lit(False).alias("is_historic"),
        *(sf.col(f"{FACT}.{path}").alias(column.name) for path, column in table.facts.items()),
    )


def build_group_lags(facts: DataFrame) -> DataFrame:
    """A row for each partition in the parallel lists of a fact; what has no partition beside it is left out."""
    lists = {"partition": "partitions", "committed": "committed", "end": "ends", "lag": "lags"}
    flat = facts.select(
        "cluster_id",
        *(sf.col(f"{FACT}.{name}").alias(name) for name in ("group", "kind", "topic", "topic_id")),
        "at",
        *(sf.col(f"{FACT}.{path}").alias(column) for column, path in lists.items()),
    )
    zipped = flat.withColumn("item", sf.explode(sf.arrays_zip(*lists)))
    return (
        zipped.drop(*lists)
        .select("*", "item.*", sf.lit(False).alias("is_historic"))
        .where(sf.col("partition").isNotNull())
    )


def build_rejected_facts(facts: DataFrame) -> DataFrame:
    return (
        facts.where(sf.col("kind") == REJECTED)
        .withColumn("at", sf.col("recorded_at"))
        .withColumn("key", sf.substring("key", 1, _KEY_CHARACTERS))
        .withColumn("topic_id", sf.col("topic"))
        .withColumn("is_historic", sf.lit(False))
    )


def build_topology_changes(facts: DataFrame) -> DataFrame:
    return _as_changes(topologies.topology_changes(facts))


def build_event_changes(facts: DataFrame) -> DataFrame:
    return _as_changes(_events(facts))


def _as_changes(rows: DataFrame) -> DataFrame:
    return rows.withColumn("topic_id", sf.col("topic")).withColumn("is_historic", sf.lit(False))


def _events(facts: DataFrame) -> DataFrame:
    """One row for each id, from the last copy: a later batch would leave that one too."""
    happened = facts.where(sf.col("kind") == EventHappened.__name__)
    of_id = Window.partitionBy("cluster_id", "event_id").orderBy(sf.desc("offset"), sf.desc("partition"))
    own = ("event", "subject_kind", "subject", "by", "detail")
    return (
        happened.withColumn("fact", sf.from_json("fields", spark_schema(EventHappened)))
        .select(
            "cluster_id",
            sf.col("fact.id").alias("event_id"),
            *(f"fact.{name}" for name in own),
            *("topic", "partition", "offset", "at"),
        )
        .withColumn("copy", sf.row_number().over(of_id))
        .where(sf.col("copy") == 1)
        .drop("copy")
    )


def build_breaker_events(facts: DataFrame) -> DataFrame:
    """The events of share groups, with the fields of their details that the breaker writes."""
    return (
        _events(facts)
        .where(sf.col("subject_kind") == _SHARE_GROUP)
        .withColumn("of_detail", sf.from_json("detail", _BREAKER_DETAIL))
        .select(
            *("cluster_id", "event_id", sf.col("subject").alias("group"), "event", "by", "detail", "at"),
            "of_detail.*",
            sf.lit(False).alias("is_historic"),
        )
    )


def _part(build: Callable[[DataFrame], DataFrame], *kinds: str) -> BuildPart:
    return BuildPart(build, frozenset(kinds))


_TOPOLOGY = (DESCRIBED, DELETED)
_EVENT = EventHappened.__name__
_BUILDS: dict[str, tuple[BuildPart, ...]] = {
    "activity_intervals": (_part(build_activity_intervals, ActivityObserved.__name__),),
    "app_io": (_part(topologies.build_app_io, *_TOPOLOGY),),
    "applications": (_part(topologies.build_applications, *_TOPOLOGY),),
    "breaker_events": (_part(build_breaker_events, _EVENT),),
    "changes": (_part(build_topology_changes, *_TOPOLOGY), _part(build_event_changes, _EVENT)),
    "dispositions": (_part(build_dispositions, DispositionsCounted.__name__),),
    "group_lags": (_part(build_group_lags, GroupLagsObserved.__name__),),
    "members_tasks": (_part(build_members_tasks, *TASK_KINDS),),
    "rejected_facts": (_part(build_rejected_facts, REJECTED),),
    "topology_edges": (_part(topologies.build_topology_edges, *_TOPOLOGY),),
    "topology_nodes": (_part(topologies.build_topology_nodes, *_TOPOLOGY),),
    "topology_versions": (_part(topologies.build_topology_versions, *_TOPOLOGY),),
}
BUILDS = {name: Build(table=table_named(name), parts=parts) for name, parts in _BUILDS.items()}
