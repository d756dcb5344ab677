"""topology_versions: every description that an application has had."""

import pyarrow as pa

from headgate.tables.definition import Table, small, text
from headgate.tables.shared_columns import APP, CLUSTER, HISTORIC, VALIDITY, VERSION, VERSION_KEY

TABLE = Table(
    name="topology_versions",
    description="Every version of every application's topology, and when it was the current one (the last time).",
    question="Which versions has the application orders-app had, and which is current?",
    columns=pa.schema(
        [
            CLUSTER,
            APP,
            *VERSION,
            text("member", "the member that pushed it; null when nobody pushed it", null=True),
            text("process", "the process of that member; null when nobody pushed it", null=True),
            small("subtopologies", "how many sub-topologies it has"),
            small("nodes", "how many sources, processors and sinks it has, those of global stores too"),
            small("global_stores", "how many global stores it has"),
            text("description", "the description as it lies in its fact, a JSON object"),
            *VALIDITY,
            HISTORIC,
        ]
    ),
    key=VERSION_KEY,
    # Not for the number of rows: descriptions are large, and a batch rewrites the files that it touches.
    buckets=16,
    bucket_by=("cluster_id", "app_id"),
)
