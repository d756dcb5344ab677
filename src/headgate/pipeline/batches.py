"""A batch that Spark hands over: how every query writes it, and the result.

Invariant: a batch that comes twice leaves the same tables. A batch is identified by its checkpoint and its number. A
table that cannot take its rows is disabled, with a note that stays until it is rebuilt. Only a failure of all tables
(the disk, the cluster) ends the query, and then the batch comes again.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal

import pyarrow as pa
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headgate.base.errors import HeadgateError, PlatformError
from headgate.base.locations import Location
from headgate.pipeline.builds import Build
from headgate.pipeline.fact_rows import ReadSettings
from headgate.pipeline.source_topics import LostRecords
from headgate.tables.definitions import table_named
from headgate.tables.files import names_in, read_file, write_file
from headgate.tables.table import CLUSTER_ID, id_columns
from headgate.tables.writer import TableWriter

# Where a test stops the query: before a table is written, after it, and before the checkpoint is written.
Moment = Literal["before", "after", "end"]
OnMoment = Callable[[Moment, str], None]
_NO_SPACE = "No space left on device"
OPTIMIZE_EVERY = 100
_PLACE = ("topic", "partition", "offset")


# --- records ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedRecord:
    """The place and the kind of a record, and about how many bytes its rows take."""

    topic: str
    partition: int
    offset: int
    kind: str
    weight: int


def batch_records(facts: DataFrame) -> list[WeighedRecord]:
    """All records of a batch in the order of topic, partition and offset; without names that clients choose."""
    rows = facts.select(*_PLACE, "kind", "weight").toArrow().to_pylist()
    records = [WeighedRecord(**row) for row in rows]
    return sorted(records, key=lambda one: (one.topic, one.partition, one.offset))


def is_within(records: Sequence[WeighedRecord]) -> Column:
    """Whether a row of the batch is one of these consecutive records."""
    place = sf.struct(*_PLACE)
    return (place >= _place(records[0])) & (place <= _place(records[-1]))


def _place(record: WeighedRecord) -> Column:
    return sf.struct(
        sf.lit(record.topic).alias("topic"),
        sf.lit(record.partition).cast("int").alias("partition"),
        sf.lit(record.offset).cast("long").alias("offset"),
    )


# --- writing ----------------------------------------------------------------------------------------------------------


class TopicIds:
    """Replaces the topic names that a build left in `*topic_id` columns with ids, or null for an unknown topic.

    `ask` gives the ids of existing topics. Names are asked for once in a batch, and only for rows about this cluster.
    """

    def __init__(self, cluster: str, ask: Callable[[Collection[str]], Mapping[str, str]]) -> None:
        self._cluster = cluster
        self._ask = ask
        self._known: dict[str, str | None] = {}

    def forget(self) -> None:
        """Forget all ids when another batch begins: a topic may have been deleted and created again."""
        self._known = {}

    def replace_names(self, rows: pa.Table) -> pa.Table:
        columns = id_columns(rows.schema)
        if not columns or not rows.num_rows:
            return rows
        is_own = [cluster == self._cluster for cluster in rows[CLUSTER_ID].to_pylist()]
        named = {
            column: [name if own else None for name, own in zip(rows[column].to_pylist(), is_own, strict=True)]
            for column in columns
        }
        unknown = {name for names in named.values() for name in names if name and name not in self._known}
        if unknown:
            found = self._ask(sorted(unknown))
            self._known |= {name: found.get(name) for name in unknown}
        for column, names in named.items():
            ids = pa.array([self._known[name] if name else None for name in names], pa.string())
            rows = rows.set_column(rows.schema.get_field_index(column), rows.schema.field(column), ids)
        return rows


class TableWriters:
    """The one writer of each table at `root`, for all queries of this process.

    Two queries may have rows for one table, and two writers of one table lose commits to each other.
    """

    def __init__(self, root: Location) -> None:
        self._root = root
        self._lock = Lock()
        self._writers: dict[str, tuple[Lock, TableWriter]] = {}

    @contextmanager
    def writer(self, name: str) -> Iterator[TableWriter]:
        """The table's writer, locked for the duration of the block."""
        with self._lock:
            if name not in self._writers:
                self._writers[name] = Lock(), TableWriter(self._root, table_named(name))
            lock, writer = self._writers[name]
        with lock:
            yield writer

    def close(self) -> None:
        for _, writer in self._writers.values():
            writer.close()


def upsert(writer: TableWriter, rows: pa.Table, *, query: str, batch: int, last: bool = True) -> None:
    """Write rows, and optimize the table when this commit is due for it."""
    if writer.upsert(rows, query=query, batch=batch, last=last).rows:
        optimize_if_due(writer)


