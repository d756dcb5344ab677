"""A derivation makes tables from other tables: `Derivation` says from which, and `DerivedRun` is one run of it.

The versions of the sources are in the commit of the last result, as transactions of Delta, which stay in the log. So
results are written in any order but the last one last: a derivation that is killed at any point begins at the versions
of the last complete run, and writes only rows that differ. A derivation is a function of its sources and of the time:
run twice, it gives the same rows.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headgate.base.errors import UsageError
from headgate.config.model import Config
from headgate.pipeline.batches import OnMoment, TableWriters, ignore_moment, optimize_if_due
from headgate.pipeline.derived.source_tables import (
    SourceTables,
    SourceVersion,
    all_files,
    changed_files,
    has_value,
    read_rows,
)
from headgate.tables.definitions import table_named

HOUR_MS = 3_600_000
DAY_HOURS = 24
# From this many rows on compiling the plans pays, which takes some seconds.
COMPILED_FROM = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """What is derived: `derive` reads `sources` and writes `results`, the last of them last.

    It runs when a source has a new version, with `hourly` also when another hour has begun, because its rows depend on
    the time. At least so many `minutes` lie between two runs. With `daily` it runs only when another day has begun: its
    rows are those of the days before. A new version of an `urgent` source does not wait for the minutes.
    """

    name: str
    sources: tuple[str, ...]
    results: tuple[str, ...]
    derive: "Callable[[DerivedRun], None]"
    hourly: bool = False
    daily: bool = False
    minutes: int = 1
    urgent: tuple[str, ...] = ()

    def hour_of(self, now_ms: int) -> int:
        """What tells two runs apart by their time: the hour, the first hour of the day, or nothing."""
        hour = now_ms // HOUR_MS
        if self.daily:
            return hour - hour % DAY_HOURS
        return hour if self.hourly else 0

    def transactions(self, made_from: "MadeFrom", versions: Mapping[str, SourceVersion]) -> dict[str, int]:
        """What is committed with the last result, by the names of Delta's transactions."""
        named = {self._transaction(versions[source]): number for source, number in made_from.versions.items()}
        return named | {self._hour_transaction: made_from.hour}

    def made_from(self, versions: Mapping[str, SourceVersion], writers: TableWriters) -> "MadeFrom | None":
        """The versions from which the results were made; None when a result is missing, so that all must be made."""
        with ExitStack() as locks:
            results = [locks.enter_context(writers.writer(name)) for name in self.results]
            hour = results[-1].transaction(self._hour_transaction)
            if hour is None or any(writer.version() is None for writer in results):
                return None
            recorded = {name: results[-1].transaction(self._transaction(one)) for name, one in versions.items()}
        found = {name: number for name, number in recorded.items() if number is not None and not self.daily}
        return MadeFrom(versions=found, hour=hour if self.hourly or self.daily else 0)

    def position_name(self, name: str) -> str:
        """The name of Delta's transaction for a position in a source that is no table."""
        return f"derived/{self.name}/at/{name}"

    @property
    def _hour_transaction(self) -> str:
        return f"derived/{self.name}"

    def _transaction(self, version: SourceVersion) -> str:
        return f"derived/{self.name}/{version.name}/{version.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeFrom:
    """The versions of the sources from which results were made, and for an hourly derivation the hour, else 0.

    A daily derivation has no versions: only the day decides whether it runs.
    """

    versions: Mapping[str, int]
    hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedContext:
    """Everything that derivations share."""

    config: Config
    session: SparkSession
    writers: TableWriters
    on_moment: OnMoment = ignore_moment


