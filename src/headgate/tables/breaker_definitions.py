"""The tables of the circuit breaker: how many records became dead letters, what happened to groups, and why.

`breaker_events` is made of facts. The others are derived from tables: they have no rows that a rebuild cannot make.
"""

import pyarrow as pa

from headgate.tables.shared_columns import CLUSTER, HISTORIC
from headgate.tables.table import Table, flag, fraction, small, text, time, whole

GROUP = text("group", "the share group")

# One topic of a group, by the name that its facts had.
_TOPIC = (
    text("topic", "its topic; the id while the topic had no name yet, and empty where neither is known"),
    text("topic_id", "the id of the topic, the last one of the row's facts; null where it is unknown", null=True),
)
_COUNTS = (
    whole("accepted", "how many records were accepted"),
    whole("released", "how many were released"),
    whole("rejected", "how many were rejected"),
    whole("over_limit", "how many had reached the delivery count limit"),
    whole("dead_lettered", "how many were written to the dead letter topic"),
    whole("write_timeouts", "how many of these writes timed out"),
    whole("processed", "accepted and dead_lettered together, which is what the breaker counts"),
    fraction("dlq_rate", "dead_lettered divided by processed; null when that is 0", null=True),
)

BREAKER_TABLES = (
    Table(
        name="breaker_backtest",
        description="What the breaker of a group would have done with other settings: a row for each setting and day.",
        question="Which threshold would have stopped sg in time last week, without false trips?",
        columns=pa.schema(
            [
                CLUSTER,
                GROUP,
                text("config_hash", "the setting: THRESHOLD/WINDOW_MS/MIN_MESSAGES"),
                time("day", "the beginning of the day, UTC"),
                small("threshold_percent", "the threshold"),
                whole("window_ms", "the length of the window"),
                small("min_messages", "how many records the window must hold"),
                flag("is_live", "whether the group has this setting, by its recorded changes of configs"),
                whole("trips", "how often the breaker would have tripped"),
                whole("paused_s", "for how many seconds the group would have been paused by these trips"),
                whole("avoided", "how many dead letters were recorded in these pauses"),
                whole("false_trips", "how many of the trips one member or one key alone caused"),
                whole("left_out_s", "for how many seconds of the day the group was really paused"),
            ]
        ),
        key=("cluster_id", "group", "config_hash", "day"),
        buckets=16,
        bucket_by=("cluster_id", "group"),
    ),
    Table(
        name="breaker_causes",
        description="What changed in the 30 minutes before each trip of a breaker, likely causes first.",
        question="What changed before the breaker of sg tripped?",
        columns=pa.schema(
            [
                CLUSTER,
                text("event_id", "the trip: the id of its event"),
                small("number", "the place of the cause, from 1"),
                GROUP,
                time("tripped_at", "when the breaker tripped"),
                text(
                    "cause_kind",
                    "topology, config, member, connector, new_producer, resumed or lag; none where nothing had changed",
                ),
                text("likelihood", "high, medium or low"),
                text("subject_kind", "the kind of the subject: application, share_group, connector and so on"),
                text("subject", "the application, group, connector or client that changed"),
                text("what", "the change: topology_changed, config_changed, joined, left, started and so on"),
                text("topic", "the topic of the group through which it matters; null for the group itself", null=True),
                text("topic_id", "the id of the topic; null where it is unknown", null=True),
                time("at", "when it happened, by the writer's clock"),
                whole("seconds_before", "how long before the trip"),
                text("detail", "further fields of the change, a JSON object"),
                whole("left_out", "how many further causes the trip has, beyond those that are stored"),
            ]
        ),
        key=("cluster_id", "event_id", "number"),
        buckets=16,
        bucket_by=("cluster_id", "event_id"),
    ),
    Table(
        name="breaker_events",
        description="Events of share groups: trips, pauses, resumes, config changes, and problems of dead letters.",
        question="When did the breaker of sg trip, and who resumed the group?",
        columns=pa.schema(
            [
                CLUSTER,
                text("event_id", "the event's own id"),
                GROUP,
                text("event", "tripped, paused, resumed, write_timeout, late_write and so on"),
                text("by", "the principal that did it; null when Headgate did", null=True),
                text("reason", "the reason that the event has; null without one", null=True),
                whole("generation", "the generation of the group's breaker; null where the event has none", null=True),
                whole("dlq_written", "of a trip: the dead letters in the window; null otherwise", null=True),
                whole(
                    "delivered", "of a trip: the records that were accepted in the window; null otherwise", null=True
                ),
                small("threshold_percent", "of a trip: the threshold; null otherwise", null=True),
                whole("window_ms", "of a trip: the length of the window; null otherwise", null=True),
                time("resume_at", "of a trip: when the pause ends by itself; null is never", null=True),
                text("detail", "all further fields of the event, a JSON object"),
                time("at", "when it happened, by the writer's clock"),
                HISTORIC,
            ]
        ),
        key=("cluster_id", "event_id"),
        buckets=16,
        bucket_by=("cluster_id", "event_id"),
    ),
    Table(
        name="dlq_rates",
        description="How many records of each partition were disposed of in each minute, and how many as dead letters.",
        question="In which minutes did sg write more than a tenth of its records to the dead letter topic?",
        columns=pa.schema(
            [
                CLUSTER,
                GROUP,
                *_TOPIC,
                small("partition", "the partition"),
                time("minute", "the beginning of the minute, by the gateway's clock"),
                *_COUNTS,
            ]
        ),
        key=("cluster_id", "group", "topic", "partition", "minute"),
        buckets=16,
        bucket_by=("cluster_id", "group"),
    ),
    Table(
        name="dlq_rates_hourly",
        description="The same as `dlq_rates`, by hour, and all partitions of a topic together.",
        question="What was the rate of dead letters of sg in each hour?",
        columns=pa.schema([CLUSTER, GROUP, *_TOPIC, time("hour", "the beginning of the hour"), *_COUNTS]),
        key=("cluster_id", "group", "topic", "hour"),
        buckets=16,
        bucket_by=("cluster_id", "group"),
    ),
)
