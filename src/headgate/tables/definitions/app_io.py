"""app_io: what goes in and what comes out of an application, exactly."""

import pyarrow as pa

from headgate.tables.definition import Table, text
from headgate.tables.shared_columns import APP, CLUSTER, HISTORIC, VALIDITY, VERSION, VERSION_KEY

TABLE = Table(
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
            text("out_topic", "a topic that it writes, not for itself alone; empty where the input reaches none"),
            text("out_topic_id", "its id; null where it is unknown", null=True),
            *VALIDITY,
            HISTORIC,
        ]
    ),
    key=(*VERSION_KEY, "component", "in_topic", "out_topic"),
    buckets=16,
    bucket_by=("cluster_id", "app_id"),
)
