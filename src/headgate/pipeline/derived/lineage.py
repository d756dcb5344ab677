"""Derives who uses which topics: `client_identities`, `topic_coverage`, `activity_hours` and `lineage_edges`.

Most intervals continue an edge that is observed: then only its last use and the sums of its last day change, and these
come from the last hours. History is read again only for edges that are new, that paused, whose facts came late, whose
silence is long, or whose application has another description.
"""

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.lineage.edge_periods import first_hour_of_day
from headgate.pipeline.derived.activity_hours import (
    COVERAGE,
    EDGE,
    HOURS,
    IDENTITIES,
    INTERVALS,
    touched_hours,
    uses,
    with_hours,
    write_hours,
    write_identities,
)
from headgate.pipeline.derived.dead_letter_edges import dead_letter_hours, dead_letter_periods
from headgate.pipeline.derived.derivation import COMPILED_FROM, Derivation, DerivedRun
from headgate.pipeline.derived.edge_frames import (
    application_periods,
    day_sums,
    declared_periods,
    lineage_rows,
    open_ended_periods,
)
from headgate.pipeline.session import set_compiling
from headgate.tables.definitions import table_named

EDGES = "lineage_edges"
TOPOLOGIES = ("applications", "topology_edges", "topology_nodes")
EVENTS, RATES = "breaker_events", "dlq_rates_hourly"
_APPLICATION = ("cluster_id", "app_id")
_DESCRIBED = ("streams", "spark")  # kinds of actors
# Up to this many, new intervals are looked at one by one; more of them touch nearly all topics of their hours.
_FEW = 100_000


def derive_lineage(run: DerivedRun) -> None:
    try:
        _derive(run)
    finally:
        set_compiling(run.session, is_on=False)  # other derivations share the session


def _derive(run: DerivedRun) -> None:
    changed = run.changed_rows(INTERVALS)
    new = with_hours(run.rows(INTERVALS) if changed is None else changed)
    if run.has_changed(INTERVALS):
        # Small plans are over before they would be compiled (`session.py`).
        set_compiling(run.session, is_on=changed is None and run.row_count(INTERVALS) >= COMPILED_FROM)
        touched = touched_hours(run, new)
        rows = sum(touched.values())
        set_compiling(run.session, is_on=rows >= COMPILED_FROM)
        write_identities(run, new)
        write_hours(run, touched, None if changed is None or rows > _FEW else new)
    everything = run.is_full or changed is None
    _write_edges(run, None if everything else new)
    run.record()


def _write_edges(run: DerivedRun, new: DataFrame | None) -> None:
    """Write all edges anew, or those that `new` intervals, other descriptions and the time may have changed."""
    hours = run.stored(HOURS)
    apps = None if new is None else _changed_applications(run)
    configured = _dead_letter_topics(run)
    if new is None or apps is None:
        run.replace(EDGES, _edges(run, hours, configured, None))
        return
    stored = run.stored(EDGES)
    used = _used_edges(run, new, hours).toArrow()
    current = _current_edges(run, stored, used)
    is_irregular = irregular_edges(current, now_ms=run.now_ms, quiet_ms=run.config.activity.quiet_after_ms)
    parts = [current.filter(is_irregular), _new_edges(used, current), *_edges_of_applications(run, apps, stored, hours)]
    if configured is not None:  # few, and their hours are not among those of the last day's sums
        to_dead_letters = stored.where((sf.col("actor_kind") == "share_group") & (sf.col("direction") == "write"))
        parts += [edges.select(*EDGE).toArrow() for edges in (to_dead_letters, configured)]
    touched = _distinct_edges(parts)
    if touched.num_rows:
        run.replace(EDGES, _edges(run, hours, configured, touched), within=touched, is_last=False)
    others = current.join(touched, list(EDGE), join_type="left anti")
    if others.num_rows:
        others = _with_sums(run, others, hours).toArrow()
    others = others.select(table_named(EDGES).columns.names)
    run.replace(EDGES, others, within=others.select([*EDGE, "valid_from"]))


def _dead_letter_topics(run: DerivedRun) -> DataFrame | None:
    """The dead-letter topics in configs of share groups, in memory, because they are few; None without one."""
    found = dead_letter_periods(run.rows(EVENTS)).toArrow() if run.row_count(EVENTS) else None
    return None if found is None or not found.num_rows else run.session.createDataFrame(found)


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


def _used_edges(run: DerivedRun, new: DataFrame, hours: DataFrame) -> DataFrame:
    """Edges whose last use or last day may be another: new uses from `first` to `last`, or hours that left the day."""
    used = uses(new).groupBy(*EDGE).agg(sf.min("since").alias("first"), sf.max("until").alias("last"))
    first, before = (first_hour_of_day(time) for time in (run.now_ms, run.made_in_hour_ms))
    if first == before:
        return used
    left = hours.where(sf.col("hour").between(before, first - 1)).select(*EDGE).distinct()
    return used.join(left, list(EDGE), "full")


