"""Runs the pipeline: all queries side by side, each on a thread of its own and restarted when it fails.

A problem is a row in `pipeline_runs`, a sentence on standard error and a reason for `/readyz` to fail; the rest goes
on, and the end of one query does not end another. A query that fails is started again after a pause, and continues from
its checkpoint.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError, HeadgateError, PlatformError
from headgate.base.locations import Location
from headgate.config.model import Config
from headgate.facts.topics import message_limit
from headgate.kafka.topics import TopicAdmin, TopicListing, client_settings, list_topics
from headgate.pipeline.batches import (
    BatchContext,
    Batches,
    BatchProgress,
    Folders,
    OnMoment,
    TableWriters,
    TopicIds,
    ignore_moment,
)
from headgate.pipeline.derived.derivation import Derivation, DerivedContext
from headgate.pipeline.derived.derived_runner import QUERY as DERIVED
from headgate.pipeline.derived.derived_runner import DerivedTables
from headgate.pipeline.derived.registry import DERIVATIONS
from headgate.pipeline.fact_rows import ReadSettings
from headgate.pipeline.known_tables import KnownTables, missing_text
from headgate.pipeline.plan_requests import PlanRequests
from headgate.pipeline.queries import QUERIES, Query, read_options, run_query
from headgate.pipeline.run_log import PipelineHealth, PipelineRun, RunLog, print_message
from headgate.pipeline.source_topics import OffsetsReusedError, SourceTopics, created_again_text
from headgate.tables.definitions import TABLES
from headgate.tables.files import has_file, read_file
from headgate.tables.storage import StoredTable, TableError

if TYPE_CHECKING:
    from headgate.pipeline.catalogue_export import CatalogueExport

_MIN_PAUSE_S, _MAX_PAUSE_S = 1.0, 30.0
_LOOK_FOR_TOPICS_S = 5.0
_CANCEL_AGAIN_S = 0.5


def disabled_folder(config: Config) -> Location:
    """The folder of the notes about disabled tables."""
    return config.pipeline.checkpoint / "aside"


def read_settings(config: Config, cluster: str, generations: Mapping[str, int]) -> ReadSettings:
    max_bytes = {"topologies": message_limit(config.topologies.max_bytes)}
    return ReadSettings(prefix=config.facts.prefix, cluster=cluster, max_bytes=max_bytes, generations=dict(generations))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Everything that the queries of a pipeline share; `stop` ends them between two batches."""

    config: Config
    session: SparkSession
    clock: Clock
    stop: Event
    writers: TableWriters
    log: RunLog
    ids: TopicAdmin
    on_moment: OnMoment


class PipelineRunner:
    """The pipeline of one configuration on one session; `stop` ends it between two batches."""

    def __init__(
        self,
        config: Config,
        session: SparkSession,
        clock: Clock,
        stop: Event,
        *,
        queries: Sequence[Query] = QUERIES,
        derivations: Sequence[Derivation] = DERIVATIONS,
        health: PipelineHealth | None = None,
        on_moment: OnMoment = ignore_moment,
    ) -> None:
        self._writers = TableWriters(config.tables.path)
        context = RunContext(
            config=config,
            session=session,
            clock=clock,
            stop=stop,
            writers=self._writers,
            log=RunLog(self._writers, clock, PipelineHealth() if health is None else health),
            ids=TopicAdmin(client_settings(config.upstream)),
            on_moment=on_moment,
        )
        self._context = context
        self._queries = [SupervisedQuery(query, context) for query in queries]
        derived = DerivedContext(
            config=config, session=session.newSession(), writers=self._writers, on_moment=on_moment
        )
        self._export = None if config.pipeline.openlineage is None else _create_export(config, clock)
        self._derived = DerivedTables(derivations, derived, clock, context.log, self._export) if derivations else None
        self._plans = PlanRequests(config, session.newSession(), clock)

    def close(self) -> None:
        if self._export is not None:
            self._export.close()
        self._writers.close()

    def run(self, *, once: bool) -> bool:
        """Run until stopped, or `once` until all existing records are read; returns whether all went well.

        When all queries have ended, raises the error of the first that failed.
        """
        with ThreadPoolExecutor(len(self._queries) + 2, "headgate-query") as threads:
            running = [threads.submit(query.run, once=once) for query in self._queries]
            ended = Event()
            derived = None if once else self._derived
            health = self._context.log.health
            deriving = (
                None
                if derived is None
                else threads.submit(keep_deriving, derived.run, self._cluster, health, ended, _LOOK_FOR_TOPICS_S)
            )
            planning = None if once else threads.submit(self._plans.run, ended)
            wait(running)
            ended.set()
            while (
                deriving is not None and not deriving.done()
            ):  # what a derivation leaves undone comes at the next start
                self._context.session.sparkContext.cancelJobGroup(DERIVED)
                wait([deriving], timeout=_CANCEL_AGAIN_S)
            if planning is not None:
                planning.result()
        went_well = [one.result() for one in running]
        if once and self._derived is not None and not self._context.stop.is_set():
            went_well.append(self._derived.run_once(self._cluster(), self._context.stop))
        return all(went_well)

    def _cluster(self) -> str:
        return list_topics(client_settings(self._context.config.upstream)).cluster


