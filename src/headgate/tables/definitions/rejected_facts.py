"""rejected_facts: records in Headgate's topics that are no facts that this release knows."""

import pyarrow as pa

from headgate.tables.definition import Table, small, text, whole
from headgate.tables.shared_columns import CLUSTER, HISTORIC

TABLE = Table(
    name="rejected_facts",
    description="Records of Headgate's topics that could not be understood, and why; they stop nothing.",
    question="Which records of headgate.topologies were rejected, and why?",
    columns=pa.schema(
        [
            CLUSTER,
            text("topic", "the topic of the record"),
            text("topic_id", "its id; null where it is unknown", null=True),
            small("partition", "its partition"),
            whole("offset", "its offset"),
            whole("at", "the timestamp of the record in epoch milliseconds"),
            text("reason", "what is wrong with it"),
            text("key", "how its key begins, at most 1,000 characters; null when it has none", null=True),
            whole("value_bytes", "the size of its value; null when it has none", null=True),
            HISTORIC,
        ]
    ),
    key=("cluster_id", "topic", "partition", "offset"),
)
