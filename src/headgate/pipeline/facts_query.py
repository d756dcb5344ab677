"""The facts query: one batch of the small topics into all tables that are made of them.

One rule: a batch is parsed and reduced once in Spark; then each table is built, collected (small by now) and handed to
its one writer, which knows the batch by checkpoint and number. A batch whose rows would take too much is written in
parts, one after the other, and only the last of them makes the batch known: after a crash all parts come again.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.pipeline import parts
from headgate.pipeline.batches import Batches, BatchResult, Desk
from headgate.pipeline.earlier import EarlierVersions
from headgate.pipeline.parsing import ARROW_SCHEMA, DELETED, DESCRIBED, REJECTED, SCHEMA, parse
from headgate.pipeline.parts import Record
from headgate.pipeline.queries import FACTS
from headgate.pipeline.reduction import reduced
from headgate.pipeline.tidying import write_and_tidy

_TOPOLOGY = (DESCRIBED, DELETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Some records of a batch that follow each other; the `last` part makes the batch known."""

    records: Sequence[Record]
    last: bool

    @property
    def weight(self) -> int:
        return sum(one.weight for one in self.records)

    def halves(self) -> "tuple[_Part, _Part]":
        first, second = parts.halves(self.records)
        return _Part(records=first, last=False), _Part(records=second, last=self.last)


class FactsBatches(Batches):
    """Batches of the small topics."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(FACTS.name, desk)
        self._largest = parts.LARGEST
        self._earlier = EarlierVersions(desk.place.tables)

    def close(self) -> None:
        self._earlier.close()

    def _write(self, records: DataFrame, result: BatchResult) -> None:
        parsed = parse(records, self._desk.reading).persist()
        try:
            found = parts.records_of(parsed)
            result.rows, result.rejected = len(found), sum(one.kind == REJECTED for one in found)
            if found:
                self._write_part(parsed, _Part(records=found, last=True), result)
        finally:
            parsed.unpersist()

    def _write_part(self, parsed: DataFrame, part: _Part, result: BatchResult) -> None:
        can_split = len(part.records) > 1
        of_part = parsed.where(parts.within(part.records))
        earlier = None
        if part.weight <= self._largest or not can_split:
            most = self._largest - part.weight if can_split else None
            earlier = self._earlier_rows(of_part, part, most)
        if earlier is None:
            for half in part.halves():
                self._write_part(parsed, half, result)
            return
        kinds = Counter(one.kind for one in part.records)
        facts = reduced(_with(of_part, earlier)).persist()
        try:
            for name, build in self._desk.builds.items():
                if build.kinds & kinds.keys() and not self._is_set_aside(name):
                    self._write_table(name, facts, part, result)
        finally:
            facts.unpersist()

    def _earlier_rows(self, of_part: DataFrame, part: _Part, most: int | None) -> list[dict[str, object]] | None:
        """What the applications of this part were before it; None when that is too much for one part."""
        of_topologies = [one.offset for one in part.records if one.kind in _TOPOLOGY]
        if not of_topologies:
            return []
        apps = of_part.where(sf.col("kind").isin(*_TOPOLOGY)).select("cluster_id", "name").distinct().toArrow()
        named = list(zip(apps["cluster_id"].to_pylist(), apps["name"].to_pylist(), strict=True))
        topic = f"{self._desk.reading.prefix}topologies"
        return self._earlier.of(named, before=min(of_topologies), topic=topic, most=most)

    def _write_table(self, name: str, facts: DataFrame, part: _Part, result: BatchResult) -> None:
        build = self._desk.builds[name]

        def write() -> None:
            rows = self._desk.ids.put_in(_each_key_once(build.rows(facts).toArrow(), build.table.key))
            with self._desk.writers.of(name) as writer:
                write_and_tidy(writer, rows, query=self._query(), batch=result.batch, last=part.last)

        self._guarded(name, write, result)


def _with(parsed: DataFrame, earlier: Sequence[dict[str, object]]) -> DataFrame:
    if not earlier:
        return parsed
    rows = parsed.sparkSession.createDataFrame(pa.Table.from_pylist(list(earlier), ARROW_SCHEMA), SCHEMA)
    return parsed.unionByName(rows)


def _each_key_once(rows: pa.Table, key: Iterable[str]) -> pa.Table:
    """Two names that are no UTF-8 can look alike in a table; of such rows the last stays."""
    numbered = rows.select(list(key)).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    kept = numbered.group_by(list(key)).aggregate([("row", "max")])["row_max"]
    return rows if len(kept) == rows.num_rows else rows.take(kept)
