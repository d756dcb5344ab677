"""Writes a table: upserts rows by their key, each batch once, or replaces rows by others.

A commit is a whole batch, or a whole table, and carries the number of its batch. So a batch that is written again after
a crash is recognised, and a batch without changes makes no commit. Two writers of one table are safe, but their commits
conflict: let one process write a table. A row that has ended keeps the ids of its topics, because a later topic of the
same name is another topic.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import UsageError
from headgate.base.locations import Location, ObjectLocation
from headgate.tables.object_store import check_conditional_writes
from headgate.tables.storage import (
    FILES,
    StoredTable,
    TableError,
    connect_duckdb,
    file_paths,
    quoted,
    storage_options,
    translate_errors,
)
from headgate.tables.table import BUCKET, Table, id_columns

# Files that no version needs are kept for slow readers.
RETENTION_HOURS = 1
_ATTEMPTS = 5
_KEPT_BYTES = 4 * 1024 * 1024  # a pipeline has a writer for each table
_GONE = "is_gone"  # marks the keys of rows that are deleted

_CONFIGURATION = {
    "delta.enableDeletionVectors": "false",  # readers take the files as they are
    "delta.deletedFileRetentionDuration": f"interval {RETENTION_HOURS} hours",
    "delta.logRetentionDuration": "interval 6 hours",
    "delta.enableExpiredLogCleanup": "true",
}

# Readers take the minimum and maximum of columns from the files themselves; by Delta's own, which are worked out for
# each file that is appended, only expired rows are found.
_APPENDED_CONFIGURATION = _CONFIGURATION | {"delta.dataSkippingStatsColumns": "at"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of writing a batch: how many rows were new or changed, and the Delta version after it.

    `repeated`: this batch, or a later one of the query, had been written before.
    """

    rows: int
    version: int
    repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimized:
    """The number of files of the table before and after, and the number of unused files that were deleted."""

    files_before: int
    files_after: int
    deleted: int