def _current_edges(run: DerivedRun, stored: DataFrame, used: pa.Table) -> pa.Table:
    """The rows that are observed and valid, of edges that are used or have been silent for long."""
    quiet = run.config.activity.quiet_after_ms
    current = stored.where(sf.col("observed") & sf.col("valid_to").isNull())
    known = sf.broadcast(run.session.createDataFrame(used).withColumn("is_used", sf.lit(True)))
    found = current.join(known, list(EDGE), "left")
    return found.where(sf.col("is_used") | (sf.col("last_seen") + quiet < run.now_ms)).drop("is_used").toArrow()


def irregular_edges(current: pa.Table, *, now_ms: int, quiet_ms: int) -> pa.Array:
    """Whether the uses of an edge do not just continue it, or it has been silent for long."""
    first, last, seen = (current[name] for name in ("first", "last", "last_seen"))
    # The last use of an edge that just continues comes from the sums of the last day.
    since = pc.max_element_wise(current["valid_from"], pc.subtract(seen, quiet_ms), first_hour_of_day(now_ms))
    is_late, is_after_pause = pc.less(first, since), pc.greater(first, pc.add(seen, quiet_ms))
    is_silent = pc.less(pc.add(pc.max_element_wise(seen, last), quiet_ms), now_ms)
    return reduce(pc.or_, (pc.fill_null(one, False) for one in (is_late, is_after_pause, is_silent)))


def _new_edges(used: pa.Table, current: pa.Table) -> pa.Table:
    """Edges with uses that are not observed yet, or not any more."""
    with_uses = used.filter(pc.is_valid(used["first"]))
    return with_uses.join(current.select(list(EDGE)), list(EDGE), join_type="left anti")


def _distinct_edges(parts: Sequence[pa.Table]) -> pa.Table:
    columns = pa.schema([(name, pa.string()) for name in EDGE])
    every = pa.concat_tables([part.select(list(EDGE)).cast(columns) for part in parts])
    return every.group_by(list(EDGE)).aggregate([])


def _edges_of_applications(
    run: DerivedRun, apps: DataFrame, stored: DataFrame, hours: DataFrame
) -> tuple[pa.Table, ...]:
    """All edges of these applications: stored, declared and observed ones."""
    if not any(run.has_changed(source) for source in TOPOLOGIES):
        return ()
    periods = application_periods(run.rows("applications").join(apps, list(_APPLICATION), "left_semi"))
    of_apps = (
        edges.where(sf.col("actor_kind").isin(*_DESCRIBED)).join(apps, list(_APPLICATION), "left_semi")
        for edges in (stored, hours)
    )
    declared = declared_periods(periods, run.rows("topology_edges"))
    every = reduce(DataFrame.union, (edges.select(*EDGE) for edges in (declared, *of_apps)))
    return (every.distinct().toArrow(),)


def _edges(run: DerivedRun, hours: DataFrame, configured: DataFrame | None, touched: pa.Table | None) -> DataFrame:
    """The rows of all edges, or of those that are touched; `configured` are the dead-letter topics of share groups."""
    applications = run.rows("applications")
    only = None if touched is None else sf.broadcast(run.session.createDataFrame(touched))
    if only is not None:
        apps = only.where(sf.col("actor_kind").isin(*_DESCRIBED)).select(*_APPLICATION)
        applications = applications.join(sf.broadcast(apps), list(_APPLICATION), "left_semi")
    periods = application_periods(applications)
    edges = run.rows("topology_edges")
    declared = declared_periods(periods, edges)
    if configured is not None:
        hours = hours.unionByName(dead_letter_hours(configured, run.rows(RATES)))
        declared = declared.unionByName(configured)
    if only is not None:
        hours = hours.join(only, list(EDGE), "left_semi")
        declared = declared.join(only, list(EDGE), "left_semi")
    has_apps = touched is None or pc.any(pc.is_in(touched["actor_kind"], pa.array(_DESCRIBED))).as_py()
    open_ended = open_ended_periods(periods, run.rows("topology_nodes"), edges) if has_apps else {}
    return lineage_rows(hours, declared, open_ended, now_ms=run.now_ms, quiet_ms=run.config.activity.quiet_after_ms)


def _with_sums(run: DerivedRun, current: pa.Table, hours: DataFrame) -> DataFrame:
    """Rows that are observed and valid, with the sums of the last day and their last use."""
    rows = sf.broadcast(run.session.createDataFrame(current))
    sums = day_sums(hours.join(rows.select(*EDGE), list(EDGE), "left_semi"), run.now_ms)
    joined = rows.drop("bytes_day", "records_day").join(sums, list(EDGE), "left")
    return joined.withColumns(
        {"bytes_day": sf.coalesce("bytes_day", sf.lit(0)), "last_seen": sf.greatest("last_seen", "last_use")}
    )


LINEAGE = Derivation(
    name="lineage",
    sources=(INTERVALS, *TOPOLOGIES, EVENTS, RATES),
    results=(IDENTITIES, COVERAGE, HOURS, EDGES),
    derive=derive_lineage,
    hourly=True,
    minutes=5,
)
