"""Records become rows of facts: the DataFrames that the builds of tables start from.

`headgate.facts.decode` reads the records, on Spark's workers, so that the pipeline and the gateway agree on versions,
bounds, and keys and values that must agree. No record can make it fail. Only of records that are exactly as `encode`
writes them (`facts/exact_form.py`), the fields become columns with Spark's own functions, without Python. Invariant:
both readings give equal columns for a record, so it does not matter which of them read it.

A fact that is decoded is one row (`SCHEMA`). Its common fields and those of a topology are columns; all others are in
`fields`, a JSON object with the schema `spark_schema` of the fact. The text of a table is UTF-8, so a name that was not
UTF-8 has its invalid bytes in backslash form; inside a description nothing is lost.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.facts import (
    MAX_FACT_BYTES,
    Ended,
    Fact,
    MemberTasksEnded,
    MemberTasksObserved,
    Rejected,
    TopologyDeleted,
    TopologyDescribed,
    decode,
)
from headgate.facts.codec import fields_text, form_of, spark_schema, spark_type
from headgate.facts.exact_form import SEPARATOR, exact_pattern
from headgate.facts.json_form import Member, dumps, loads
from headgate.facts.topology import DESCRIPTION, Description
from headgate.topologies.model.topology_graph import MAX_PAIRS

DESCRIBED, DELETED, REJECTED = TopologyDescribed.__name__, TopologyDeleted.__name__, Rejected.__name__
FACT = "fact"  # the column with all fields of a fact of an appended table: a struct of `spark_schema`
IS_EXACT = "is_exact"

# Added to the offsets of a topic each time that it was created again (`source_topics.py`).
GENERATION_OFFSETS: Final = 10**12

_TEXT, _WHOLE, _SMALL = pa.string(), pa.int64(), pa.int32()
_COLUMNS = {
    "topic": _TEXT,
    "partition": _SMALL,
    "offset": _WHOLE,
    "recorded_at": _WHOLE,  # the record's timestamp
    "key": _TEXT,
    "value_bytes": _WHOLE,
    "kind": _TEXT,  # the fact's class, or Rejected
    "reason": _TEXT,  # of a rejection
    "cluster_id": _TEXT,
    "at": _WHOLE,
    "name": _TEXT,  # the group, the plan, the subject
    "incarnation": _TEXT,
    "epoch": _SMALL,
    "hash": _TEXT,
    "provenance": _TEXT,
    "member": _TEXT,
    "process": _TEXT,
    "description": _TEXT,
    "fields": _TEXT,
    "weight": _WHOLE,  # about how many bytes its rows take
    "earlier": pa.bool_(),  # from an earlier batch; repeated because this batch ends it
}
ARROW_SCHEMA = pa.schema(list(_COLUMNS.items()))
SCHEMA = from_arrow_schema(ARROW_SCHEMA)
_NAMES = ("group", "plan", "subject")
_VERSION_TEXTS = ("incarnation", "hash", "provenance", "member", "process")
_ROW_BYTES = 300  # of a row's columns other than names: numbers, hashes, kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """`cluster` is used for facts that name none; `max_bytes` bounds a topic's records, by the topic's suffix.

    `generations`, by topic: how often it was created again.
    """

    prefix: str
    cluster: str
    max_bytes: Mapping[str, int]
    generations: Mapping[str, int] = field(default_factory=dict)


def read_facts(records: DataFrame, settings: ReadSettings) -> DataFrame:
    """Records of Spark's Kafka source as facts."""
    recorded_at = sf.unix_millis("timestamp").alias("recorded_at")
    needed = records.select("topic", "partition", "offset", recorded_at, "key", "value")
    # A task needs a Python process: as many as can run at once, not one for each partition.
    at_once = records.sparkSession.sparkContext.defaultParallelism
    return needed.coalesce(at_once).mapInArrow(_reader(settings), SCHEMA)


def _reader(settings: ReadSettings) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [fact_row(record, settings) for record in batch.to_pylist()]
            # Column by column: from rows it takes four times as long.
            columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in ARROW_SCHEMA]
            yield pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)

    return read


