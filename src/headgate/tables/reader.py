"""Reads tables without Spark: by conditions, and as of an offset or a time.

Invariants: a result comes from one version of a table, so it holds whole batches. Column names come from the table's
definition, and values are bound, never written into SQL. Memory is bounded, however large the table.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, assert_never, get_args

import duckdb
import pyarrow as pa

from headgate.base.errors import PlatformError, UsageError
from headgate.base.locations import Location, ObjectLocation
from headgate.tables.storage import (
    FILES,
    MEMORY_MB,
    DataFile,
    StoredTable,
    TableStamp,
    connect_duckdb,
    file_paths,
    query_error_text,
    quoted,
    translate_errors,
)
from headgate.tables.table import CLUSTER_ID, Table

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
Value = str | int | float | bool
LIMIT = 1000
_AT_ONCE = 10_000
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a column with a value; null matches none. All conditions of a query must hold."""

    column: str
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class AtOffset:
    """Rows that were valid when the facts' topic had been read up to and including this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """Rows that were valid at this time; by offset, at the last one that was written by then, in each cluster."""

    epoch_ms: int


@dataclass(frozen=True, slots=True)
class Now:
    """Rows that are valid."""


AsOf = AtOffset | AtTime | Now


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A result. `present` is False when there is no table; `more` is True when the limit left rows out."""

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
class _Query:
    """SQL whose first parameter is the files; `bucket` is the only one that can have matching rows, None for any."""

    sql: str
    parameters: tuple[Value, ...]
    bucket: int | None


class _FileGoneError(PlatformError):
    """A file of the version that was read no longer exists."""


class TableReader:
    """Reads the tables in the folder `root`, or on an object store. Thread-safe."""

    def __init__(self, root: Location, *, memory_mb: int = MEMORY_MB) -> None:
        self._root = root
        self._duckdb = connect_duckdb(root, memory_mb=memory_mb)
        self._lock = threading.Lock()
        self._stored: dict[str, tuple[threading.Lock, StoredTable]] = {}

    def rows(
        self,
        table: Table,
        *,
        where: Sequence[Condition] = (),
        as_of: AsOf | None = None,
        columns: Sequence[str] = (),
        limit: int = LIMIT,
    ) -> Rows:
        """The matching rows in the order of their keys, at most `limit` of them; no `columns` means all."""
        query = _build_query(table, where, as_of, columns, limit + 1)
        for attempt in range(1, _ATTEMPTS + 1):
            version, files = self._version(table)
            if version is None:
                return Rows(present=False, version=None, rows=(), more=False)
            try:
                found = [row for batch in self._batches(table, query, files) for row in batch.to_pylist()]
            except _FileGoneError:
                # The reader slept for longer than files are kept: there is a newer version.
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
        """All matching rows in the order of their keys, few of them in memory; None when there is no table."""
        query = _build_query(table, where, as_of, columns, limit)
        version, files = self._version(table)
        if version is None:
            return None
        return (row for batch in self._batches(table, query, files) for row in batch.to_pylist())

    def stamp(self, table: Table) -> TableStamp | None:
        """Identifies the newest version, also among those of a table that was made anew; None without a table."""
        with self._locked(table) as stored:
            return stored.stamp()

    def summary(self, table: Table) -> Summary | None:
        """None when there is no table; works for a table of another schema version too."""
        with self._locked(table) as stored:
            delta = stored.newest()
            if delta is None:
                return None
            files = stored.files()
            if isinstance(stored.folder, ObjectLocation):
                _, _, updated = stored.stamp() or (0, 0, 0)  # when the commit was stored: no further request
            else:
                with translate_errors(stored.folder):
                    updated = delta.history(1)[0]["timestamp"]
            return Summary(
                version=delta.version(),
                rows=sum(file.rows for file in files),
                bytes=sum(file.bytes for file in files),
                updated=updated,
            )

    def close(self) -> None:
        self._duckdb.close()

    @contextmanager
    def _locked(self, table: Table) -> Iterator[StoredTable]:
        """The table for the duration of the block; others are not waited for, because a store may take its time."""
        with self._lock:
            if table.name not in self._stored:
                self._stored[table.name] = threading.Lock(), StoredTable(self._root, table)
            lock, stored = self._stored[table.name]
        with lock:
            yield stored

    def _version(self, table: Table) -> tuple[int | None, tuple[DataFile, ...]]:
        with self._locked(table) as stored:
            delta = stored.checked()
            return (None, ()) if delta is None else (delta.version(), stored.files())

    def _forget(self, table: Table) -> None:
        with self._locked(table) as stored:
            stored.forget()

    def _batches(self, table: Table, query: _Query, files: tuple[DataFile, ...]) -> Iterator[pa.RecordBatch]:
        matching = [file for file in files if query.bucket is None or file.bucket == query.bucket]
        if not matching:
            return
        parameters = [file_paths(matching), *query.parameters]
        with self._duckdb.cursor() as cursor:
            try:
                yield from cursor.sql(query.sql, params=parameters).to_arrow_reader(_AT_ONCE)
            except (duckdb.Error, OSError, pa.ArrowException) as failure:  # the last two once rows are under way
                words = query_error_text(failure).partition("\n")[0]
                if words.startswith("IO Error"):
                    raise _FileGoneError(f"{table.name}: its files cannot be read: {words}") from None
                raise PlatformError(f"{table.name}: the query failed: {words}") from None


