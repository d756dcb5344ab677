"""The tables of replays: plans, the records of each plan in order, and what became of every record.

A plan never changes once it is written. `replay_audit` has what `headgate-replay.progress` has, which is written in the
transactions of the replays themselves: a row is never missing, and never about a record that was not written.
"""

import pyarrow as pa

from headgate.tables.shared_columns import CLUSTER
from headgate.tables.table import Table, flag, small, text, time, whole

_PLAN = text("plan", "the id of the plan")
_POSITION = whole("position", "the record's position in the plan, counted from 0; it is replayed in this order")
_GROUP = text("group", "the group whose dead letters they are")
_SOURCE = (
    text("topic", "the topic of the record"),
    text("topic_id", "the id of that topic", null=True),
    small("partition", "the record's partition"),
    whole("offset", "the record's offset"),
)

REPLAY_TABLES = (
    Table(
        name="replay_audit",
        description="Every record that was replayed, parked or skipped, with its place before and after.",
        question="Where is the record that was at offset 4711 of orders now?",
        columns=pa.schema(
            [
                CLUSTER,
                _PLAN,
                _POSITION,
                time("at", "when, by the clock of the replay"),
                text("by", "the principal that replayed it"),
                _GROUP,
                *_SOURCE,
                text("outcome", "replayed, parked or skipped"),
                text("why", "why it was parked or skipped; null when it was replayed", null=True),
                text("target_topic", "the topic that it was written to; null when it was skipped", null=True),
                text("target_topic_id", "the id of that topic; null when it was skipped", null=True),
                small("target_partition", "its partition there; null when it was skipped", null=True),
                whole("target_offset", "its offset there; null when it was skipped", null=True),
            ]
        ),
        key=("cluster_id", "plan", "position"),
        buckets=16,
        bucket_by=("cluster_id", "plan"),
    ),
    Table(
        name="replay_plan_records",
        description="The dead letters that each plan selected, in the order of the replay, and what is to be done.",
        question="Which dead letters did a plan leave out, and why?",
        columns=pa.schema(
            [
                CLUSTER,
                _PLAN,
                _POSITION,
                *_SOURCE,
                time("source_at", "the timestamp of the record; null where it is unknown", null=True),
                text("dlq_topic", "the topic of the dead letter"),
                text("dlq_topic_id", "the id of that topic; null where it is unknown", null=True),
                small("dlq_partition", "the partition of the dead letter"),
                whole("dlq_offset", "the offset of the dead letter"),
                flag("copied", "the dead letter carries a copy of the record"),
                text("reason", "the message in the dead letter; null without one", null=True),
                text("action", "replay, park or leave_out"),
                text(
                    "why",
                    "for park: over_max_replays; for leave_out: expired, unidentified, superseded, already_replayed "
                    "or over_max_replays; null for replay",
                    null=True,
                ),
                text("target_topic", "the topic to write it to; null when it is left out", null=True),
                small("target_partition", "the partition to write it to; null when it is left out", null=True),
                small("replays", "how often the record had been replayed before"),
            ]
        ),
        key=("cluster_id", "plan", "position"),
        buckets=16,
        bucket_by=("cluster_id", "plan"),
    ),
    Table(
        name="replay_plans",
        description="Every plan to replay dead letters: what it selected, and how many records it has.",
        question="Which plans are there for the group sg?",
        columns=pa.schema(
            [
                CLUSTER,
                _PLAN,
                time("at", "when it was made"),
                text("by", "who made it"),
                _GROUP,
                text(
                    "selection",
                    "what was asked for, a JSON object: group or topic, where, since, until, cluster, options, topics, "
                    "request",
                ),
                text("to", "original, or the topic to write to"),
                text("targets", "the topics that it writes to, a JSON object from their names to their ids"),
                whole("records", "how many records it replays"),
                whole("parked", "how many records it writes to the parking topic"),
                whole(
                    "expired",
                    "how many it cannot replay: the source is gone or not identified, and the dead letter has no copy",
                ),
                whole("superseded", "how many it leaves out because the partition has a later record of the same key"),
                whole("already_replayed", "how many it leaves out because they were replayed or parked before"),
                whole("over_max_replays", "how many it leaves out because they were replayed too often"),
                text("reasons", "how many of its records have which reason, a JSON object of at most 50"),
                text("readers", "the other readers of the targets, a JSON list"),
                time("oldest_at", "the oldest timestamp of a record that it replays; null without one", null=True),
            ]
        ),
        key=("cluster_id", "plan"),
    ),
)
