"""All tables that the pipeline makes. Columns that several tables have are declared once, so that tables can be joined.

Adding a table is adding a definition here, for the breaker in `breaker_definitions.py`, or for dead letters in
`dead_letter_definitions.py`, and a build in `pipeline/`.
Tables that are derived from others are in `lineage_definitions.py`, and have a derivation in `pipeline/derived/`.
"""

import pyarrow as pa

from headgate.base.errors import UsageError
from headgate.facts import ActivityObserved, DispositionsCounted
from headgate.facts.topics import DAY_MS
from headgate.tables.breaker_definitions import BREAKER_TABLES
from headgate.tables.dead_letter_definitions import DEAD_LETTER_TABLES
from headgate.tables.lineage_definitions import LINEAGE_TABLES
from headgate.tables.replay_definitions import REPLAY_TABLES
from headgate.tables.shared_columns import APP, CLUSTER, HISTORIC
from headgate.tables.table import CLUSTER_ID, Table, fact_columns, flag, small, text, time, whole

# The version of a topology; its key begins with the application.
VERSION = (
    text("incarnation", "one life of the group"),
    small("epoch", "the topology epoch within it"),
    text("hash", "the content hash of the description"),
    text("provenance", "the origin of the description: pushed, assignment, pasted or spark"),
)
VERSION_KEY = (CLUSTER_ID, "app_id", *(column.name for column in VERSION))

# Validity is in offset order, because the clocks of writers differ.
VALIDITY = (
    whole("valid_from", "the offset in the facts' topic from which the row is valid"),
    whole("valid_to", "the offset from which it is no longer valid; null while it is valid", null=True),
    time("at", "when it became valid, by the writer's clock"),
    time("ended_at", "when it ended; null while it is valid", null=True),
)

# The origin of a fact, by which a copy is recognised.
ORIGIN = (
    text("writer", "the gateway's worker that wrote the fact; empty when unknown"),
    text("boot", "one run of that process; when unknown, topic/partition of the fact"),
    whole("seq", "counted within that run; when unknown, the offset of the fact"),
)
ORIGIN_KEY = (CLUSTER_ID, *(column.name for column in ORIGIN))
WRITTEN_AT = time("at", "when the fact was written, by the gateway's clock")

_ACTIVITY = fact_columns(
    ActivityObserved,
    {
        "actor.kind": "actor_kind",
        "actor.name": "actor",
        "software.name": "software",
        "software.version": "software_version",
    },
)
_DISPOSITIONS = fact_columns(DispositionsCounted, {})
_KINDS = "source, processor, sink, topic or store"