def _build_query(
    table: Table, where: Sequence[Condition], as_of: AsOf | None, columns: Sequence[str], limit: int | None
) -> _Query:
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
            raise UsageError(f"{table.name} has no validity, so it cannot be read as of a time")
        match as_of:
            case Now():
                conditions.append("r.valid_to IS NULL")
            case AtOffset() if table.validity_is_time:
                raise UsageError(f"{table.name} is valid by time: read it as of a time, not of an offset")
            case AtOffset(offset):
                conditions.append("r.valid_from <= ? AND (r.valid_to IS NULL OR r.valid_to > ?)")
                parameters += [offset, offset]
            case AtTime(epoch_ms) if table.validity_is_time:
                conditions.append("r.valid_from <= ? AND (r.valid_to IS NULL OR r.valid_to > ?)")
                parameters += [epoch_ms, epoch_ms]
            case AtTime(epoch_ms):
                joined = _CUT
                conditions.append("r.valid_from <= cut.last AND (r.valid_to IS NULL OR r.valid_to > cut.last)")
                parameters = [epoch_ms, *parameters]
            case _:
                assert_never(as_of)
    sql = (
        f"WITH stored AS (SELECT * FROM {FILES}) SELECT {wanted} FROM stored AS r{joined}"  # noqa: S608
        + (f" WHERE {' AND '.join(conditions)}" if conditions else "")
        + f" ORDER BY {key}"
        + ("" if limit is None else " LIMIT ?")
    )
    if limit is not None:
        parameters.append(limit)
    return _Query(sql, tuple(parameters), None if joined else _bucket(table, where))


# Clocks of writers differ, so a time is first converted to an offset: the last one that was written by then.
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
    """The Python type of a column's values."""
    kinds: dict[pa.DataType, type[Value]] = {pa.string(): str, pa.bool_(): bool, pa.float64(): float}
    return kinds.get(column.type, int)


def _check(table: Table, condition: Condition) -> None:
    if condition.operator not in get_args(Operator):
        raise UsageError(f"{condition.operator!r} is not a comparison; use one of {' '.join(get_args(Operator))}")
    if type(condition.value) is not kind_of(column_of(table, condition.column)):
        raise UsageError(f"{condition.value!r} is not a value of the column {condition.column} of {table.name}")


def _bucket(table: Table, where: Sequence[Condition]) -> int | None:
    """The bucket of all matching rows, when the conditions determine it."""
    pinned = {one.column: one.value for one in where if one.operator == "="}
    if not table.buckets or not set(table.bucket_by) <= pinned.keys():
        return None
    return table.bucket(tuple(pinned[name] for name in table.bucket_by))
