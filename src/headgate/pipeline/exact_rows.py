"""Facts read with Spark's own functions: records that are exactly as `encode` writes them (`facts/exact_form.py`).

Their fields become columns without Python. All other records are left to `fact_rows.read_facts`. Invariant: both
readings give equal columns for a record, so it does not matter which of them read it.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headgate.facts import MAX_FACT_BYTES, Fact
from headgate.facts.codec import form_of, spark_schema, spark_type
from headgate.facts.exact_form import SEPARATOR, exact_pattern
from headgate.facts.json_form import Member
from headgate.pipeline.fact_rows import GENERATION_OFFSETS, ReadSettings

FACT = "fact"  # the column with all fields of a fact: a struct of `spark_schema`
IS_EXACT = "is_exact"


def mark_exact(records: DataFrame, fact: type[Fact], settings: ReadSettings) -> DataFrame:
    """The records of the fact's topic, with a column that says whether each is of the exact form."""
    suffix = form_of(fact).topic
    pattern = exact_pattern(form_of(fact))
    if pattern is None:
        raise ValueError(f"{fact.__name__} has no exact form")
    both = sf.concat(sf.col("key"), sf.lit(SEPARATOR.encode()), sf.col("value"))
    max_bytes = settings.max_bytes.get(suffix, MAX_FACT_BYTES) + len(SEPARATOR)
    text = both.cast("string")
    is_exact = (sf.octet_length(both) <= max_bytes) & sf.is_valid_utf8(text) & text.rlike(rf"\A{pattern}\z")
    of_topic = records.where(sf.col("topic") == settings.prefix + suffix)
    return of_topic.withColumn(IS_EXACT, sf.coalesce(is_exact, sf.lit(False)))  # null without key or value


def exact_facts(marked: DataFrame, fact: type[Fact], settings: ReadSettings) -> DataFrame:
    """The facts of the exact records among those that `mark_exact` returns, each with its place and its fields."""
    form = form_of(fact)
    generation = settings.generations.get(settings.prefix + form.topic, 0)
    read = marked.where(IS_EXACT).select(
        *("topic", "partition", (sf.col("offset") + generation * GENERATION_OFFSETS).alias("offset")),
        sf.from_json(sf.col("value").cast("string"), spark_schema(fact)).alias("of_value"),
        sf.from_json(sf.col("key").cast("string"), "array<string>").alias("of_key"),
    )
    in_value = {member.attribute for member in form.value.members} if form.value else set()
    only_in_key = {
        part.name: sf.col("of_key")[place].cast(spark_type(part.type))
        for place, part in enumerate(form.key)
        if isinstance(part, Member) and part.attribute not in in_value
    }
    fields = [only_in_key.get(one.name, sf.col(f"of_value.`{one.name}`")).alias(one.name) for one in form.members]
    return with_common_columns(read.select("topic", "partition", "offset", sf.struct(*fields).alias(FACT)), settings)


def decoded_facts(facts: DataFrame, fact: type[Fact], settings: ReadSettings) -> DataFrame:
    """The same columns for the facts of this class among those that `fact_rows.read_facts` returns."""
    of_class = facts.where(sf.col("kind") == fact.__name__)
    read = of_class.select("topic", "partition", "offset", sf.from_json("fields", spark_schema(fact)).alias(FACT))
    return with_common_columns(read, settings)


def with_common_columns(facts: DataFrame, settings: ReadSettings) -> DataFrame:
    cluster: Column = sf.coalesce(sf.col(f"{FACT}.cluster"), sf.lit(settings.cluster))
    return facts.withColumns({"cluster_id": cluster, "at": sf.col(f"{FACT}.at")})
