"""A small table for tests, with and without buckets, and its rows."""

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from headgate.tables.table import Table, flag, small, text, whole

THINGS = Table(
    name="things",
    description="Things.",
    question="Which things are there?",
    columns=pa.schema(
        [
            text("cluster_id", "the cluster"),
            text("name", "the thing"),
            small("part", "a part of it"),
            whole("size", "how large it is", null=True),
            text("by", "who made it", null=True),
            flag("is_old", "whether it is old"),
        ]
    ),
    key=("cluster_id", "name", "part"),
)
SORTED_THINGS = replace(THINGS, name="sorted_things", buckets=4, bucket_by=("cluster_id", "name"))

Row = dict[str, object]
Key = tuple[object, ...]


def thing(name: str = "a", part: int = 0, size: int | None = 1, *, by: str | None = None, old: bool = False) -> Row:
    return {"cluster_id": "c", "name": name, "part": part, "size": size, "by": by, "is_old": old}


def batch(rows: Iterable[Row], table: Table = THINGS) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=table.columns)


def key_of(row: Row, table: Table = THINGS) -> Key:
    return tuple(row[name] for name in table.key)
