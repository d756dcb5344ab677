"""What changed in the 30 minutes before a trip: functions from trips and tables to the rows of `breaker_causes`.

A trip is about the topics of which its group disposed records in these minutes. Changes of the group itself count, and
changes of what writes these topics. Only facts that were written by an hour after the trip count, so that the causes of
an older trip stay as they are, whenever they are computed.
"""

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from headgate.pipeline.derived.activity_hours import total

MINUTE_MS = 60_000
WINDOW_MS = 30 * MINUTE_MS
WRITTEN_WITHIN_MS = 60 * MINUTE_MS
MAX_CAUSES = 100
# A member of a share group is new when it was not seen for a day. Its id is another after each join.
MEMBER_SEEN_MS = 24 * 60 * MINUTE_MS
# A member that acknowledged nothing for so long before the trip may have left; nothing says so for share groups.
SILENT_MS = 5 * MINUTE_MS
# A time beyond the year 9999 is an error of its writer.
_LAST_MS = 253_402_300_799_000
# Applications that feed the topic through this many others are still related.
MAX_DEPTH = 3
# A lag that does not change is written again after at most an hour, and the poll may be late.
LAG_KNOWN_MS = 65 * MINUTE_MS
# A lag that has doubled, by so many records at least, is one that grew: that of a batch in progress is less.
LAG_GROWTH = 100

TRIPPED = "tripped"  # the event
HIGH, MEDIUM, LOW = "high", "medium", "low"
_TRIP = ("cluster_id", "event_id", "group", "tripped_at")
_VERSION = ("cluster_id", "app_id", "incarnation", "epoch", "hash", "provenance")


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseSources:
    """The tables from which causes are found."""

    activity: DataFrame
    breaker_events: DataFrame
    changes: DataFrame
    dispositions: DataFrame
    group_lags: DataFrame
    members_tasks: DataFrame


def trips_of(breaker_events: DataFrame) -> DataFrame:
    """The trips among the events of groups."""
    tripped = breaker_events.where((sf.col("event") == TRIPPED) & sf.col("at").between(MEMBER_SEEN_MS, _LAST_MS))
    return tripped.select("cluster_id", "event_id", "group", sf.col("at").alias("tripped_at"))


def trip_causes(trips: DataFrame, topics: DataFrame, writers: DataFrame, sources: CauseSources) -> DataFrame:
    """The rows of `breaker_causes` for these trips: what is likely first, then what happened last.

    `topics` are those of `source_topics`, and `writers` those of `upstream_writers`.
    """
    candidates = [
        _group_events(trips, sources.breaker_events),
        _group_members(trips, sources.dispositions),
        _topologies(writers, sources.changes),
        _streams_members(writers, sources.members_tasks),
        _new_users(topics, sources.activity),
        _grown_lags(trips, writers, sources.group_lags),
    ]
    return _numbered(trips, reduce(DataFrame.unionByName, candidates))


def source_topics(trips: DataFrame, dispositions: DataFrame) -> DataFrame:
    """The topics of which each trip's group disposed records in its window, with their ids."""
    seen = _before_trips(trips, dispositions)
    topic = sf.coalesce("topic", "topic_id")
    return seen.where(topic.isNotNull()).groupBy(*_TRIP, topic.alias("topic")).agg(sf.max("topic_id").alias("topic_id"))


# --- changes of the group ---------------------------------------------------------------------------------------------


def _group_events(trips: DataFrame, events: DataFrame) -> DataFrame:
    """Changed configs of the group, and that it was resumed: what made it trip before may still be there."""
    known = events.where(sf.col("event").isin("config_changed", "resumed"))
    own = known.select("cluster_id", "group", "event", "at", "detail")
    is_config = sf.col("event") == "config_changed"
    return (
        trips.join(own, ["cluster_id", "group"])
        .where(_in_window("at"))
        .select(
            *_TRIP,
            sf.when(is_config, "config").otherwise("resumed").alias("cause_kind"),
            sf.when(is_config, HIGH).otherwise(MEDIUM).alias("likelihood"),
            sf.lit("share_group").alias("subject_kind"),
            sf.col("group").alias("subject"),
            sf.col("event").alias("what"),
            *_without_topic(),
            *("at", "detail"),
        )
    )


