"""app_io: which topics flow into which, for each connected component of each version."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.facts.topology import Description
from headgate.pipeline.explosion import exploded
from headgate.pipeline.parsing import DELETED, DESCRIBED
from headgate.topologies.model.topology_graph import TopicPair, app_io

KINDS = (DESCRIBED, DELETED)


def build(facts: DataFrame) -> DataFrame:
    rows = exploded(facts, _pairs, texts=("component", "in_topic", "out_topic"))
    return rows.withColumns({"in_topic_id": sf.col("in_topic"), "out_topic_id": sf.col("out_topic")})


def _pairs(description: Description, application: str) -> tuple[TopicPair, ...]:
    return app_io(description, application).pairs
