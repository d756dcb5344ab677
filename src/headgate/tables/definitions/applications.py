"""applications: which applications there are and were, and which version each had when."""

import pyarrow as pa

from headgate.tables.definition import Table, text
from headgate.tables.shared_columns import APP, CLUSTER, HISTORIC, VALIDITY, VERSION

TABLE = Table(
    name="applications",
    description="Every application through time: one row from each offset at which its current version changed.",
    question="Which applications were there at noon?",
    columns=pa.schema(
        [
            CLUSTER,
            APP,
            text("kind", "streams or spark"),
            *VERSION,
            *VALIDITY,
            HISTORIC,
        ]
    ),
    key=("cluster_id", "app_id", "valid_from"),
)
