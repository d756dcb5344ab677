"""changes: what happened, once for each event."""

import pyarrow as pa

from headgate.tables.definition import Table, small, text, whole
from headgate.tables.shared_columns import CLUSTER, HISTORIC

TABLE = Table(
    name="changes",
    description="What happened, once for each event: topologies that came, changed and went, and the facts of events.",
    question="What happened to orders-app?",
    columns=pa.schema(
        [
            CLUSTER,
            text("event_id", "the event's own id; of a change of topologies, topic/partition/offset of its fact"),
            text("event", "what happened: topology_added, topology_changed, topology_removed, or an event's own word"),
            text("subject_kind", "what it happened to: application, share_group and so on"),
            text("subject", "the name of that"),
            text("by", "who did it; null when nobody did", null=True),
            text("detail", "what else is known, a JSON object"),
            text("topic", "the topic of the fact"),
            text("topic_id", "its id; null where it is unknown", null=True),
            small("partition", "the partition of the fact"),
            whole("offset", "the offset of the fact"),
            whole("at", "when it happened, in epoch milliseconds by the writer's clock"),
            HISTORIC,
        ]
    ),
    key=("cluster_id", "event_id"),
    buckets=16,
    bucket_by=("cluster_id", "event_id"),
)
