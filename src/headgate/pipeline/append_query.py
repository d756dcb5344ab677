"""The append query: writes the large topics to tables that only grow, with Spark's own Delta writer.

Rows go from Spark's workers to the disk and never through this process. Delta identifies a batch by checkpoint and
number, and skips one that comes again. Copies of a fact within a batch are dropped. Those in other batches stay:
finding them would mean reading the table for each batch; readers leave them out (`tables/reader.py`).
"""

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.pipeline.batches import Batches, BatchResult, batch_records, is_within, optimize_if_due, upsert
from headgate.pipeline.fact_rows import REJECTED, read_facts

_REJECTED_FACTS = "rejected_facts"
# The row of a rejected record has the beginning of its key and a sentence, so this many are small.
_REJECTED_AT_ONCE = 10_000
# Unlike the small batches of the facts query (`session.py`), batches of a hundred thousand rows gain from compilation:
# Delta's statistics of each file, the minimum and maximum of every column, took longer than all the rest.
_SETTINGS = {"spark.sql.codegen.factoryMode": "FALLBACK"}


class AppendBatches(Batches):
    """Batches of the large topics."""

    def _write(self, records: DataFrame, result: BatchResult) -> None:
        for name, value in _SETTINGS.items():  # a stream has a session of its own
            records.sparkSession.conf.set(name, value)
        facts = read_facts(records, self._context.reading).persist()
        try:
            counted = facts.groupBy("kind").count().toArrow()
            kinds = dict(zip(counted["kind"].to_pylist(), counted["count"].to_pylist(), strict=True))
            result.rows, result.rejected = sum(kinds.values()), kinds.get(REJECTED, 0)
            for name, build in self._context.builds.items():
                if build.kinds & kinds.keys() and not self._is_disabled(name):
                    write = self._upsert_rejected if name == _REJECTED_FACTS else self._append
                    self._write_or_disable(name, partial(write, name, facts, result.batch), result)
        finally:
            facts.unpersist()

    def _append(self, name: str, facts: DataFrame, batch: int) -> None:
        build = self._context.builds[name]
        with self._context.writers.writer(name) as writer:
            writer.create()
            # One file a batch: readers and compaction have fewer to open.
            rows = build.rows(facts).dropDuplicates(list(build.table.key)).coalesce(1)
            options = {"txnAppId": self._query_id(), "txnVersion": str(batch)}
            rows.write.format("delta").mode("append").options(**options).save(str(writer.folder))
            optimize_if_due(writer)

    def _upsert_rejected(self, name: str, facts: DataFrame, batch: int) -> None:
        build = self._context.builds[name]
        rejected = facts.where(sf.col("kind") == REJECTED)
        found = batch_records(rejected)
        with self._context.writers.writer(name) as writer:
            for start in range(0, len(found), _REJECTED_AT_ONCE):
                part = found[start : start + _REJECTED_AT_ONCE]
                rows = self._context.ids.replace_names(build.rows(rejected.where(is_within(part))).toArrow())
                last = part[-1] is found[-1]
                upsert(writer, rows, query=self._query_id(), batch=batch, last=last)
