"""applications: a row from each fact that told an application's version, to the next fact about it."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.pipeline.parsing import DELETED, DESCRIBED

KINDS = (DESCRIBED, DELETED)


def build(facts: DataFrame) -> DataFrame:
    described = facts.where(sf.col("kind") == DESCRIBED)
    return (
        described.withColumn("app_id", sf.col("name"))
        .withColumn("kind", sf.when(sf.col("provenance") == "spark", "spark").otherwise("streams"))
        .withColumn("is_historic", sf.lit(False))
    )
