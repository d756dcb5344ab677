"""Tables that are derived from other tables: who uses which topics, how much of it is seen, gaps and impact.

They are made by `pipeline/derived/`. Their validity is by time, because facts of several topics are joined, and offsets
of different topics have no order.
"""

import pyarrow as pa

from headgate.tables.shared_columns import CLUSTER
from headgate.tables.table import CLUSTER_ID, Table, flag, fraction, small, text, time, whole

_KINDS = "streams, spark, connector, share_group, consumer_group, client or unattributed"
ACTOR_KIND = text("actor_kind", f"the kind of the actor: {_KINDS}")
ACTOR = text("app_id", "the actor's name; for streams and spark, the application")
TOPIC = text("topic", "the topic")
TOPIC_ID = text("topic_id", "its id when it was seen last; null where it is unknown", null=True)
DIRECTION = text("direction", "how the actor uses the topic: read or write")
EDGE_KEY = (CLUSTER_ID, "actor_kind", "app_id", "topic", "direction")

LINEAGE_TABLES = (
    Table(
        name="activity_hours",
        description="Which actors used which topics in which hours: the intervals added up, each fact once.",
        question="In which hours did the connector src-b write to the topic orders?",
        columns=pa.schema(
            [
                CLUSTER,
                time("hour", "the beginning of the hour"),
                ACTOR_KIND,
                ACTOR,
                TOPIC,
                TOPIC_ID,
                DIRECTION,
                time("first_seen", "the beginning of the first use in this hour"),
                time("last_seen", "the end of the last use in this hour"),
                whole("bytes", "how many bytes; an interval of several hours is divided by time"),
                whole("records", "how many records; null when none were counted", null=True),
            ]
        ),
        key=(CLUSTER_ID, "hour", "actor_kind", "app_id", "topic", "direction"),
    ),
    Table(
        name="client_identities",
        description="Every client that was seen, and the actor that it belongs to.",
        question="From which hosts and with which software does orders-app connect?",
        columns=pa.schema(
            [
                CLUSTER,
                text("principal", "the authenticated principal; empty where it is unknown"),
                text("client_id", "the client id; empty where the client sends none"),
                text("host", "the address of the client; empty where it is unknown"),
                text(
                    "software", "the client's software when it was seen last; null when it does not send it", null=True
                ),
                text("software_version", "the version of that; null when the client does not send it", null=True),
                ACTOR_KIND,
                text("actor", "the actor's name"),
                time("first_seen", "when it first used a topic for this actor"),
                time("last_seen", "when it did so last"),
            ]
        ),
        key=(CLUSTER_ID, "principal", "client_id", "host", "actor_kind", "actor", "first_seen"),
    ),
    Table(
        name="impact_summary",
        description="How much depends on each topic, and on how much it depends, by the edges that are valid.",
        question="On which topics do most applications depend?",
        columns=pa.schema(
            [
                CLUSTER,
                TOPIC,
                TOPIC_ID,
                whole("downstream_topics", "how many topics are made from it, directly or through others"),
                whole("downstream_apps", "how many actors read it or one of these topics"),
                whole("upstream_topics", "how many topics it is made from, directly or through others"),
                whole("upstream_apps", "how many actors write it or one of these topics"),
                small("depth_down", "how many applications lie between it and the farthest topic downstream"),
                small("depth_up", "how many applications lie between it and the farthest topic upstream"),
                whole("readers", "how many actors read it"),
                whole("writers", "how many actors write it"),
                time("at", "when these figures last changed"),
            ]
        ),
        key=(CLUSTER_ID, "topic"),
    ),
    Table(
        name="lineage_edges",
        description="Which actors read and write which topics through time: by their descriptions, and as seen.",
        question="Which actors write to the topic orders, and is that declared?",
        columns=pa.schema(
            [
                CLUSTER,
                ACTOR_KIND,
                ACTOR,
                TOPIC,
                TOPIC_ID,
                DIRECTION,
                time("valid_from", "the time from which the row is valid"),
                time("valid_to", "the time from which it is no longer valid; null while it is valid", null=True),
                flag("declared", "a description of the application, or the config of the share group, has the edge"),
                flag("observed", "the gateway saw the use"),
                flag("filled", "declared only by a pattern or a sink without a topic; the topic comes from the use"),
                flag("is_internal", "the topic is internal to the application: repartition or changelog"),
                whole("bytes_day", "bytes of the last day; null where the edge is not observed now", null=True),
                whole("records_day", "records of the last day; null also where none were counted", null=True),
                time("last_seen", "the end of the last use in this time; null without one", null=True),
            ]
        ),
        key=(*EDGE_KEY, "valid_from"),
        version=2,  # the first had no buckets
        buckets=16,
        bucket_by=("topic",),
    ),
    Table(
        name="lineage_gaps",
        description="Where descriptions and use differ: declared and silent, used and undeclared, or a mismatch.",
        question="Which declared uses of topics have not been seen?",
        columns=pa.schema(
            [
                CLUSTER,
                text("kind", "declared_silent, used_undeclared or mismatch"),
                ACTOR_KIND,
                ACTOR,
                text("topic", "the topic; empty for a mismatch, which is about the application"),
                TOPIC_ID,
                text("direction", "read or write; empty for a mismatch"),
                time("opened_at", "when the gap began"),
                time("closed_at", "when it ended; null while it lasts", null=True),
                text("state", "open, closed, or unknown: the gateway saw too little of the topic to tell"),
                fraction("coverage", "the share of the topic's records that the gateway saw; null: unknown", null=True),
                text("detail", "further fields, a JSON object"),
            ]
        ),
        key=(CLUSTER_ID, "kind", "actor_kind", "app_id", "topic", "direction", "opened_at"),
    ),
    Table(
        name="topic_coverage",
        description="How many of a topic's records were written through the gateway, in each hour.",
        question="In which hours were records written to the topic orders past the gateway?",
        columns=pa.schema(
            [
                CLUSTER,
                TOPIC,
                TOPIC_ID,
                time("hour", "the beginning of the hour"),
                whole("seen_records", "how many records the gateway saw written; an estimate from samples"),
                whole("all_records", "by how many records the end offsets grew; 0 where they were not read"),
                fraction("coverage", "seen_records / all_records, at most 1; null where it is unknown", null=True),
            ]
        ),
        key=(CLUSTER_ID, "topic", "hour"),
    ),
)
