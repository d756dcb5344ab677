"""topology_edges: what feeds what within a topology."""

import pyarrow as pa

from headgate.tables.definition import Table, flag, text
from headgate.tables.shared_columns import APP, CLUSTER, HISTORIC, VALIDITY, VERSION, VERSION_KEY

_KINDS = "source, processor, sink, topic or store"

TABLE = Table(
    name="topology_edges",
    description="The edges of every version: node to successor, topic to source, sink to topic, processor to store.",
    question="What comes after the processor count of orders-app?",
    columns=pa.schema(
        [
            CLUSTER,
            APP,
            *VERSION,
            text("from_kind", f"the kind of the node where the edge begins: {_KINDS}"),
            text("from_node", "its name"),
            text("to_kind", f"the kind of the node where the edge ends: {_KINDS}"),
            text("to_node", "its name"),
            text("topic_id", "the id of the topic at one end; null where it is unknown or there is none", null=True),
            flag("is_internal", "the topic at one end is one that the application made for itself"),
            *VALIDITY,
            HISTORIC,
        ]
    ),
    key=(*VERSION_KEY, "from_kind", "from_node", "to_kind", "to_node"),
    buckets=16,
    bucket_by=("cluster_id", "app_id"),
)
