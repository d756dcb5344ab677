"""pipeline_runs: how the pipeline itself fares."""

import pyarrow as pa

from headgate.tables.definition import Table, text, whole
from headgate.tables.shared_columns import CLUSTER

TABLE = Table(
    name="pipeline_runs",
    description="Every run of every query of the pipeline: how far it came, and what stopped it.",
    question="Which queries of the pipeline failed, and what is to be done?",
    columns=pa.schema(
        [
            CLUSTER,
            text("run_id", "one run of one query"),
            text("query", "the query: facts, append, or rebuild TABLE"),
            text("state", "running, done, stopped or failed"),
            whole("started_at", "when it began, in epoch milliseconds"),
            whole("ended_at", "when it ended, in epoch milliseconds; null while it runs", null=True),
            whole("at", "when this row was written, in epoch milliseconds"),
            whole("batch", "the last batch that was written; null before the first", null=True),
            whole("rows", "how many facts were read in this run"),
            whole("rejected", "how many of them were rejected"),
            whole("lag", "how many facts were still unread after the last batch; null when unknown", null=True),
            whole("batch_ms", "how long the last batch took; null before the first", null=True),
            text("table", "the table that the problem is about; null when it is about none", null=True),
            text("problem", "what is wrong and what to do; null when all is well", null=True),
        ]
    ),
    key=("cluster_id", "run_id"),
)
