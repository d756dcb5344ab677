"""How the pipeline itself fares: the rows of `pipeline_runs`, and a sentence on standard error.

One rule: telling never stops the work. When a row cannot be written, the sentence is still there, and the row is
written with the next one that can be.
"""

import sys
import uuid
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Literal

import pyarrow as pa

from headgate.base.clock import Clock
from headgate.base.errors import HeadgateError
from headgate.pipeline.health import Health
from headgate.pipeline.tidying import write_and_tidy
from headgate.pipeline.writers import Writers
from headgate.tables.registry import table_named

State = Literal["running", "done", "stopped", "failed"]
_TABLE = "pipeline_runs"
_MOST_UNWRITTEN = 100


def say(text: str) -> None:
    """To whoever runs the command; names are clients', so nothing unprintable passes."""
    shown = text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
    print(f"headgate: {shown}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class Run:
    """One run of one query: what its row says."""

    cluster: str
    query: str
    started_at: int
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: State = "running"
    ended_at: int | None = None
    batch: int | None = None
    rows: int = 0
    rejected: int = 0
    lag: int | None = None
    batch_ms: int | None = None
    table: str | None = None
    problem: str | None = None


class RunLog:
    """Writes `pipeline_runs`, for the threads of all queries; `health` hears what is said."""

    def __init__(self, writers: Writers, clock: Clock, health: Health) -> None:
        self.health = health
        self._writers = writers
        self._clock = clock
        self._life = f"runs-{uuid.uuid4().hex}"
        self._lock = Lock()
        self._written = 0
        self._unwritten: dict[str, dict[str, Any]] = {}  # by run
        self._told = ""

    def begin(self, cluster: str, query: str) -> Run:
        run = Run(cluster, query, self._now())
        self._write(run)
        return run

    def progress(self, run: Run, *, batch: int, rows: int, rejected: int, lag: int | None, batch_ms: int) -> None:
        """A batch is done."""
        run.batch, run.lag, run.batch_ms = batch, lag, batch_ms
        run.rows += rows
        run.rejected += rejected
        behind = "unknown" if lag is None else lag
        refused = f", {rejected} rejected" if rejected else ""
        say(f"{run.query}: batch {batch}: {rows} rows{refused}, lag {behind}, {batch_ms} ms")
        self.health.progress(run.query, rows=rows, rejected=rejected, lag=lag, batch_ms=batch_ms)
        self._write(run)

    def problem(self, run: Run, what: str, text: str, *, table: str | None = None) -> None:
        """Something is wrong and the rest goes on: a row of its own, and `what` is not well until it is cleared."""
        say(f"{run.query}: {text}")
        self.health.tell(what, text)
        now = self._now()
        note = Run(run.cluster, run.query, now, state="failed", ended_at=now, table=table, problem=text)
        self._write(note)

    def end(self, run: Run, state: State, problem: str | None = None) -> None:
        """What ended it is said by whoever started it."""
        run.state, run.ended_at, run.problem = state, self._now(), problem
        self._write(run)

    def _now(self) -> int:
        return self._clock.epoch_ms()

    def _write(self, run: Run) -> None:
        columns = table_named(_TABLE).columns
        row: dict[str, Any] = {
            name: self._now() if name == "at" else run.cluster if name == "cluster_id" else getattr(run, name)
            for name in columns.names
        }
        with self._lock:
            # The last of its run in any case: a query that is tried again and again on a full disk is many runs.
            self._unwritten.pop(run.run_id, None)
            self._unwritten[run.run_id] = row
            while len(self._unwritten) > _MOST_UNWRITTEN:
                del self._unwritten[next(iter(self._unwritten))]
            try:
                rows = pa.Table.from_pylist(list(self._unwritten.values()), columns)
                with self._writers.of(_TABLE) as writer:
                    write_and_tidy(writer, rows, query=self._life, batch=self._written)
                self._unwritten.clear()
            except HeadgateError as failure:
                if str(failure) != self._told:
                    self._told = str(failure)
                    say(f"{run.query}: pipeline_runs cannot be written: {failure}")
            self._written += 1