class TableWriter:
    """Writes one table in the folder `root`, or on an object store. Not thread-safe."""

    def __init__(self, root: Location, table: Table, clock: Clock | None = None) -> None:
        self.table = table
        self._clock = SystemClock() if clock is None else clock
        self._stored = StoredTable(root, table)
        self._was_there = False
        self._duckdb = connect_duckdb(root, kept_bytes=_KEPT_BYTES)
        self._options = storage_options(self._stored.folder)

    @property
    def folder(self) -> Location:
        return self._stored.folder

    @property
    def _configuration(self) -> Mapping[str, str]:
        return _APPENDED_CONFIGURATION if self.table.appended else _CONFIGURATION

    def version(self) -> int | None:
        """The newest Delta version; None when there is no table."""
        delta = self._stored.newest()
        return None if delta is None else delta.version()

    def create(self) -> None:
        """Create the table when it is absent; `TableError` when it has another schema."""
        self._retry(self._opened)

    def has_batch(self, query: str, batch: int) -> bool:
        """Whether this batch, or a later one of the query, was written; `TableError` when the schema is another."""
        delta = self._stored.checked()
        done = None if delta is None else delta.transaction_version(query)
        return done is not None and done >= batch

    def upsert(self, rows: pa.Table, *, query: str, batch: int, last: bool = True) -> Written:
        """Insert rows with new keys, and replace those with known keys.

        Batches of one query come in ascending order, and `query` identifies one checkpoint: when it is lost, batches
        count from 0 again and must have another name. Without `last`, more rows of this batch follow, and until then
        the batch counts as not written.
        """
        batch_rows = self._conformed(rows)

        def attempt() -> Written:
            delta = self._opened()
            done = delta.transaction_version(query)
            if done is not None and done >= batch:
                return Written(rows=0, version=delta.version(), repeated=True)
            changed = self._changed(batch_rows)
            if changed.num_rows:
                self._merge(delta, changed, [Transaction(app_id=query, version=batch)] if last else [])
            return Written(rows=changed.num_rows, version=delta.version())

        return self._retry(attempt)

    def append(self, rows: pa.Table, *, transactions: Mapping[str, int]) -> Written:
        """Append rows to a table that only grows, in one commit that has these transactions; no rows make no commit.

        Rows with a stored key stay beside each other, and readers leave the copies out.
        """
        new = self._conformed(rows, has_copies=True)

        def attempt() -> Written:
            delta = self._opened()
            done = {name: delta.transaction_version(name) for name in transactions}
            if all((found := done[name]) is not None and found >= number for name, number in transactions.items()):
                return Written(rows=0, version=delta.version(), repeated=True)
            if new.num_rows:
                properties = CommitProperties(app_transactions=_transactions(transactions))
                with translate_errors(self._stored.folder):
                    write_deltalake(delta, _bare(new), mode="append", commit_properties=properties)
                self._stored.forget()
            return Written(rows=new.num_rows, version=self._opened().version())

        return self._retry(attempt)

    def replace(self, rows: pa.Table, *, within: pa.Table | None, transactions: Mapping[str, int]) -> Written:
        """Make the stored rows equal to these, in one commit: rows that are not among them are deleted.

        With `within`, only stored rows that have its values are compared, and all `rows` have them; its columns are of
        the key. `transactions` go into the commit. Equal rows make no commit.
        """
        wanted = self._conformed(rows)

        def attempt() -> Written:
            delta = self._opened()
            changed, gone = self._changed(wanted), self._gone(wanted, within)
            if changed.num_rows or gone.num_rows:
                self._merge_and_delete(delta, changed, gone, within, _transactions(transactions))
            return Written(rows=changed.num_rows + gone.num_rows, version=delta.version())

        return self._retry(attempt)

    def record(self, transactions: Mapping[str, int]) -> None:
        """Commit these transactions alone."""

        def attempt() -> None:
            delta = self._opened()
            properties = CommitProperties(app_transactions=_transactions(transactions))
            nothing = self.table.stored_schema.empty_table()
            with translate_errors(self._stored.folder):
                write_deltalake(delta, _bare(nothing), mode="append", commit_properties=properties)
            self._stored.forget()

        self._retry(attempt)

    def transaction(self, name: str) -> int | None:
        """The number that was committed last under this name; None without one, `TableError` for another schema."""
        delta = self._stored.checked()
        return None if delta is None else delta.transaction_version(name)

    def replace_all(self, rows: pa.Table) -> Written:
        """Replace all rows, and an older schema, in one commit."""
        whole_table = self._conformed(rows)
        return self._retry(lambda: self._overwrite(whole_table))

    def replace_with(self, batches: pa.RecordBatchReader) -> Written:
        """Replace all rows of a table without buckets that may be larger than memory; each key comes once."""
        schema = self.table.stored_schema
        if self.table.buckets:
            raise UsageError(f"{self.table.name} has buckets, so its rows cannot be streamed")
        if isinstance(self._stored.folder, ObjectLocation):
            check_conditional_writes(self._stored.folder)
        return self._overwrite(pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in batches)))

    def _overwrite(self, rows: pa.Table | pa.RecordBatchReader) -> Written:
        self._stored.newest()  # raises when the folder holds something else
        self._make_folder()
        with translate_errors(self._stored.folder):
            write_deltalake(
                str(self._stored.folder),
                rows,
                storage_options=self._options,
                mode="overwrite",
                schema_mode="overwrite",
                partition_by=self.table.partition_columns,
                configuration=self._configuration,
            )
        self._stored.forget()
        delta = self._opened()
        return Written(rows=sum(file.rows for file in self._stored.files()), version=delta.version())

    def optimize(self, *, retention_hours: int = RETENTION_HOURS) -> Optimized | None:
        """Compact small files, and delete those that no version of the last hour needs; None when there is no table.

        Before that, rows that are older than the table keeps them are deleted.
        """

        def attempt() -> Optimized | None:
            delta = self._stored.checked()
            if delta is None:
                return None
            before = len(self._stored.files())
            with translate_errors(self._stored.folder):
                if self.table.kept_ms is not None:
                    delta.delete(f'"at" < {self._clock.epoch_ms() - self.table.kept_ms}')
                delta.optimize.compact()
                deleted = delta.vacuum(
                    retention_hours=retention_hours, dry_run=False, enforce_retention_duration=False, full=True
                )
            self._stored.refresh()
            return Optimized(files_before=before, files_after=len(self._stored.files()), deleted=len(deleted))

        return self._retry(attempt)

    def close(self) -> None:
        self._duckdb.close()

    def _retry(self, attempt: Callable[[], T]) -> T:
        """Repeat the attempt while commits of another writer conflict."""
        if isinstance(self._stored.folder, ObjectLocation):
            check_conditional_writes(self._stored.folder)
        for _ in range(_ATTEMPTS):
            try:
                return attempt()
            except CommitFailedError:
                self._stored.forget()
        raise TableError(f"{self._stored.folder}: another process is writing this table: run only one pipeline")

    def _opened(self) -> DeltaTable:
        delta = self._stored.checked()
        if delta is None:
            if self._was_there:
                raise TableError(
                    f"{self._stored.folder}: the table was deleted while it was written: restore the folder, or run "
                    f"`headgate pipeline rebuild {self.table.name} --config FILE`"
                )
            self._make_folder()
            with translate_errors(self._stored.folder):
                DeltaTable.create(
                    str(self._stored.folder),
                    storage_options=self._options,
                    schema=self.table.stored_schema,
                    partition_by=self.table.partition_columns,
                    name=self.table.name,
                    description=self.table.description,
                    configuration=self._configuration,
                )
            delta = self._stored.checked()
            assert delta is not None
        self._was_there = True
        return delta

    def _make_folder(self) -> None:
        folder = self._stored.folder
        if isinstance(folder, ObjectLocation):
            return
        with translate_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def _conformed(self, rows: pa.Table, *, has_copies: bool = False) -> pa.Table:
        """The rows with exactly the table's columns and types, and their buckets; `UsageError` when they do not fit."""
        table = self.table
        if set(rows.column_names) != set(table.columns.names) or rows.num_columns != len(table.columns):
            differ = sorted(set(rows.column_names) ^ set(table.columns.names))
            raise UsageError(f"rows for {table.name} have other columns than the table: {', '.join(differ)}")
        try:
            conformed = rows.select(table.columns.names).cast(table.columns)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as misfit:
            raise UsageError(f"rows for {table.name} do not fit its columns: {misfit}") from None
        keys = conformed.select(table.key).group_by(list(table.key)).aggregate([])
        if not has_copies and keys.num_rows != conformed.num_rows:
            raise UsageError(f"rows for {table.name} have a key ({', '.join(table.key)}) twice in one batch")
        return self._with_buckets(conformed).cast(table.stored_schema)

    def _with_buckets(self, rows: pa.Table) -> pa.Table:
        """The rows, or keys, with their buckets if the table has any."""
        table = self.table
        if not table.buckets:
            return rows
        values = zip(*(rows[name].to_pylist() for name in table.bucket_by), strict=True)
        return rows.append_column(BUCKET, pa.array([table.bucket(one) for one in values], pa.int32()))

    def _changed(self, rows: pa.Table) -> pa.Table:
        """The rows that differ from the stored row of their key in any column."""
        touched = set(rows[BUCKET].to_pylist()) if self.table.buckets else {None}
        files = [file for file in self._stored.files() if file.bucket in touched]
        if not files or not rows.num_rows:
            return rows
        same_key = " AND ".join(f"s.{quoted(name)} = t.{quoted(name)}" for name in self.table.key)
        others = [name for name in self.table.columns.names if name not in self.table.key]
        differs = "".join(f" OR {self._value(name)} IS DISTINCT FROM t.{quoted(name)}" for name in others)
        values = ", ".join(f"{self._value(name)} AS {quoted(name)}" for name in rows.column_names)
        query_text = (
            f"SELECT {values} FROM batch AS s LEFT JOIN {FILES} AS t ON {same_key} "  # noqa: S608 - our own names
            f"WHERE t.{quoted(self.table.key[0])} IS NULL{differs}"
        )
        with translate_errors(self._stored.folder), self._duckdb.cursor() as cursor:
            cursor.register("batch", rows)
            changed = cursor.sql(query_text, params=[file_paths(files)]).to_arrow_table()
        return changed.cast(self.table.stored_schema)

    def _value(self, name: str) -> str:
        """The new value of a column, given the row of the batch (s) and the stored row (t) of its key."""
        new, old = f"s.{quoted(name)}", f"t.{quoted(name)}"
        if self.table.has_validity and name in id_columns(self.table.columns):
            return f"CASE WHEN s.valid_to IS NULL THEN {new} ELSE coalesce({old}, {new}) END"
        return new

    def _gone(self, rows: pa.Table, within: pa.Table | None) -> pa.Table:
        """The keys of stored rows, of those within the given values, that are not among the rows."""
        key = self.table.columns.empty_table().select(list(self.table.key))
        files = self._stored.files()
        if not files:
            return self._with_buckets(key)
        names = ", ".join(f"t.{quoted(name)}" for name in self.table.key)
        same_key = " AND ".join(f"s.{quoted(name)} = t.{quoted(name)}" for name in self.table.key)
        inside = "" if within is None else f"SEMI JOIN inside AS w ON {_same(within, 'w')}"
        query_text = (
            f"SELECT {names} FROM {FILES} AS t {inside} ANTI JOIN batch AS s ON {same_key}"  # noqa: S608 - our own names
            f"{_bounds(within)}"
        )
        with translate_errors(self._stored.folder), self._duckdb.cursor() as cursor:
            cursor.register("batch", rows)
            if within is not None:
                cursor.register("inside", within)
            found = cursor.sql(query_text, params=[file_paths(files)]).to_arrow_table().cast(key.schema)
        return self._with_buckets(found)

    def _merge_and_delete(
        self,
        delta: DeltaTable,
        changed: pa.Table,
        gone: pa.Table,
        within: pa.Table | None,
        transactions: list[Transaction],
    ) -> None:
        nullable = pa.schema([column.with_nullable(True) for column in changed.schema])  # of a key alone, most are null
        marked = [
            table.append_column(_GONE, pa.array([is_gone] * table.num_rows, pa.bool_()))
            for table, is_gone in ((changed.cast(nullable), False), (gone, True))
        ]
        source = pa.concat_tables(marked, promote_options="default")
        values = {quoted(name): f"s.{quoted(name)}" for name in self.table.stored_schema.names}
        with translate_errors(self._stored.folder):
            (
                delta.merge(
                    source,
                    self._same_row(source) + _bounds(within).replace(" WHERE ", " AND ", 1),
                    source_alias="s",
                    target_alias="t",
                    commit_properties=CommitProperties(app_transactions=transactions),
                )
                .when_matched_delete(predicate=f"s.{_GONE}")
                .when_matched_update(updates=values)
                .when_not_matched_insert(updates=values)
                .execute()
            )
        self._stored.refresh()

    def _same_row(self, rows: pa.Table) -> str:
        """The condition of a merge: the same key, in one of the buckets of these rows."""
        same = [f"t.{quoted(name)} = s.{quoted(name)}" for name in self.table.key]
        if self.table.buckets:
            touched = ", ".join(map(str, sorted(set(rows[BUCKET].to_pylist()))))
            same += [f"t.{quoted(BUCKET)} = s.{quoted(BUCKET)}", f"t.{quoted(BUCKET)} IN ({touched})"]
        return " AND ".join(same)

    def _merge(self, delta: DeltaTable, rows: pa.Table, transactions: list[Transaction]) -> None:
        with translate_errors(self._stored.folder):
            (
                delta.merge(
                    rows,
                    self._same_row(rows),
                    source_alias="s",
                    target_alias="t",
                    commit_properties=CommitProperties(app_transactions=transactions),
                )
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute()
            )
        self._stored.refresh()


def _bare(rows: pa.Table) -> pa.Table:
    """The rows without the meanings of their columns: those of a table that an earlier release made may differ."""
    return rows.cast(pa.schema([column.remove_metadata() for column in rows.schema]))


def _transactions(numbers: Mapping[str, int]) -> list[Transaction]:
    return [Transaction(app_id=name, version=version) for name, version in numbers.items()]


def _same(within: pa.Table, side: str) -> str:
    return " AND ".join(f"{side}.{quoted(name)} = t.{quoted(name)}" for name in within.column_names)


def _bounds(within: pa.Table | None) -> str:
    """Bounds of the numbers within: by them whole files are skipped."""
    if within is None or not within.num_rows:
        return ""
    limits = [
        f"t.{quoted(column.name)} BETWEEN {bounds['min'].as_py()} AND {bounds['max'].as_py()}"
        for column in within.schema
        if pa.types.is_integer(column.type)
        for bounds in [pc.min_max(within[column.name])]
    ]
    return f" WHERE {' AND '.join(limits)}" if limits else ""
