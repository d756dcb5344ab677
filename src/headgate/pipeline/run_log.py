"""How the pipeline runs: current problems and figures (`PipelineHealth`), and the rows of `pipeline_runs` (`RunLog`).

A problem is in `PipelineHealth` only while it lasts; past problems are in `pipeline_runs`. Reporting never stops the
work: when a row of `pipeline_runs` cannot be written, its sentence still goes to standard error, and the row is written
with the next one.
"""

import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Literal

import pyarrow as pa
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from headgate.base.clock import Clock
from headgate.base.errors import HeadgateError
from headgate.pipeline.batches import BatchProgress, BatchResult, TableWriters, upsert
from headgate.pipeline.source_topics import LostRecords
from headgate.tables.definitions import table_named

RunState = Literal["running", "done", "stopped", "failed"]
_STARTING = "is starting"
_TABLE = "pipeline_runs"
_MAX_UNWRITTEN = 100


def print_message(text: str) -> None:
    """Print a sentence on standard error, with unprintable characters of names escaped."""
    shown = text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
    print(f"headgate: {shown}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFigures:
    """Figures of one query since this process started; `lag` is None when it is unknown."""

    batches: int = 0
    rows: int = 0
    rejected: int = 0
    lag: int | None = None
    batch_ms: int = 0
    lost_records: int = 0
    topics_created_again: int = 0


class PipelineHealth:
    """Problems and figures of these queries; each is not ready until it has started. Thread-safe."""

    def __init__(self, queries: Iterable[str] = ()) -> None:
        self._lock = Lock()
        self._problems = dict.fromkeys(queries, _STARTING)
        self._figures = dict.fromkeys(queries, QueryFigures())

    def set_problem(self, subject: str, problem: str) -> None:
        """`subject` is a query, a table or a headgate.* topic, so there are few."""
        with self._lock:
            self._problems[subject] = problem

    def clear_problem(self, subject: str) -> None:
        with self._lock:
            self._problems.pop(subject, None)

    def problems(self) -> Mapping[str, str]:
        with self._lock:
            return dict(self._problems)

    def add_batch(self, query: str, result: BatchResult, progress: BatchProgress) -> None:
        with self._lock:
            before = self._figures.get(query, QueryFigures())
            self._figures[query] = replace(
                before,
                batches=before.batches + 1,
                rows=before.rows + result.rows,
                rejected=before.rejected + result.rejected,
                lag=progress.lag,
                batch_ms=progress.batch_ms,
            )

    def add_losses(self, query: str, *, records: int = 0, topics: int = 0) -> None:
        """Count records that were deleted before they were read, and topics that were created again."""
        with self._lock:
            before = self._figures.get(query, QueryFigures())
            self._figures[query] = replace(
                before,
                lost_records=before.lost_records + records,
                topics_created_again=before.topics_created_again + topics,
            )

    def metrics_page(self) -> bytes:
        """The text of `/metrics`."""
        with self._lock:
            collector = _Collector(figures=dict(self._figures), ready=not self._problems)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        return generate_latest(registry)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # a registry keeps its collectors in a set
class _Collector(Collector):
    figures: Mapping[str, QueryFigures]
    ready: bool

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("headgate_pipeline_ready", "1 when /readyz is OK", value=float(self.ready))
        counters = {
            "batches": "Batches written",
            "rows": "Facts read",
            "rejected": "Records rejected",
            "lost_records": "Offsets that were deleted before they were read",
            "topics_created_again": "Topics that were created again",
        }
        for name, text in counters.items():
            counter = CounterMetricFamily(f"headgate_pipeline_{name}", text, labels=["query"])
            for query, figures in self.figures.items():
                counter.add_metric([query], getattr(figures, name))
            yield counter
        lag = GaugeMetricFamily("headgate_pipeline_lag", "Records unread after the last batch", labels=["query"])
        took = GaugeMetricFamily("headgate_pipeline_batch_seconds", "Duration of the last batch", labels=["query"])
        for query, figures in self.figures.items():
            took.add_metric([query], figures.batch_ms / 1000)
            if figures.lag is not None:
                lag.add_metric([query], figures.lag)
        yield from (lag, took)


@dataclass(slots=True)
class PipelineRun:
    """One run of one query: its row of `pipeline_runs`."""

    cluster: str
    query: str
    started_at: int
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: RunState = "running"
    ended_at: int | None = None
    batch: int | None = None
    rows: int = 0
    rejected: int = 0
    lag: int | None = None
    batch_ms: int | None = None
    table: str | None = None
    problem: str | None = None


class RunLog:
    """Writes `pipeline_runs` and reports to `health`. Thread-safe."""

    def __init__(self, writers: TableWriters, clock: Clock, health: PipelineHealth) -> None:
        self.health = health
        self._writers = writers
        self._clock = clock
        self._query_id = f"runs-{uuid.uuid4().hex}"
        self._lock = Lock()
        self._written = 0
        self._unwritten: dict[str, dict[str, Any]] = {}  # by run
        self._last_failure = ""

    def begin(self, cluster: str, query: str) -> PipelineRun:
        run = PipelineRun(cluster, query, self._clock.epoch_ms())
        self._write(run)
        return run

    def add_batch(self, run: PipelineRun, result: BatchResult, progress: BatchProgress) -> None:
        run.batch, run.lag, run.batch_ms = progress.batch, progress.lag, progress.batch_ms
        run.rows += result.rows
        run.rejected += result.rejected
        lag = "unknown" if run.lag is None else run.lag
        rejected = f", {result.rejected} rejected" if result.rejected else ""
        print_message(f"{run.query}: batch {run.batch}: {result.rows} rows{rejected}, lag {lag}, {run.batch_ms} ms")
        self.health.add_batch(run.query, result, progress)
        self._write(run)

    def add_problem(self, run: PipelineRun, subject: str, text: str, *, table: str | None = None) -> None:
        """Report a problem that does not end the run: a row of its own, and `subject` is unhealthy until cleared."""
        self.health.set_problem(subject, text)
        self._add_row(run, text, table)

    def add_lost(self, run: PipelineRun, lost: LostRecords) -> None:
        """Report records that cannot be read any more: a row of its own, and the query goes on."""
        self.health.add_losses(run.query, records=lost.count)
        self._add_row(run, lost.text)

    def add_created_again(self, run: PipelineRun, text: str) -> None:
        """Report a topic that was created again: a row of its own, and the query goes on."""
        self.health.add_losses(run.query, topics=1)
        self._add_row(run, text)

    def _add_row(self, run: PipelineRun, problem: str, table: str | None = None) -> None:
        print_message(f"{run.query}: {problem}")
        now = self._clock.epoch_ms()
        self._write(
            PipelineRun(run.cluster, run.query, now, state="failed", ended_at=now, table=table, problem=problem)
        )

    def end(self, run: PipelineRun, state: RunState, problem: str | None = None) -> None:
        """Write the end of a run; the caller prints the problem."""
        run.state, run.ended_at, run.problem = state, self._clock.epoch_ms(), problem
        self._write(run)

    def _write(self, run: PipelineRun) -> None:
        columns = table_named(_TABLE).columns
        values = {"at": self._clock.epoch_ms(), "cluster_id": run.cluster}
        row = {name: values[name] if name in values else getattr(run, name) for name in columns.names}
        with self._lock:
            # The last row of each run is kept: a query that is retried on a full disk has many runs.
            self._unwritten.pop(run.run_id, None)
            self._unwritten[run.run_id] = row
            while len(self._unwritten) > _MAX_UNWRITTEN:
                del self._unwritten[next(iter(self._unwritten))]
            try:
                rows = pa.Table.from_pylist(list(self._unwritten.values()), columns)
                with self._writers.writer(_TABLE) as writer:
                    upsert(writer, rows, query=self._query_id, batch=self._written)
                self._unwritten.clear()
            except HeadgateError as failure:
                if str(failure) != self._last_failure:
                    self._last_failure = str(failure)
                    print_message(f"{run.query}: pipeline_runs cannot be written: {failure}")
            self._written += 1