def keep_deriving(
    derive: Callable[[str, Event], None],
    cluster: Callable[[], str],
    health: PipelineHealth,
    ended: Event,
    pause_s: float,
) -> None:
    """Run the derivations until the queries have ended; whatever fails is tried again."""
    while not ended.wait(pause_s):
        try:
            found = cluster()
            health.clear_problem(DERIVED)
            derive(found, ended)
        except Exception as failure:  # noqa: BLE001 - nothing else would start this thread again
            if ended.is_set():
                return
            text = _failure_text(failure)
            health.set_problem(DERIVED, text)
            print_message(f"{DERIVED}: {text}; the next attempt is in {pause_s:.0f} s")


def _failure_text(failure: Exception) -> str:
    """Of a defect also its type."""
    return str(failure) if isinstance(failure, HeadgateError) else f"{type(failure).__name__}: {failure}"


def _create_export(config: Config, clock: Clock) -> "CatalogueExport":
    try:
        from headgate.pipeline.catalogue_export import create_export  # noqa: PLC0415 - an extra of its own
    except ModuleNotFoundError as missing:
        raise PlatformError(f"{missing.name} is not installed: pip install 'headgate[openlineage]'") from None
    return create_export(config, clock)


class SupervisedQuery:
    """One query, on the thread that calls `run`."""

    def __init__(self, query: Query, context: RunContext) -> None:
        self._query = query
        self._context = context
        config = context.config
        self._folders = Folders(
            tables=config.tables.path,
            checkpoint=config.pipeline.checkpoint / query.name,
            disabled=disabled_folder(config),
        )

    def run(self, *, once: bool) -> bool:
        stop, clock = self._context.stop, self._context.clock
        pause_s = _MIN_PAUSE_S
        while True:
            started = clock.monotonic()
            try:
                return self._attempt(once=once)
            except OffsetsReusedError as failure:  # the next attempt begins a new checkpoint
                print_message(f"{self._query.name}: {failure}")
            except Exception as failure:  # also a defect: the other queries and derived tables would go on without it
                text = _failure_text(failure)
                self._context.log.health.set_problem(self._query.name, text)
                if once or stop.is_set():
                    raise
                if clock.monotonic() - started > _MAX_PAUSE_S:
                    pause_s = _MIN_PAUSE_S
                print_message(f"{self._query.name}: {text}; the next attempt is in {pause_s:.0f} s")
            if stop.wait(pause_s):
                return True
            pause_s = min(_MAX_PAUSE_S, pause_s * 2)

    def _attempt(self, *, once: bool) -> bool:
        context, log = self._context, self._context.log
        listing = list_topics(client_settings(context.config.upstream))
        run = log.begin(listing.cluster, self._query.name)
        try:
            topics = self._query.topics(context.config.facts.prefix)
            sources = SourceTopics(self._folders.checkpoint)
            known = KnownTables(self._folders.checkpoint, self._query.builds(), context.config.facts.prefix)
            well = self._report_known_problems(run, listing, known.find_missing(sources))
            ids = context.ids.ids(topics)
            for topic in sources.reconcile(ids):
                log.add_created_again(run, created_again_text(topic))
            batch_context = BatchContext(
                folders=self._folders,
                builds=self._query.builds(),
                reading=read_settings(context.config, listing.cluster, sources.generations(ids)),
                writers=context.writers,
                ids=TopicIds(listing.cluster, context.ids.ids),
                on_moment=context.on_moment,
                check_source=lambda batch: sources.check(batch, topics, context.ids.ids, context.ids.first_offsets),
                on_batch=known.on_batch,
            )
            existing = {topic: listing.topics[topic] for topic in topics if topic in listing.topics}
            batches = self._query.make_batches(batch_context)
            observer = _RunObserver(self._query, context, run, batches)
            try:
                completed = run_query(
                    context.session,
                    batches,
                    self._folders.checkpoint,
                    read_options(context.config, self._query, sources.starting_offsets(existing), once=once),
                    trigger_ms=None if once else context.config.pipeline.trigger_ms,
                    stop=context.stop,
                    observer=observer,
                )
            finally:
                batches.close()
        except Exception as failure:
            log.end(run, "failed", _failure_text(failure))
            raise
        log.end(run, "done" if completed else "stopped")
        return well and not observer.problems

    def _report_known_problems(self, run: PipelineRun, listing: TopicListing, missing: Sequence[str]) -> bool:
        """Report problems that are known before anything is read; False when a table will miss rows.

        The tables `missing` lack rows of records that were read before.
        """
        config, log = self._context.config, self._context.log
        for topic in self._query.topics(config.facts.prefix):
            if topic not in listing.topics:
                log.add_problem(
                    run, topic, f"the topic {topic} does not exist yet: a gateway creates it when it starts"
                )
        checkpoint = self._folders.checkpoint
        if not has_file(checkpoint / "metadata") and self._has_tables():
            text = f"the checkpoint {checkpoint} is missing: all records that the topics retain are read again"
            log.add_problem(run, _checkpoint_subject(self._query), text)
        notes = {name: self._folders.disabled / name for name in self._query.builds()}
        disabled = {name: read_file(note) for name, note in notes.items() if has_file(note)}
        for name, text in {**{name: missing_text(name) for name in missing}, **disabled}.items():
            log.add_problem(run, _table_subject(name), text, table=name)
        return not disabled

    def _has_tables(self) -> bool:
        """Whether a table that only this query writes exists."""
        own = [name for name, build in self._query.builds().items() if build.kinds <= self._query.own_kinds]
        return any(_table_exists(self._folders.tables, name) for name in own)


