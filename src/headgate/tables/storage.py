"""A table in its folder or on an object store: the files of its newest version, and DuckDB to query them.

A version is a list of files that never change, so a reader of these files reads whole batches. Nothing is cached that
the folder does not confirm: a table that was replaced by another is noticed, and an absent one is None.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from headgate.base.errors import HeadgateError, PlatformError, UsageError
from headgate.base.locations import Location, ObjectLocation
from headgate.tables.object_store import delta_options, has_object, names_beneath, objects_beneath, without_secrets
from headgate.tables.table import BUCKET, Table, stored_version

# The files of a table in DuckDB's SQL, as a parameter.
FILES = "read_parquet(?, hive_partitioning = false)"
MEMORY_MB = 256
# Two threads failed to sort 120 MB in 100 MB, one does it in 64; and most queries return few rows.
_THREADS = 1
# delta-rs parses a path as a URL, and DuckDB as a pattern.
_ODD = frozenset("%*?#[]\\")
LOG = "_delta_log"
# The version, and what tells the file of its commit from another: its inode, or a hash of its ETag, and its time.
TableStamp = tuple[int, int, int]


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


def connect_duckdb(
    root: Location | None = None, *, memory_mb: int = MEMORY_MB, kept_bytes: int | None = None
) -> duckdb.DuckDBPyConnection:
    """DuckDB in memory; data that exceeds the memory is spilled to temporary files.

    It has no network access of its own. It reads the files of tables at `root`, of which at most `kept_bytes` are kept
    in memory when they come from an object store.
    """
    connection = duckdb.connect(
        config={
            "memory_limit": f"{memory_mb}MB",
            "threads": _THREADS,
            "preserve_insertion_order": False,  # queries have an ORDER BY; keeping another order takes memory
            "temp_directory": str(Path(tempfile.gettempdir()) / f"headgate-duckdb-{os.getpid()}"),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )
    if isinstance(root, ObjectLocation):
        from headgate.tables.object_reading import KEPT_BYTES, DuckDBObjects  # noqa: PLC0415 - only where needed

        connection.register_filesystem(DuckDBObjects(root.options, kept_bytes=kept_bytes or KEPT_BYTES))
    return connection


def storage_options(location: Location) -> dict[str, str] | None:
    """The options with which deltalake opens a table there."""
    return delta_options(location) if isinstance(location, ObjectLocation) else None


def file_paths(files: Iterable[DataFile]) -> list[str]:
    return [file.path for file in files]


def quoted(column: str) -> str:
    """A column's name in the SQL of DuckDB and of delta-rs."""
    return '"' + column.replace('"', '""') + '"'


class StoredTable:
    """One table in its folder, reopened only when it has changed. Not thread-safe."""

    def __init__(self, root: Location, table: Table) -> None:
        self.table = table
        self.folder: Location
        self._log: _CommitLog
        if isinstance(root, ObjectLocation):
            self.folder = root / table.name
            self._log = _ObjectLog(self.folder)
        else:
            folder = root.absolute()
            odd = sorted(_ODD & set(str(folder)))
            if odd:
                raise UsageError(f"tables.path: {folder}: a folder for tables cannot have {' '.join(odd)} in its path")
            self.folder = folder / table.name
            self._log = _FileLog(self.folder)
        self._delta: DeltaTable | None = None
        self._mark: TableStamp | None = None
        self._files: tuple[DataFile, ...] | None = None

    def newest(self) -> DeltaTable | None:
        """The newest version, with any schema; None when there is no table."""
        with translate_errors(self.folder):
            if self._delta is not None and self._mark is not None:
                mark, has_next = self._log.look(self._delta.version())
                if mark == self._mark and not has_next:
                    return self._delta
                if mark == self._mark:
                    self._delta.update_incremental()
                    self.refresh()
                    return self._delta
            self.forget()
            if not self._log.is_there():
                return None
            self._delta = DeltaTable(str(self.folder), storage_options=storage_options(self.folder))
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
                DataFile(path=f"{self.folder}/{path}", rows=rows, bytes=size, bucket=bucket)
                for path, rows, size, bucket in zip(
                    *(actions[name].to_pylist() for name in names), buckets, strict=True
                )
            )
        return self._files

    def refresh(self) -> None:
        """Forget the files of the previous version, after the opened table has moved to another."""
        self._files = None
        self._mark = None if self._delta is None else self._log.look(self._delta.version())[0]

    def forget(self) -> None:
        """Open the table anew the next time."""
        self._delta = None
        self.refresh()


