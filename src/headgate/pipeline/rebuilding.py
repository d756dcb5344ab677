"""A table made anew from what the topics retain.

One rule: the same query as ever makes it, from the first offset, in a folder aside; the finished rows then take the
place of all in one commit. Rows whose facts the topics do not retain any more cannot be made again: they stay, and are
marked as historic.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pyarrow as pa
from pyspark.sql import SparkSession

from headgate.base.clock import Clock
from headgate.base.errors import HeadgateError, UsageError
from headgate.config.model import Config
from headgate.kafka.topics import client_settings, list_topics
from headgate.pipeline import source
from headgate.pipeline.builds import Build, all_builds
from headgate.pipeline.facts_query import FactsBatches, Place
from headgate.pipeline.parsing import DESCRIBED
from headgate.pipeline.run_log import Run, RunLog
from headgate.pipeline.runner import place_of, reading_of
from headgate.pipeline.stream import Progress, follow
from headgate.tables import engine
from headgate.tables.definition import Table
from headgate.tables.engine import quoted
from headgate.tables.storage import StoredTable, TableError
from headgate.tables.writer import TableWriter

# What tells a later batch which versions were current before it.
_HISTORY = ("applications", "topology_versions")


def check_rebuildable(name: str) -> Build:
    """The build of this table; `UsageError` names those that there are."""
    try:
        return all_builds()[name]
    except KeyError:
        known = ", ".join(all_builds())
        raise UsageError(f"{name!r} is not made of facts, so it cannot be rebuilt; these can: {known}") from None


class Rebuild:
    """One table of one configuration."""

    def __init__(self, config: Config, session: SparkSession, clock: Clock, stop: Event, name: str) -> None:
        self._config = config
        self._session = session
        self._stop = stop
        self._build = check_rebuildable(name)
        self._folder = config.pipeline.checkpoint / f"rebuild-{name}"
        self._log = RunLog(config.tables.path, clock)

    def close(self) -> None:
        self._log.close()

    def run(self) -> bool:
        """Whether it was done; False when it was stopped, and then the table is as it was."""
        listing = list_topics(client_settings(self._config.upstream))
        run = self._log.begin(listing.cluster, f"rebuild {self._build.table.name}")
        try:
            whole = self._rows_aside(run, listing.cluster)
            if whole:
                self._put_in_place(run)
        except HeadgateError as failure:
            self._log.end(run, "failed", str(failure))
            raise
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._log.end(run, "done" if whole else "stopped")
        return whole

    def _rows_aside(self, run: Run, cluster: str) -> bool:
        shutil.rmtree(self._folder, ignore_errors=True)
        place = Place(
            tables=self._folder / "tables", checkpoint=self._folder / "checkpoint", aside=self._folder / "aside"
        )
        batches = FactsBatches(place, self._needed(), reading_of(self._config, cluster))
        try:
            return follow(
                self._session,
                batches,
                place,
                source.read_options(self._config),
                trigger_ms=None,
                stop=self._stop,
                on_progress=self._teller(run, batches),
            )
        finally:
            batches.close()

    def _needed(self) -> dict[str, Build]:
        names = {self._build.table.name, *(_HISTORY if DESCRIBED in self._build.kinds else ())}
        return {name: build for name, build in all_builds().items() if name in names}

    def _teller(self, run: Run, batches: FactsBatches) -> Callable[[Progress], None]:
        def on_progress(progress: Progress) -> None:
            result = batches.results.pop(progress.batch, None)
            if result is None:
                return
            if result.problems:
                raise TableError("; ".join(result.problems.values()))
            self._log.progress(
                run,
                batch=progress.batch,
                rows=result.rows,
                rejected=result.rejected,
                lag=progress.lag,
                batch_ms=progress.batch_ms,
            )

        return on_progress

    def _put_in_place(self, run: Run) -> None:
        table = self._build.table
        rows = _all_rows(self._folder / "tables", table)
        try:
            rows = pa.concat_tables([rows, _historic(self._config.tables.path, table, rows)])
        except TableError as other:
            self._log.problem(run, f"{other}. Rows that the topics do not retain are lost with it", table=table.name)
        writer = TableWriter(self._config.tables.path, table)
        try:
            writer.replace_all(rows)
        finally:
            writer.close()
        (place_of(self._config).aside / table.name).unlink(missing_ok=True)


def _all_rows(root: Path, table: Table) -> pa.Table:
    files = _files(root, table)
    if not files:
        return table.columns.empty_table()
    wanted = ", ".join(map(quoted, table.columns.names))
    with engine.connect() as duckdb:
        question = f"SELECT {wanted} FROM {engine.FILES}"  # noqa: S608 - our own names
        return duckdb.sql(question, params=[files]).to_arrow_table().cast(table.columns)


def _historic(root: Path, table: Table, rows: pa.Table) -> pa.Table:
    """The stored rows whose keys are not among these."""
    files = _files(root, table)
    if not files:
        return table.columns.empty_table()
    wanted = ", ".join(
        "true AS is_historic" if name == "is_historic" else f"t.{quoted(name)}" for name in table.columns.names
    )
    same_key = " AND ".join(f"s.{quoted(name)} = t.{quoted(name)}" for name in table.key)
    question = f"SELECT {wanted} FROM {engine.FILES} AS t ANTI JOIN made AS s ON {same_key}"  # noqa: S608 - our own names
    with engine.connect() as duckdb:
        duckdb.register("made", rows)
        return duckdb.sql(question, params=[files]).to_arrow_table().cast(table.columns)


def _files(root: Path, table: Table) -> list[str]:
    stored = StoredTable(root, table)
    return [] if stored.checked() is None else engine.paths(stored.files())
