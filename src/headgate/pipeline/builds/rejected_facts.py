"""rejected_facts: what lies in the topics and is no fact."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.pipeline.parsing import REJECTED

KINDS = (REJECTED,)
_SHOWN = 1000


def build(facts: DataFrame) -> DataFrame:
    return (
        facts.where(sf.col("kind") == REJECTED)
        .withColumn("at", sf.col("recorded_at"))
        .withColumn("key", sf.substring("key", 1, _SHOWN))
        .withColumn("topic_id", sf.col("topic"))
        .withColumn("is_historic", sf.lit(False))
    )