_TABLES = (
    Table(
        name="activity_intervals",
        description="Which clients used which topics: one row for each interval that a gateway observed.",
        question="Which clients have written to the topic orders since eleven, and how much?",
        columns=pa.schema([CLUSTER, *ORIGIN, *_ACTIVITY.values(), WRITTEN_AT, HISTORIC]),
        key=ORIGIN_KEY,
        appended=True,
        facts=_ACTIVITY,
    ),
    Table(
        name="app_io",
        description="Pairs of an input and an output topic, for each connected component: only where data can flow.",
        question="From which topics does orders-app make the topic totals?",
        columns=pa.schema(
            [
                CLUSTER,
                APP,
                *VERSION,
                text("component", "the connected component: the first of its sub-topologies' ids, or global"),
                text("in_topic", "a topic that the component reads; empty where no known topic feeds the output"),
                text("in_topic_id", "its id; null where it is unknown", null=True),
                text("out_topic", "a topic that it writes, not an internal one; empty where the input has no output"),
                text("out_topic_id", "its id; null where it is unknown", null=True),
                *VALIDITY,
                HISTORIC,
            ]
        ),
        key=(*VERSION_KEY, "component", "in_topic", "out_topic"),
        buckets=16,
        bucket_by=("cluster_id", "app_id"),
    ),
    Table(
        name="applications",
        description="Every application through time: one row from each offset at which its current version changed.",
        question="Which applications were there at noon?",
        columns=pa.schema([CLUSTER, APP, text("kind", "streams or spark"), *VERSION, *VALIDITY, HISTORIC]),
        key=("cluster_id", "app_id", "valid_from"),
    ),
    Table(
        name="changes",
        description="Events, one row each: topologies that were added, changed and removed, and the facts of `events`.",
        question="What happened to orders-app?",
        columns=pa.schema(
            [
                CLUSTER,
                text("event_id", "the event's own id; for a topology, topic/partition/offset of its fact"),
                text("event", "topology_added, topology_changed, topology_removed, or the name of the event"),
                text("subject_kind", "the kind of the subject: application, share_group and so on"),
                text("subject", "the name of the subject"),
                text("by", "the principal that did it; null when Headgate did", null=True),
                text("detail", "further fields of the event, a JSON object"),
                text("topic", "the topic of the fact"),
                text("topic_id", "its id; null where it is unknown", null=True),
                small("partition", "the partition of the fact"),
                whole("offset", "the offset of the fact"),
                time("at", "when it happened, by the writer's clock"),
                HISTORIC,
            ]
        ),
        key=("cluster_id", "event_id"),
        buckets=16,
        bucket_by=("cluster_id", "event_id"),
    ),
    Table(
        name="dispositions",
        description="How share groups' records were disposed of: a row for each member, partition and second with any.",
        question="In which seconds did the share group sg reject records of orders?",
        columns=pa.schema([CLUSTER, *ORIGIN, *_DISPOSITIONS.values(), WRITTEN_AT, HISTORIC]),
        key=ORIGIN_KEY,
        appended=True,
        facts=_DISPOSITIONS,
    ),
    Table(
        name="group_lags",
        description="How far groups are behind: a row for each partition that a group reads, whenever it has changed.",
        question="How far was the group billing behind on orders in the last ten minutes?",
        columns=pa.schema(
            [
                CLUSTER,
                text("group", "the group"),
                text("kind", "the type of the group: classic, consumer, share or streams"),
                text("topic", "the topic that it reads"),
                text("topic_id", "its id; null where it is unknown", null=True),
                small("partition", "the partition"),
                whole("committed", "the committed offset; of a share group, the start offset, or null", null=True),
                whole("end", "the end offset of the partition; null where it is unknown", null=True),
                whole("lag", "how many records the group is behind; null where it is unknown", null=True),
                time("at", "when the offsets were read, by the gateway's clock"),
                HISTORIC,
            ]
        ),
        key=("cluster_id", "group", "topic", "partition", "at"),
        appended=True,
        kept_ms=2 * DAY_MS,
    ),
    Table(
        name="members_tasks",
        description="The tasks of members of Streams groups through time: a row for each task while a member had it.",
        question="Which hosts have the tasks of orders-app, and which stores are there?",
        columns=pa.schema(
            [
                CLUSTER,
                text("group", "the Streams group, which is the application"),
                text("member", "its member"),
                text("process", "the process of the member, which may have several members"),
                text("client_id", "the client id of the member"),
                text("host", "the address of the member"),
                text("task", "the task: SUBTOPOLOGY_PARTITION; empty in the row of a member without tasks"),
                text("subtopology", "the sub-topology of the task; null without a task", null=True),
                small("partition", "the partition of the task; null without a task", null=True),
                text("role", "active, standby or warmup; null without a task", null=True),
                text("stores", "the stores of the task, a JSON list"),
                whole("lag", "the lag of the task when the row began; null where the member sent none", null=True),
                whole("tasks_left_out", "how many further tasks the member had, too many for its fact"),
                *VALIDITY,
                HISTORIC,
            ]
        ),
        key=("cluster_id", "group", "member", "task", "valid_from"),
        buckets=16,
        bucket_by=("cluster_id", "group"),
    ),
    Table(
        name="pipeline_runs",
        description="Every run of every query of the pipeline: how far it came, and why it ended.",
        question="Which queries of the pipeline failed, and what is to be done?",
        columns=pa.schema(
            [
                CLUSTER,
                text("run_id", "one run of one query"),
                text("query", "the query: facts, append, derived, or rebuild TABLE"),
                text("state", "running, done, stopped or failed"),
                time("started_at", "when it began"),
                time("ended_at", "when it ended; null while it runs", null=True),
                time("at", "when this row was written"),
                whole("batch", "the last batch that was written; null before the first", null=True),
                whole("rows", "how many facts were read in this run"),
                whole("rejected", "how many of them were rejected"),
                whole("lag", "how many facts were still unread after the last batch; null when unknown", null=True),
                whole("batch_ms", "how long the last batch took; null before the first", null=True),
                text("table", "the table with the problem; null when it concerns no table", null=True),
                text("problem", "the problem and how to fix it; null when there is none", null=True),
            ]
        ),
        key=("cluster_id", "run_id"),
    ),
    Table(
        name="rejected_facts",
        description="Records of Headgate's topics that are not facts known to this release, and why.",
        question="Which records of headgate.topologies were rejected, and why?",
        columns=pa.schema(
            [
                CLUSTER,
                text("topic", "the topic of the record"),
                text("topic_id", "its id; null where it is unknown", null=True),
                small("partition", "its partition"),
                whole("offset", "its offset"),
                time("at", "the timestamp of the record"),
                text("reason", "why it was rejected"),
                text("key", "its key, at most the first 1,000 characters; null when it has none", null=True),
                whole("value_bytes", "the size of its value; null when it has none", null=True),
                HISTORIC,
            ]
        ),
        key=("cluster_id", "topic", "partition", "offset"),
    ),
    Table(
        name="topology_edges",
        description="Edges of every version: node to successor, topic to source, sink to topic, processor to store.",
        question="Which nodes follow the processor count of orders-app?",
        columns=pa.schema(
            [
                CLUSTER,
                APP,
                *VERSION,
                text("from_kind", f"the kind of the node where the edge begins: {_KINDS}"),
                text("from_node", "its name"),
                text("to_kind", f"the kind of the node where the edge ends: {_KINDS}"),
                text("to_node", "its name"),
                text("topic_id", "the id of the topic at one end; null where it is unknown or absent", null=True),
                flag("is_internal", "the topic at one end is internal to the application"),
                *VALIDITY,
                HISTORIC,
            ]
        ),
        key=(*VERSION_KEY, "from_kind", "from_node", "to_kind", "to_node"),
        buckets=16,
        bucket_by=("cluster_id", "app_id"),
    ),
    Table(
        name="topology_nodes",
        description="Nodes of every version: sources, processors and sinks, and the topics and stores that they use.",
        question="Which topics does orders-app use, and which of them are internal?",
        columns=pa.schema(
            [
                CLUSTER,
                APP,
                *VERSION,
                text("kind", _KINDS),
                text("node", "the name of the node, topic or store"),
                text("subtopology", "the sub-topology of the node; null for topics, and in a global store", null=True),
                text("pattern", "the pattern that a source subscribes to; null otherwise", null=True),
                text("topic_id", "the id of a topic; null where it is unknown, and for other kinds", null=True),
                flag("is_internal", "a topic that is internal to the application: repartition or changelog"),
                flag("is_global", "the node, topic or store belongs to a global store"),
                *VALIDITY,
                HISTORIC,
            ]
        ),
        key=(*VERSION_KEY, "kind", "node"),
        buckets=16,
        bucket_by=("cluster_id", "app_id"),
    ),
    Table(
        name="topology_versions",
        description="Every version of every application's topology, and when it was the current one (the last time).",
        question="Which versions has the application orders-app had, and which is current?",
        columns=pa.schema(
            [
                CLUSTER,
                APP,
                *VERSION,
                text("member", "the member that pushed it; null when it was not pushed", null=True),
                text("process", "the process of that member; null when it was not pushed", null=True),
                small("subtopologies", "how many sub-topologies it has"),
                small("nodes", "how many sources, processors and sinks it has, including those of global stores"),
                small("global_stores", "how many global stores it has"),
                text("description", "the description as in its fact, a JSON object"),
                *VALIDITY,
                HISTORIC,
            ]
        ),
        key=VERSION_KEY,
        # Not because of the number of rows: descriptions are large, and a batch rewrites the files that it touches.
        buckets=16,
        bucket_by=("cluster_id", "app_id"),
    ),
)
_ALL = (*_TABLES, *BREAKER_TABLES, *DEAD_LETTER_TABLES, *LINEAGE_TABLES, *REPLAY_TABLES)
TABLES = {table.name: table for table in sorted(_ALL, key=lambda one: one.name)}


def table_named(name: str) -> Table:
    try:
        return TABLES[name]
    except KeyError:
        raise UsageError(f"there is no table {name!r}; the tables are: {', '.join(TABLES)}") from None