def fact_row(record: Mapping[str, Any], settings: ReadSettings) -> dict[str, Any]:
    """One record of the Kafka source as a row of `SCHEMA`."""
    suffix = record["topic"].removeprefix(settings.prefix)
    key, value = record["key"], record["value"]
    row: dict[str, Any] = {
        "topic": record["topic"],
        "partition": record["partition"],
        "offset": settings.generations.get(record["topic"], 0) * GENERATION_OFFSETS + record["offset"],
        "recorded_at": record["recorded_at"],
        "key": None if key is None else key.decode("utf-8", "backslashreplace"),
        "value_bytes": None if value is None else len(value),
        "weight": len(key or b"") + len(value or b""),
        "earlier": False,
    }
    fact = decode(suffix, key, value, max_bytes=settings.max_bytes.get(suffix, MAX_FACT_BYTES))
    if isinstance(fact, Rejected):
        return row | {"kind": REJECTED, "reason": utf8_text(fact.reason), "cluster_id": settings.cluster}
    return row | _columns(fact, settings.cluster, row["recorded_at"])


def _columns(fact: Fact | Ended, cluster: str, recorded_at: int) -> dict[str, Any]:
    named = next((getattr(fact, name) for name in _NAMES if hasattr(fact, name)), None)
    columns = {"kind": type(fact).__name__, "cluster_id": cluster, "at": recorded_at, "name": _nullable_utf8(named)}
    if isinstance(fact, Fact):
        columns |= {"at": fact.at, "cluster_id": cluster if fact.cluster is None else utf8_text(fact.cluster)}
    match fact:
        case TopologyDescribed():
            description = description_text(fact.description)
            columns |= {
                **{name: _nullable_utf8(getattr(fact, name)) for name in _VERSION_TEXTS},
                "epoch": fact.epoch,
                "description": description,
                "weight": description_weight(description, fact.group),
            }
        case TopologyDeleted():
            columns["incarnation"] = utf8_text(fact.incarnation)
        case MemberTasksObserved() | MemberTasksEnded():
            columns |= {"member": utf8_text(fact.member), "fields": fields_text(fact)}
        case _:
            columns["fields"] = fields_text(fact)
    return columns


def utf8_text(text: str) -> str:
    """The text with lone surrogates in backslash form."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _nullable_utf8(text: str | None) -> str | None:
    return None if text is None else utf8_text(text)


def description_text(description: Description) -> str:
    """The description as in a fact, with lone surrogates as JSON escapes."""
    return dumps(DESCRIPTION.write(description)).decode("utf-8")


def parse_description(text: str) -> Description:
    read: Description = DESCRIPTION.read(loads(text.encode("utf-8")), "description")
    return read


def description_weight(description: str, name: str) -> int:
    """About how many bytes the rows of a description take: each text in it may be a row with the application's name.

    A pair of topics is a row too, and there are at most as many as texts times sinks.
    """
    texts, sinks = description.count('"') // 2, description.count('"type":"sink"')
    rows = texts + min(texts * sinks, MAX_PAIRS)
    return len(description) + rows * (_ROW_BYTES + len(name))


# --- appended tables --------------------------------------------------------------------------------------------------


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
    return _with_common_columns(read.select("topic", "partition", "offset", sf.struct(*fields).alias(FACT)), settings)


def decoded_facts(facts: DataFrame, fact: type[Fact], settings: ReadSettings) -> DataFrame:
    """The same columns for the facts of this class among those that `read_facts` returns."""
    of_class = facts.where(sf.col("kind") == fact.__name__)
    read = of_class.select("topic", "partition", "offset", sf.from_json("fields", spark_schema(fact)).alias(FACT))
    return _with_common_columns(read, settings)


def _with_common_columns(facts: DataFrame, settings: ReadSettings) -> DataFrame:
    cluster: Column = sf.coalesce(sf.col(f"{FACT}.cluster"), sf.lit(settings.cluster))
    return facts.withColumns({"cluster_id": cluster, "at": sf.col(f"{FACT}.at")})