class _CommitLog(Protocol):
    """The commits of one table."""

    def look(self, version: int) -> tuple[TableStamp | None, bool]:
        """The identity of this commit among those of other tables in the same folder, and whether there is a next."""

    def is_there(self) -> bool:
        """Whether there is a commit; `TableError` when the folder has something else."""


def commit_name(version: int) -> str:
    return f"{version:020}.json"


class _FileLog:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def look(self, version: int) -> tuple[TableStamp | None, bool]:
        log = self._folder / LOG
        try:
            found = (log / commit_name(version)).stat()
        except FileNotFoundError:
            return None, False
        return (version, found.st_ino, found.st_mtime_ns), (log / commit_name(version + 1)).exists()

    def is_there(self) -> bool:
        """False also for a folder whose writer was killed before its first commit."""
        folder = self._folder
        if not folder.exists():
            return False
        if not folder.is_dir() or (any(folder.iterdir()) and not (folder / LOG).is_dir()):
            raise TableError(_not_delta(folder))
        return (folder / LOG).is_dir() and any(_is_commit(entry.name) for entry in (folder / LOG).iterdir())


class _ObjectLog:
    """Reads the commits of a table with one listing for each look, however many there are."""

    def __init__(self, folder: ObjectLocation) -> None:
        self._folder = folder

    def look(self, version: int) -> tuple[TableStamp | None, bool]:
        own, following = commit_name(version), commit_name(version + 1)
        mark: TableStamp | None = None
        for one in objects_beneath(self._folder / LOG, after=own.removesuffix(".json")):
            name = one.key.rpartition("/")[2]
            if name == own:
                etag = int.from_bytes(hashlib.sha256(one.etag.encode()).digest()[:6])
                mark = (version, etag, one.written_ms)
            elif name == following:
                return mark, True
        return mark, False

    def is_there(self) -> bool:
        names = names_beneath(self._folder)
        if (not names and has_object(self._folder)) or (names and LOG not in names):
            raise TableError(_not_delta(self._folder))
        return LOG in names and any(map(_is_commit, names_beneath(self._folder / LOG)))


def _is_commit(name: str) -> bool:
    return name.endswith((".json", ".parquet"))


def _not_delta(folder: Location) -> str:
    return f"{folder}: not a Delta table: move it away, or configure another folder for tables"


def query_error_text(failure: Exception) -> str:
    """The text of an error; of one that reading an object raised within DuckDB, without the traceback before it."""
    text = str(failure)
    if text.startswith("Traceback"):
        for line in text.splitlines():
            name, _, words = line.partition(": ")
            if name == "FileNotFoundError":
                return f"IO Error: {words}"
            if name.endswith(PlatformError.__name__):
                return words
    return text


@contextmanager
def translate_errors(folder: Location) -> Iterator[None]:
    """Turn errors of the libraries and the system into a `PlatformError`; a commit conflict passes."""
    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, duckdb.Error, OSError) as failure:
        words = without_secrets(" ".join(query_error_text(failure).split()), folder)
        if "os error 28" in words or "No space left" in words:
            raise PlatformError(
                f"{folder}: the disk is full: make room; the table is as it was before this batch"
            ) from None
        raise PlatformError(f"{folder}: the table cannot be used: {words}") from None
