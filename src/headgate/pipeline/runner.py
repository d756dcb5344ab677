"""Running the pipeline: all of its queries side by side, each on a thread of its own.

One rule: what ends one query does not end another. They share the session, the writers of the tables and one log.
"""

import fcntl
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Event

from pyspark.sql import SparkSession

from headgate.base.clock import Clock
from headgate.base.errors import UsageError
from headgate.config.model import Config
from headgate.kafka.topics import TopicIdReader, client_settings
from headgate.pipeline.batches import OnMoment, no_moment
from headgate.pipeline.health import Health
from headgate.pipeline.queries import QUERIES, Query
from headgate.pipeline.run_log import RunLog
from headgate.pipeline.supervision import SupervisedQuery, Surroundings
from headgate.pipeline.writers import Writers


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
        self,
        config: Config,
        session: SparkSession,
        clock: Clock,
        stop: Event,
        *,
        queries: Sequence[Query] = QUERIES,
        health: Health | None = None,
        on_moment: OnMoment = no_moment,
    ) -> None:
        self._writers = Writers(config.tables.path)
        around = Surroundings(
            config=config,
            session=session,
            clock=clock,
            stop=stop,
            writers=self._writers,
            log=RunLog(self._writers, clock, Health() if health is None else health),
            ids=TopicIdReader(client_settings(config.upstream)),
            on_moment=on_moment,
        )
        self._queries = [SupervisedQuery(query, around) for query in queries]

    def close(self) -> None:
        self._writers.close()

    def run(self, *, once: bool) -> bool:
        """Until it is stopped, or `once` until what is there now is read; whether all of it went well.

        Raises what ended the first query that failed, when all have ended.
        """
        with ThreadPoolExecutor(len(self._queries), "headgate-query") as threads:
            running = [threads.submit(query.run, once=once) for query in self._queries]
            wait(running)
        went_well = [one.result() for one in running]
        return all(went_well)
