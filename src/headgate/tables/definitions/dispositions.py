"""dispositions: what became of the records of share groups."""

import pyarrow as pa

from headgate.tables.definition import Table, small, text, whole
from headgate.tables.shared_columns import CLUSTER, HISTORIC, ORIGIN, ORIGIN_KEY

TABLE = Table(
    name="dispositions",
    description="What became of share groups' records: a row for each member, partition and second that had some.",
    question="In which seconds did the share group sg reject records of orders?",
    columns=pa.schema(
        [
            CLUSTER,
            *ORIGIN,
            text("group", "the share group"),
            text("member", "its member"),
            text("topic", "the topic; null while its id had no name yet", null=True),
            text("topic_id", "its id; null where it is unknown", null=True),
            small("partition", "the partition"),
            whole("second", "the second, in epoch seconds by the gateway's clock"),
            whole("generation", "the generation of the group's breaker"),
            whole("accepted", "how many records were accepted"),
            whole("released", "how many were released"),
            whole("rejected", "how many were rejected"),
            whole("over_limit", "how many had been delivered too often"),
            whole("dead_lettered", "how many went to the dead letter topic"),
            whole("write_timeouts", "how many writes there were not answered in time"),
            text("by_delivery_count", "how many records had which delivery count, a JSON object; 0 is unknown"),
            whole("at", "when it was told, in epoch milliseconds by the gateway's clock"),
            HISTORIC,
        ]
    ),
    key=ORIGIN_KEY,
    appended=True,
)
