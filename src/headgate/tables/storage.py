"""Where a table lies on the disk, and the files that make up its newest version.

One rule: a version is a list of files that never change, so whoever reads these files reads whole batches. Nothing is
held that the folder does not say: a table that was replaced by another is noticed, and one that is not there is None.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from headgate.base.errors import HeadgateError, PlatformError, UsageError
from headgate.tables.definition import BUCKET, Table, stored_version

# delta-rs takes a path for an address, and DuckDB takes it for a pattern.
_ODD = frozenset("%*?#[]\\")
_LOG = "_delta_log"


class TableError(HeadgateError):
    """What lies in a table's folder is not what this release reads and writes; the text says how to mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file of a version; `bucket` is None in a table without buckets."""

    path: str
    rows: int
    bytes: int
    bucket: int | None


class StoredTable:
    """One table in its folder, opened anew only when there is something new. Not for several threads at once."""

    def __init__(self, root: Path, table: Table) -> None:
        folder = root.absolute()
        odd = sorted(_ODD & set(str(folder)))
        if odd:
            raise UsageError(f"tables.path: {folder}: a folder for tables cannot have {' '.join(odd)} in its path")
        self.table = table
        self.folder = folder / table.name
        self._delta: DeltaTable | None = None
        self._mark: tuple[int, int, int] | None = None
        self._files: tuple[DataFile, ...] | None = None

    def newest(self) -> DeltaTable | None:
        """The newest version, whatever its schema; None when the table is not there."""
        with translated(self.folder):
            if self._delta is None or self._mark is None or self._mark_of(self._delta.version()) != self._mark:
                self.forget()
                if not self._is_there():
                    return None
                self._delta = DeltaTable(str(self.folder))
            elif self._commit(self._delta.version() + 1).exists():
                self._delta.update_incremental()
            else:
                return self._delta
            self.moved()
            return self._delta

    def checked(self) -> DeltaTable | None:
        """The newest version, with the schema that its definition has; None when the table is not there."""
        delta = self.newest()
        if delta is None:
            return None
        schema = pa.schema(delta.schema().to_arrow())
        mend = f"run `headgate pipeline rebuild {self.table.name} --config FILE`"
        if stored_version(schema) != str(self.table.version):
            found = stored_version(schema) or "none of ours"
            raise TableError(
                f"{self.folder}: its schema version is {found}, and this release needs {self.table.version}: {mend}"
            )
        same = schema.equals(self.table.stored_schema, check_metadata=False)
        if not same or delta.metadata().partition_columns != self.table.partition_columns:
            raise TableError(f"{self.folder}: its columns are not those of schema version {self.table.version}: {mend}")
        return delta

    def files(self) -> tuple[DataFile, ...]:
        """The files of the version that was opened last."""
        if self._delta is None:
            return ()
        if self._files is None:
            with translated(self.folder):
                actions = pa.table(self._delta.get_add_actions(flatten=True))
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

    def moved(self) -> None:
        """The opened table is at another version now."""
        self._files = None
        self._mark = None if self._delta is None else self._mark_of(self._delta.version())

    def forget(self) -> None:
        """Open it from the start the next time."""
        self._delta = None
        self.moved()

    def _commit(self, version: int) -> Path:
        return self.folder / _LOG / f"{version:020}.json"

    def _mark_of(self, version: int) -> tuple[int, int, int] | None:
        """What tells this commit from that of another table in the same place."""
        try:
            found = self._commit(version).stat()
        except FileNotFoundError:
            return None
        return version, found.st_ino, found.st_mtime_ns

    def _is_there(self) -> bool:
        """False also for what a writer leaves that was killed before its first commit."""
        if not self.folder.exists():
            return False
        if not self.folder.is_dir() or (any(self.folder.iterdir()) and not (self.folder / _LOG).is_dir()):
            raise TableError(f"{self.folder}: this is no Delta table: move it away, or name another folder for tables")
        return (self.folder / _LOG).is_dir() and any(
            entry.suffix in {".json", ".parquet"} for entry in (self.folder / _LOG).iterdir()
        )


@contextmanager
def translated(folder: Path) -> Iterator[None]:
    """What libraries and the system say, as a sentence for operators; a lost race between writers stays as it is."""
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
