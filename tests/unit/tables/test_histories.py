"""Random histories of batches, crashes and tidying give the same table as a plain dictionary."""

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.tables.reader import TableReader
from headgate.tables.table import Table
from headgate.tables.writer import TableWriter
from tests.unit.tables.things import SORTED_THINGS, THINGS, Key, Row, batch, key_of, thing


class KilledError(Exception):
    """The process died here."""


@dataclass(frozen=True)
class Step:
    rows: tuple[Row, ...]
    killed: Literal["never", "before the write", "after the write"]
    tidied: bool


_rows = st.lists(
    st.builds(
        thing,
        st.sampled_from(["a", "b", "c", "", "it's"]),
        st.integers(0, 2),
        st.none() | st.integers(0, 2),
        by=st.none() | st.sampled_from(["", "me"]),
        old=st.booleans(),
    ),
    max_size=8,
    unique_by=key_of,
).map(tuple)
_steps = st.lists(
    st.builds(Step, _rows, st.sampled_from(["never", "before the write", "after the write"]), st.booleans()),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("table", [THINGS, SORTED_THINGS], ids=["flat", "buckets"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(steps=_steps)
def test_every_batch_counts_once(table: Table, steps: list[Step]) -> None:
    expected: dict[Key, Row] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        reader = TableReader(root)
        writer = TableWriter(root, table)
        for number, step in enumerate(steps):
            changes = any(expected.get(key_of(row)) != row for row in step.rows)
            expected |= {key_of(row): row for row in step.rows}
            before = _version(reader, table)
            if step.killed != "never":
                _write_and_die(writer, step, number)
                writer = TableWriter(root, table)
            written = writer.upsert(batch(step.rows), query="q", batch=number)
            assert _sorted(reader.rows(table).rows, table) == _sorted(expected.values(), table)
            assert written.repeated == (changes and step.killed == "after the write")
            if before is not None:
                assert written.version == before + changes
            if step.tidied:
                writer.optimize(retention_hours=0)
        assert _sorted(TableReader(root).rows(table).rows, table) == _sorted(expected.values(), table)


def _write_and_die(writer: TableWriter, step: Step, number: int) -> None:
    if step.killed == "after the write":
        writer.upsert(batch(step.rows), query="q", batch=number)
        return

    def die(*_: object) -> None:
        raise KilledError

    writer._merge = die  # type: ignore[assignment, method-assign]
    with suppress(KilledError):
        writer.upsert(batch(step.rows), query="q", batch=number)


def _version(reader: TableReader, table: Table) -> int | None:
    summary = reader.summary(table)
    return None if summary is None else summary.version


def _sorted(rows: object, table: Table) -> list[Row]:
    return sorted(rows, key=lambda row: key_of(row, table))  # type: ignore[call-overload, no-any-return]
