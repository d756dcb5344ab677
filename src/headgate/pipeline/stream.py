"""One streaming query from its start to its end, whatever ends it.

One rule: a batch that has begun is let end, up to ten seconds; a query is stopped between batches. So nothing is
half-written and Spark has nothing to complain about.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.base.errors import ClusterError, HeadgateError
from headgate.pipeline.batches import Batches, disk_is_full

BATCH_ENDS_WITHIN_S = 10.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One batch as Spark tells it; `lag` is how many records were unread after it."""

    batch: int
    lag: int | None
    batch_ms: int


class Watcher(Protocol):
    """Hears how a query fares, on the thread that follows it."""

    def on_progress(self, progress: Progress) -> None:
        """A batch is done; each is told once."""

    def on_well(self) -> None:
        """It runs and lacks nothing; told now and then."""


def follow(
    session: SparkSession,
    batches: Batches,
    checkpoint: Path,
    options: Mapping[str, str],
    *,
    trigger_ms: int | None,
    stop: Event,
    watcher: Watcher,
) -> bool:
    """Run the query until it ends; `trigger_ms` None: until it has read what is there now.

    True when it read everything, False when `stop` came first. Raises what ended it otherwise.
    """
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    # Its own share of the machine: Spark's threads take it over from this one.
    session.sparkContext.setLocalProperty("spark.scheduler.pool", batches.name)
    records = session.readStream.format("kafka").options(**options).load()
    writer = records.writeStream.queryName(batches.name).foreachBatch(batches)
    writer = writer.option("checkpointLocation", str(checkpoint))
    trigger: dict[str, Any] = (
        {"availableNow": True} if trigger_ms is None else {"processingTime": f"{trigger_ms} milliseconds"}
    )
    try:
        query = writer.trigger(**trigger).start()
    except PySparkException as failure:
        raise ClusterError(_sentence(failure)) from None
    told = -1
    while query.isActive:
        told = _tell(query, told, watcher)
        if _is_waiting(query):
            watcher.on_well()
        if stop.wait(_POLL_S):
            _end(query, batches, checkpoint)
            _tell(query, told, watcher)
            return False
    _tell(query, told, watcher)
    _raise(query, batches)
    return True


def _is_waiting(query: StreamingQuery) -> bool:
    """Whether it has done what there was to do: it waits for records or for its next turn."""
    return str(query.status["message"]).startswith("Waiting")


def _tell(query: StreamingQuery, told: int, watcher: Watcher) -> int:
    """Tell every batch that was not told yet; the number of the last."""
    newest = query.lastProgress
    if newest is None or newest.batchId == told:
        return told
    for progress in query.recentProgress:
        if progress.batchId > told and progress.numInputRows > 0:
            told = progress.batchId
            batch_ms = int(progress.durationMs.get("triggerExecution", 0))
            watcher.on_progress(Progress(batch=told, lag=_lag(progress.sources[0]), batch_ms=batch_ms))
    return told


def _lag(source: Any) -> int | None:
    """Spark gives offsets as JSON, `{"topic": {"0": 12}}`; of a batch that came again it does not say the latest."""
    try:
        ends, latest = json.loads(source.endOffset), json.loads(source.latestOffset)
    except (TypeError, ValueError):
        return None
    if ends is None or latest is None:
        return None
    read = sum(sum(partitions.values()) for partitions in ends.values())
    return max(0, sum(sum(partitions.values()) for partitions in latest.values()) - read)


def _end(query: StreamingQuery, batches: Batches, checkpoint: Path) -> None:
    """Let the running batch end, and the checkpoint with it; the next one refuses to begin."""
    batches.closing = True
    until = time.monotonic() + BATCH_ENDS_WITHIN_S
    running = batches.running
    while running is not None and query.isActive and time.monotonic() < until:
        if (checkpoint / "commits" / str(running)).exists():
            break
        time.sleep(_POLL_S)
    query.stop()


def _raise(query: StreamingQuery, batches: Batches) -> None:
    """What ended the query, as one of our errors, if something did."""
    failure = query.exception()
    if failure is None:
        return
    if isinstance(batches.failure, HeadgateError):
        raise batches.failure
    cause = batches.failure or failure
    raise disk_is_full(cause) or ClusterError(_sentence(cause))


def _sentence(failure: Exception) -> str:
    """The first line: behind it come traces."""
    first = next((line.strip() for line in str(failure).splitlines() if line.strip()), type(failure).__name__)
    return f"the query ended: {first}"
