"""topology_versions: each version's last fact, and how large it is."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.pipeline.parsing import DELETED, DESCRIBED
from headgate.pipeline.reduction import versions

KINDS = (DESCRIBED, DELETED)
_SHAPE = "subtopologies array<struct<nodes:array<string>>>, global_stores array<string>"


def build(facts: DataFrame) -> DataFrame:
    shape = sf.from_json("description", _SHAPE)
    # A global store is one source and one processor.
    of_subtopologies = sf.aggregate(shape["subtopologies"], sf.lit(0), lambda total, one: total + sf.size(one["nodes"]))
    return (
        versions(facts)
        .withColumn("subtopologies", sf.size(shape["subtopologies"]))
        .withColumn("global_stores", sf.size(shape["global_stores"]))
        .withColumn("nodes", of_subtopologies + 2 * sf.size(shape["global_stores"]))
    )
