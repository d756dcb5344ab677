"""Rebuilds a table from the records that the topics retain, or a derived table from its sources.

The queries of the pipeline make its rows, from the first offset, in a temporary folder; one commit then replaces the
table. Rows whose facts the topics no longer retain cannot be made again: they stay, marked as historic. Topic ids stay
too, because a past id can no longer be asked for.
"""

from collections.abc import Iterable
from threading import Event

import pyarrow as pa
from duckdb import DuckDBPyConnection
from pyspark.sql import SparkSession

from headgate.base.clock import Clock
from headgate.base.errors import HeadgateError, UsageError
from headgate.base.locations import ObjectLocation
from headgate.config.model import Config
from headgate.kafka.topics import TopicAdmin, client_settings, list_topics
from headgate.pipeline.batches import BatchContext, Batches, BatchProgress, Folders, TableWriters, TopicIds
from headgate.pipeline.builds import BUILDS, Build
from headgate.pipeline.derived.derivation import Derivation, DerivedContext
from headgate.pipeline.derived.derived_runner import DerivedTables
from headgate.pipeline.derived.registry import DERIVATIONS, derivation_of
from headgate.pipeline.fact_rows import DESCRIBED
from headgate.pipeline.facts_query import stored_files
from headgate.pipeline.known_tables import KnownTables
from headgate.pipeline.queries import QUERIES, Query, read_options, run_query
from headgate.pipeline.run_log import PipelineHealth, PipelineRun, RunLog
from headgate.pipeline.runner import disabled_folder, read_settings
from headgate.pipeline.source_topics import SourceTopics
from headgate.tables.files import remove_file, remove_folder
from headgate.tables.storage import FILES, StoredTable, TableError, connect_duckdb, quoted
from headgate.tables.table import Table, id_columns

# Tables from which a later batch reads the versions that were current before it.
_HISTORY = ("applications", "topology_versions")
_ROWS_AT_ONCE = 10_000


def check_rebuildable(name: str) -> Build | Derivation:
    """How this table is made; the `UsageError` for another name lists the tables that can be made."""
    made = BUILDS.get(name) or derivation_of(name)
    if made is None:
        known = ", ".join([*BUILDS, *(result for one in DERIVATIONS for result in one.results)])
        raise UsageError(f"{name!r} is not made of facts, so it cannot be rebuilt; these can: {known}")
    return made


def new_rebuild(
    config: Config, session: SparkSession, clock: Clock, stop: Event, name: str
) -> "Rebuild | DerivedRebuild":
    """The rebuild of this table: from the topics, or from other tables."""
    made = check_rebuildable(name)
    if isinstance(made, Derivation):
        return DerivedRebuild(config, session, clock, made)
    return Rebuild(config, session, clock, stop, made)


class DerivedRebuild:
    """Makes a derived table anew from its sources, with all other results of its derivation."""

    def __init__(self, config: Config, session: SparkSession, clock: Clock, derivation: Derivation) -> None:
        self._config = config
        self._derivation = derivation
        self._writers = TableWriters(config.tables.path)
        self._log = RunLog(self._writers, clock, PipelineHealth())
        context = DerivedContext(config=config, session=session.newSession(), writers=self._writers)
        self._tables = DerivedTables((derivation,), context, clock, self._log)

    def close(self) -> None:
        self._writers.close()

    def run(self) -> bool:
        listing = list_topics(client_settings(self._config.upstream))
        run = self._log.begin(listing.cluster, f"rebuild {', '.join(self._derivation.results)}")
        try:
            self._tables.make_anew(self._derivation)
        except HeadgateError as failure:
            self._log.end(run, "failed", str(failure))
            raise
        self._log.end(run, "done")
        return True


