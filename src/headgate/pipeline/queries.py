"""The streaming queries of the pipeline: their topics, their Kafka options, and running one until it ends.

A topic belongs to one query. The facts of small topics are upserted, because a fact there ends another; those of large
topics are appended, because they never change.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any, Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.base.errors import ClusterError, HeadgateError
from headgate.base.locations import Location
from headgate.config.files import read_secret
from headgate.config.model import Config, UpstreamConfig
from headgate.facts.codec import FORMS
from headgate.pipeline.append_query import AppendBatches
from headgate.pipeline.batches import BatchContext, Batches, BatchProgress, disk_full_error
from headgate.pipeline.builds import BUILDS, Build
from headgate.pipeline.fact_rows import REJECTED
from headgate.pipeline.facts_query import FactsBatches
from headgate.pipeline.spark_storage import make_folder, spark_address
from headgate.tables.files import has_file

_BATCH_ENDS_WITHIN_S = 10.0
_POLL_S = 0.1
_POLL_RUNNING_S = 0.5  # each asks the JVM, and a query that runs on has time
_MODULES = {"PLAIN": "plain.PlainLoginModule"}
_SCRAM_MODULE = "scram.ScramLoginModule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query; `suffixes` are those of its topics, `max_offsets` bounds one batch.

    A query that runs on waits until it has `min_offsets` to read, but no longer than `max_delay_s`: many small batches
    cost more than one, and each is a version of its tables.
    """

    name: str
    suffixes: tuple[str, ...]
    max_offsets: int
    batches: Callable[[str, BatchContext], Batches]
    min_offsets: int = 0
    max_delay_s: int = 0

    @property
    def own_kinds(self) -> frozenset[str]:
        """The facts of its topics."""
        return frozenset(form.cls.__name__ for form in FORMS if form.topic in self.suffixes)

    def topics(self, prefix: str) -> tuple[str, ...]:
        return tuple(prefix + suffix for suffix in self.suffixes)

    def builds(self) -> dict[str, Build]:
        """The builds of tables that are made of its facts, or of rejected records of its topics."""
        kinds = self.own_kinds | {REJECTED}
        return {name: build for name, build in BUILDS.items() if build.kinds & kinds}

    def make_batches(self, context: BatchContext) -> Batches:
        return self.batches(self.name, context)


FACTS = Query(
    name="facts", suffixes=("events", "state", "tasks", "topologies"), max_offsets=5_000, batches=FactsBatches
)
# Few large batches cost less than many small ones, and their rows never pass through this process.
APPEND = Query(
    name="append",
    suffixes=("activity", "dispositions", "lags"),
    max_offsets=1_000_000,
    batches=AppendBatches,
    min_offsets=50_000,
    max_delay_s=20,
)
QUERIES = (FACTS, APPEND)


# --- the Kafka source -------------------------------------------------------------------------------------------------


def read_options(
    config: Config, query: Query, starting_offsets: str = "earliest", *, once: bool = True
) -> dict[str, str]:
    """The options of `format("kafka")`: all retained records from the start, a bounded number at a time.

    A checkpoint that has begun has its own offsets, and Spark ignores `starting_offsets`.

    The topics are subscribed to by a pattern, so that an absent topic is read as soon as it is created.

    With `once` no records are waited for: the last ones, fewer than the minimum, would stay unread.
    """
    waiting = {"minOffsetsPerTrigger": str(query.min_offsets), "maxTriggerDelay": f"{query.max_delay_s}s"}
    pattern = f"{re.escape(config.facts.prefix)}({'|'.join(query.suffixes)})"
    return {
        "maxOffsetsPerTrigger": str(query.max_offsets),
        **(waiting if query.min_offsets and not once else {}),
        "subscribePattern": pattern,
        "startingOffsets": starting_offsets,
        # Retention is not a failure: the tables keep the rows of deleted records. `source_topics.py` reports losses.
        "failOnDataLoss": "false",
        "groupIdPrefix": "headgate-pipeline",
        # Spark reads only existing records. A consumer that prefetches beyond them would wait half a second in each
        # partition before it reads another.
        "kafka.fetch.max.wait.ms": "10",
        **{f"kafka.{name}": value for name, value in java_client_options(config.upstream).items()},
    }


def java_client_options(upstream: UpstreamConfig) -> Mapping[str, str]:
    """The settings of Java clients; `tls_ca` is a truststore in PEM."""
    has_sasl = upstream.service_user is not None and upstream.service_mechanism != "none"
    settings = {
        "bootstrap.servers": ",".join(map(str, upstream.bootstrap)),
        "security.protocol": ("SASL_" if has_sasl else "") + ("SSL" if upstream.tls else "PLAINTEXT"),
    }
    if upstream.tls_ca is not None:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(upstream.tls_ca)}
    if has_sasl and upstream.service_password_file is not None:
        mechanism = upstream.service_mechanism
        module = f"org.apache.kafka.common.security.{_MODULES.get(mechanism, _SCRAM_MODULE)}"
        user = _jaas_text(upstream.service_user or "")
        password = _jaas_text(read_secret(upstream.service_password_file).get_secret_value())
        settings |= {
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{module} required username={user} password={password};",
        }
    return settings


