"""Reads the tables that a derivation is made from, each as of one Delta version, and the rows that came since another.

Files are listed by the Delta log and read as Parquet: a version is a list of files that never change, and Spark's own
reading of the log would cost several jobs. Rows that changed since a version are the rows of all files that came and
went since, so they include unchanged ones. There is no such list when a table that only grows was made anew, or when
the log or the files are no longer there: then a derivation starts anew.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.base.locations import Location
from headgate.pipeline.spark_storage import spark_address
from headgate.tables.definitions import table_named
from headgate.tables.files import has_file, read_file
from headgate.tables.storage import (
    FILES,
    LOG,
    DataFile,
    StoredTable,
    commit_name,
    connect_duckdb,
    file_paths,
    quoted,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceVersion:
    """One version of a table, and its files. `id` tells it from another table that was made in the same folder."""

    name: str
    folder: Location
    id: str
    version: int
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


class SourceTables:
    """The tables at `root`. Not thread-safe."""

    def __init__(self, root: Location) -> None:
        self._root = root
        self._stored: dict[str, StoredTable] = {}

    def versions(self, names: Sequence[str]) -> dict[str, SourceVersion]:
        """The newest version of each table that exists; `TableError` when a schema is another."""
        return {name: found for name in names if (found := self._newest(name)) is not None}

    def _newest(self, name: str) -> SourceVersion | None:
        stored = self._stored.setdefault(name, StoredTable(self._root, table_named(name)))
        delta = stored.checked()
        if delta is None:
            return None
        identity = str(delta.metadata().id)
        return SourceVersion(
            name=name, folder=stored.folder, id=identity, version=delta.version(), files=stored.files()
        )


def read_rows(session: SparkSession, name: str, files: Sequence[str]) -> DataFrame:
    """The rows of these files of a table; without files, none."""
    columns = table_named(name).columns
    schema = from_arrow_schema(pa.schema([column.remove_metadata() for column in columns]))
    if not files:
        return session.createDataFrame([], schema)
    return session.read.schema(schema).parquet(*map(spark_address, files))


def all_files(version: SourceVersion | None) -> list[str]:
    return [] if version is None else file_paths(version.files)


def has_value(version: SourceVersion | None, column: str, value: str) -> bool:
    """Whether a row has this value; found without Spark, because its plan would cost more than reading one column."""
    files = all_files(version)
    if not files:
        return False
    with connect_duckdb(None if version is None else version.folder) as duckdb:
        sql = f"SELECT 1 FROM {FILES} WHERE {quoted(column)} = ? LIMIT 1"  # noqa: S608 - our own names
        return bool(duckdb.sql(sql, params=[files, value]).fetchall())


def changed_files(version: SourceVersion, since: int) -> list[str] | None:
    """The files whose rows came after the version `since`, or were replaced; None when that cannot be told.

    A file that came and went is left out. So an unchanged row of a replaced file is in an even number of these files,
    and one that came, changed or went in an odd number (`net_changes`).
    """
    found: dict[str, Location] = {}
    is_appended = table_named(version.name).appended
    for number in range(since + 1, version.version + 1):
        try:
            lines = read_file(version.folder / LOG / commit_name(number)).splitlines()
        except FileNotFoundError:  # the log is shortened from time to time
            return None
        for action in map(json.loads, lines):
            for change in ("add", "remove"):
                if change not in action or action[change].get("dataChange") is False:  # False: files were joined
                    continue
                if change == "remove" and is_appended:  # the table was made anew
                    return None
                file = version.folder / unquote(action[change]["path"])
                if found.pop(str(file), None) is None:
                    found[str(file)] = file
    return list(found) if all(map(has_file, found.values())) else None


def net_changes(changed: DataFrame) -> DataFrame:
    """The rows that came or went, and both sides of those that changed, among the rows of `changed_files`."""
    counted = changed.groupBy(*changed.columns).count()
    return counted.where(sf.col("count") % 2 == 1).drop("count")
