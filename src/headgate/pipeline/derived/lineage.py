"""Derives who uses which topics: `client_identities`, `topic_coverage`, `activity_hours` and `lineage_edges`.

Most intervals continue an edge that is observed: then only its last use and the sums of its last day change, and these
come from the last hours. History is read again only for edges that are new, that paused, whose facts came late, whose
silence is long, or whose application has another description.
"""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.pipeline.derived.activity_hours import (
    COVERAGE,
    EDGE,
    HOURS,
    IDENTITIES,
    INTERVALS,
    uses,
    with_hours,
    write_hours,
    write_identities,
)
from headgate.pipeline.derived.dead_letter_edges import dead_letter_hours, dead_letter_periods
from headgate.pipeline.derived.derivation import Derivation, DerivedRun
from headgate.pipeline.derived.edge_frames import (
    application_periods,
    day_sums,
    declared_periods,
    lineage_rows,
    open_ended_periods,
)
from headgate.pipeline.derived.edge_periods import first_hour_of_day
from headgate.pipeline.session import set_compiling
from headgate.tables.definitions import table_named

EDGES = "lineage_edges"
TOPOLOGIES = ("applications", "topology_edges", "topology_nodes")
EVENTS, RATES = "breaker_events", "dlq_rates_hourly"
_APPLICATION = ("cluster_id", "app_id")
# From this many rows on compiling the plans pays, as in the append query.
_COMPILED_FROM = 200_000


def derive_lineage(run: DerivedRun) -> None:
    # Small plans are over before they would be compiled (`session.py`), and other derivations share the session.
    set_compiling(run.session, is_on=run.row_count(INTERVALS) >= _COMPILED_FROM)
    try:
        _derive(run)
    finally:
        set_compiling(run.session, is_on=False)


def _derive(run: DerivedRun) -> None:
    changed = run.changed_rows(INTERVALS)
    new = with_hours(run.rows(INTERVALS) if changed is None else changed)
    if run.has_changed(INTERVALS):
        write_identities(run, new)
        write_hours(run, new)
    everything = run.is_full or changed is None
    _write_edges(run, None if everything else new)
    run.record()


def _write_edges(run: DerivedRun, new: DataFrame | None) -> None:
    """Write all edges anew, or with `new` intervals those that they touch, and the last day of all others."""
    hours = run.stored(HOURS)
    sums = day_sums(hours, run.now_ms)
    apps = None if new is None else _changed_applications(run)
    # In memory, because there are few; None while there are no events at all.
    configured = None
    if run.row_count(EVENTS):
        configured = run.session.createDataFrame(dead_letter_periods(run.rows(EVENTS)).toArrow())
    if new is None or apps is None:
        run.replace(EDGES, _edges(run, hours, configured, None))
        return
    stored = run.stored(EDGES)
    current = stored.where(sf.col("observed") & sf.col("valid_to").isNull())
    parts = [_irregular_edges(run, current, new), *_edges_of_applications(run, apps, stored, hours)]
    if configured is not None:  # few, and their hours are not among those of the last day's sums
        to_dead_letters = stored.where((sf.col("actor_kind") == "share_group") & (sf.col("direction") == "write"))
        parts += [edges.select(*EDGE) for edges in (to_dead_letters, configured)]
    touched = reduce(DataFrame.union, parts).distinct().persist()
    try:
        within = touched.toArrow()
        if within.num_rows:
            run.replace(EDGES, _edges(run, hours, configured, touched), within=within, is_last=False)
        others = _with_sums(current.join(touched, list(EDGE), "left_anti"), sums).toArrow()
    finally:
        touched.unpersist()
    run.replace(EDGES, others, within=others.select([*EDGE, "valid_from"]))


