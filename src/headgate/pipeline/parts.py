"""A batch in parts, so that what is collected of it is bounded however large its records are.

One rule: the bound is on what the rows of a part will take, not on how many records it has. Spark bounds a batch by
records alone, and a record of a megabyte becomes many thousand rows. A part is a range of the batch's records in their
order (topic, partition, offset), so parts are as good as batches; a single record is a part, whatever it takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headgate.topologies.model.topology_graph import MAX_PAIRS

LARGEST = 64 * 1024 * 1024
_ROW = 300  # what a row's own columns take beside names: numbers, hashes, kinds
_PLACE = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Where a record lies, what it holds, and about how many bytes its rows take."""

    topic: str
    partition: int
    offset: int
    kind: str
    weight: int


def description_weight(description: str, name: str) -> int:
    """About how many bytes the rows of a description take: each text in it may be a row, and carries the name.

    A pair of topics is a row too, and there are at most as many as texts times sinks.
    """
    texts, sinks = description.count('"') // 2, description.count('"type":"sink"')
    rows = texts + min(texts * sinks, MAX_PAIRS)
    return len(description) + rows * (_ROW + len(name))


def records_of(parsed: DataFrame) -> list[Record]:
    """All records of a batch in their order: a few numbers for each, and no names that clients choose."""
    rows = parsed.select(*_PLACE, "kind", "weight").toArrow().to_pylist()
    records = [Record(**row) for row in rows]
    return sorted(records, key=lambda one: (one.topic, one.partition, one.offset))


def halves(records: Sequence[Record]) -> tuple[Sequence[Record], Sequence[Record]]:
    """Two parts of about the same weight, none of them empty."""
    half = sum(one.weight for one in records) / 2
    reached = 0
    for number, one in enumerate(records[:-1], start=1):
        reached += one.weight
        if reached >= half:
            return records[:number], records[number:]
    return records[:-1], records[-1:]


def within(records: Sequence[Record]) -> Column:
    """Whether a row of the batch is one of these, which follow each other."""
    place = sf.struct(*_PLACE)
    return (place >= _at(records[0])) & (place <= _at(records[-1]))


def _at(record: Record) -> Column:
    return sf.struct(
        sf.lit(record.topic).alias("topic"),
        sf.lit(record.partition).cast("int").alias("partition"),
        sf.lit(record.offset).cast("long").alias("offset"),
    )
