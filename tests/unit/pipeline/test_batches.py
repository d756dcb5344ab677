"""The pieces of writing a batch: parts, topic ids, the schedule of compaction, and errors."""

import traceback
from collections.abc import Collection
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from headgate.base.errors import ClusterError
from headgate.pipeline import batches
from headgate.pipeline.batches import (
    BatchContext,
    Batches,
    BatchInterruptedError,
    BatchResult,
    Folders,
    TableWriters,
    TopicIds,
    WeighedRecord,
    disk_full_error,
    optimize_if_due,
    upsert,
)
from headgate.pipeline.fact_rows import ReadSettings
from headgate.pipeline.facts_query import BatchPart
from headgate.tables.writer import TableWriter
from tests.unit.tables.things import THINGS, batch, thing

SPARK = """An error occurred while calling o321.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 9.0 failed 1 times
java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)"""


def test_a_full_disk_is_one_sentence() -> None:
    found = disk_full_error(RuntimeError(SPARK))
    assert str(found).startswith("the disk is full: make room for the tables, the checkpoint and")
    assert "\n" not in str(found)


@pytest.mark.parametrize("other", [RuntimeError("no broker answers"), ClusterError(SPARK)])
def test_another_error_or_one_of_headgate_is_not_a_full_disk(other: Exception) -> None:
    assert disk_full_error(other) is None


def part(*weights: int) -> BatchPart:
    records = [
        WeighedRecord(topic="t", partition=0, offset=number, kind="k", weight=weight)
        for number, weight in enumerate(weights)
    ]
    return BatchPart(records=records, last=True)


@given(st.lists(st.integers(0, 100), min_size=2, max_size=50))
def test_halves_are_all_of_it_in_order_and_never_empty(weights: list[int]) -> None:
    whole = part(*weights)
    first, second = whole.halves()
    assert [*first.records, *second.records] == whole.records
    assert first.records
    assert second.records
    assert (first.last, second.last) == (False, True)


@pytest.mark.parametrize(("weights", "cut"), [((1, 1, 1, 1), 2), ((100, 1, 1), 1), ((1, 1, 100), 2), ((0, 0), 1)])
def test_halves_weigh_about_the_same(weights: tuple[int, ...], cut: int) -> None:
    first, _ = part(*weights).halves()
    assert len(first.records) == cut


IDS = pa.schema([("cluster_id", pa.string()), ("in_topic_id", pa.string()), ("out_topic_id", pa.string())])


def rows(*values: tuple[str, str | None, str | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(IDS.names, one, strict=True)) for one in values], IDS)


def test_names_become_ids_each_asked_for_once_a_batch_and_only_for_the_own_cluster() -> None:
    asked: list[list[str]] = []

    def ask(names: Collection[str]) -> dict[str, str]:
        asked.append(sorted(names))
        return {name: f"id of {name}" for name in names if name != "gone"}

    ids = TopicIds("own", ask)
    found = ids.replace_names(rows(("own", "a", "gone"), ("own", "a", None), ("other", "b", "a"), ("own", "", "c")))
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("own", "id of a", None),
        ("own", "id of a", None),
        ("other", None, None),
        ("own", None, "id of c"),
    ]
    assert found.schema == IDS
    ids.replace_names(rows(("own", "a", "d")))
    assert asked == [["a", "c", "gone"], ["d"]]
    ids.forget()
    ids.replace_names(rows(("own", "a", None)))
    assert asked[2:] == [["a"]], "another batch asks anew"
    plain = pa.table({"cluster_id": ["own"], "name": ["x"]})
    assert ids.replace_names(plain) is plain, "rows without topics ask for nothing"
    assert len(asked) == 3


@pytest.fixture
def every_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred versions take ten seconds to write."""
    assert batches.OPTIMIZE_EVERY == 100
    monkeypatch.setattr(batches, "OPTIMIZE_EVERY", 10)


@pytest.mark.usefixtures("every_tenth")
def test_a_table_that_another_program_appends_to_is_compacted_at_every_hundredth_version(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path, THINGS)
    optimize_if_due(writer)  # there is no table yet
    writer.create()
    optimize_if_due(writer)
    seen = []
    for number in range(10):
        row = batch([thing(str(number))]).cast(THINGS.stored_schema)
        write_deltalake(str(writer.folder), row, mode="append")
        optimize_if_due(writer)
        if number >= 8:
            seen.append(len(DeltaTable(str(tmp_path / THINGS.name)).file_uris()))
    assert seen == [9, 1]
    writer.close()


@pytest.mark.usefixtures("every_tenth")
def test_a_table_that_is_upserted_is_compacted_at_every_hundredth_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TableWriter(tmp_path, THINGS)
    optimized: list[int | None] = []
    monkeypatch.setattr(TableWriter, "optimize", lambda _: optimized.append(writer.version()))
    for number in range(10):
        upsert(writer, batch([thing(str(number))]), query="q", batch=number)
    upsert(writer, batch([thing("9")]), query="q", batch=10)  # nothing new: no version
    assert optimized == [10]
    writer.close()


class _FailingBatches(Batches):
    """Fails in every batch, as Spark's calls fail when their job is cancelled."""

    is_stopped = False

    def _write(self, records: DataFrame, result: BatchResult) -> None:  # noqa: ARG002
        self.closing = self.is_stopped
        raise RuntimeError(SPARK)


@pytest.fixture
def failing(tmp_path: Path) -> _FailingBatches:
    context = BatchContext(
        folders=Folders(tables=tmp_path, checkpoint=tmp_path, disabled=tmp_path),
        builds={},
        reading=ReadSettings(prefix="headgate.", cluster="c", max_bytes={}),
        writers=TableWriters(tmp_path),
        ids=TopicIds("c", lambda _: {}),
    )
    return _FailingBatches("facts", context)


def test_a_batch_that_a_stop_interrupts_fails_with_a_short_text(failing: _FailingBatches) -> None:
    # Spark's search in a long text overflows its stack, with a thousand lines on standard error.
    failing.is_stopped = True
    with pytest.raises(BatchInterruptedError) as caught:
        failing(cast(DataFrame, None), 1)
    assert "SparkException" not in "".join(traceback.format_exception(caught.value))


def test_a_batch_that_fails_by_itself_keeps_its_error(failing: _FailingBatches) -> None:
    with pytest.raises(RuntimeError, match="No space left"):
        failing(cast(DataFrame, None), 1)
    assert str(failing.failure) == SPARK
