"""The append query: writes the large topics to tables that only grow.

Rows of a large batch go from Spark's workers to the disk and never through this process. A batch of a table is one pass
over its records: those of the exact form become rows with Spark's own functions, and the others are only counted
(`fact_rows.py`). When there are others, a second pass reads them with `decode`. Each pass is a commit that has the
checkpoint and the number of its batch, and is skipped when the batch comes again.

The rows of a small batch are collected, those of all tables by one plan, and appended without Spark: a commit for each
table, which stands for both passes.

Copies of a fact stay: finding them would mean reading the table for each batch; readers leave them out
(`tables/reader.py`).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sf

from headgate.facts.codec import form_of
from headgate.pipeline.batches import (
    BatchContext,
    Batches,
    BatchResult,
    batch_records,
    is_within,
    optimize_if_due,
    upsert,
)
from headgate.pipeline.builds import BUILDS, Build
from headgate.pipeline.combined_rows import TOGETHER_BYTES, collect_together
from headgate.pipeline.fact_rows import (
    IS_EXACT,
    REJECTED,
    ReadSettings,
    decoded_facts,
    exact_facts,
    mark_exact,
    read_facts,
)
from headgate.pipeline.session import set_compiling
from headgate.pipeline.source_topics import batch_sizes, max_batch_size
from headgate.pipeline.spark_storage import spark_address
from headgate.tables.storage import TableError

_REJECTED_FACTS = "rejected_facts"
# The row of a rejected record has the beginning of its key and a sentence, so this many are small.
_REJECTED_AT_ONCE = 10_000
# From this many records on a batch is written by all cores, each of which leaves a file, and its plans are compiled:
# without that, Delta's statistics of each file, the minimum and maximum of every column, take longer than all the rest.
_LARGE_FROM = 50_000


# Fewer records are read with `decode` and collected: what Spark does for each commit of its own costs more than that.
COLLECT_UP_TO = 5_000

_APPENDED = {name: build for name, build in BUILDS.items() if build.table.appended}


class _Counts(NamedTuple):
    """The number of records of a topic in a batch, and of those of the exact form."""

    records: int
    exact: int


def _counts() -> tuple[Column, Column]:
    return sf.count(sf.lit(1)).alias("records"), sf.count_if(IS_EXACT).alias("exact")


def _decoded_rows(build: Build, facts: DataFrame, reading: ReadSettings) -> DataFrame:
    return build.rows(decoded_facts(facts, build.fact, reading))


@contextmanager
def _persisted(facts: DataFrame) -> Iterator[DataFrame]:
    kept = facts.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


class AppendBatches(Batches):
    """Batches of the large topics; up to `collect_up_to` records are collected."""

    def __init__(self, name: str, context: BatchContext, *, collect_up_to: int = COLLECT_UP_TO) -> None:
        super().__init__(name, context)
        self._collect_up_to = collect_up_to

    def _write(self, records: DataFrame, result: BatchResult) -> None:
        most = max_batch_size(self._context.folders.checkpoint, result.batch)
        if most is not None and most <= self._collect_up_to and not self._is_half_written(result.batch):
            with _persisted(read_facts(records, self._context.reading)) as facts:
                if self._write_collected(facts, result):
                    return
        # A stream has a session of its own.
        set_compiling(records.sparkSession, is_on=most is None or most >= _LARGE_FROM)
        sizes = batch_sizes(self._context.folders.checkpoint, result.batch)
        others: list[DataFrame] = []
        for name, build in _APPENDED.items():
            if name not in self._context.builds and _REJECTED_FACTS not in self._context.builds:
                continue  # neither its rows nor its rejected records are wanted
            marked = mark_exact(records, build.fact, self._context.reading)
            size = sizes.get(self._context.reading.prefix + form_of(build.fact).topic)
            if size == 0 or (size is None and marked.isEmpty()):
                continue  # nothing new is no commit
            counts = self._append_exact(name, marked, size, result)
            result.rows += counts.records
            if counts.exact < counts.records:
                others.append(marked.where(~sf.col(IS_EXACT)).drop(IS_EXACT))
        if others:
            self._write_others(reduce(DataFrame.unionAll, others), result)

    def _is_wanted(self, name: str) -> bool:
        return name in self._context.builds and not self._is_disabled(name)

    def _is_half_written(self, batch: int) -> bool:
        """Whether Spark has written one pass of a table alone: it knows whether the other is still missing."""
        for name in filter(self._is_wanted, _APPENDED):
            with self._context.writers.writer(name) as writer, suppress(TableError):
                if len({writer.has_batch(query, batch) for query in self._transactions(batch)}) > 1:
                    return True
        return False

    def _transactions(self, batch: int) -> dict[str, int]:
        """The transactions of a table's rows: of those of the exact form, and of the others."""
        return {f"{self._query_id()}-{part}": batch for part in ("exact", "decoded")}

    def _write_collected(self, facts: DataFrame, result: BatchResult) -> bool:
        """Collect the rows of all tables by one plan, and append them; False when they are too large for that."""
        found = batch_records(facts)
        if sum(one.weight for one in found) > TOGETHER_BYTES:
            return False
        kinds = Counter(one.kind for one in found)
        result.rows, result.rejected = len(found), kinds[REJECTED]
        rows: dict[str, Callable[[], DataFrame]] = {}
        for name, build in _APPENDED.items():
            if not build.kinds.isdisjoint(kinds) and self._is_wanted(name):
                rows[name] = partial(_decoded_rows, build, facts, self._context.reading)
        if result.rejected and self._is_wanted(_REJECTED_FACTS):
            rows[_REJECTED_FACTS] = partial(self._context.builds[_REJECTED_FACTS].rows, facts)
        together = collect_together(rows)
        for name, make in rows.items():
            write = partial(self._write_rows, name, together.get(name), make, result.batch)
            self._write_or_disable(name, write, result)
        return True

    def _write_rows(self, name: str, collected: pa.Table | None, make: Callable[[], DataFrame], batch: int) -> None:
        rows = make().toArrow() if collected is None else collected
        with self._context.writers.writer(name) as writer:
            if name == _REJECTED_FACTS:
                rows = self._context.ids.replace_names(rows)
                upsert(writer, rows, query=self._query_id(), batch=batch)
            elif writer.append(rows, transactions=self._transactions(batch)).rows:
                optimize_if_due(writer)

    def _append_exact(self, name: str, marked: DataFrame, size: int | None, result: BatchResult) -> _Counts:
        """Append the exact records to the table, and count all in the same pass."""
        observed: list[_Counts] = []

        def write() -> None:
            build = _APPENDED[name]
            observation = Observation()
            counted = marked.observe(observation, *_counts())
            rows = build.rows(exact_facts(counted, build.fact, self._context.reading))
            is_small = size is not None and size < _LARGE_FROM
            files = 1 if is_small else marked.sparkSession.sparkContext.defaultParallelism
            if self._append(name, rows.coalesce(files), f"{self._query_id()}-exact", result.batch):
                observed.append(_Counts(**observation.get))

        if self._is_wanted(name):
            self._write_or_disable(name, write, result)
        # Without a pass over the records, because the batch was written before or the table is disabled, one counts.
        return observed[0] if observed else _Counts(**marked.agg(*_counts()).collect()[0].asDict())

    def _write_others(self, others: DataFrame, result: BatchResult) -> None:
        """Read the records that are not of the exact form with `decode`, and write the rows of each table."""
        with _persisted(read_facts(others, self._context.reading)) as facts:
            counted = facts.groupBy("kind").count().toArrow()
            kinds = dict(zip(counted["kind"].to_pylist(), counted["count"].to_pylist(), strict=True))
            result.rejected = kinds.get(REJECTED, 0)
            for name, build in _APPENDED.items():
                if build.kinds & kinds.keys() and self._is_wanted(name):
                    rows = _decoded_rows(build, facts, self._context.reading).coalesce(1)
                    write = partial(self._append, name, rows, f"{self._query_id()}-decoded", result.batch)
                    self._write_or_disable(name, write, result)
            if result.rejected and self._is_wanted(_REJECTED_FACTS):
                self._write_or_disable(_REJECTED_FACTS, partial(self._upsert_rejected, facts, result.batch), result)

    def _append(self, name: str, rows: DataFrame, query: str, batch: int) -> bool:
        """Append rows in one commit; False when the batch had been written before."""
        with self._context.writers.writer(name) as writer:
            writer.create()
            if writer.has_batch(query, batch):
                return False
            options = {"txnAppId": query, "txnVersion": str(batch)}
            rows.write.format("delta").mode("append").options(**options).save(spark_address(writer.folder))
            optimize_if_due(writer)
            return True

    def _upsert_rejected(self, facts: DataFrame, batch: int) -> None:
        build = self._context.builds[_REJECTED_FACTS]
        rejected = facts.where(sf.col("kind") == REJECTED)
        found = batch_records(rejected)
        with self._context.writers.writer(_REJECTED_FACTS) as writer:
            for start in range(0, len(found), _REJECTED_AT_ONCE):
                part = found[start : start + _REJECTED_AT_ONCE]
                rows = self._context.ids.replace_names(build.rows(rejected.where(is_within(part))).toArrow())
                last = part[-1] is found[-1]
                upsert(writer, rows, query=self._query_id(), batch=batch, last=last)
