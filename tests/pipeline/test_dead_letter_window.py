"""The dead letters that a run triages are bounded, and what it leaves out is counted."""

import pyarrow as pa
from pyspark.sql import SparkSession

from headgate.pipeline.derived.dead_letter_window import letters_since
from headgate.tables.definitions import table_named
from tests.pipeline.breaker_histories import letter


def test_of_more_than_there_is_room_for_in_one_second_the_same_are_taken_each_time(spark: SparkSession) -> None:
    """Of three groups, two have 30 dead letters in one moment; those of an episode that are left out are counted."""
    rows = [letter(offset, 5_000, group=group, cluster="e1") for group in ("a", "b") for offset in range(30)]
    rows += [letter(offset, 1_000 * offset, group="few") for offset in range(4)]
    stored = spark.createDataFrame(pa.Table.from_pylist(rows, table_named("dead_letters").columns)).repartition(5)

    window = letters_since(spark, stored, ["a", "b", "few"], 0, 24)

    taken = sorted((row["group"], row["offset"]) for row in window.letters)
    assert taken == [
        *(("a", offset) for offset in range(20, 30)),
        *(("b", offset) for offset in range(20, 30)),
        *(("few", offset) for offset in range(4)),
    ]
    assert window.left_out == {"a": 20, "b": 20}
    assert window.assigned == {"e1": 40}
    assert window.begins == {"a": 5_001, "b": 5_001}
    assert sorted(window.times) == [("a", 5_000), ("b", 5_000)]
    assert letters_since(spark, stored, ["few"], 1_000, 24).left_out == {}