class DerivedRun:
    """One run of a derivation, on pinned versions of its sources.

    `since` is what the results were made from; None: everything is made anew.
    """

    def __init__(
        self,
        derivation: Derivation,
        context: DerivedContext,
        *,
        now_ms: int,
        versions: Mapping[str, SourceVersion],
        since: MadeFrom | None,
    ) -> None:
        self.config = context.config
        self.session = context.session
        self.now_ms = now_ms
        self.rows_written = 0
        self.problems: list[str] = []
        numbers = {} if derivation.daily else {name: one.version for name, one in versions.items()}
        self.made_from = MadeFrom(versions=numbers, hour=derivation.hour_of(now_ms))
        self._derivation = derivation
        self._context = context
        self._versions = versions
        self._since = since
        self._results = SourceTables(context.config.tables.path)
        self._positions: dict[str, int] = {}
        self._is_recorded = False

    @property
    def is_full(self) -> bool:
        """Whether everything is made anew."""
        return self._since is None

    @property
    def made_in_hour_ms(self) -> int:
        """The beginning of the hour in which an hourly derivation ran last; 0 where everything is made anew."""
        return 0 if self._since is None else self._since.hour * HOUR_MS

    def has_changed(self, source: str) -> bool:
        """Whether the source has another version than the results were made from."""
        version = self._versions.get(source)
        return version is not None and (self._since is None or self._since.versions.get(source) != version.version)

    def rows(self, source: str) -> DataFrame:
        """All rows of a source; a table that only grows may hold copies."""
        return read_rows(self.session, source, all_files(self._versions.get(source)))

    def changed_rows(self, source: str) -> DataFrame | None:
        """Rows of a source, among them all that came, changed or went since the last run; None: read all."""
        version = self._versions.get(source)
        if version is None:
            return self.rows(source)
        if self._since is None or source not in self._since.versions:
            return None
        files = changed_files(version, self._since.versions[source])
        return None if files is None else read_rows(self.session, source, files)

    def has_value(self, source: str, column: str, value: str) -> bool:
        """Whether a row of a source has this value."""
        return has_value(self._versions.get(source), column, value)

    def row_count(self, source: str) -> int:
        version = self._versions.get(source)
        return 0 if version is None else version.rows

    def stored(self, result: str) -> DataFrame:
        """The rows of a result as they are stored now; none when the table is absent."""
        return read_rows(self.session, result, all_files(self._results.versions([result]).get(result)))

    def position(self, name: str) -> int | None:
        """The number that a run kept under this name with the last result; None without one, and to make all anew."""
        if self.is_full:
            return None
        with self._context.writers.writer(self._derivation.results[-1]) as writer:
            return writer.transaction(self._derivation.position_name(name))

    def add_problem(self, text: str) -> None:
        """Report what this run had to leave out; what it could do is done."""
        self.problems.append(text)

    def keep_position(self, name: str, number: int) -> None:
        """Commit this number with the next rows of the last result, so that both are there or neither."""
        self._positions[self._derivation.position_name(name)] = number
        self._is_recorded = False

    def replace(
        self, result: str, rows: DataFrame | pa.Table, *, within: pa.Table | None = None, is_last: bool = True
    ) -> None:
        """Make the rows of a result equal to these; with `within`, only those that have its values of key columns.

        Without `is_last`, more rows of this result follow in this run.
        """
        if result not in self._derivation.results:
            raise UsageError(f"{result} is not a result of the derivation {self._derivation.name}")
        columns = table_named(result).columns
        found = rows.select(*columns.names).toArrow() if isinstance(rows, DataFrame) else rows.select(columns.names)
        is_of_last = result == self._derivation.results[-1]
        records = is_last and is_of_last
        transactions = self._transactions() if records else dict(self._positions) if is_of_last else {}
        self._context.on_moment("before", result)
        with self._context.writers.writer(result) as writer:
            written = writer.replace(found.cast(columns), within=within, transactions=transactions)
            if written.rows:
                optimize_if_due(writer)
        self._context.on_moment("after", result)
        self.rows_written += written.rows
        self._is_recorded = self._is_recorded or (records and written.rows > 0)

    def record(self) -> None:
        """Commit the versions alone, when no row of the last result had changed: the next run begins there."""
        if not self._is_recorded:
            with self._context.writers.writer(self._derivation.results[-1]) as writer:
                writer.record(self._transactions())
            self._is_recorded = True

    def _transactions(self) -> dict[str, int]:
        return self._derivation.transactions(self.made_from, self._versions) | self._positions