def _changed_applications(run: DerivedRun) -> DataFrame | None:
    """The applications whose descriptions have changed, and perhaps others; None: all of them."""
    found = run.rows("applications").select(*_APPLICATION).limit(0)
    for source in TOPOLOGIES:
        if run.has_changed(source):
            changed = run.changed_rows(source)
            if changed is None:
                return None
            found = found.union(changed.select(*_APPLICATION))
    return found.distinct()


def _irregular_edges(run: DerivedRun, current: DataFrame, new: DataFrame) -> DataFrame:
    """Edges with uses that do not just continue them, and those that have been silent for long."""
    quiet = run.config.activity.quiet_after_ms
    used = uses(new).groupBy(*EDGE).agg(sf.min("since").alias("first"), sf.max("until").alias("last"))
    known = current.select(*EDGE, "valid_from", "last_seen")
    both = used.join(known, list(EDGE), "full")
    # The last use of an edge that just continues comes from the sums of the last day.
    day = sf.lit(first_hour_of_day(run.now_ms))
    is_late = sf.col("first") < sf.greatest(sf.col("valid_from"), sf.col("last_seen") - quiet, day)
    is_after_pause = sf.col("first") > sf.col("last_seen") + quiet
    is_silent = sf.greatest("last_seen", "last") + quiet < run.now_ms
    is_irregular = sf.col("valid_from").isNull() | is_late | is_after_pause | is_silent
    return both.where(sf.coalesce(is_irregular, sf.lit(False))).select(*EDGE)


def _edges_of_applications(
    run: DerivedRun, apps: DataFrame, stored: DataFrame, hours: DataFrame
) -> tuple[DataFrame, ...]:
    """All edges of these applications: stored, declared and observed ones."""
    if not any(run.has_changed(source) for source in TOPOLOGIES):
        return ()
    periods = application_periods(run.rows("applications").join(apps, list(_APPLICATION), "left_semi"))
    of_apps = (
        edges.where(sf.col("actor_kind").isin("streams", "spark")).join(apps, list(_APPLICATION), "left_semi")
        for edges in (stored, hours)
    )
    declared = declared_periods(periods, run.rows("topology_edges"))
    return tuple(edges.select(*EDGE) for edges in (declared, *of_apps))


def _edges(run: DerivedRun, hours: DataFrame, configured: DataFrame | None, touched: DataFrame | None) -> DataFrame:
    """The rows of all edges, or of those that are touched; `configured` are the dead-letter topics of share groups."""
    applications = run.rows("applications")
    if touched is not None:
        apps = touched.select(*_APPLICATION).distinct()
        applications = applications.join(apps, list(_APPLICATION), "left_semi")
    periods = application_periods(applications)
    edges = run.rows("topology_edges")
    declared = declared_periods(periods, edges)
    if configured is not None:
        hours = hours.unionByName(dead_letter_hours(configured, run.rows(RATES)))
        declared = declared.unionByName(configured)
    if touched is not None:
        hours = hours.join(touched, list(EDGE), "left_semi")
        declared = declared.join(touched, list(EDGE), "left_semi")
    open_ended = open_ended_periods(periods, run.rows("topology_nodes"), edges)
    return lineage_rows(hours, declared, open_ended, now_ms=run.now_ms, quiet_ms=run.config.activity.quiet_after_ms)


def _with_sums(current: DataFrame, sums: DataFrame) -> DataFrame:
    """Rows that are observed and valid, with the sums of the last day and their last use."""
    joined = current.drop("bytes_day", "records_day").join(sums, list(EDGE), "left")
    return joined.withColumns(
        {"bytes_day": sf.coalesce("bytes_day", sf.lit(0)), "last_seen": sf.greatest("last_seen", "last_use")}
    ).select(*table_named(EDGES).columns.names)


LINEAGE = Derivation(
    name="lineage",
    sources=(INTERVALS, *TOPOLOGIES, EVENTS, RATES),
    results=(IDENTITIES, COVERAGE, HOURS, EDGES),
    derive=derive_lineage,
    hourly=True,
    minutes=5,
)
