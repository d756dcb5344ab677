"""Derives `lineage_gaps`: where the description of an application and its use of topics differ.

- `declared_silent`: a declared use was not seen for `quiet_after_ms`.
- `used_undeclared`: a use was seen that the description at that time does not name. A partial description
  (`assignment`) has no outputs, so writes under it are no gap.
- `mismatch`: members of one application run different topologies, by the events `topology_mismatch`.

The first two hold only where the gateway sees the topic: their state is `unknown` unless it counted 95 % of the topic's
records in the last `quiet_after_ms` of the gap, as far as its hours have been reported. Internal and filled edges are
no gaps.

The consumers of a Spark query carry its name only with `groupIdPrefix`, and a description does not say whether it has
one. So its reads are compared once one of them was seen, and its writes never: its producers do not carry the name.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headgate.pipeline.derived.activity_hours import COVERAGE, EDGE, share, total
from headgate.pipeline.derived.derivation import HOUR_MS, Derivation, DerivedRun
from headgate.tables.definitions import table_named

GAPS, EDGES, APPLICATIONS, CHANGES = "lineage_gaps", "lineage_edges", "applications", "changes"
MIN_COVERAGE = 0.95
_PARTIAL = "assignment"
# A use that lasts is reported every 15 minutes, and the pipeline needs some more: until then an hour shows too little.
_REPORTED_AFTER_MS = 20 * 60_000


def derive_gaps(run: DerivedRun) -> None:
    now, quiet = settled_hours_end(run.now_ms), run.config.activity.quiet_after_ms
    edges = compared_edges(run.rows(EDGES))
    found = silent_gaps(edges, now, quiet).unionByName(undeclared_gaps(edges, run.rows(APPLICATIONS)))
    covered = with_coverage(found, run.rows(COVERAGE), now, quiet)
    columns = table_named(GAPS).columns.names
    run.replace(GAPS, covered.select(*columns).unionByName(mismatch_gaps(run.rows(CHANGES)).select(*columns)))


def compared_edges(edges: DataFrame) -> DataFrame:
    """The uses that gaps can be of: Streams applications, and reads of Spark queries that were seen by their name."""
    spark_reads = edges.where((sf.col("actor_kind") == "spark") & (sf.col("direction") == "read"))
    known = spark_reads.where("observed").select("cluster_id", "app_id").distinct()
    of_spark = spark_reads.join(known, ["cluster_id", "app_id"], "left_semi").select(*edges.columns)
    return edges.where(sf.col("actor_kind") == "streams").unionAll(of_spark).where(~sf.col("is_internal"))


def settled_hours_end(now_ms: int) -> int:
    """The end of the last hour of which all uses have been reported."""
    settled = now_ms - _REPORTED_AFTER_MS
    return settled - settled % HOUR_MS


def silent_gaps(edges: DataFrame, now_ms: int, quiet_ms: int) -> DataFrame:
    """Declared and not observed, for long enough."""
    silent = edges.where(sf.col("declared") & ~sf.col("filled") & ~sf.col("observed"))
    length = sf.coalesce("valid_to", sf.lit(now_ms)) - sf.col("valid_from")
    return _gaps(silent.where(length >= quiet_ms), "declared_silent", sf.col("valid_from"), sf.col("valid_to"))


def undeclared_gaps(edges: DataFrame, applications: DataFrame) -> DataFrame:
    """Observed and not declared, while a description of the application was there that could have named it."""
    used = edges.where(sf.col("observed") & ~sf.col("declared"))
    described = applications.select(
        "cluster_id",
        sf.col("kind").alias("actor_kind"),
        "app_id",
        (sf.col("provenance") == _PARTIAL).alias("is_partial"),
        sf.col("at").alias("from"),
        sf.col("ended_at").alias("to"),
    )
    both = used.join(described, ["cluster_id", "actor_kind", "app_id"]).where(
        (~sf.col("is_partial") | (sf.col("direction") == "read"))
        & (sf.col("to").isNull() | (sf.col("to") > sf.col("valid_from")))
        & (sf.col("valid_to").isNull() | (sf.col("valid_to") > sf.col("from")))
    )
    never = sf.lit(2**63 - 1)
    end = sf.least(sf.coalesce("valid_to", never), sf.coalesce("to", never))
    periods = both.groupBy(*EDGE, "topic_id", "valid_from").agg(
        sf.min(sf.greatest("valid_from", "from")).alias("start"), sf.max(end).alias("end")
    )
    closed = sf.when(sf.col("end") < never, sf.col("end"))
    return _gaps(periods, "used_undeclared", sf.col("start"), closed)


def _gaps(edges: DataFrame, kind: str, opened: Column, closed: Column) -> DataFrame:
    return edges.select(
        *EDGE, "topic_id", sf.lit(kind).alias("kind"), opened.alias("opened_at"), closed.alias("closed_at")
    )


def with_coverage(gaps: DataFrame, coverage: DataFrame, now_ms: int, quiet_ms: int) -> DataFrame:
    """The gaps with what the gateway saw of their topics at the end of them, and their state."""
    until = gaps.withColumn("until", sf.least(sf.col("closed_at"), sf.lit(now_ms)))
    since = sf.greatest(sf.col("opened_at"), sf.col("until") - quiet_ms)
    windows = until.withColumn("since", since - sf.pmod(since, sf.lit(HOUR_MS)))
    hours = coverage.where(sf.col("all_records") > 0).select(
        "cluster_id", "topic", "hour", "seen_records", "all_records", sf.col("coverage").isNotNull().alias("is_counted")
    )
    in_window = (sf.col("hour") >= sf.col("since")) & (sf.col("hour") < sf.col("until"))
    key = [*EDGE, "kind", "opened_at"]
    sums = (
        windows.select(*key, "since", "until")
        .join(hours, ["cluster_id", "topic"])
        .where(in_window)
        .groupBy(*key)
        .agg(
            total(sf.least("seen_records", "all_records")).alias("seen_records"),
            total("all_records").alias("all_records"),
            sf.min("is_counted").alias("is_counted"),
        )
    )
    seen = share(sf.col("seen_records"), sf.col("all_records"), sf.col("is_counted"), least=MIN_COVERAGE)
    state = sf.when(sf.coalesce(sf.col("coverage") < MIN_COVERAGE, sf.lit(True)), "unknown")
    state = state.when(sf.col("closed_at").isNull(), "open").otherwise("closed")
    return (
        windows.join(sums, key, "left")
        .withColumn("coverage", seen)
        .withColumn("state", state)
        .withColumn("detail", sf.to_json(sf.struct("seen_records", "all_records")))
    )


def mismatch_gaps(changes: DataFrame) -> DataFrame:
    """A gap for each time at which members of an application began to run different topologies."""
    names = ("state", "mismatch", "kind", "topology_count")
    fields = [sf.get_json_object("detail", f"$.{name}").alias(f"of_{name}") for name in names]
    reported = changes.where((sf.col("event") == "topology_mismatch") & (sf.col("subject_kind") == "application"))
    events = reported.select("cluster_id", sf.col("subject").alias("app_id"), "at", *fields)
    ended = sf.col("of_state") == "ended"
    last = sf.max(sf.when(~ended, sf.struct("at", "of_kind", "of_topology_count")))
    mismatches = events.groupBy("cluster_id", "app_id", "of_mismatch").agg(
        sf.min(sf.when(~ended, sf.col("at"))).alias("opened_at"),
        sf.max(sf.when(ended, sf.col("at"))).alias("closed_at"),
        last.alias("last"),
    )
    # Two workers may report the same one: what lasts longer counts.
    at_once = (
        mismatches.where(sf.col("opened_at").isNotNull())
        .groupBy("cluster_id", "app_id", "opened_at")
        .agg(
            sf.when(sf.max(sf.col("closed_at").isNull()), sf.lit(None))
            .otherwise(sf.max("closed_at"))
            .alias("closed_at"),
            sf.max("last").alias("last"),
        )
    )
    kind, count = (
        sf.col("last.of_kind").alias("kind"),
        sf.col("last.of_topology_count").try_cast("long").alias("topology_count"),
    )
    return at_once.withColumns(
        {
            "kind": sf.lit("mismatch"),
            "actor_kind": sf.lit("streams"),
            "topic": sf.lit(""),
            "topic_id": sf.lit(None).cast("string"),
            "direction": sf.lit(""),
            "state": sf.when(sf.col("closed_at").isNull(), "open").otherwise("closed"),
            "coverage": sf.lit(None).cast("double"),
            "detail": sf.to_json(sf.struct(kind, count)),
        }
    )


LINEAGE_GAPS = Derivation(
    name="gaps", sources=(EDGES, COVERAGE, APPLICATIONS, CHANGES), results=(GAPS,), derive=derive_gaps, hourly=True
)
