"""activity_intervals: who used which topic, and when."""

import pyarrow as pa

from headgate.tables.definition import Table, text, whole
from headgate.tables.shared_columns import CLUSTER, HISTORIC, ORIGIN, ORIGIN_KEY

TABLE = Table(
    name="activity_intervals",
    description="Who used which topic: one row for each interval that a gateway observed.",
    question="Who has written to the topic orders since eleven, and how much?",
    columns=pa.schema(
        [
            CLUSTER,
            *ORIGIN,
            text("actor_kind", "connector, streams, share_group, consumer_group, spark, client or unattributed"),
            text("actor", "the name of that"),
            text("rule", "the rule that told so"),
            text("confidence", "how sure that is: certain, likely or guess"),
            text("topic", "the topic; null while its id had no name yet", null=True),
            text("topic_id", "its id; null where it is unknown", null=True),
            text("direction", "read or write"),
            whole("since", "the beginning of the interval, in epoch milliseconds by the gateway's clock"),
            whole("until", "its end"),
            whole("bytes", "how many bytes this interval adds"),
            whole("records", "how many records; null when they were not counted", null=True),
            text("principal", "who had logged in; null when nobody had", null=True),
            text("client_id", "what the client calls itself; null when it says nothing", null=True),
            text("group", "its group; null when it has none", null=True),
            text("transactional_id", "its transactional id; null when it has none", null=True),
            text("software", "the client's software; null when it says nothing", null=True),
            text("software_version", "the version of that; null when it says nothing", null=True),
            text("host", "the address that it came from; null when it is unknown", null=True),
            whole("at", "when it was told, in epoch milliseconds by the gateway's clock"),
            HISTORIC,
        ]
    ),
    key=ORIGIN_KEY,
    appended=True,
)
