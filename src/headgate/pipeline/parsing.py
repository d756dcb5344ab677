"""Records to facts: what lies in the topics, as one DataFrame that every build starts from.

One rule: `headgate.facts.decode` reads every record, on Spark's workers. A second reading by `from_json` would be
quicker and would sooner or later disagree with the gateway about what a fact is: versions, keys and values that must
agree, bounds, and the reasons of a rejection live in one place. Nothing here fails because of what a record holds.

A fact is one row (`SCHEMA`). Its common fields and those of a topology are columns; all others are in `fields`, a JSON
object, for `get_json_object`. A name that is no UTF-8 carries its odd bytes in backslash form, as a table's text must
be UTF-8; inside a description nothing is lost.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from headgate.facts import MAX_FACT_BYTES, Ended, Fact, JsonText, Rejected, TopologyDeleted, TopologyDescribed, decode
from headgate.facts.json_form import dumps, loads
from headgate.facts.topology import DESCRIPTION, Description
from headgate.pipeline.parts import description_weight

DESCRIBED, DELETED, REJECTED = TopologyDescribed.__name__, TopologyDeleted.__name__, Rejected.__name__

_TEXT, _WHOLE, _SMALL, _FLAG = (
    (StringType(), pa.string()),
    (LongType(), pa.int64()),
    (IntegerType(), pa.int32()),
    (
        BooleanType(),
        pa.bool_(),
    ),
)
_COLUMNS = {
    "topic": _TEXT,
    "partition": _SMALL,
    "offset": _WHOLE,
    "recorded_at": _WHOLE,  # the record's own time
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
    "earlier": _FLAG,  # was in a batch before this one, and is here because this batch ends it
}
SCHEMA = StructType([StructField(name, spark) for name, (spark, _) in _COLUMNS.items()])
ARROW_SCHEMA = pa.schema([(name, arrow) for name, (_, arrow) in _COLUMNS.items()])
_NAMES = ("group", "plan", "subject")
_FIELD_NAMES: dict[type, tuple[str, ...]] = {}  # of dataclasses: asking them each time takes longer than all the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How records are read: `cluster` is for facts that name none; `largest` bounds a topic's records, by suffix."""

    prefix: str
    cluster: str
    largest: Mapping[str, int]


def parse(records: DataFrame, reading: Reading) -> DataFrame:
    """Records of Spark's Kafka source as facts."""
    recorded_at = sf.unix_millis("timestamp").alias("recorded_at")
    needed = records.select("topic", "partition", "offset", recorded_at, "key", "value")
    # A task is a Python process that must be reached: as many as can run at once, not one for each partition.
    at_once = records.sparkSession.sparkContext.defaultParallelism
    return needed.coalesce(at_once).mapInArrow(_reader(reading), SCHEMA)


def _reader(reading: Reading) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [fact_row(record, reading) for record in batch.to_pylist()]
            # Column by column: from rows it takes four times as long.
            columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in ARROW_SCHEMA]
            yield pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)

    return read


def fact_row(record: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """One record of the Kafka source as a row of `SCHEMA`."""
    suffix = record["topic"].removeprefix(reading.prefix)
    key, value = record["key"], record["value"]
    row: dict[str, Any] = {
        "topic": record["topic"],
        "partition": record["partition"],
        "offset": record["offset"],
        "recorded_at": record["recorded_at"],
        "key": None if key is None else key.decode("utf-8", "backslashreplace"),
        "value_bytes": None if value is None else len(value),
        "weight": len(key or b"") + len(value or b""),
        "earlier": False,
    }
    fact = decode(suffix, key, value, max_bytes=reading.largest.get(suffix, MAX_FACT_BYTES))
    if isinstance(fact, Rejected):
        return row | {"kind": REJECTED, "reason": plain(fact.reason), "cluster_id": reading.cluster}
    return row | _columns(fact, reading.cluster, row["recorded_at"])


def _columns(fact: Fact | Ended, cluster: str, recorded_at: int) -> dict[str, Any]:
    named = next((getattr(fact, name) for name in _NAMES if hasattr(fact, name)), None)
    columns = {"kind": type(fact).__name__, "cluster_id": cluster, "at": recorded_at, "name": _plain(named)}
    if isinstance(fact, Fact):
        columns |= {"at": fact.at, "cluster_id": cluster if fact.cluster is None else plain(fact.cluster)}
    match fact:
        case TopologyDescribed():
            description = description_text(fact.description)
            columns |= {
                "incarnation": plain(fact.incarnation),
                "epoch": fact.epoch,
                "hash": plain(fact.hash),
                "provenance": fact.provenance,
                "member": _plain(fact.member),
                "process": _plain(fact.process),
                "description": description,
                "weight": description_weight(description, fact.group),
            }
        case TopologyDeleted():
            columns["incarnation"] = plain(fact.incarnation)
        case _:
            columns["fields"] = _fields_text(fact)
    return columns


def plain(text: str) -> str:
    """UTF-8, whatever the name holds."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _plain(text: str | None) -> str | None:
    return None if text is None else plain(text)


def description_text(description: Description) -> str:
    """As it lies in a fact: a name that is no UTF-8 is its JSON escape."""
    return dumps(DESCRIPTION.write(description)).decode("utf-8")


def description_of(text: str) -> Description:
    read: Description = DESCRIPTION.read(loads(text.encode("utf-8")), "description")
    return read


def _fields_text(fact: Fact | Ended) -> str:
    return json.dumps(_jsonable(fact))


def _jsonable(value: Any) -> Any:
    """What has no schema (`JsonText`) is a text in it: as the fact has it, to the letter."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if value.isascii() else plain(value)
    if isinstance(value, tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, JsonText):
        return plain(value.text)
    names = _FIELD_NAMES.get(type(value))
    if names is None:
        names = tuple(one.name for one in fields(value) if one.name != "extra")
        _FIELD_NAMES[type(value)] = names
    return {name: _jsonable(getattr(value, name)) for name in names}
