"""One description, many rows: the pure functions of the domain, called for each version on Spark's workers.

One rule: what a description says is worked out by `domain/` and nowhere else; here it only becomes columns.
"""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from headgate.facts.topology import Description
from headgate.pipeline.parsing import description_of, plain
from headgate.pipeline.reduction import versions

# What a version's rows share; they come out as they came in.
_SHARED = (
    "cluster_id",
    "app_id",
    "incarnation",
    "epoch",
    "hash",
    "provenance",
    "valid_from",
    "valid_to",
    "at",
    "ended_at",
    "is_historic",
)

Rows = Callable[[Description, str], Iterable[tuple[str | bool | None, ...]]]


def exploded(facts: DataFrame, rows: Rows, *, texts: tuple[str, ...], flags: tuple[str, ...] = ()) -> DataFrame:
    """A row for each tuple that `rows(description, app_id)` gives: first the `texts`, then the `flags`."""
    shared = versions(facts).select(*_SHARED, "description")
    own = [StructField(name, StringType()) for name in texts] + [StructField(name, BooleanType()) for name in flags]
    schema = StructType([field for field in shared.schema if field.name != "description"] + own)
    fields = [(name, pa.string()) for name in texts] + [(name, pa.bool_()) for name in flags]
    return shared.mapInArrow(_exploder(rows, fields), schema)


def _exploder(
    rows: Rows, fields: list[tuple[str, pa.DataType]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def explode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts: list[int] = []
            found: list[tuple[str | bool | None, ...]] = []
            for app, description in zip(batch["app_id"].to_pylist(), batch["description"].to_pylist(), strict=True):
                made = tuple(rows(description_of(description), app))
                counts.append(len(made))
                found += made
            repeated = pa.array([row for row, count in enumerate(counts) for _ in range(count)], pa.int64())
            table = pa.Table.from_batches([batch.drop_columns(["description"])]).take(repeated)
            for place, (name, kind) in enumerate(fields):
                table = table.append_column(name, pa.array([_utf8(row[place]) for row in found], kind))
            yield from table.to_batches()

    return explode


def _utf8(value: str | bool | None) -> str | bool | None:
    return plain(value) if isinstance(value, str) else value
