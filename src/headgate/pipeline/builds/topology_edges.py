"""topology_edges: what feeds what in each version."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.pipeline.explosion import exploded
from headgate.pipeline.parsing import DELETED, DESCRIBED
from headgate.topologies.model.topology_graph import edge_rows

KINDS = (DESCRIBED, DELETED)


def build(facts: DataFrame) -> DataFrame:
    texts = ("from_kind", "from_node", "to_kind", "to_node")
    rows = exploded(facts, edge_rows, texts=texts, flags=("is_internal",))
    at_one_end = sf.when(sf.col("from_kind") == "topic", sf.col("from_node")).when(
        sf.col("to_kind") == "topic", sf.col("to_node")
    )
    return rows.withColumn("topic_id", at_one_end)
