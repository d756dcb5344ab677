"""Finds the dead letters that events withdraw, among all of a cluster and not only those that are triaged."""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

Row = dict[str, Any]
Partition = tuple[str, str, int]  # group, topic id and partition
# The offsets at which the number of events changes, in their order, and the number from each of them on.
EventNumbers = Mapping[Partition, tuple[Sequence[int], Sequence[int]]]


def event_numbers(events: Iterable[Row]) -> EventNumbers:
    """How many events withdraw an offset; `events` have the group and the detail of `dead_letter_withdrawn`."""
    changes: dict[Partition, dict[int, int]] = {}
    for one in events:
        try:
            detail = json.loads(one["detail"])
            place = (one["group"], str(detail["topic_id"]), int(detail["partition"]))
            ranges = [(int(first), int(last)) for first, last in detail["offsets"]]
        except (ValueError, KeyError, TypeError):  # an event of another release, or forged
            continue
        of_place = changes.setdefault(place, {})
        for first, last in ranges:
            if first <= last:
                of_place[first] = of_place.get(first, 0) + 1
                of_place[last + 1] = of_place.get(last + 1, 0) - 1
    found: dict[Partition, tuple[list[int], list[int]]] = {}
    for place, of_place in changes.items():
        offsets = sorted(of_place)
        number, numbers = 0, []
        for offset in offsets:
            number += of_place[offset]
            numbers.append(number)
        found[place] = (offsets, numbers)
    return found


def number_at(numbers: EventNumbers, place: Partition, offset: int) -> int:
    """How many events withdraw this offset."""
    offsets, counts = numbers.get(place, ((), ()))
    index = bisect_right(offsets, offset)
    return counts[index - 1] if index else 0


def withdrawn_letters(letters: DataFrame, numbers: EventNumbers) -> DataFrame:
    """The dead letters that are withdrawn and do not say so yet, with what is true now.

    One is withdrawn when there are as many events that say so as copies of it: it may have come again.
    """
    groups = sorted({group for group, _, _ in numbers})
    open_ones = letters.where(~sf.col("withdrawn") & sf.col("group").isin(groups))

    def select(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            names = ("group", "topic_id", "partition", "offset", "copies")
            rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            yield batch.filter(
                pa.array(
                    [number_at(numbers, (*place,), offset) >= copies for *place, offset, copies in rows], pa.bool_()
                )
            )

    found = open_ones.mapInArrow(select, open_ones.schema)
    return found.withColumn("withdrawn", sf.lit(True)).withColumn("cluster", sf.lit(None).cast("string"))
