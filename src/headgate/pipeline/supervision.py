"""One query of the pipeline again and again: what is checked before, and what is told about it.

One rule: what is wrong is a row in `pipeline_runs`, a sentence and a reason not to be ready, and the rest goes on. A
query that ends by itself is started again after a while, and goes on where its checkpoint is.
"""

from dataclasses import dataclass
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError, HeadgateError
from headgate.config.model import Config
from headgate.facts.topics import message_limit
from headgate.kafka.topics import TopicIdReader, TopicListing, client_settings, list_topics
from headgate.pipeline import source
from headgate.pipeline.append_query import AppendBatches
from headgate.pipeline.batches import Batches, Desk, OnMoment, Place, no_moment
from headgate.pipeline.facts_query import FactsBatches
from headgate.pipeline.parsing import Reading
from headgate.pipeline.queries import FACTS, Query
from headgate.pipeline.run_log import Run, RunLog, say
from headgate.pipeline.stream import Progress, follow
from headgate.pipeline.topic_ids import TopicIds
from headgate.pipeline.writers import Writers
from headgate.tables.registry import all_tables
from headgate.tables.storage import StoredTable, TableError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_LOOK_FOR_TOPICS_S = 5.0


def place_of(config: Config, query: Query) -> Place:
    checkpoint = config.pipeline.checkpoint
    return Place(tables=config.tables.path, checkpoint=checkpoint / query.name, aside=checkpoint / "aside")


def reading_of(config: Config, cluster: str) -> Reading:
    largest = {"topologies": message_limit(config.topologies.max_bytes)}
    return Reading(prefix=config.facts.prefix, cluster=cluster, largest=largest)


def batches_of(query: Query, desk: Desk) -> Batches:
    return FactsBatches(desk) if query is FACTS else AppendBatches(desk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all queries of a pipeline share; `stop` ends them between two batches."""

    config: Config
    session: SparkSession
    clock: Clock
    stop: Event
    writers: Writers
    log: RunLog
    ids: TopicIdReader
    on_moment: OnMoment = no_moment


class SupervisedQuery:
    """One query in these surroundings, on the thread that calls `run`."""

    def __init__(self, query: Query, around: Surroundings) -> None:
        self._query = query
        self._around = around
        self._place = place_of(around.config, query)

    def run(self, *, once: bool) -> bool:
        """Until it is stopped, or `once` until what is there now is read; whether all of it went well."""
        stop, clock = self._around.stop, self._around.clock
        pause_s = _FIRST_PAUSE_S
        while True:
            started = clock.monotonic()
            try:
                return self._attempt(once=once)
            except HeadgateError as failure:
                self._around.log.health.tell(self._query.name, str(failure))
                if once or stop.is_set():
                    raise
                if clock.monotonic() - started > _LONGEST_PAUSE_S:
                    pause_s = _FIRST_PAUSE_S
                say(f"{self._query.name}: {failure}; the next attempt is in {pause_s:.0f} s")
            if stop.wait(pause_s):
                return True
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    def _attempt(self, *, once: bool) -> bool:
        around, log = self._around, self._around.log
        listing = list_topics(client_settings(around.config.upstream))
        run = log.begin(listing.cluster, self._query.name)
        try:
            well = self._check(run, listing)
            desk = Desk(
                place=self._place,
                builds=self._query.builds(),
                reading=reading_of(around.config, listing.cluster),
                writers=around.writers,
                ids=TopicIds(listing.cluster, around.ids.ids),
                on_moment=around.on_moment,
            )
            batches = batches_of(self._query, desk)
            watcher = _Watcher(self._query, around, run, batches)
            try:
                whole = follow(
                    around.session,
                    batches,
                    self._place.checkpoint,
                    source.read_options(around.config, self._query),
                    trigger_ms=None if once else around.config.pipeline.trigger_ms,
                    stop=around.stop,
                    watcher=watcher,
                )
            finally:
                batches.close()
        except HeadgateError as failure:
            log.end(run, "failed", str(failure))
            raise
        log.end(run, "done" if whole else "stopped")
        return well and not watcher.problems

    def _check(self, run: Run, listing: TopicListing) -> bool:
        """What is known to be wrong before anything is read; False when a table will miss rows."""
        config, log = self._around.config, self._around.log
        for topic in self._query.topics(config.facts.prefix):
            if topic not in listing.topics:
                text = f"the topic {topic} is not there yet: a gateway makes it when it starts"
                log.problem(run, topic, text)
        checkpoint = self._place.checkpoint
        if not (checkpoint / "metadata").exists() and self._has_rows():
            text = f"the checkpoint {checkpoint} is gone: all that the topics retain is read again"
            log.problem(run, _checkpoint(self._query), text)
        notes = {name: self._place.aside / name for name in self._query.builds()}
        asides = {name: note.read_text(encoding="utf-8") for name, note in notes.items() if note.exists()}
        for name, text in asides.items():
            log.problem(run, _table(name), text, table=name)
        return not asides

    def _has_rows(self) -> bool:
        """Whether a table that only this query writes was written before."""
        own = [name for name, build in self._query.builds().items() if build.kinds <= self._query.own_kinds]
        return any(_is_there(self._around.config.tables.path, name) for name in own)


class _Watcher:
    """Tells what it hears of one run."""

    def __init__(self, query: Query, around: Surroundings, run: Run, batches: Batches) -> None:
        self._query = query
        self._around = around
        self._run = run
        self._batches = batches
        self._looked_at = around.clock.monotonic()
        self.problems = False

    def on_progress(self, progress: Progress) -> None:
        result = self._batches.results.pop(progress.batch, None)
        if result is None:
            return
        log = self._around.log
        for table, problem in result.problems.items():
            self.problems = True
            log.problem(self._run, _table(table), problem, table=table)
        log.health.clear(self._query.name)
        if progress.lag == 0:
            log.health.clear(_checkpoint(self._query))
        log.progress(
            self._run,
            batch=progress.batch,
            rows=result.rows,
            rejected=result.rejected,
            lag=progress.lag,
            batch_ms=progress.batch_ms,
        )

    def on_well(self) -> None:
        around = self._around
        around.log.health.clear(self._query.name)
        now = around.clock.monotonic()
        if now - self._looked_at < _LOOK_FOR_TOPICS_S:
            return
        self._looked_at = now
        missing = set(self._query.topics(around.config.facts.prefix)) & around.log.health.problems().keys()
        try:
            for topic in around.ids.ids(missing) if missing else ():
                around.log.health.clear(topic)
        except ClusterError:
            pass  # the query itself tells when the cluster is away


def _checkpoint(query: Query) -> str:
    return f"checkpoint of {query.name}"


def _table(name: str) -> str:
    return f"table {name}"


def _is_there(root: Path, name: str) -> bool:
    try:
        return StoredTable(root, all_tables()[name]).newest() is not None
    except TableError:
        return True
