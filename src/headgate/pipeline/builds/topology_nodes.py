"""topology_nodes: the nodes of each version, with its topics and stores."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.pipeline.explosion import exploded
from headgate.pipeline.parsing import DELETED, DESCRIBED
from headgate.topologies.model.topology_graph import node_rows

KINDS = (DESCRIBED, DELETED)


def build(facts: DataFrame) -> DataFrame:
    texts = ("kind", "node", "subtopology", "pattern")
    rows = exploded(facts, node_rows, texts=texts, flags=("is_internal", "is_global"))
    return rows.withColumn("topic_id", sf.when(sf.col("kind") == "topic", sf.col("node")))
