"""A table made anew from what the topics retain.

One rule: the same queries as ever make it, from the first offset, in a folder aside; the finished rows then take the
place of all in one commit. Rows whose facts the topics do not retain any more cannot be made again: they stay, and are
marked as historic. Ids of topics stay too: what they were when a row was written cannot be asked any more.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path
from threading import Event

import pyarrow as pa
from duckdb import DuckDBPyConnection
from pyspark.sql import SparkSession

from headgate.base.clock import Clock
from headgate.base.errors import HeadgateError, UsageError
from headgate.config.model import Config
from headgate.kafka.topics import TopicIdReader, client_settings, list_topics
from headgate.pipeline import source
from headgate.pipeline.batches import Batches, Desk, Place
from headgate.pipeline.builds import Build, all_builds
from headgate.pipeline.health import Health
from headgate.pipeline.parsing import DESCRIBED
from headgate.pipeline.queries import QUERIES, Query
from headgate.pipeline.run_log import Run, RunLog
from headgate.pipeline.stream import Progress, follow
from headgate.pipeline.supervision import batches_of, reading_of
from headgate.pipeline.topic_ids import TopicIds
from headgate.pipeline.writers import Writers
from headgate.tables import engine
from headgate.tables.definition import Table, id_columns
from headgate.tables.engine import quoted
from headgate.tables.storage import StoredTable, TableError

# What tells a later batch which versions were current before it.
_HISTORY = ("applications", "topology_versions")
_AT_ONCE = 10_000


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
        self._writers = Writers(config.tables.path)
        self._log = RunLog(self._writers, clock, Health())

    def close(self) -> None:
        self._writers.close()

    def run(self) -> bool:
        """Whether it was done; False when it was stopped, and then the table is as it was."""
        listing = list_topics(client_settings(self._config.upstream))
        run = self._log.begin(listing.cluster, f"rebuild {self._build.table.name}")
        try:
            shutil.rmtree(self._folder, ignore_errors=True)
            mine = [query for query in QUERIES if self._build.table.name in query.builds()]
            whole = all(self._rows_aside(query, run, listing.cluster) for query in mine)
            if whole:
                self._put_in_place(run)
        except HeadgateError as failure:
            self._log.end(run, "failed", str(failure))
            raise
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._log.end(run, "done" if whole else "stopped")
        return whole

    def _rows_aside(self, query: Query, run: Run, cluster: str) -> bool:
        place = Place(
            tables=self._folder / "tables",
            checkpoint=self._folder / query.name,
            aside=self._folder / "aside",
        )
        writers = Writers(place.tables)
        desk = Desk(
            place=place,
            builds=self._needed(query),
            reading=reading_of(self._config, cluster),
            writers=writers,
            ids=TopicIds(cluster, TopicIdReader(client_settings(self._config.upstream)).ids),
        )
        batches = batches_of(query, desk)
        try:
            return follow(
                self._session,
                batches,
                place.checkpoint,
                source.read_options(self._config, query),
                trigger_ms=None,
                stop=self._stop,
                watcher=_Watcher(self._log, run, batches),
            )
        finally:
            batches.close()
            writers.close()

    def _needed(self, query: Query) -> dict[str, Build]:
        names = {self._build.table.name, *(_HISTORY if DESCRIBED in self._build.kinds else ())}
        return {name: build for name, build in query.builds().items() if name in names}

    def _put_in_place(self, run: Run) -> None:
        table = self._build.table
        made = _files(self._folder / "tables", table)
        try:
            stored = _files(self._config.tables.path, table)
        except TableError as other:
            text = f"{other}. Rows that the topics do not retain are lost with it"
            self._log.problem(run, table.name, text, table=table.name)
            stored = []
        with self._writers.of(table.name) as writer, engine.connect() as duckdb:
            rows = _all_rows(duckdb, table, made, stored)
            if table.appended:
                writer.replace_with(rows)
            else:
                writer.replace_all(rows.read_all().cast(table.columns))
        (self._config.pipeline.checkpoint / "aside" / table.name).unlink(missing_ok=True)


class _Watcher:
    """Writes down how a rebuild fares; a table that cannot take its rows ends it."""

    def __init__(self, log: RunLog, run: Run, batches: Batches) -> None:
        self._log = log
        self._run = run
        self._batches = batches

    def on_progress(self, progress: Progress) -> None:
        result = self._batches.results.pop(progress.batch, None)
        if result is None:
            return
        if result.problems:
            raise TableError("; ".join(result.problems.values()))
        self._log.progress(
            self._run,
            batch=progress.batch,
            rows=result.rows,
            rejected=result.rejected,
            lag=progress.lag,
            batch_ms=progress.batch_ms,
        )

    def on_well(self) -> None:
        """Nobody asks whether a rebuild is ready."""


def _all_rows(duckdb: DuckDBPyConnection, table: Table, made: list[str], stored: list[str]) -> pa.RecordBatchReader:
    """What was made, with the ids that were stored, and the stored rows whose keys are not among it; each key once."""
    duckdb.register("nothing", table.columns.empty_table())
    sources = [engine.FILES if files else "nothing" for files in (made, stored)]
    same_key = " AND ".join(f"s.{quoted(name)} = t.{quoted(name)}" for name in table.key)
    once = {side: f"DISTINCT ON ({_columns(side, table.key)})" if table.appended else "" for side in "st"}
    names = table.columns.names
    if table.has_validity:
        ids = id_columns(table.columns)
        new = ", ".join(
            f"coalesce(t.{quoted(name)}, s.{quoted(name)}) AS {quoted(name)}" if name in ids else f"s.{quoted(name)}"
            for name in names
        )
        of_made = f"SELECT {new} FROM made AS s LEFT JOIN stored AS t ON {same_key}"  # noqa: S608 - our own names
    else:
        of_made = f"SELECT {once['s']} {_columns('s', names)} FROM made AS s"  # noqa: S608 - our own names
    old = ", ".join("true AS is_historic" if name == "is_historic" else f"t.{quoted(name)}" for name in names)
    question = (
        f"WITH made AS (SELECT * FROM {sources[0]}), stored AS (SELECT * FROM {sources[1]}) "  # noqa: S608 - our own names
        f"({of_made}) UNION ALL (SELECT {once['t']} {old} FROM stored AS t ANTI JOIN made AS s ON {same_key})"
    )
    return duckdb.sql(question, params=[files for files in (made, stored) if files]).to_arrow_reader(_AT_ONCE)


def _columns(side: str, names: Iterable[str]) -> str:
    return ", ".join(f"{side}.{quoted(name)}" for name in names)


def _files(root: Path, table: Table) -> list[str]:
    stored = StoredTable(root, table)
    return [] if stored.checked() is None else engine.paths(stored.files())
