"""The facts query: writes one batch of the small topics to all tables that are made of them.

A batch is read once in Spark; then the rows of all tables are collected, by one plan if they are few, and given to
their writers. Spark bounds a batch by
records alone, and a record of a megabyte becomes many thousand rows. So a batch whose rows would take too much memory
is written in parts: ranges of its records in the order of topic, partition and offset. Only the last part completes the
batch, and after a crash all parts come again. A single record is a part, whatever its size.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.base.errors import HeadgateError
from headgate.base.locations import Location
from headgate.pipeline.batches import (
    BatchContext,
    Batches,
    BatchResult,
    WeighedRecord,
    batch_records,
    is_within,
    upsert,
)
from headgate.pipeline.combined_rows import TOGETHER_BYTES, collect_together
from headgate.pipeline.fact_rows import (
    ARROW_SCHEMA,
    DELETED,
    DESCRIBED,
    REJECTED,
    SCHEMA,
    description_weight,
    read_facts,
)
from headgate.pipeline.task_builds import TASK_KINDS, EarlierTasks
from headgate.pipeline.topology_builds import add_validity, without_validity
from headgate.tables.definitions import table_named
from headgate.tables.storage import FILES, StoredTable, connect_duckdb, file_paths

MAX_PART_BYTES = 64 * 1024 * 1024
_TOPOLOGY = (DESCRIBED, DELETED)
_DESCRIPTIONS_AT_ONCE = 64
_CURRENT_VERSIONS = f"""
SELECT a.cluster_id, a.app_id AS name, a.incarnation, a.epoch, a.hash, a.provenance,
       a.valid_from AS "offset", a."at", v.member, v.process, v.description
FROM {FILES} AS a
JOIN {FILES} AS v USING (cluster_id, app_id, incarnation, epoch, hash, provenance)
WHERE (a.cluster_id, a.app_id) IN (SELECT unnest(?), unnest(?))
  AND a.valid_from < ? AND (a.valid_to IS NULL OR a.valid_to >= ?)
