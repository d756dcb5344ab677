"""The facts query: one batch of the small topics into all tables that are made of them.

One rule: a batch may come twice and leaves the same tables. It is parsed and reduced once in Spark; then each table is
built, collected (small by now) and handed to its one writer, which knows the batch by checkpoint and number. A table
that cannot take its rows is set aside, with a note that stays until it is rebuilt, and the others go on; only what
concerns all of them (the disk, the cluster) ends the query, and the batch comes again.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.base.errors import HeadgateError, PlatformError
from headgate.pipeline.builds import Build
from headgate.pipeline.earlier import EarlierVersions
from headgate.pipeline.parsing import ARROW_SCHEMA, DELETED, DESCRIBED, REJECTED, SCHEMA, Reading, parse
from headgate.pipeline.reduction import reduced
from headgate.pipeline.tidying import write_and_tidy
from headgate.tables.writer import TableWriter

NAME = "facts"
_TOPOLOGY = (DESCRIBED, DELETED)

# Where a test stops the query: before a table is written, after it, and when only the checkpoint is missing.
Moment = Literal["before", "after", "end"]
OnMoment = Callable[[Moment, str], None]


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


class FactsBatches:
    """What `foreachBatch` calls, on a thread of its own; `failure` is what ended the query, if a batch did."""

    def __init__(
        self, place: Place, builds: Mapping[str, Build], reading: Reading, *, on_moment: OnMoment = no_moment
    ) -> None:
        self._place = place
        self._builds = builds
        self._reading = reading
        self._on_moment = on_moment
        self._writers = {name: TableWriter(place.tables, build.table) for name, build in builds.items()}
        self._earlier = EarlierVersions(place.tables)
        self.results: dict[int, BatchResult] = {}
        self.running: int | None = None
        self.closing = False
        self.failure: Exception | None = None

    def __call__(self, records: DataFrame, batch: int) -> None:
        if self.closing:
            raise StoppedBeforeBatchError("stopped")
        self.running = batch
        try:
            self._write(records, batch)
            self._on_moment("end", "")
        except Exception as failure:
            self.failure = failure
            raise

    def close(self) -> None:
        self._earlier.close()
        for writer in self._writers.values():
            writer.close()

    def _write(self, records: DataFrame, batch: int) -> None:
        result = BatchResult(batch)
        parsed = parse(records, self._reading).persist()
        try:
            seen = _Seen.of(parsed)
            result.rows, result.rejected = seen.rows, seen.kinds.get(REJECTED, 0)
            facts = reduced(self._with_earlier(parsed, seen)).persist()
            try:
                for name in self._builds:
                    if self._is_wanted(name, seen):
                        self._write_table(name, facts, batch, result)
            finally:
                facts.unpersist()
        finally:
            parsed.unpersist()
        self.results[batch] = result

    def _with_earlier(self, parsed: DataFrame, seen: "_Seen") -> DataFrame:
        topic = f"{self._reading.prefix}topologies"
        rows = self._earlier.of(seen.apps, before=seen.first_topology, topic=topic)
        if not rows:
            return parsed
        earlier = parsed.sparkSession.createDataFrame(pa.Table.from_pylist(rows, ARROW_SCHEMA), SCHEMA)
        return parsed.unionByName(earlier)

    def _is_wanted(self, name: str, seen: "_Seen") -> bool:
        return bool(self._builds[name].kinds.intersection(seen.kinds)) and not (self._place.aside / name).exists()

    def _write_table(self, name: str, facts: DataFrame, batch: int, result: BatchResult) -> None:
        build = self._builds[name]
        self._on_moment("before", name)
        try:
            rows = _each_key_once(build.rows(facts).toArrow(), build.table.key)
            write_and_tidy(self._writers[name], rows, query=self._query(), batch=batch)
        except PlatformError:
            raise
        except (HeadgateError, AnalysisException, PythonException) as problem:
            result.problems[name] = set_aside(self._place.aside / name, _sentence(problem), name)
        self._on_moment("after", name)

    def _query(self) -> str:
        """The checkpoint's own id: when the checkpoint is lost, batches count from 0 again under another."""
        metadata = json.loads((self._place.checkpoint / "metadata").read_text(encoding="utf-8"))
        return f"{NAME}-{metadata['id']}"


def _sentence(problem: Exception) -> str:
    """Its last words: a worker's trace is a page, and its last line says what was wrong."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return (lines[-1] if isinstance(problem, PythonException) and lines else " ".join(lines)).rstrip(".")


def set_aside(note: Path, problem: str, table: str) -> str:
    """Note that the table misses something from now on; the sentence says how it comes back."""
    text = f"{problem}. The table {table} is set aside until `headgate pipeline rebuild {table}` has run"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(text, encoding="utf-8")
    return text


def _each_key_once(rows: pa.Table, key: Iterable[str]) -> pa.Table:
    """Two names that are no UTF-8 can look alike in a table; of such rows the last stays."""
    numbered = rows.select(list(key)).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    kept = numbered.group_by(list(key)).aggregate([("row", "max")])["row_max"]
    return rows if len(kept) == rows.num_rows else rows.take(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a batch holds at a glance: how many facts of each kind, and which applications' topologies."""

    kinds: Mapping[str, int]
    apps: frozenset[tuple[str, str]]
    first_topology: int

    @property
    def rows(self) -> int:
        return sum(self.kinds.values())

    @classmethod
    def of(cls, parsed: DataFrame) -> "_Seen":
        app = sf.when(sf.col("kind").isin(*_TOPOLOGY), sf.col("name"))
        found = (
            parsed.groupBy("kind", "cluster_id", app.alias("app"))
            .agg(sf.count("*").alias("rows"), sf.min("offset").alias("first"))
            .toArrow()
            .to_pylist()
        )
        kinds: dict[str, int] = {}
        for row in found:
            kinds[row["kind"]] = kinds.get(row["kind"], 0) + row["rows"]
        of_apps = [row for row in found if row["kind"] in _TOPOLOGY]
        return cls(
            kinds=kinds,
            apps=frozenset((row["cluster_id"], row["app"]) for row in of_apps),
            first_topology=min((row["first"] for row in of_apps), default=0),
        )
