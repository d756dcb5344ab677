"""Running the pipeline: what is checked before, the query again and again, and what is told about it.

One rule: what is wrong is a row in `pipeline_runs` and a sentence, and the rest goes on. A query that ends by itself is
started again after a while, and goes on where its checkpoint is.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from headgate.base.clock import Clock
from headgate.base.errors import HeadgateError, UsageError
from headgate.config.model import Config
from headgate.facts.topics import message_limit
from headgate.kafka.topics import TopicListing, client_settings, list_topics
from headgate.pipeline import source
from headgate.pipeline.builds import all_builds
from headgate.pipeline.facts_query import NAME, FactsBatches, OnMoment, Place, no_moment
from headgate.pipeline.parsing import Reading
from headgate.pipeline.run_log import Run, RunLog, say
from headgate.pipeline.stream import Progress, follow
from headgate.tables.registry import all_tables
from headgate.tables.storage import StoredTable, TableError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


def place_of(config: Config) -> Place:
    checkpoint = config.pipeline.checkpoint
    return Place(tables=config.tables.path, checkpoint=checkpoint / NAME, aside=checkpoint / "aside")


def reading_of(config: Config, cluster: str) -> Reading:
    largest = {"topologies": message_limit(config.topologies.max_bytes)}
    return Reading(prefix=config.facts.prefix, cluster=cluster, largest=largest)


@contextmanager
def only_pipeline(config: Config) -> Iterator[None]:
    """One process at a time writes the tables; the second is told so."""
    folder = config.pipeline.checkpoint
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another pipeline works with {folder}: stop it first") from None
        yield


class Pipeline:
    """The pipeline of one configuration on one session; `stop` ends it between two batches."""

    def __init__(
        self, config: Config, session: SparkSession, clock: Clock, stop: Event, *, on_moment: OnMoment = no_moment
    ) -> None:
        self._config = config
        self._session = session
        self._clock = clock
        self._stop = stop
        self._on_moment = on_moment
        self._place = place_of(config)
        self._log = RunLog(config.tables.path, clock)

    def close(self) -> None:
        self._log.close()

    def run(self, *, once: bool) -> bool:
        """Until it is stopped, or `once` until what is there now is read; whether all of it went well."""
        pause_s = _FIRST_PAUSE_S
        while True:
            started = self._clock.monotonic()
            try:
                return self._attempt(once=once)
            except HeadgateError as failure:
                if once or self._stop.is_set():
                    raise
                if self._clock.monotonic() - started > _LONGEST_PAUSE_S:
                    pause_s = _FIRST_PAUSE_S
                say(f"{NAME}: {failure}; the next attempt is in {pause_s:.0f} s")
            if self._stop.wait(pause_s):
                return True
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    def _attempt(self, *, once: bool) -> bool:
        listing = list_topics(client_settings(self._config.upstream))
        run = self._log.begin(listing.cluster, NAME)
        try:
            well = self._check(run, listing)
            whole, problems = self._query(run, listing, once=once)
        except HeadgateError as failure:
            self._log.end(run, "failed", str(failure))
            raise
        self._log.end(run, "done" if whole else "stopped")
        return well and not problems

    def _check(self, run: Run, listing: TopicListing) -> bool:
        """What is known to be wrong before anything is read; False when a table will miss rows."""
        absent = [topic for topic in source.topics(self._config.facts.prefix) if topic not in listing.topics]
        for topic in absent:
            self._log.problem(run, f"the topic {topic} is not there yet: a gateway makes it when it starts")
        if not (self._place.checkpoint / "metadata").exists() and self._has_rows():
            text = f"the checkpoint {self._place.checkpoint} is gone: all that the topics retain is read again"
            self._log.problem(run, text)
        asides = [name for name in all_builds() if (self._place.aside / name).exists()]
        for name in asides:
            self._log.problem(run, (self._place.aside / name).read_text(encoding="utf-8"), table=name)
        return not asides

    def _has_rows(self) -> bool:
        """Whether a table of facts was written before."""
        return any(_is_there(self._config.tables.path, name) for name in all_builds())

    def _query(self, run: Run, listing: TopicListing, *, once: bool) -> tuple[bool, bool]:
        """Whether everything was read, and whether a table was set aside."""
        reading = reading_of(self._config, listing.cluster)
        batches = FactsBatches(self._place, all_builds(), reading, on_moment=self._on_moment)
        problems = False

        def on_progress(progress: Progress) -> None:
            nonlocal problems
            result = batches.results.pop(progress.batch, None)
            if result is None:
                return
            for table, problem in result.problems.items():
                problems = True
                self._log.problem(run, problem, table=table)
            self._log.progress(
                run,
                batch=progress.batch,
                rows=result.rows,
                rejected=result.rejected,
                lag=progress.lag,
                batch_ms=progress.batch_ms,
            )

        try:
            whole = follow(
                self._session,
                batches,
                self._place,
                source.read_options(self._config),
                trigger_ms=None if once else self._config.pipeline.trigger_ms,
                stop=self._stop,
                on_progress=on_progress,
            )
        finally:
            batches.close()
        return whole, problems


def _is_there(root: Path, name: str) -> bool:
    try:
        return StoredTable(root, all_tables()[name]).newest() is not None
    except TableError:
        return True
