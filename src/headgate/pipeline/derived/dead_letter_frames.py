"""Reads dead letters, and the records that became them, from Kafka as frames: features only, never a payload.

A batch reads fixed ranges of offsets, so it is bounded, and a record counts as read only with the very offset that was
asked for. What a dead letter says is read by the pure parser of `dead_letters.model.headers`, on Spark's workers.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.config.model import Config
from headgate.dead_letters.model.headers import MAX_NAME, read_headers
from headgate.pipeline.batches import disk_full_error
from headgate.pipeline.fact_rows import utf8_text
from headgate.pipeline.queries import java_client_options

# The first of these that a record has names its type.
TYPE_HEADERS: Final = ("__TypeId__", "ce_type", "type", "message-type")
_MAX_UTF8 = 4  # bytes of a character
_SCHEMA_BYTES = 5  # the magic byte 0 and the id, as serializers of schema registries write them

Ranges = Mapping[tuple[str, int], tuple[int, int]]  # the first offset and the end, by topic and partition

_FEATURES = (
    pa.field("key_hash", pa.string()),
    pa.field("schema_id", pa.int64()),
    pa.field("producer_id", pa.int64()),
    pa.field("type_header", pa.string()),
    pa.field("size_bytes", pa.int64()),
    pa.field("size_band", pa.int32()),
)
FEATURE_NAMES: Final = tuple(one.name for one in _FEATURES)
_SAID = (
    pa.field("format", pa.string()),
    pa.field("group", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("topic_id", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("at", pa.int64()),
    pa.field("delivery_count", pa.int32()),
    pa.field("reason", pa.string()),
    pa.field("exception", pa.string()),
    pa.field("member", pa.string()),
    pa.field("copied", pa.bool_()),
    pa.field("problem", pa.string()),
)
_PLACE = (
    pa.field("dlq_topic", pa.string()),
    pa.field("dlq_partition", pa.int32()),
    pa.field("dlq_offset", pa.int64()),
    pa.field("recorded_at", pa.int64()),
)
LETTER_SCHEMA: Final = pa.schema([*_PLACE, *_SAID, *_FEATURES])


def read_letters(session: SparkSession, config: Config, ranges: Ranges) -> DataFrame:
    """What the dead letters in these ranges say, and the features of the records that they carry a copy of."""
    records = _read(session, config, ranges, **{"kafka.isolation.level": "read_committed"})
    has_content = (sf.col("key").isNotNull() | sf.col("value").isNotNull()).alias("has_content")
    needed = records.select(
        sf.col("topic").alias("dlq_topic"),
        sf.col("partition").alias("dlq_partition"),
        sf.col("offset").alias("dlq_offset"),
        sf.unix_millis("timestamp").alias("recorded_at"),
        "headers",
        has_content,
        *_features(),
    )
    at_once = session.sparkContext.defaultParallelism
    return needed.coalesce(at_once).mapInArrow(_parse, from_arrow_schema(LETTER_SCHEMA))


def read_each(
    ranges: Ranges, read: Callable[[Ranges], list[dict[str, Any]]]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The rows that `read` returns for these ranges, and why a topic could not be read, by topic.

    Offsets need only DESCRIBE, so a topic may be unreadable that has them: after a failure topics are read one by one.
    """
    try:
        return read(ranges), {}
    except PySparkException as failure:
        topics = sorted({topic for topic, _ in ranges})
        if disk_full_error(failure) is not None:
            raise
        if len(topics) == 1:
            return [], {topics[0]: next(iter(str(failure).splitlines()), type(failure).__name__)}
    rows: list[dict[str, Any]] = []
    unread: dict[str, str] = {}
    for name in topics:
        of_topic, problems = read_each({place: ranges[place] for place in ranges if place[0] == name}, read)
        rows += of_topic
        unread |= problems
    return rows, unread


