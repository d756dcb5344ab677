"""activity_intervals: a row for each interval that was observed."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.facts import ActivityObserved
from headgate.pipeline.appending import appended

KINDS = (ActivityObserved.__name__,)
_FIELDS = """
    actor struct<kind:string, name:string, rule:string, confidence:string>, topic string, topic_id string,
    direction string, since bigint, until bigint, bytes bigint, records bigint, principal string, client_id string,
    `group` string, transactional_id string, software struct<name:string, version:string>, host string
"""


def build(facts: DataFrame) -> DataFrame:
    rows = appended(facts, KINDS[0], _FIELDS)
    return rows.select(
        "*",
        sf.col("actor.kind").alias("actor_kind"),
        sf.col("actor.rule").alias("rule"),
        sf.col("actor.confidence").alias("confidence"),
        sf.col("software.version").alias("software_version"),
    ).withColumns({"actor": sf.col("actor.name"), "software": sf.col("software.name")})