def _jaas_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# --- running ----------------------------------------------------------------------------------------------------------


class QueryObserver(Protocol):
    """Observes a running query, on the thread that calls `run_query`."""

    def on_progress(self, progress: BatchProgress) -> None:
        """Called once for each completed batch."""

    def on_idle(self) -> None:
        """Called repeatedly while the query waits for records."""


def run_query(
    session: SparkSession,
    batches: Batches,
    checkpoint: Location,
    options: Mapping[str, str],
    *,
    trigger_ms: int | None,
    stop: Event,
    observer: QueryObserver,
) -> bool:
    """Run the query until it ends; without `trigger_ms` it ends when it has read all records that exist now.

    Returns True when it read everything, False when `stop` came first; raises the error that ended it otherwise. A
    running batch may take ten seconds more to end: a query is stopped between batches, so that none is half-written.
    """
    make_folder(checkpoint.parent)
    # A scheduler pool of its own: Spark's threads inherit it from this one.
    session.sparkContext.setLocalProperty("spark.scheduler.pool", batches.name)
    records = session.readStream.format("kafka").options(**options).load()
    writer = records.writeStream.queryName(batches.name).foreachBatch(batches)
    writer = writer.option("checkpointLocation", spark_address(checkpoint))
    trigger: dict[str, Any] = (
        {"availableNow": True} if trigger_ms is None else {"processingTime": f"{trigger_ms} milliseconds"}
    )
    try:
        query = writer.trigger(**trigger).start()
    except PySparkException as failure:
        raise ClusterError(_failure_text(failure)) from None
    reported = -1
    poll_s = _POLL_S if trigger_ms is None else _POLL_RUNNING_S
    while query.isActive:
        if batches.results:  # Spark's progress is a large document: it is read only when there is news in it
            reported = _report_batches(query, reported, observer)
        if str(query.status["message"]).startswith("Waiting"):  # for records, or for its next trigger
            observer.on_idle()
        if stop.wait(poll_s):
            _stop_between_batches(query, batches, checkpoint)
            _report_batches(query, reported, observer)
            return False
    _report_batches(query, reported, observer)
    _raise_failure(query, batches)
    return True


def _report_batches(query: StreamingQuery, reported: int, observer: QueryObserver) -> int:
    """Report every batch after the number `reported`; returns the last one."""
    newest = query.lastProgress
    if newest is None or newest.batchId == reported:
        return reported
    for progress in query.recentProgress:
        if progress.batchId > reported and progress.numInputRows > 0:
            reported = progress.batchId
            batch_ms = int(progress.durationMs.get("triggerExecution", 0))
            observer.on_progress(BatchProgress(batch=reported, lag=_lag(progress.sources[0]), batch_ms=batch_ms))
    return reported


def _lag(source: Any) -> int | None:
    """The unread records, from Spark's offsets such as `{"topic": {"0": 12}}`; a repeated batch has no latest ones."""
    try:
        ends, latest = json.loads(source.endOffset), json.loads(source.latestOffset)
    except (TypeError, ValueError):
        return None
    if ends is None or latest is None:
        return None
    read = sum(sum(partitions.values()) for partitions in ends.values())
    return max(0, sum(sum(partitions.values()) for partitions in latest.values()) - read)


def _stop_between_batches(query: StreamingQuery, batches: Batches, checkpoint: Location) -> None:
    """Let the running batch and its checkpoint end, then stop; the next batch refuses to begin.

    `ClusterError` when the batch still runs after Spark's own timeout.
    """
    batches.closing = True
    until = time.monotonic() + _BATCH_ENDS_WITHIN_S
    running = batches.running
    while running is not None and query.isActive and time.monotonic() < until:
        if has_file(checkpoint / "commits" / str(running)):
            break
        time.sleep(_POLL_S)
    try:
        query.stop()
    except Py4JError:  # Spark's TimeoutException: it can interrupt its own jobs, but not a write in Python
        raise ClusterError("the running batch did not end in time; it is written again after the next start") from None


def _raise_failure(query: StreamingQuery, batches: Batches) -> None:
    """Raise the error that ended the query, if any, as a `HeadgateError`."""
    failure = query.exception()
    if failure is None:
        return
    if isinstance(batches.failure, HeadgateError):
        raise batches.failure
    cause = batches.failure or failure
    raise disk_full_error(cause) or ClusterError(_failure_text(cause))


def _failure_text(failure: Exception) -> str:
    """The first line of Spark's text, without its stack trace."""
    first = next((line.strip() for line in str(failure).splitlines() if line.strip()), type(failure).__name__)
    return f"the query ended: {first}"