def _group_members(trips: DataFrame, dispositions: DataFrame) -> DataFrame:
    """Members whose first disposition is in the window, and those that ended before the trip while others went on."""
    seen = _before_trips(trips, dispositions, lookback_ms=MEMBER_SEEN_MS)
    spans = seen.groupBy(*_TRIP, "member").agg(sf.min("used_at").alias("first"), sf.max("used_at").alias("last"))
    of_trip = Window.partitionBy("cluster_id", "event_id")
    spans = spans.withColumn("group_last", sf.max("last").over(of_trip))
    joined = spans.where(sf.col("first") >= _start()).withColumns({"at": sf.col("first"), "what": sf.lit("joined")})
    is_silent = (sf.col("last") >= _start()) & (sf.col("last") <= sf.col("group_last") - SILENT_MS)
    silent = spans.where(is_silent).withColumns({"at": sf.col("last"), "what": sf.lit("silent")})
    return joined.unionByName(silent).select(
        *_TRIP,
        sf.lit("member").alias("cause_kind"),
        sf.when(sf.col("what") == "joined", MEDIUM).otherwise(LOW).alias("likelihood"),
        sf.lit("share_group_member").alias("subject_kind"),
        sf.col("member").alias("subject"),
        "what",
        *_without_topic(),
        "at",
        sf.lit("{}").alias("detail"),
    )


# --- applications that write the topics -------------------------------------------------------------------------------


def upstream_writers(topics: DataFrame, applications: DataFrame, app_io: DataFrame) -> DataFrame:
    """The applications that write each topic of a trip, directly (depth 1) or through other applications.

    The versions are those that were current in the window, with the pairs of topics between which their data flows.
    """
    periods = applications.select(*_VERSION, sf.col("at").alias("began_at"), "ended_at")
    pairs = app_io.where(sf.col("out_topic") != "").select(*_VERSION, "in_topic", "out_topic")
    flows = periods.join(pairs, list(_VERSION)).select(
        "cluster_id", "app_id", "began_at", "ended_at", "in_topic", "out_topic"
    )
    reached = topics.withColumn("reached", sf.col("topic"))
    levels: list[DataFrame] = []
    for depth in range(1, MAX_DEPTH + 1):
        was_valid = (sf.col("began_at") <= sf.col("tripped_at")) & (
            sf.col("ended_at").isNull() | (sf.col("ended_at") >= _start())
        )
        found = (
            reached.join(flows, ["cluster_id"])
            .where((sf.col("reached") == sf.col("out_topic")) & was_valid)
            .select(*_TRIP, "topic", "topic_id", "app_id", "in_topic")
            .distinct()
        )
        levels.append(found.withColumn("depth", sf.lit(depth)))
        reached = found.where(sf.col("in_topic") != "").select(
            *_TRIP, "topic", "topic_id", sf.col("in_topic").alias("reached")
        )
    nearest = sf.min(sf.struct("depth", "topic", "topic_id"))
    every = reduce(DataFrame.unionByName, levels)
    return every.groupBy(*_TRIP, "app_id").agg(nearest.alias("nearest")).select(*_TRIP, "app_id", "nearest.*")


def _topologies(writers: DataFrame, changes: DataFrame) -> DataFrame:
    """Changed topologies of applications that feed the topics, and members of one that run different topologies."""
    of_topologies = changes.where(
        (sf.col("subject_kind") == "application") & sf.col("event").startswith("topology_")
    ).select(
        "cluster_id",
        sf.col("subject").alias("app_id"),
        sf.col("event").alias("what"),
        sf.col("event_id").alias("change"),
        sf.from_json("detail", "counts map<string,long>")["counts"].alias("counts"),
        "at",
    )
    likelihood = sf.when(sf.col("what") == "topology_removed", LOW).when(sf.col("depth") == 1, HIGH).otherwise(MEDIUM)
    detail = sf.to_json(sf.struct(sf.col("change").alias("event_id"), "depth", "counts"))
    found = writers.join(of_topologies, ["cluster_id", "app_id"]).where(_in_window("at"))
    return found.select(
        *_TRIP,
        sf.lit("topology").alias("cause_kind"),
        likelihood.alias("likelihood"),
        sf.lit("application").alias("subject_kind"),
        sf.col("app_id").alias("subject"),
        *("what", "topic", "topic_id", "at"),
        detail.alias("detail"),
    )