def optimize_if_due(writer: TableWriter) -> None:
    """Optimize at every hundredth version of the table: a schedule that survives restarts and needs no clock."""
    version = writer.version()
    if version is not None and version > 0 and version % OPTIMIZE_EVERY == 0:
        writer.optimize()


# --- batches ----------------------------------------------------------------------------------------------------------


class StoppedBeforeBatchError(HeadgateError):
    """The query was stopped before this batch had begun; the batch comes after the next start."""


class BatchInterruptedError(HeadgateError):
    """The query was stopped in the middle of this batch; the batch comes again after the next start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """The folders of a query: the tables, its checkpoint, and the notes about disabled tables."""

    tables: Location
    checkpoint: Location
    disabled: Location


@dataclass(slots=True)
class BatchResult:
    """The numbers of a batch, the problems of its tables, and the records that it could not read any more."""

    batch: int
    rows: int = 0
    rejected: int = 0
    problems: dict[str, str] = field(default_factory=dict)  # by table
    lost: Sequence[LostRecords] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """One batch as Spark reports it; `lag` is the number of unread records after it."""

    batch: int
    lag: int | None
    batch_ms: int


def ignore_moment(_moment: Moment, _table: str) -> None:
    """Let the query go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContext:
    """Everything that a query needs to write its batches.

    `check_source` is called with the number of each before it is written, and `on_batch` after it.
    """

    folders: Folders
    builds: Mapping[str, Build]
    reading: ReadSettings
    writers: TableWriters
    ids: TopicIds
    on_moment: OnMoment = ignore_moment
    check_source: Callable[[int], Sequence[LostRecords]] = lambda _: ()
    on_batch: Callable[[int], object] = lambda _: None


class Batches(ABC):
    """The function of `foreachBatch`, called on a thread of its own; `failure` is the error that ended the query."""

    def __init__(self, name: str, context: BatchContext) -> None:
        self.name = name
        self._context = context
        self.results: dict[int, BatchResult] = {}
        self.running: int | None = None
        self.closing = False
        self.failure: Exception | None = None
        self._disabled: set[str] = set()

    def __call__(self, records: DataFrame, batch: int) -> None:
        if self.closing:
            raise StoppedBeforeBatchError("stopped")
        self.running = batch
        result = BatchResult(batch)
        self._context.ids.forget()
        try:
            self._disabled = set(names_in(self._context.folders.disabled))
            result.lost = self._context.check_source(batch)
            self._write(records, result)
            self._context.on_batch(batch)
            self._context.on_moment("end", "")
        except Exception as failure:
            self.failure = failure
            if self.closing:
                # Spark cancels the jobs of a query that it stops. It searches the text of the resulting error with a
                # regular expression that recurses for each character, and the error of a cancelled job has thousands:
                # a StackOverflowError on standard error. So the text is short.
                raise BatchInterruptedError("stopped") from None
            raise
        self.results[batch] = result

    def close(self) -> None:  # noqa: B027 - only some queries hold resources
        """Release the query's own resources; the writers are shared."""

    @abstractmethod
    def _write(self, records: DataFrame, result: BatchResult) -> None:
        """Write all tables of this batch."""

    def _is_disabled(self, table: str) -> bool:
        return table in self._disabled

    def _write_or_disable(self, table: str, write: Callable[[], object], result: BatchResult) -> None:
        """Write a table; a problem of this table alone disables it."""
        self._context.on_moment("before", table)
        try:
            write()
        except PlatformError:
            raise
        except (HeadgateError, AnalysisException, PythonException) as problem:
            self._disabled.add(table)
            result.problems[table] = disable(self._context.folders.disabled / table, _problem_text(problem), table)
        self._context.on_moment("after", table)

    def _query_id(self) -> str:
        """The query and its checkpoint's id: after a checkpoint is lost, batches count from 0 under another id."""
        metadata = json.loads(read_file(self._context.folders.checkpoint / "metadata"))
        return f"{self.name}-{metadata['id']}"


def disable(note: Location, problem: str, table: str) -> str:
    """Note that the table misses rows from now on; the text says how to enable it."""
    text = f"{problem}. The table {table} is disabled until `headgate pipeline rebuild {table}` has run"
    write_file(note, text)
    return text


def _problem_text(problem: Exception) -> str:
    """The text of an error; of a worker's traceback only the last line, which has the cause."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return (lines[-1] if isinstance(problem, PythonException) and lines else " ".join(lines)).rstrip(".")


def disk_full_error(failure: Exception) -> PlatformError | None:
    """The error for a full disk, when Spark's failure is one."""
    if isinstance(failure, HeadgateError) or _NO_SPACE not in str(failure):
        return None
    return PlatformError(
        "the disk is full: make room for the tables, the checkpoint and Spark's temporary files; the batch will be "
        "written again"
    )