def read_sources(session: SparkSession, config: Config, ranges: Ranges) -> DataFrame:
    """The records in these ranges: where they are, when they were written, and their features."""
    records = _read(session, config, ranges)
    return records.select("topic", "partition", "offset", sf.unix_millis("timestamp").alias("source_at"), *_features())


def _read(session: SparkSession, config: Config, ranges: Ranges, **options: str) -> DataFrame:
    assigned: dict[str, list[int]] = {}
    begin: dict[str, dict[str, int]] = {}
    end: dict[str, dict[str, int]] = {}
    for (topic, partition), (first, last) in ranges.items():
        assigned.setdefault(topic, []).append(partition)
        begin.setdefault(topic, {})[str(partition)] = first
        end.setdefault(topic, {})[str(partition)] = last
    reader = session.read.format("kafka").options(
        assign=json.dumps(assigned),
        startingOffsets=json.dumps(begin),
        endingOffsets=json.dumps(end),
        includeHeaders="true",
        # What retention deletes while it is read is missing among the rows: the dead letter is of an expired record.
        failOnDataLoss="false",
        groupIdPrefix="headgate-pipeline",
    )
    settings = {f"kafka.{name}": value for name, value in java_client_options(config.upstream).items()}
    return reader.options(**settings, **{"kafka.fetch.max.wait.ms": "10"}, **options).load()


def _features() -> list[Column]:
    value = sf.col("value")
    has_schema = (sf.octet_length(value) >= _SCHEMA_BYTES) & (sf.hex(sf.substring(value, 1, 1)) == "00")
    schema_id = sf.conv(sf.hex(sf.substring(value, 2, _SCHEMA_BYTES - 1)), 16, 10).cast("long")
    size = sf.coalesce(sf.octet_length("key"), sf.lit(0)) + sf.coalesce(sf.octet_length(value), sf.lit(0))
    names = sf.array(*map(sf.lit, TYPE_HEADERS))
    # In the order of the names; a record with several such headers has the first one's first value.
    of_type = sf.transform(
        names, lambda name: sf.get(sf.filter("headers", lambda header: header["key"] == name), sf.lit(0))["value"]
    )
    raw = sf.get(sf.filter(of_type, lambda one: one.isNotNull()), sf.lit(0))
    text = sf.make_valid_utf8(sf.substring(raw, 1, MAX_NAME * _MAX_UTF8).cast("string"))
    return [
        sf.sha2("key", 256).alias("key_hash"),
        sf.when(has_schema, schema_id).alias("schema_id"),
        sf.lit(None).cast("long").alias("producer_id"),  # that of a source is read apart: `join_sources`
        sf.substring(text, 1, MAX_NAME).alias("type_header"),
        size.cast("long").alias("size_bytes"),
        sf.floor(sf.log2(sf.greatest(size, sf.lit(1)))).cast("int").alias("size_band"),
    ]


def _parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [letter_row(record) for record in batch.to_pylist()]
        columns = [pa.array([row[field.name] for row in rows], field.type) for field in LETTER_SCHEMA]
        yield pa.RecordBatch.from_arrays(columns, schema=LETTER_SCHEMA)


def letter_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """One record of a dead-letter topic as a row of `LETTER_SCHEMA`."""
    headers = read_headers([(one["key"], one["value"]) for one in record["headers"] or ()])
    copied = record["has_content"] and not headers.has_copy_problem
    row = {name: record[name] for name in ("dlq_topic", "dlq_partition", "dlq_offset", "recorded_at")}
    row |= {name: record[name] if copied else None for name in FEATURE_NAMES}
    for name, text in (
        ("group", headers.group),
        ("reason", headers.reason),
        ("exception", headers.exception),
        ("member", headers.member),
        ("problem", headers.problem),
    ):
        row[name] = None if text is None else utf8_text(text)
    return row | {
        "format": headers.format,
        "topic": headers.topic,
        "topic_id": headers.topic_id,
        "partition": headers.partition,
        "offset": headers.offset,
        "at": headers.at,
        "delivery_count": headers.delivery_count,
        "copied": copied,
    }
