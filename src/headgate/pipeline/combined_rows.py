"""Rows of several tables in one DataFrame, so that Spark plans and runs them together.

Planning is most of what a small batch costs, so it is done once, and not for each table. The columns of all tables are
those of one union by their types: `text_0`, `whole_0` and so on, in the order of each table's columns; what a table
does not use is null. Structs, one for each table, would not do: Spark refuses null structs with required fields.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame

from headgate.tables.definitions import table_named
from headgate.tables.table import Table

# Up to this size of facts the rows of all tables are collected at once. They may take some times as much, because
# several tables have the names of a description.
TOGETHER_BYTES: Final = 4 * 1024 * 1024
_TABLE: Final = "table_number"
# The name and the type in Spark of the shared columns, by the type of a table's column.
_SLOTS: Final[Mapping[pa.DataType, tuple[str, str]]] = {
    pa.string(): ("text", "string"),
    pa.int64(): ("whole", "bigint"),
    pa.int32(): ("whole", "bigint"),
    pa.bool_(): ("flag", "boolean"),
    pa.float64(): ("fraction", "double"),
}


def collect_together(rows: Mapping[str, Callable[[], DataFrame]]) -> dict[str, pa.Table]:
    """The rows of all these tables by one plan; `rows` makes those of a table.

    Nothing when the plan fails: table by table it is seen whose build fails.
    """
    tables = [table_named(name) for name in rows]
    if not tables:
        return {}
    try:
        combined = combine_rows({name: make() for name, make in rows.items()}, tables)
        return separate_rows(combined.toArrow(), tables)
    except (AnalysisException, PythonException):
        return {}


def combine_rows(rows: Mapping[str, DataFrame], tables: Sequence[Table]) -> DataFrame:
    """The rows of all these tables, which have their columns; a column says which table a row is of."""
    types = dict(slot for table in tables for slot in _slot_types(table))
    combined = []
    for number, table in enumerate(tables):
        used = {slot: f"`{name}`" for slot, name in _slots(table)}
        # As texts: each Column that Python makes is several calls to the JVM.
        shared = (f"CAST({used.get(slot, 'NULL')} AS {kind}) AS {slot}" for slot, kind in types.items())
        combined.append(rows[table.name].selectExpr(f"{number} AS {_TABLE}", *shared))
    return reduce(DataFrame.unionAll, combined)


def separate_rows(combined: pa.Table, tables: Sequence[Table]) -> dict[str, pa.Table]:
    """The rows of each table, from what `combine_rows` gave."""
    return {table.name: _rows_of(combined, number, table) for number, table in enumerate(tables)}


def _rows_of(combined: pa.Table, number: int, table: Table) -> pa.Table:
    own = combined.filter(pc.equal(combined[_TABLE], number))
    return pa.table({name: own[slot] for slot, name in _slots(table)})


def _slots(table: Table) -> Iterator[tuple[str, str]]:
    """The shared column of each column of a table."""
    counts: Counter[str] = Counter()
    for column in table.columns:
        kind, _ = _SLOTS[column.type]
        yield f"{kind}_{counts[kind]}", column.name
        counts[kind] += 1


def _slot_types(table: Table) -> Iterator[tuple[str, str]]:
    for (slot, _), column in zip(_slots(table), table.columns, strict=True):
        yield slot, _SLOTS[column.type][1]