def _streams_members(writers: DataFrame, members_tasks: DataFrame) -> DataFrame:
    """Members that joined or left a Streams application that writes the topics itself."""
    tasks = members_tasks.select(
        "cluster_id", sf.col("group").alias("app_id"), "member", "host", "at", "ended_at", "valid_from"
    )
    near = writers.where(sf.col("depth") == 1).join(tasks, ["cluster_id", "app_id"])
    known = near.where(sf.col("at") <= sf.col("tripped_at"))
    # A row that ended after the trip was valid at it.
    ended = sf.when(sf.col("ended_at") <= sf.col("tripped_at"), sf.col("ended_at"))
    of_member = [*_TRIP, "app_id", "topic", "topic_id", "depth", "member"]
    spans = known.groupBy(*of_member).agg(
        sf.min("at").alias("first"),
        sf.max(ended).alias("last"),
        sf.max(ended.isNull()).alias("is_there"),
        sf.max(sf.struct("valid_from", "host"))["host"].alias("host"),
    )
    joined = spans.where(sf.col("first") >= _start()).withColumns({"at": sf.col("first"), "what": sf.lit("joined")})
    left = spans.where(~sf.col("is_there") & (sf.col("last") >= _start())).withColumns(
        {"at": sf.col("last"), "what": sf.lit("left")}
    )
    return joined.unionByName(left).select(
        *_TRIP,
        sf.lit("member").alias("cause_kind"),
        sf.lit(LOW).alias("likelihood"),
        sf.lit("streams_member").alias("subject_kind"),
        sf.col("member").alias("subject"),
        *("what", "topic", "topic_id", "at"),
        sf.to_json(sf.struct("app_id", "host")).alias("detail"),
    )


# --- lags of the group and of what feeds it ---------------------------------------------------------------------------


def _grown_lags(trips: DataFrame, writers: DataFrame, group_lags: DataFrame) -> DataFrame:
    """Lags of the group, and of applications that feed its topics, that doubled in the window.

    A partition's row holds until its next one. A partition that the window begins without counts from its first row.
    """
    nothing = sf.lit(None).cast("string")
    own = trips.withColumns(
        {"reader": sf.col("group"), "subject_kind": sf.lit("share_group"), "topic": nothing, "topic_id": nothing}
    ).withColumn("depth", sf.lit(0))
    feeding = writers.withColumns({"reader": sf.col("app_id"), "subject_kind": sf.lit("application")}).drop("app_id")
    known = group_lags.where(sf.col("lag").isNotNull()).select(
        "cluster_id",
        sf.col("group").alias("reader"),
        sf.col("topic").alias("read_topic"),
        sf.col("topic_id").alias("read_topic_id"),
        *("partition", "lag", "at"),
    )
    in_time = sf.col("at").between(_start() - LAG_KNOWN_MS, sf.col("tripped_at"))
    seen = own.unionByName(feeding).join(known, ["cluster_id", "reader"]).where(in_time)
    subject = [*_TRIP, "reader", "subject_kind", "depth", "topic", "topic_id", "read_topic"]
    reading, is_before = sf.struct("at", "lag"), sf.col("at") <= _start()
    partitions = seen.groupBy(*subject, "partition").agg(
        sf.coalesce(sf.max(sf.when(is_before, reading)), sf.min(reading))["lag"].alias("before"),
        sf.max(reading).alias("last"),
        sf.max("read_topic_id").alias("read_topic_id"),
    )
    lags = partitions.groupBy(*subject).agg(
        total("before").alias("lag_before"),
        total("last.lag").alias("lag"),
        sf.max("last.at").alias("at"),
        sf.max("read_topic_id").alias("read_topic_id"),
    )
    growth = sf.col("lag") - sf.col("lag_before")
    grown = lags.where((growth >= LAG_GROWTH) & (growth >= sf.col("lag_before")))
    is_own = sf.col("depth") == 0
    return grown.select(
        *_TRIP,
        sf.lit("lag").alias("cause_kind"),
        sf.when(is_own, MEDIUM).otherwise(LOW).alias("likelihood"),
        "subject_kind",
        sf.col("reader").alias("subject"),
        sf.lit("grew").alias("what"),
        sf.when(is_own, sf.col("read_topic")).otherwise(sf.col("topic")).alias("topic"),
        sf.when(is_own, sf.col("read_topic_id")).otherwise(sf.col("topic_id")).alias("topic_id"),
        "at",
        sf.to_json(sf.struct("lag_before", "lag", "depth", "read_topic")).alias("detail"),
    )


# --- clients that write the topics ------------------------------------------------------------------------------------


