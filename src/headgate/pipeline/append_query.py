"""The append query: the large topics into tables that only grow, written by Spark itself.

One rule: rows go from Spark's workers to the disk and never through this process. Delta knows a batch by checkpoint and
number, so one that comes again is left out. Copies of a fact within a batch are dropped; those in another batch stay,
and readers leave them out (`tables/reader.py`), because looking for them would mean reading the table for each batch.
"""

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.pipeline import parts
from headgate.pipeline.batches import Batches, BatchResult, Desk
from headgate.pipeline.parsing import REJECTED, parse
from headgate.pipeline.queries import APPEND
from headgate.pipeline.tidying import tidy, write_and_tidy

_REJECTED_FACTS = "rejected_facts"
# A rejected record's row has the beginning of its key and a sentence; so many of them are no burden.
_REJECTED_AT_ONCE = 10_000
# Compiling pays for batches of a hundred thousand rows, as it does not for the small facts (`session.py`): what Delta
# notes of each file, the least and the most of every column, took longer than all the rest.
_SETTINGS = {"spark.sql.codegen.factoryMode": "FALLBACK"}


class AppendBatches(Batches):
    """Batches of the large topics."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(APPEND.name, desk)

    def _write(self, records: DataFrame, result: BatchResult) -> None:
        for name, value in _SETTINGS.items():  # of this query's own session: a stream has one
            records.sparkSession.conf.set(name, value)
        parsed = parse(records, self._desk.reading).persist()
        try:
            counted = parsed.groupBy("kind").count().toArrow()
            kinds = dict(zip(counted["kind"].to_pylist(), counted["count"].to_pylist(), strict=True))
            result.rows, result.rejected = sum(kinds.values()), kinds.get(REJECTED, 0)
            for name, build in self._desk.builds.items():
                if build.kinds & kinds.keys() and not self._is_set_aside(name):
                    write = self._write_rejected if name == _REJECTED_FACTS else self._append
                    self._guarded(name, partial(write, name, parsed, result.batch), result)
        finally:
            parsed.unpersist()

    def _append(self, name: str, parsed: DataFrame, batch: int) -> None:
        build = self._desk.builds[name]
        with self._desk.writers.of(name) as writer:
            writer.create()
            # One file a batch: readers and compaction have fewer to open.
            rows = build.rows(parsed).dropDuplicates(list(build.table.key)).coalesce(1)
            options = {"txnAppId": self._query(), "txnVersion": str(batch)}
            rows.write.format("delta").mode("append").options(**options).save(str(writer.folder))
            tidy(writer)

    def _write_rejected(self, name: str, parsed: DataFrame, batch: int) -> None:
        build = self._desk.builds[name]
        rejected = parsed.where(sf.col("kind") == REJECTED)
        found = parts.records_of(rejected)
        with self._desk.writers.of(name) as writer:
            for start in range(0, len(found), _REJECTED_AT_ONCE):
                part = found[start : start + _REJECTED_AT_ONCE]
                rows = self._desk.ids.put_in(build.rows(rejected.where(parts.within(part))).toArrow())
                last = part[-1] is found[-1]
                write_and_tidy(writer, rows, query=self._query(), batch=batch, last=last)
