"""Replacing rows of a table: inserted, changed and deleted in one commit, all or within some values."""

import pyarrow as pa
import pytest

from headgate.base.locations import Location
from headgate.tables.reader import TableReader
from headgate.tables.writer import TableWriter
from tests.unit.tables.things import SORTED_THINGS, THINGS, Row, batch, thing

FIRST = [thing("a", 0), thing("a", 1), thing("b", 0), thing("b", 5)]


def stored(root: Location) -> list[Row]:
    return list(TableReader(root).rows(THINGS).rows)


@pytest.fixture
def writer(place: Location) -> TableWriter:
    made = TableWriter(place, THINGS)
    made.replace(batch(FIRST), within=None, transactions={"made": 1})
    return made


def test_rows_that_are_missing_are_deleted_in_the_commit_of_the_others(place: Location, writer: TableWriter) -> None:
    before = writer.version()
    assert before is not None
    rows = [thing("a", 0), thing("b", 0, 7), thing("c", 0)]
    written = writer.replace(batch(rows), within=None, transactions={"made": 2})
    assert stored(place) == rows
    assert written.rows == 4, "one changed, one came, two went"
    assert written.version == before + 1
    assert writer.transaction("made") == 2
    assert writer.transaction("other") is None


def test_within_some_values_only_these_are_compared(place: Location, writer: TableWriter) -> None:
    within = pa.table({"name": ["b", "c"]})
    writer.replace(batch([thing("b", 5, 8), thing("c", 0)]), within=within, transactions={})
    assert stored(place) == [thing("a", 0), thing("a", 1), thing("b", 5, 8), thing("c", 0)]


def test_numbers_within_bound_the_files_that_are_read(place: Location, writer: TableWriter) -> None:
    within = pa.table({"part": pa.array([1, 5], pa.int32())})
    writer.replace(batch([thing("z", 5)]), within=within, transactions={})
    assert stored(place) == [thing("a", 0), thing("b", 0), thing("z", 5)]


def test_no_rows_within_delete_nothing_else(place: Location, writer: TableWriter) -> None:
    writer.replace(batch([]), within=pa.table({"name": ["b"]}), transactions={})
    assert stored(place) == [thing("a", 0), thing("a", 1)]


def test_equal_rows_make_no_commit_and_a_record_alone_makes_one(place: Location, writer: TableWriter) -> None:
    version = writer.version()
    written = writer.replace(batch(FIRST), within=None, transactions={"made": 2})
    assert (written.rows, written.version, writer.version()) == (0, version, version)
    assert writer.transaction("made") == 1
    writer.record({"made": 2})
    assert writer.transaction("made") == 2
    assert stored(place) == FIRST
    again = TableWriter(place, THINGS)
    assert again.transaction("made") == 2, "it is in the log"


def test_rows_of_a_table_with_buckets_are_replaced_too(place: Location) -> None:
    writer = TableWriter(place, SORTED_THINGS)
    writer.replace(batch(FIRST), within=None, transactions={})
    rows = [thing("a", 1, 9), thing("c", 0)]
    writer.replace(batch(rows), within=pa.table({"name": ["a", "c"]}), transactions={})
    found = TableReader(place).rows(SORTED_THINGS).rows
    assert list(found) == [thing("a", 1, 9), thing("b", 0), thing("b", 5), thing("c", 0)]