def _new_users(topics: DataFrame, activity: DataFrame) -> DataFrame:
    """Connectors that began to use a topic of the trip, and other clients that had never written it before."""
    uses = activity.where(sf.col("rule") != "end-offsets")
    of_topic = uses.withColumn("topic", sf.coalesce("topic", "topic_id")).drop("topic_id", "group", "event_id")
    seen = topics.join(of_topic, ["cluster_id", "topic"]).where(
        (sf.col("since") <= sf.col("tripped_at")) & _is_in_time("at")
    )
    is_before = sf.col("since") < _start()
    identity = ("since", "rule", "confidence", "principal", "client_id", "host")
    actors = seen.groupBy(*_TRIP, "topic", "topic_id", "direction", "actor_kind", "actor").agg(
        sf.max(sf.when(is_before, sf.col("until"))).alias("last_before"),
        sf.min(sf.when(~is_before, sf.struct(*identity))).alias("first"),
    )
    is_new = sf.col("last_before").isNull()
    # To a gateway that has just been started, and on new topics, all are new.
    is_known = sf.max(~is_new).over(Window.partitionBy("cluster_id", "event_id"))
    began = actors.withColumn("is_known", is_known).where(sf.col("first").isNotNull())
    is_connector = sf.col("actor_kind") == "connector"
    is_again = is_connector & (sf.col("first.since") - sf.col("last_before") >= WINDOW_MS)
    is_own = (sf.col("actor_kind") == "share_group") & (sf.col("actor") == sf.col("group"))
    writes = sf.col("direction") == "write"
    likelihood = sf.when(writes & is_new & sf.col("is_known"), HIGH).when(writes & is_again, MEDIUM).otherwise(LOW)
    return began.where(((is_new & writes) | (is_connector & (is_new | is_again))) & ~is_own).select(
        *_TRIP,
        sf.when(is_connector, "connector").otherwise("new_producer").alias("cause_kind"),
        likelihood.alias("likelihood"),
        sf.col("actor_kind").alias("subject_kind"),
        sf.col("actor").alias("subject"),
        sf.when(is_new, "started").otherwise("started_again").alias("what"),
        *("topic", "topic_id"),
        sf.col("first.since").alias("at"),
        sf.to_json(sf.struct("direction", *(f"first.{name}" for name in identity[1:]))).alias("detail"),
    )


# --- windows and order ------------------------------------------------------------------------------------------------


def _numbered(trips: DataFrame, candidates: DataFrame) -> DataFrame:
    """The first causes of each trip with their numbers, and a row with the kind `none` for a trip without any."""
    of_trip = Window.partitionBy("cluster_id", "event_id")
    rank = sf.when(sf.col("likelihood") == HIGH, 0).when(sf.col("likelihood") == MEDIUM, 1).otherwise(2)
    ties = ("cause_kind", "subject_kind", "subject", "what", "topic", "detail")
    found = (
        candidates.withColumn("number", sf.row_number().over(of_trip.orderBy(rank, sf.desc("at"), *ties)))
        .withColumn("causes", sf.count(sf.lit(1)).over(of_trip))
        .where(sf.col("number") <= MAX_CAUSES)
    )
    none = {"cause_kind": "none", "likelihood": LOW, "subject_kind": "share_group", "what": "none", "detail": "{}"}
    rows = trips.join(found.drop("group", "tripped_at"), ["cluster_id", "event_id"], "left")
    at = sf.coalesce("at", "tripped_at")
    return rows.select(
        "cluster_id",
        "event_id",
        sf.coalesce("number", sf.lit(1)).alias("number"),
        *("group", "tripped_at"),
        *(sf.coalesce(name, sf.lit(value)).alias(name) for name, value in none.items()),
        sf.coalesce("subject", "group").alias("subject"),
        *("topic", "topic_id"),
        at.alias("at"),
        sf.floor((sf.col("tripped_at") - at) / 1000).cast("long").alias("seconds_before"),
        sf.greatest(sf.coalesce("causes", sf.lit(0)) - MAX_CAUSES, sf.lit(0)).cast("long").alias("left_out"),
    )


def _before_trips(trips: DataFrame, dispositions: DataFrame, *, lookback_ms: int = WINDOW_MS) -> DataFrame:
    """Dispositions of each trip's group in so long a time before it, with their time."""
    counted = dispositions.where(sf.col("second").between(0, _LAST_MS // 1000)).select(
        "cluster_id",
        "group",
        *("member", "topic", "topic_id"),
        (sf.col("second") * 1000).alias("used_at"),
        sf.col("at").alias("written_at"),
    )
    is_before = sf.col("used_at").between(sf.col("tripped_at") - lookback_ms, sf.col("tripped_at"))
    return trips.join(counted, ["cluster_id", "group"]).where(is_before & _is_in_time("written_at"))


def _without_topic() -> tuple[Column, Column]:
    nothing = sf.lit(None).cast("string")
    return nothing.alias("topic"), nothing.alias("topic_id")


def _start() -> Column:
    return sf.col("tripped_at") - WINDOW_MS


def _in_window(at: str) -> Column:
    return sf.col(at).between(_start(), sf.col("tripped_at"))


def _is_in_time(written_at: str) -> Column:
    return sf.col(written_at) <= sf.col("tripped_at") + WRITTEN_WITHIN_MS
