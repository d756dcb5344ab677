"""Reading tables without Spark: points, ranges and what was so at some time.

One rule: an answer is of one version of a table, so it holds whole batches or none. Names in a question come from the
table's definition, and values are bound, never written into SQL. Memory is bounded, however large the table.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_never, get_args

import duckdb
import pyarrow as pa

from headgate.base.errors import PlatformError, UsageError
from headgate.tables import engine
from headgate.tables.definition import CLUSTER_ID, Table
from headgate.tables.engine import quoted
from headgate.tables.storage import DataFile, StoredTable, translated

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
Value = str | int | bool
LIMIT = 1000
_AT_ONCE = 10_000
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Condition:
    """A row is meant when its column is so; null is none of these. All conditions of a question hold together."""

    column: str
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class AtOffset:
    """What held when the facts' topic had been read up to and with this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """What held at this time: up to the last offset that was written by then, in each cluster."""

    epoch_ms: int


@dataclass(frozen=True, slots=True)
class Now:
    """What holds."""


AsOf = AtOffset | AtTime | Now


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """An answer. `present` False: the table is not there, and so there are no rows; `more`: the limit left some out."""

    present: bool
    version: int | None
    rows: tuple[dict[str, Any], ...]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A table at a glance: its Delta version, its size, and when its last commit was, in epoch milliseconds."""

    version: int
    rows: int
    bytes: int
    updated: int


@dataclass(frozen=True, slots=True)
class _Question:
    """SQL whose first parameter is the files; `bucket` is the one where all of its rows lie, None for any."""

    sql: str
    parameters: tuple[Value, ...]
    bucket: int | None


class _FileGoneError(PlatformError):
    """A file of the version that was read is not there."""


class TableReader:
    """Reads the tables in the folder `root`, for as many threads as like."""

    def __init__(self, root: Path, *, memory_mb: int = engine.MEMORY_MB) -> None:
        self._root = root
        self._duckdb = engine.connect(memory_mb)
        self._lock = threading.Lock()
        self._stored: dict[str, StoredTable] = {}

    def rows(
        self,
        table: Table,
        *,
        where: Sequence[Condition] = (),
        as_of: AsOf | None = None,
        columns: Sequence[str] = (),
        limit: int = LIMIT,
    ) -> Rows:
        """The rows that are meant, in the order of their keys, at most `limit` of them; no `columns` means all."""
        question = _question(table, where, as_of, columns, limit + 1)
        for attempt in range(1, _ATTEMPTS + 1):
            version, files = self._version(table)
            if version is None:
                return Rows(present=False, version=None, rows=(), more=False)
            try:
                found = [row for batch in self._batches(table, question, files) for row in batch.to_pylist()]
            except _FileGoneError:
                # The reader was asleep for longer than files are kept: there is a newer version.
                if attempt == _ATTEMPTS:
                    raise
                self._forget(table)
            else:
                return Rows(present=True, version=version, rows=tuple(found[:limit]), more=len(found) > limit)
        raise AssertionError

    def stream(
        self,
        table: Table,
        *,
        where: Sequence[Condition] = (),
        as_of: AsOf | None = None,
        columns: Sequence[str] = (),
        limit: int | None = None,
    ) -> Iterator[dict[str, Any]] | None:
        """All rows that are meant, in the order of their keys, few of them in memory; None: the table is not there."""
        question = _question(table, where, as_of, columns, limit)
        version, files = self._version(table)
        if version is None:
            return None
        return (row for batch in self._batches(table, question, files) for row in batch.to_pylist())

    def summary(self, table: Table) -> Summary | None:
        """None when the table is not there; a table of another version can be looked at too."""
        with self._lock:
            stored = self._table(table)
            delta = stored.newest()
            if delta is None:
                return None
            files = stored.files()
            with translated(stored.folder):
                updated = delta.history(1)[0]["timestamp"]
            return Summary(
                version=delta.version(),
                rows=sum(file.rows for file in files),
                bytes=sum(file.bytes for file in files),
                updated=updated,
            )

    def close(self) -> None:
        self._duckdb.close()

    def _table(self, table: Table) -> StoredTable:
        if table.name not in self._stored:
            self._stored[table.name] = StoredTable(self._root, table)
        return self._stored[table.name]

    def _version(self, table: Table) -> tuple[int | None, tuple[DataFile, ...]]:
        with self._lock:
            stored = self._table(table)
            delta = stored.checked()
            return (None, ()) if delta is None else (delta.version(), stored.files())

    def _forget(self, table: Table) -> None:
        with self._lock:
            self._table(table).forget()

    def _batches(self, table: Table, question: _Question, files: tuple[DataFile, ...]) -> Iterator[pa.RecordBatch]:
        meant = [file for file in files if question.bucket is None or file.bucket == question.bucket]
        if not meant:
            return
        parameters = [engine.paths(meant), *question.parameters]
        with self._duckdb.cursor() as cursor:
            try:
                yield from cursor.sql(question.sql, params=parameters).to_arrow_reader(_AT_ONCE)
            except (duckdb.Error, OSError, pa.ArrowException) as failure:  # the last two once rows are under way
                words = str(failure).partition("\n")[0]
                if words.startswith("IO Error"):
                    raise _FileGoneError(f"{table.name}: its files cannot be read: {words}") from None
                raise PlatformError(f"{table.name}: the question cannot be answered: {words}") from None


def _question(
    table: Table, where: Sequence[Condition], as_of: AsOf | None, columns: Sequence[str], limit: int | None
) -> _Question:
    for name in columns:
        column_of(table, name)
    wanted = ", ".join(f"r.{quoted(name)}" for name in columns or table.columns.names)
    key = ", ".join(f"r.{quoted(name)}" for name in table.key)
    if table.appended:
        wanted = f"DISTINCT ON ({key}) {wanted}"
    conditions: list[str] = []
    parameters: list[Value] = []
    for one in where:
        _check(table, one)
        conditions.append(f"r.{quoted(one.column)} {one.operator} ?")
        parameters.append(one.value)
    joined = ""
    if as_of is not None:
        if not table.has_validity:
            raise UsageError(f"{table.name} has no validity, so it cannot be asked what was so at some time")
        match as_of:
            case Now():
                conditions.append("r.valid_to IS NULL")
            case AtOffset(offset):
                conditions.append("r.valid_from <= ? AND (r.valid_to IS NULL OR r.valid_to > ?)")
                parameters += [offset, offset]
            case AtTime(epoch_ms):
                joined = _CUT
                conditions.append("r.valid_from <= cut.last AND (r.valid_to IS NULL OR r.valid_to > cut.last)")
                parameters = [epoch_ms, *parameters]
            case _:
                assert_never(as_of)
    sql = (
        f"WITH stored AS (SELECT * FROM {engine.FILES}) SELECT {wanted} FROM stored AS r{joined}"  # noqa: S608
        + (f" WHERE {' AND '.join(conditions)}" if conditions else "")
        + f" ORDER BY {key}"
        + ("" if limit is None else " LIMIT ?")
    )
    if limit is not None:
        parameters.append(limit)
    return _Question(sql, tuple(parameters), None if joined else _bucket(table, where))


# Clocks of writers differ, so a time is first turned into an offset: the last one that was written by then.
_CUT = f"""
 JOIN (
   SELECT cluster_id, max(o) AS last FROM (
     SELECT cluster_id, valid_from AS o, "at" AS t FROM stored
     UNION ALL SELECT cluster_id, valid_to, ended_at FROM stored
   ) WHERE t <= ? GROUP BY cluster_id
 ) AS cut ON cut.cluster_id = r.{CLUSTER_ID}"""  # noqa: S608 - nothing in it comes from outside


def column_of(table: Table, name: str) -> pa.Field:
    if name not in table.columns.names:
        raise UsageError(f"{table.name} has no column {name!r}; its columns are: {', '.join(table.columns.names)}")
    return table.columns.field(name)


def kind_of(column: pa.Field) -> type[Value]:
    """The Python type of its values."""
    kinds: dict[pa.DataType, type[Value]] = {pa.string(): str, pa.bool_(): bool}
    return kinds.get(column.type, int)


def _check(table: Table, condition: Condition) -> None:
    if condition.operator not in get_args(Operator):
        raise UsageError(f"{condition.operator!r} is no comparison; there are {' '.join(get_args(Operator))}")
    if type(condition.value) is not kind_of(column_of(table, condition.column)):
        raise UsageError(f"{condition.value!r} is no value for the column {condition.column} of {table.name}")


def _bucket(table: Table, where: Sequence[Condition]) -> int | None:
    """The bucket of all rows that are meant, when the conditions pin it."""
    pinned = {one.column: one.value for one in where if one.operator == "="}
    if not table.buckets or not set(table.bucket_by) <= pinned.keys():
        return None
    return table.bucket(tuple(pinned[name] for name in table.bucket_by))