"""  # noqa: S608 - nothing in it comes from outside


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPart:
    """Consecutive records of a batch; the `last` part completes the batch."""

    records: Sequence[WeighedRecord]
    last: bool

    @property
    def weight(self) -> int:
        return sum(one.weight for one in self.records)

    def halves(self) -> "tuple[BatchPart, BatchPart]":
        """Two parts of about the same weight, neither of them empty."""
        half, reached, split = self.weight / 2, 0, len(self.records) - 1
        for number, one in enumerate(self.records[:-1], start=1):
            reached += one.weight
            if reached >= half:
                split = number
                break
        first, second = self.records[:split], self.records[split:]
        return BatchPart(records=first, last=False), BatchPart(records=second, last=self.last)


class FactsBatches(Batches):
    """Batches of the small topics."""

    def __init__(self, name: str, context: BatchContext, *, max_part_bytes: int = MAX_PART_BYTES) -> None:
        super().__init__(name, context)
        self._max_part_bytes = max_part_bytes
        self._duckdb = connect_duckdb(context.folders.tables)
        self._earlier = EarlierVersions(context.folders.tables, self._duckdb)
        self._earlier_tasks = EarlierTasks(context.folders.tables, self._duckdb)

    def close(self) -> None:
        self._duckdb.close()

    def _write(self, records: DataFrame, result: BatchResult) -> None:
        facts = read_facts(records, self._context.reading).persist()
        try:
            found = batch_records(facts)
            result.rows, result.rejected = len(found), sum(one.kind == REJECTED for one in found)
            if found:
                self._write_part(facts, BatchPart(records=found, last=True), result)
        finally:
            facts.unpersist()

    def _write_part(self, facts: DataFrame, part: BatchPart, result: BatchResult) -> None:
        can_split = len(part.records) > 1
        of_part = facts.where(is_within(part.records))
        earlier = None
        if part.weight <= self._max_part_bytes or not can_split:
            max_bytes = self._max_part_bytes - part.weight if can_split else None
            earlier = self._earlier_rows(of_part, part, max_bytes)
        if earlier is None:
            for half in part.halves():
                self._write_part(facts, half, result)
            return
        kinds = Counter(one.kind for one in part.records)
        size = part.weight + sum(len(row.get("description") or "") for row in earlier)
        with _with_validity(_add_rows(of_part, earlier), kinds) as valid:
            rows = {
                name: partial(build.rows, valid, kinds)
                for name, build in self._context.builds.items()
                if build.kinds & kinds.keys() and not self._is_disabled(name)
            }
            together = collect_together(rows) if size <= TOGETHER_BYTES else {}
            for name, make in rows.items():
                self._write_table(name, together.get(name), make, part, result)

    def _earlier_rows(self, of_part: DataFrame, part: BatchPart, max_bytes: int | None) -> list[dict[str, Any]] | None:
        """What was current before this part: versions of topologies, and tasks of members; None: too large for a part.

        The tasks are not more than the records that end them.
        """
        kinds = (*_TOPOLOGY, *TASK_KINDS)
        first = {kind: one.offset for one in reversed(part.records) if (kind := one.kind) in kinds}
        if not first:
            return []
        columns = ("kind", "cluster_id", "name", "member")
        named = of_part.where(sf.col("kind").isin(*first)).select(*columns).toArrow().to_pylist()
        prefix = self._context.reading.prefix
        versions = self._earlier.rows(
            {(row["cluster_id"], row["name"]) for row in named if row["kind"] in _TOPOLOGY},
            before=min((first[kind] for kind in _TOPOLOGY if kind in first), default=0),
            topic=f"{prefix}topologies",
            max_bytes=max_bytes,
        )
        if versions is None:
            return None
        tasks = self._earlier_tasks.rows(
            {(row["name"], row["member"]) for row in named if row["kind"] in TASK_KINDS},
            before=min((first[kind] for kind in TASK_KINDS if kind in first), default=0),
            topic=f"{prefix}tasks",
        )
        return [*versions, *tasks]

    def _write_table(
        self, name: str, collected: pa.Table | None, make: Callable[[], DataFrame], part: BatchPart, result: BatchResult
    ) -> None:
        def write() -> None:
            found = make().toArrow() if collected is None else collected
            rows = self._context.ids.replace_names(_each_key_once(found, table_named(name).key))
            with self._context.writers.writer(name) as writer:
                upsert(writer, rows, query=self._query_id(), batch=result.batch, last=part.last)

        self._write_or_disable(name, write, result)


@contextmanager
def _with_validity(facts: DataFrame, kinds: Collection[str]) -> Iterator[DataFrame]:
    """The facts with their validity, kept for all tables; most batches have no topology, and need no windows for it."""
    if not any(kind in kinds for kind in _TOPOLOGY):
        yield without_validity(facts)
        return
    valid = add_validity(facts).persist()
    try:
        yield valid
    finally:
        valid.unpersist()


class EarlierVersions:
    """Reads the versions that were current before a batch from `applications` and `topology_versions`.

    Invariant: the result depends on the batch's first offset, not on how often the batch was tried. Rows that a first
    attempt wrote or ended have that offset or a later one, so they are read as they were before it.
    """

    def __init__(self, root: Location, duckdb: DuckDBPyConnection) -> None:
        self._applications = StoredTable(root, table_named("applications"))
        self._versions = StoredTable(root, table_named("topology_versions"))
        self._duckdb = duckdb

    def rows(
        self, apps: Collection[tuple[str, str]], *, before: int, topic: str, max_bytes: int | None
    ) -> list[dict[str, Any]] | None:
        """Rows of `fact_rows.SCHEMA` for these (cluster, application), or None when they exceed `max_bytes`.

        Empty when a table cannot be read: writing that table reports it.
        """
        try:
            files = [stored_files(self._applications), stored_files(self._versions)]
        except HeadgateError:
            return []
        if not all(files) or not apps:
            return []
        clusters, names = zip(*sorted(apps), strict=True)
        parameters = [*files, list(clusters), list(names), before, before]
        found: list[dict[str, Any]] = []
        weight = 0
        with self._duckdb.cursor() as cursor:
            reader = cursor.sql(_CURRENT_VERSIONS, params=parameters).to_arrow_reader(_DESCRIPTIONS_AT_ONCE)
            for batch in reader:
                rows = batch.to_pylist()
                weight += sum(description_weight(row["description"], row["name"]) for row in rows)
                if max_bytes is not None and weight > max_bytes:
                    return None
                found += rows
        return [{**row, "topic": topic, "partition": 0, "kind": DESCRIBED, "earlier": True} for row in found]


def stored_files(stored: StoredTable) -> list[str]:
    """The files of a table, none when there is no table; `TableError` when its schema is another."""
    return [] if stored.checked() is None else file_paths(stored.files())


def _add_rows(facts: DataFrame, rows: Sequence[dict[str, Any]]) -> DataFrame:
    if not rows:
        return facts
    added = facts.sparkSession.createDataFrame(pa.Table.from_pylist(list(rows), ARROW_SCHEMA), SCHEMA)
    return facts.unionByName(added)


def _each_key_once(rows: pa.Table, key: Iterable[str]) -> pa.Table:
    """The last row of each key: two names that are not UTF-8 can be the same text in a table."""
    numbered = rows.select(list(key)).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    kept = numbered.group_by(list(key)).aggregate([("row", "max")])["row_max"]
    return rows if len(kept) == rows.num_rows else rows.take(kept)
