"""What the builds of appended tables share: a fact's fields as columns, and who told it.

One rule: a fact that does not say who told it is known by where it lies, so that it has a key like any other.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

_ORIGIN = "writer string, boot string, seq bigint"


def appended(facts: DataFrame, kind: str, fields: str) -> DataFrame:
    """A row for each fact of this kind: its `fields` (a schema), and the columns that appended tables share."""
    read = sf.from_json("fields", f"{fields}, {_ORIGIN}")
    of_kind = facts.where(sf.col("kind") == kind).withColumn("fact", read)
    columns = of_kind.select("fact.*").drop("writer", "boot", "seq").columns
    return of_kind.select(
        "cluster_id",
        sf.coalesce("fact.writer", sf.lit("")).alias("writer"),
        sf.coalesce("fact.boot", sf.concat_ws("/", "topic", "partition")).alias("boot"),
        sf.coalesce("fact.seq", "offset").alias("seq"),
        "at",
        sf.lit(False).alias("is_historic"),
        *(sf.col("fact").getField(name).alias(name) for name in columns),
    )
