"""Rows of several tables that are collected by one plan are those that each table alone would give."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headgate.facts import EventHappened
from headgate.pipeline.combined_rows import combine_rows, separate_rows
from headgate.pipeline.queries import QUERIES
from headgate.tables.definitions import TABLES, table_named
from tests.pipeline.estate import Estate
from tests.pipeline.test_append_query import activity, assert_appended_are_right, dispositions, lags

VALUES: dict[pa.DataType, list[Any]] = {
    pa.string(): ["", "a\n'\"\u20ac"],
    pa.int64(): [-1, 2**62],
    pa.int32(): [0, 2**31 - 1],
    pa.bool_(): [True, False],
    pa.float64(): [0.5, -2.0],
}


def test_rows_of_all_tables_come_back_as_they_were(spark: SparkSession) -> None:
    """With values of every type, and nulls where a column may have them; one table has no rows."""
    tables = [table_named(name) for name in sorted(TABLES)]
    wanted = {}
    for number, table in enumerate(tables):
        rows = [{one.name: VALUES[one.type][place] for one in table.columns} for place in (0, 1)]
        rows.append({one.name: None if one.nullable else VALUES[one.type][0] for one in table.columns})
        wanted[table.name] = pa.Table.from_pylist(rows if number else [], table.columns)
    frames = {name: spark.createDataFrame(rows) for name, rows in wanted.items()}
    found = separate_rows(combine_rows(frames, tables).toArrow(), tables)
    assert {name: rows.cast(wanted[name].schema).to_pylist() for name, rows in found.items()} == {
        name: rows.to_pylist() for name, rows in wanted.items()
    }


def test_a_small_batch_is_two_plans_whatever_the_number_of_its_tables(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that finds which records there are, and one for the rows of all tables."""
    collected: list[list[str]] = []
    frames = type(estate.spark.range(1))
    to_arrow = frames.toArrow

    def spy(frame: DataFrame) -> pa.Table:
        collected.append(frame.columns)
        return to_arrow(frame)

    event = EventHappened(at=1, subject_kind="share_group", subject="sg", id="e", event="paused", by=None)
    estate.write(event, activity(1), activity(2), dispositions(1), lags(3))
    estate.write_raw("activity", b"no key", b"{}")
    monkeypatch.setattr(frames, "toArrow", spy)
    assert estate.run(*QUERIES)
    monkeypatch.undo()
    assert len(collected) == 2 * len(QUERIES)
    assert_appended_are_right(estate)
    assert [len(estate.rows(name)) for name in ("breaker_events", "changes", "rejected_facts")] == [1, 1, 1]