class Rebuild:
    """The rebuild of one table of facts."""

    def __init__(self, config: Config, session: SparkSession, clock: Clock, stop: Event, build: Build) -> None:
        self._config = config
        self._session = session
        self._stop = stop
        self._build = build
        self._queries = [query for query in QUERIES if build.table.name in query.builds()]
        self._folder = config.pipeline.checkpoint / f"rebuild-{build.table.name}"
        places = (self._folder, config.tables.path)
        self._store = next((one for one in places if isinstance(one, ObjectLocation)), None)
        self._writers = TableWriters(config.tables.path)
        self._log = RunLog(self._writers, clock, PipelineHealth())

    def close(self) -> None:
        self._writers.close()

    def run(self) -> bool:
        """Rebuild the table; False when it was stopped, and then the table is unchanged."""
        listing = list_topics(client_settings(self._config.upstream))
        run = self._log.begin(listing.cluster, f"rebuild {self._build.table.name}")
        try:
            remove_folder(self._folder)
            completed = all(self._make_rows(query, run, listing.cluster) for query in self._queries)
            if completed:
                self._replace_table(run)
        except HeadgateError as failure:
            self._log.end(run, "failed", str(failure))
            raise
        finally:
            remove_folder(self._folder)
        self._log.end(run, "done" if completed else "stopped")
        return completed

    def _make_rows(self, query: Query, run: PipelineRun, cluster: str) -> bool:
        folders = Folders(
            tables=self._folder / "tables",
            checkpoint=self._folder / query.name,
            disabled=self._folder / "disabled",
        )
        names = {self._build.table.name, *(_HISTORY if DESCRIBED in self._build.kinds else ())}
        writers = TableWriters(folders.tables)
        ids = TopicAdmin(client_settings(self._config.upstream))
        sources = SourceTopics(self._config.pipeline.checkpoint / query.name)
        generations = sources.generations(ids.ids(query.topics(self._config.facts.prefix)))
        context = BatchContext(
            folders=folders,
            builds={name: build for name, build in query.builds().items() if name in names},
            reading=read_settings(self._config, cluster, generations),
            writers=writers,
            ids=TopicIds(cluster, ids.ids),
        )
        batches = query.make_batches(context)
        try:
            return run_query(
                self._session,
                batches,
                folders.checkpoint,
                read_options(self._config, query),
                trigger_ms=None,
                stop=self._stop,
                observer=_RebuildObserver(self._log, run, batches),
            )
        finally:
            batches.close()
            writers.close()

    def _replace_table(self, run: PipelineRun) -> None:
        table = self._build.table
        made = stored_files(StoredTable(self._folder / "tables", table))
        try:
            stored = stored_files(StoredTable(self._config.tables.path, table))
        except TableError as other:
            text = f"{other}. Its rows that the topics no longer retain are lost"
            self._log.add_problem(run, table.name, text, table=table.name)
            stored = []
        with self._writers.writer(table.name) as writer, connect_duckdb(self._store) as duckdb:
            rows = _all_rows(duckdb, table, made, stored)
            if table.appended:
                writer.replace_with(rows)
            else:
                writer.replace_all(rows.read_all().cast(table.columns))
        remove_file(disabled_folder(self._config) / table.name)
        for query in self._queries:
            checkpoint = self._config.pipeline.checkpoint / query.name
            known = KnownTables(checkpoint, query.builds(), self._config.facts.prefix)
            known.on_rebuilt(table.name, SourceTopics(checkpoint))


class _RebuildObserver:
    """Logs the progress of a rebuild; a table that cannot take its rows ends it."""

    def __init__(self, log: RunLog, run: PipelineRun, batches: Batches) -> None:
        self._log = log
        self._run = run
        self._batches = batches

    def on_progress(self, progress: BatchProgress) -> None:
        result = self._batches.results.pop(progress.batch, None)
        if result is None:
            return
        if result.problems:
            raise TableError("; ".join(result.problems.values()))
        self._log.add_batch(self._run, result, progress)

    def on_idle(self) -> None:
        """A rebuild has no status pages."""


def _all_rows(duckdb: DuckDBPyConnection, table: Table, made: list[str], stored: list[str]) -> pa.RecordBatchReader:
    """The new rows, with stored topic ids, and the stored rows with other keys as historic ones; each key once."""
    duckdb.register("nothing", table.columns.empty_table())
    sources = [FILES if files else "nothing" for files in (made, stored)]
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
    sql = (
        f"WITH made AS (SELECT * FROM {sources[0]}), stored AS (SELECT * FROM {sources[1]}) "  # noqa: S608 - our own names
        f"({of_made}) UNION ALL (SELECT {once['t']} {old} FROM stored AS t ANTI JOIN made AS s ON {same_key})"
    )
    return duckdb.sql(sql, params=[files for files in (made, stored) if files]).to_arrow_reader(_ROWS_AT_ONCE)


def _columns(side: str, names: Iterable[str]) -> str:
    return ", ".join(f"{side}.{quoted(name)}" for name in names)
