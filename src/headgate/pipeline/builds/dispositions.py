"""dispositions: a row for each second of a member and a partition."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.facts import DispositionsCounted
from headgate.pipeline.appending import appended

KINDS = (DispositionsCounted.__name__,)
_FIELDS = """
    `group` string, member string, topic string, topic_id string, `partition` int, `second` bigint, generation bigint,
    accepted bigint, released bigint, rejected bigint, over_limit bigint, dead_lettered bigint, write_timeouts bigint,
    by_delivery_count array<array<bigint>>
"""


def build(facts: DataFrame) -> DataFrame:
    rows = appended(facts, KINDS[0], _FIELDS)
    pairs = sf.transform("by_delivery_count", lambda pair: sf.struct(pair[0].cast("string"), pair[1]))
    return rows.withColumn("by_delivery_count", sf.to_json(sf.map_from_entries(pairs)))
