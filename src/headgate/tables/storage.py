"""A table on the disk: the files of its newest version, and DuckDB to query them.

A version is a list of files that never change, so a reader of these files reads whole batches. Nothing is cached that
the folder does not confirm: a table that was replaced by another is noticed, and an absent one is None.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from headgate.base.errors import HeadgateError, PlatformError, UsageError
from headgate.tables.table import BUCKET, Table, stored_version

# The files of a table in DuckDB's SQL, as a parameter.
FILES = "read_parquet(?, hive_partitioning = false)"
MEMORY_MB = 256
# Two threads failed to sort 120 MB in 100 MB, one does it in 64; and most queries return few rows.
_THREADS = 1
# delta-rs parses a path as a URL, and DuckDB as a pattern.
_ODD = frozenset("%*?#[]\\")
_LOG = "_delta_log"
TableStamp = tuple[int, int, int]  # the version, and the inode and the time of the file of its commit


class TableError(HeadgateError):
    """The folder of a table holds something that this release does not read or write; the text says how to fix it."""


class TableVersionError(TableError):
    """The table has the schema of another release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file of a version; `bucket` is None in a table without buckets."""

    path: str
    rows: int
    bytes: int
    bucket: int | None


def connect_duckdb(memory_mb: int = MEMORY_MB) -> duckdb.DuckDBPyConnection:
    """DuckDB in memory, without network access; data that exceeds the memory is spilled to temporary files."""
    return duckdb.connect(
        config={
            "memory_limit": f"{memory_mb}MB",
            "threads": _THREADS,
            "preserve_insertion_order": False,  # queries have an ORDER BY; keeping another order takes memory
            "temp_directory": str(Path(tempfile.gettempdir()) / f"headgate-duckdb-{os.getpid()}"),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )


def file_paths(files: Iterable[DataFile]) -> list[str]:
    return [file.path for file in files]


def quoted(column: str) -> str:
    """A column's name in the SQL of DuckDB and of delta-rs."""
    return '"' + column.replace('"', '""') + '"'


class StoredTable:
    """One table in its folder, reopened only when it has changed. Not thread-safe."""

    def __init__(self, root: Path, table: Table) -> None:
        folder = root.absolute()
        odd = sorted(_ODD & set(str(folder)))
        if odd:
            raise UsageError(f"tables.path: {folder}: a folder for tables cannot have {' '.join(odd)} in its path")
        self.table = table
        self.folder = folder / table.name
        self._delta: DeltaTable | None = None
        self._mark: TableStamp | None = None
        self._files: tuple[DataFile, ...] | None = None

    def newest(self) -> DeltaTable | None:
        """The newest version, with any schema; None when there is no table."""
        with translate_errors(self.folder):
            if self._delta is None or self._mark is None or self._mark_of(self._delta.version()) != self._mark:
                self.forget()
                if not self._is_there():
                    return None
                self._delta = DeltaTable(str(self.folder))
            elif self._commit(self._delta.version() + 1).exists():
                self._delta.update_incremental()
            else:
                return self._delta
            self.refresh()
            return self._delta

    def stamp(self) -> TableStamp | None:
        """The newest version, and the commit file that made it; None when there is no table."""
        delta = self.newest()
        if delta is None:
            return None
        return (delta.version(), 0, 0) if self._mark is None else self._mark

    def checked(self) -> DeltaTable | None:
        """The newest version; `TableError` when its schema is not the definition's; None when there is no table."""
        delta = self.newest()
        if delta is None:
            return None
        schema = pa.schema(delta.schema().to_arrow())
        fix = f"run `headgate pipeline rebuild {self.table.name} --config FILE`"
        found = stored_version(schema)
        if found != str(self.table.version):
            error = TableError if found is None else TableVersionError
            raise error(
                f"{self.folder}: its schema version is {found or 'unknown'}, and this release needs "
                f"{self.table.version}: {fix}"
            )
        same = schema.equals(self.table.stored_schema, check_metadata=False)
        if not same or delta.metadata().partition_columns != self.table.partition_columns:
            raise TableError(f"{self.folder}: its columns are not those of schema version {self.table.version}: {fix}")
        return delta

    def files(self) -> tuple[DataFile, ...]:
        """The files of the version that was opened last."""
        if self._delta is None:
            return ()
        if self._files is None:
            with translate_errors(self.folder):
                actions = pa.RecordBatchReader.from_stream(self._delta.get_add_actions(flatten=True)).read_all()
            names = ["path", "num_records", "size_bytes"]
            buckets = [None] * actions.num_rows
            if f"partition.{BUCKET}" in actions.column_names:
                buckets = actions[f"partition.{BUCKET}"].to_pylist()
            self._files = tuple(
                DataFile(path=str(self.folder / path), rows=rows, bytes=size, bucket=bucket)
                for path, rows, size, bucket in zip(
                    *(actions[name].to_pylist() for name in names), buckets, strict=True
                )
            )
        return self._files

    def refresh(self) -> None:
        """Forget the files of the previous version, after the opened table has moved to another."""
        self._files = None
        self._mark = None if self._delta is None else self._mark_of(self._delta.version())

    def forget(self) -> None:
        """Open the table anew the next time."""
        self._delta = None
        self.refresh()

    def _commit(self, version: int) -> Path:
        return self.folder / _LOG / f"{version:020}.json"

    def _mark_of(self, version: int) -> TableStamp | None:
        """Identifies this commit among those of other tables in the same folder."""
        try:
            found = self._commit(version).stat()
        except FileNotFoundError:
            return None
        return version, found.st_ino, found.st_mtime_ns

    def _is_there(self) -> bool:
        """False also for a folder whose writer was killed before its first commit."""
        if not self.folder.exists():
            return False
        if not self.folder.is_dir() or (any(self.folder.iterdir()) and not (self.folder / _LOG).is_dir()):
            raise TableError(f"{self.folder}: not a Delta table: move it away, or configure another folder for tables")
        return (self.folder / _LOG).is_dir() and any(
            entry.suffix in {".json", ".parquet"} for entry in (self.folder / _LOG).iterdir()
        )


@contextmanager
def translate_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the libraries and the system into a `PlatformError`; a commit conflict passes."""
    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, duckdb.Error, OSError) as failure:
        words = " ".join(str(failure).split())
        if "os error 28" in words or "No space left" in words:
            raise PlatformError(
                f"{folder}: the disk is full: make room; the table is as it was before this batch"
            ) from None
        raise PlatformError(f"{folder}: the table cannot be used: {words}") from None
