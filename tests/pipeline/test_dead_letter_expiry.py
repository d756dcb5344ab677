"""What the hourly refresh makes of a dead letter, by what is known of its topics now."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headgate.pipeline.derived.dead_letter_expiry import outdated_letters
from headgate.pipeline.derived.dead_letter_topics import KnownTopic
from headgate.pipeline.derived.derivation import HOUR_MS
from headgate.tables.definitions import table_named
from tests.pipeline.breaker_histories import letter

DAY = 24 * HOUR_MS
NOW = 1000 * DAY
KEPT = {"cleanup.policy": "delete", "retention.ms": str(7 * DAY)}
ORDERS = KnownTopic(topic_id="id0", bounds={0: (5, 20)}, configs=KEPT)
DLQ = KnownTopic(topic_id="dlq-id", bounds={0: (0, 20)}, configs=KEPT)
BOTH = {"orders": ORDERS, "dlq": DLQ}


@pytest.mark.parametrize(
    ("stored", "known", "gone", "expected"),
    [
        ({}, BOTH, (), {}),
        ({}, {}, (), {}),  # both may not be described, or their brokers are away
        ({}, {"dlq": DLQ}, ("orders",), {"source_state": "expired"}),
        ({"offset": 3}, BOTH, (), {"source_state": "expired"}),
        ({"source_state": "expired"}, BOTH, (), {"source_state": "found"}),  # its topic is there again
        (
            {"source_state": "expired", "source_at": None, "source_expires_at": None},
            BOTH,
            (),
            {"source_state": "unknown"},
        ),
        ({"source_state": "expired", "offset": 3}, BOTH, (), {}),
        ({"source_state": "expired", "offset": 20}, BOTH, (), {}),
        ({"source_state": "expired"}, {"dlq": DLQ}, (), {}),
        ({"source_state": "expired", "topic_id": "old"}, BOTH, (), {"source_state": "recreated"}),
        ({"source_state": "compacted"}, BOTH, (), {}),
        ({}, {"orders": ORDERS}, ("dlq",), {"letter_expires_at": NOW}),
        (
            {"letter_expires_at": NOW - 2 * DAY},
            BOTH,
            (),
            {"letter_expires_at": NOW + 6 * DAY},
        ),  # its topic is there again
        ({"letter_expires_at": None}, BOTH, (), {"letter_expires_at": NOW + 6 * DAY}),
        ({}, {"orders": ORDERS, "dlq": KnownTopic(topic_id="dlq-id", bounds={0: (0, 20)})}, (), {}),  # configs unknown
    ],
)
def test_a_row_changes_only_by_what_is_known(
    spark: SparkSession,
    stored: dict[str, Any],
    known: dict[str, KnownTopic],
    gone: tuple[str, ...],
    expected: dict[str, Any],
) -> None:
    values: dict[str, Any] = {
        "topic": "orders",
        "source_state": "found",
        "source_at": NOW - DAY,
        "source_expires_at": NOW + 6 * DAY,
        "dlq_topic": "dlq",
        "dlq_topic_id": "dlq-id",
        "letter_expires_at": NOW + 6 * DAY,
    } | stored
    row = letter(values.pop("offset", 7), NOW - DAY, **values)
    letters = spark.createDataFrame(pa.Table.from_pylist([row], table_named("dead_letters").columns))
    found = outdated_letters(spark, letters, known, gone, NOW).toArrow().to_pylist()
    assert found == ([row | expected] if expected else [])
