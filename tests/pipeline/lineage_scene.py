"""Tables of facts that a test writes itself, and the derivations on them, with a clock that stands still."""

from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from headgate.config import load
from headgate.pipeline.batches import Moment, TableWriters
from headgate.pipeline.derived.derivation import Derivation, DerivedContext
from headgate.pipeline.derived.derived_runner import DerivedTables
from headgate.pipeline.derived.registry import DERIVATIONS
from headgate.pipeline.run_log import PipelineHealth, RunLog
from headgate.tables.definitions import TABLES, table_named
from headgate.tables.reader import TableReader
from tests.support.clock import FakeClock

Row = dict[str, Any]
HOUR = 3_600_000
DAY = 24 * HOUR
NOW = 1_794_700_800_000  # a full hour
_EMPTY: dict[pa.DataType, object] = {pa.string(): "", pa.bool_(): False}


class KilledError(BaseException):
    """The process ends here: nothing after it runs, whatever handles errors."""


class LineageScene:
    def __init__(self, spark: SparkSession, root: Path, derivations: Sequence[Derivation] = DERIVATIONS) -> None:
        self.root = root
        self.clock = FakeClock(NOW)
        self.moments: list[tuple[Moment, str]] = []
        self.kill_after: int | None = None  # that many moments
        self._spark = spark
        self.derivations = derivations
        self.start()

    def start(self) -> None:
        """As a new process."""
        self.writers = TableWriters(self.root)
        config = load(None, {}, {"tables.path": str(self.root)})
        session = self._spark.newSession()
        context = DerivedContext(config=config, session=session, writers=self.writers, on_moment=self._on_moment)
        log = RunLog(self.writers, self.clock, PipelineHealth())
        self._tables = DerivedTables(self.derivations, context, self.clock, log)

    def _on_moment(self, moment: Moment, table: str) -> None:
        self.moments.append((moment, table))
        if self.kill_after is not None and len(self.moments) > self.kill_after:
            raise KilledError

    def derive(self, *, kill_after: int | None = None) -> bool:
        """False when it was killed after so many moments: before and after each write."""
        self.moments, self.kill_after = [], kill_after
        try:
            return self._tables.run_once("c", Event())
        except KilledError:
            self.start()
            return False

    def rebuild(self, derivation: Derivation) -> None:
        self.kill_after = None
        self._tables.make_anew(derivation)

    def append(self, name: str, rows: Sequence[Row]) -> None:
        """As the append query does: copies stay."""
        with self.writers.writer(name) as writer:
            writer.create()
            rows_of_table = self._arrow(name, rows).cast(table_named(name).stored_schema)
            write_deltalake(str(writer.folder), rows_of_table, mode="append")

    def upsert(self, name: str, rows: Sequence[Row]) -> None:
        with self.writers.writer(name) as writer:
            writer.upsert(self._arrow(name, rows), query="facts", batch=(writer.version() or 0) + 1)

    def rows(self, name: str) -> dict[tuple[Any, ...], Row]:
        table = table_named(name)
        reader = TableReader(self.root)
        found = list(reader.stream(table) or ())
        reader.close()
        return {tuple(row[column] for column in table.key): row for row in found}

    def versions(self) -> dict[str, int]:
        reader = TableReader(self.root)
        names = [result for one in self.derivations for result in one.results]
        found = {name: summary.version for name in names if (summary := reader.summary(TABLES[name])) is not None}
        reader.close()
        return found

    def _arrow(self, name: str, rows: Sequence[Row]) -> pa.Table:
        columns = table_named(name).columns
        empty: Row = {one.name: None if one.nullable else _EMPTY.get(one.type, 0) for one in columns}
        return pa.Table.from_pylist([empty | {"cluster_id": "c"} | row for row in rows], columns)
