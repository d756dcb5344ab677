"""What all queries of the pipeline share: a batch that Spark hands over, and what became of it.

One rule: a batch may come twice and leaves the same tables. So a batch is known by its checkpoint and its number, a
table that cannot take its rows is set aside with a note that stays until it is rebuilt, and only what concerns all of
them (the disk, the cluster) ends the query, and the batch comes again.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame

from headgate.base.errors import HeadgateError, PlatformError
from headgate.pipeline.builds import Build
from headgate.pipeline.parsing import Reading
from headgate.pipeline.topic_ids import TopicIds
from headgate.pipeline.writers import Writers

# Where a test stops the query: before a table is written, after it, and when only the checkpoint is missing.
Moment = Literal["before", "after", "end"]
OnMoment = Callable[[Moment, str], None]
_NO_SPACE = "No space left on device"


class StoppedBeforeBatchError(HeadgateError):
    """The query was told to end before this batch had begun: it comes the next time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a query keeps things: the tables' folder, its checkpoint, and the notes about tables set aside."""

    tables: Path
    checkpoint: Path
    aside: Path


@dataclass(slots=True)
class BatchResult:
    """What became of the last batch, for the progress line."""

    batch: int
    rows: int = 0
    rejected: int = 0
    problems: dict[str, str] = field(default_factory=dict)  # by table


def no_moment(_moment: Moment, _table: str) -> None:
    """Nobody wants to stop it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What a query works with."""

    place: Place
    builds: Mapping[str, Build]
    reading: Reading
    writers: Writers
    ids: TopicIds
    on_moment: OnMoment = no_moment


class Batches(ABC):
    """What `foreachBatch` calls, on a thread of its own; `failure` is what ended the query, if a batch did."""

    def __init__(self, name: str, desk: Desk) -> None:
        self.name = name
        self._desk = desk
        self.results: dict[int, BatchResult] = {}
        self.running: int | None = None
        self.closing = False
        self.failure: Exception | None = None

    def __call__(self, records: DataFrame, batch: int) -> None:
        if self.closing:
            raise StoppedBeforeBatchError("stopped")
        self.running = batch
        result = BatchResult(batch)
        self._desk.ids.forget()
        try:
            self._write(records, result)
            self._desk.on_moment("end", "")
        except Exception as failure:
            self.failure = failure
            raise
        self.results[batch] = result

    def close(self) -> None:  # noqa: B027 - not all of them hold something
        """Let go of what it holds; the writers are not its own."""

    @abstractmethod
    def _write(self, records: DataFrame, result: BatchResult) -> None:
        """Write all tables of this batch."""

    def _is_set_aside(self, table: str) -> bool:
        return (self._desk.place.aside / table).exists()

    def _guarded(self, table: str, work: Callable[[], None], result: BatchResult) -> None:
        """Do a table's work; what is wrong with this table alone sets it aside."""
        self._desk.on_moment("before", table)
        try:
            work()
        except PlatformError:
            raise
        except (HeadgateError, AnalysisException, PythonException) as problem:
            result.problems[table] = set_aside(self._desk.place.aside / table, _sentence(problem), table)
        self._desk.on_moment("after", table)

    def _query(self) -> str:
        """The checkpoint's own id: when the checkpoint is lost, batches count from 0 again under another."""
        metadata = json.loads((self._desk.place.checkpoint / "metadata").read_text(encoding="utf-8"))
        return f"{self.name}-{metadata['id']}"


def set_aside(note: Path, problem: str, table: str) -> str:
    """Note that the table misses something from now on; the sentence says how it comes back."""
    text = f"{problem}. The table {table} is set aside until `headgate pipeline rebuild {table}` has run"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(text, encoding="utf-8")
    return text


def _sentence(problem: Exception) -> str:
    """Its last words: a worker's trace is a page, and its last line says what was wrong."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return (lines[-1] if isinstance(problem, PythonException) and lines else " ".join(lines)).rstrip(".")


def disk_is_full(failure: Exception) -> PlatformError | None:
    """The sentence about a full disk, when it was Spark that found it full: its own words are a page."""
    if isinstance(failure, HeadgateError) or _NO_SPACE not in str(failure):
        return None
    return PlatformError(
        "the disk is full: make room where the tables, the checkpoint and Spark's temporary files lie; the batch comes "
        "again"
    )
