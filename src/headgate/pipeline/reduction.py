"""What every build is given: the facts of one batch, with validity, and what they end.

One rule: validity is in offset order. A version holds from its fact to the group's next fact about topologies, and a
fact of an earlier batch that this one ends is among the facts again (`earlier`), so that its rows can be written once
more with their end. Last of a version (`last`): no later fact of this batch is about the same version.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from headgate.pipeline.parsing import DELETED, DESCRIBED

VERSION = ("cluster_id", "name", "incarnation", "epoch", "hash", "provenance")


def reduced(facts: DataFrame) -> DataFrame:
    """`facts` with `last`, `valid_from`, `valid_to` and `ended_at`; all but the first are of topologies."""
    of_app = Window.partitionBy("topic", _is_topology(), "cluster_id", "name").orderBy("offset")
    own_key = sf.when(sf.col("kind") != DESCRIBED, sf.concat_ws("/", "partition", "key"))
    of_version = Window.partitionBy("topic", "kind", *VERSION, own_key)
    return (
        facts.withColumn("valid_from", sf.when(_is_topology(), sf.col("offset")))
        .withColumn("valid_to", sf.when(_is_topology(), sf.lead("offset").over(of_app)))
        .withColumn("ended_at", sf.when(_is_topology(), sf.lead("at").over(of_app)))
        .withColumn("last", sf.col("offset") == sf.max("offset").over(of_version))
    )


def _is_topology() -> Column:
    return sf.col("kind").isin(DESCRIBED, DELETED)


def versions(facts: DataFrame) -> DataFrame:
    """One row a version, that of its last fact, with the columns that all tables of versions share."""
    described = facts.where((sf.col("kind") == DESCRIBED) & sf.col("last"))
    return described.withColumn("app_id", sf.col("name")).withColumn("is_historic", sf.lit(False))
