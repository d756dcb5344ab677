"""topology_nodes: what a topology is made of, with its topics and stores as nodes of their own."""

import pyarrow as pa

from headgate.tables.definition import Table, flag, text
from headgate.tables.shared_columns import APP, CLUSTER, HISTORIC, VALIDITY, VERSION, VERSION_KEY

TABLE = Table(
    name="topology_nodes",
    description="The nodes of every version: sources, processors and sinks, and the topics and stores that they use.",
    question="Which topics does orders-app use, and which of them are its own?",
    columns=pa.schema(
        [
            CLUSTER,
            APP,
            *VERSION,
            text("kind", "source, processor, sink, topic or store"),
            text("node", "the node's name; of a topic or a store, its name"),
            text("subtopology", "the sub-topology of the node; null for topics, and in a global store", null=True),
            text("pattern", "the pattern by which a source finds its topics; null otherwise", null=True),
            text("topic_id", "the id of a topic; null where it is unknown, and for other kinds", null=True),
            flag("is_internal", "a topic that the application made for itself: repartition or changelog"),
            flag("is_global", "the node, topic or store belongs to a global store"),
            *VALIDITY,
            HISTORIC,
        ]
    ),
    key=(*VERSION_KEY, "kind", "node"),
    buckets=16,
    bucket_by=("cluster_id", "app_id"),
)
