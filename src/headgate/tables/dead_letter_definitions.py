"""The tables of dead letters: one row for each record that became one, and the episodes that they belong to.

No payload is in these tables: of a record they have a hash of the key, its size and the features that tell records
apart. To show a record, its reader fetches it with the operator's own rights.
"""

import pyarrow as pa

from headgate.tables.breaker_definitions import GROUP
from headgate.tables.shared_columns import CLUSTER
from headgate.tables.table import Table, flag, small, text, time, whole

DEAD_LETTER_TABLES = (
    Table(
        name="dead_letters",
        description="Every record that became a dead letter, once, and what is still known of it.",
        question="Which dead letters of sg can no longer be read at their source?",
        columns=pa.schema(
            [
                CLUSTER,
                text("group", "the share group, connector or consumer group; empty when the dead letter names none"),
                text("topic", "the topic of the record; null when the dead letter names none", null=True),
                text(
                    "topic_id",
                    "the id of that topic; name:TOPIC when the dead letter has only its name (earlier releases: empty)",
                ),
                small("partition", "the record's partition"),
                whole("offset", "the record's offset"),
                text("dlq_topic", "the dead letter topic"),
                text("dlq_topic_id", "the id of the dead letter topic; null where it is unknown", null=True),
                small("dlq_partition", "the partition of the first dead letter"),
                whole("dlq_offset", "the offset of the first dead letter"),
                time("dead_lettered_at", "when the record became a dead letter, by the timestamp of the dead letter"),
                text(
                    "format",
                    "the writer of the dead letter, by its headers: kafka, connect, streams, spring or unknown",
                ),
                text("reason", "the message in the dead letter, at most 500 characters; null without one", null=True),
                text("exception", "the class of the exception, at most 200 characters; null without one", null=True),
                text("member", "the member of the group, at most 200 characters; null without one", null=True),
                small("delivery_count", "how often the record had been delivered; null where unknown", null=True),
                flag("copied", "the dead letter carries a copy of the record"),
                text(
                    "source_state",
                    "the record at its source: found, expired, compacted, recreated (the topic), unreadable or unknown",
                ),
                time("source_at", "the timestamp of the record; null where it is unknown", null=True),
                text("key_hash", "the hash of the record's key; null without a key", null=True),
                whole("schema_id", "the id of the value's schema; null when the value names none", null=True),
                whole("producer_id", "the id of the producer; null where it has none or is unknown", null=True),
                text("type_header", "the type that a header names, at most 200 characters; null without", null=True),
                whole("size_bytes", "the size of key and value; null where it is unknown", null=True),
                small("size_band", "the size as a power of two, rounded down; null where it is unknown", null=True),
                whole("copies", "the number of dead letters about this record"),
                flag("withdrawn", "the record did not become a dead letter after all: an event says so"),
                time("letter_expires_at", "when retention deletes the dead letter; null is never", null=True),
                time("source_expires_at", "when the record is deleted by retention; null is never", null=True),
                text("cluster", "the id of its row in dead_letter_clusters; null while it has none", null=True),
                text("problem", "what is wrong with the dead letter's headers; null when nothing is", null=True),
            ]
        ),
        key=("cluster_id", "group", "topic_id", "partition", "offset"),
        buckets=16,
        bucket_by=("cluster_id", "group"),
    ),
    Table(
        name="dead_letter_clusters",
        description="The episodes in which records of a group became dead letters, each with a verdict and an action.",
        question="Why did records of sg become dead letters, and what is to be done?",
        columns=pa.schema(
            [
                CLUSTER,
                GROUP,
                text("cluster", "the id of the episode"),
                text("verdict", "insufficient, member, content, outage, poison or mixed"),
                text("action", "what to do: replay_now, fix_first, quarantine, restart_member or resume_and_watch"),
                whole("count", "how many dead letters it has, withdrawn ones and copies left out"),
                time("first_at", "when it began"),
                time("last_at", "its last failed attempt"),
                time("ended_at", "when it ended; null while it lasts", null=True),
                text("topics", "the topics of its records, at most 20, a JSON list"),
                text("member", "the member with the failures; null unless the verdict is member", null=True),
                text("feature", "what the failed records share; null unless the verdict is content", null=True),
                text("evidence", "the numbers behind the verdict, a JSON object"),
            ]
        ),
        key=("cluster_id", "group", "cluster"),
    ),
)