class _RunObserver:
    """Reports the progress of one run to the log and to the health."""

    def __init__(self, query: Query, context: RunContext, run: PipelineRun, batches: Batches) -> None:
        self._query = query
        self._context = context
        self._run = run
        self._batches = batches
        self._looked_at = context.clock.monotonic()
        self.problems = False

    def on_progress(self, progress: BatchProgress) -> None:
        result = self._batches.results.pop(progress.batch, None)
        if result is None:
            return
        log = self._context.log
        for table, problem in result.problems.items():
            self.problems = True
            log.add_problem(self._run, _table_subject(table), problem, table=table)
        for lost in result.lost:
            log.add_lost(self._run, lost)
        log.health.clear_problem(self._query.name)
        if progress.lag == 0:
            log.health.clear_problem(_checkpoint_subject(self._query))
        log.add_batch(self._run, result, progress)

    def on_idle(self) -> None:
        """Clear the problem of the query, and now and then those of topics that exist by now."""
        context = self._context
        context.log.health.clear_problem(self._query.name)
        now = context.clock.monotonic()
        if now - self._looked_at < _LOOK_FOR_TOPICS_S:
            return
        self._looked_at = now
        missing = set(self._query.topics(context.config.facts.prefix)) & context.log.health.problems().keys()
        try:
            for topic in context.ids.ids(missing) if missing else ():
                context.log.health.clear_problem(topic)
        except ClusterError:
            pass  # the query itself reports an unreachable cluster


def _checkpoint_subject(query: Query) -> str:
    return f"checkpoint of {query.name}"


def _table_subject(name: str) -> str:
    return f"table {name}"


def _table_exists(root: Location, name: str) -> bool:
    try:
        return StoredTable(root, TABLES[name]).newest() is not None
    except TableError:
        return True
