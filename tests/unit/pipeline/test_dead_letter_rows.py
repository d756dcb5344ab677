"""What becomes of one letter, and of the question where its record is, without Spark and Kafka."""

from typing import Any

import pytest
from pyspark.errors import PySparkException

from headgate.pipeline.derived import dead_letter_sources as sources
from headgate.pipeline.derived.dead_letter_frames import FEATURE_NAMES, Ranges, letter_row, read_each
from headgate.pipeline.derived.dead_letter_rows import add_copy, dead_letter_row
from headgate.pipeline.derived.dead_letter_sources import set_source_state, source_rounds
from headgate.pipeline.derived.dead_letter_topics import KnownTopic

DLQ = KnownTopic(topic_id="dlq-id", bounds={0: (0, 9)}, configs={"cleanup.policy": "delete", "retention.ms": "1000"})
ORDERS = KnownTopic(topic_id="orders-id", bounds={0: (10, 20)}, configs={"cleanup.policy": "compact"})
DAY = 24 * 3_600_000


def said(*, offset: int = 3, at: int | None = None, headers: dict[str, bytes] | None = None) -> dict[str, Any]:
    kafka = {
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"12",
        "__dlq.errors.group": b"sg",
    } | ({} if at is None else {"__headgate.at": str(at).encode()})
    named = [{"key": name, "value": value} for name, value in (kafka if headers is None else headers).items()]
    record: dict[str, Any] = {"dlq_topic": "dlq.o", "dlq_partition": 0, "dlq_offset": offset, "recorded_at": 100 * DAY}
    record |= {"headers": named, "has_content": True} | dict.fromkeys(FEATURE_NAMES, 1)
    return letter_row(record)


def test_a_letter_that_names_no_record_has_its_own_position_as_key() -> None:
    row = dead_letter_row(said(headers={}), DLQ, "c")
    assert (row["group"], row["topic"], row["topic_id"], row["offset"]) == ("", None, "dlq-id", 3)
    assert row["letter_expires_at"] == 100 * DAY + 1000


def test_a_time_that_is_far_from_that_of_the_record_is_not_believed() -> None:
    assert dead_letter_row(said(at=99 * DAY), DLQ, "c")["dead_lettered_at"] == 99 * DAY
    assert dead_letter_row(said(at=1), DLQ, "c")["dead_lettered_at"] == 100 * DAY


def test_features_of_a_letter_without_a_copy_are_not_those_of_the_record() -> None:
    assert said()["key_hash"] == 1
    incomplete = said(headers={"__dlq.errors.topic": b"o", "__headgate.copy.problem": b"too large"})
    assert (incomplete["copied"], incomplete["key_hash"]) == (False, None)


def test_copies_are_counted_and_the_first_letter_stays() -> None:
    rows: dict[tuple[str, str, int, int], dict[str, Any]] = {}
    for offset in (5, 3, 8):
        add_copy(rows, dead_letter_row(said(offset=offset), DLQ, "c"))
    [row] = rows.values()
    assert (row["copies"], row["dlq_offset"]) == (3, 3)


@pytest.mark.parametrize(
    ("topic", "values", "state", "is_readable"),
    [
        (ORDERS, {}, "unknown", True),
        (ORDERS, {"offset": 9}, "expired", False),
        (ORDERS, {"offset": 20}, "unknown", False),
        (ORDERS, {"partition": 7}, "unknown", False),
        (ORDERS, {"topic_id": "other"}, "recreated", False),
        (ORDERS, {"topic_id": ""}, "unknown", True),
        (ORDERS, {"topic_id": "name:orders"}, "unknown", True),
        (None, {}, "unreadable", False),
    ],
)
def test_what_is_known_of_a_record_before_it_is_read(
    topic: KnownTopic | None, values: dict[str, Any], state: str, *, is_readable: bool
) -> None:
    letter: dict[str, Any] = {"topic_id": "orders-id", "partition": 0, "offset": 12, "source_state": "unknown"} | values
    assert set_source_state(letter, topic, is_there=True) is is_readable
    assert letter["source_state"] == state


def test_a_topic_that_is_gone_has_no_records() -> None:
    letter = {"topic_id": "x", "partition": 0, "offset": 0, "source_state": "unknown"}
    assert not set_source_state(letter, None, is_there=False)
    assert letter["source_state"] == "expired"


def test_a_record_of_a_topic_that_is_there_again_is_looked_for() -> None:
    letter = {"topic_id": "orders-id", "partition": 0, "offset": 12, "source_state": "expired"}
    assert set_source_state(letter, ORDERS, is_there=True)
    assert letter["source_state"] == "unknown"


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "5"}, 6),
        ({"cleanup.policy": "compact,delete", "retention.ms": "5"}, 6),
        ({"cleanup.policy": "compact", "retention.ms": "5"}, None),
        ({"cleanup.policy": "delete", "retention.ms": "-1"}, None),
        ({"cleanup.policy": "delete", "retention.ms": str(2**63 - 1)}, 253_402_300_799_999),
        ({}, None),
    ],
)
def test_records_expire_by_retention_unless_the_topic_is_only_compacted(
    configs: dict[str, str], expected: int | None
) -> None:
    assert KnownTopic(topic_id="t", bounds={}, configs=configs).expires_at(1) == expected


def test_a_run_reads_unknown_records_first_and_a_bounded_number_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SOURCE_RECORDS", 30)
    monkeypatch.setattr(sources, "RANGES", 2)
    wanted = [
        (True, -100, "a", 0, (90, 100)),
        (False, -10, "a", 0, (0, 10)),
        (True, -50, "b", 0, (40, 50)),
        (True, -80, "a", 0, (70, 80)),
    ]
    assert source_rounds(wanted) == [{("a", 0): (0, 10), ("b", 0): (40, 50)}, {("a", 0): (90, 100)}]


def test_one_topic_that_cannot_be_read_does_not_keep_the_others_from_being_read() -> None:
    asked: list[set[str]] = []

    def read(ranges: Ranges) -> list[dict[str, Any]]:
        topics = {topic for topic, _ in ranges}
        asked.append(topics)
        if "closed" in topics:
            raise PySparkException("org.apache.kafka: Not authorized to access topics: [closed]\n  at ...")
        return [{"dlq_topic": topic, "dlq_partition": number} for topic, number in ranges]

    part = {("a", 0): (0, 5), ("closed", 0): (0, 5), ("a", 1): (0, 5), ("b", 0): (2, 3)}
    rows, unread = read_each(part, read)
    assert asked == [{"a", "b", "closed"}, {"a"}, {"b"}, {"closed"}]
    assert [(row["dlq_topic"], row["dlq_partition"]) for row in rows] == [("a", 0), ("a", 1), ("b", 0)]
    assert unread == {"closed": "org.apache.kafka: Not authorized to access topics: [closed]"}
    asked.clear()
    assert read_each({("a", 0): (0, 5), ("b", 0): (2, 3)}, read)[1] == {}
    assert asked == [{"a", "b"}], "readable topics are read together"


def test_a_full_disk_is_no_problem_of_a_topic() -> None:
    def read(_ranges: Ranges) -> list[dict[str, Any]]:
        raise PySparkException("java.io.IOException: No space left on device")

    with pytest.raises(PySparkException):
        read_each({("a", 0): (0, 5)}, read)


def test_letters_of_two_topics_that_name_no_topic_id_are_two_records() -> None:
    """A connector has one dead-letter topic for all topics that it reads."""
    rows: dict[tuple[str, str, int, int], dict[str, Any]] = {}
    for offset, topic in enumerate([b"a", b"b", b"a"]):
        connect = {
            "__connect.errors.topic": topic,
            "__connect.errors.partition": b"0",
            "__connect.errors.offset": b"5",
            "__connect.errors.connector.name": b"sink",
        }
        add_copy(rows, dead_letter_row(said(offset=offset, headers=connect), DLQ, "c"))
    found = [(row["topic"], row["topic_id"], row["offset"], row["copies"]) for row in rows.values()]
    assert found == [("a", "name:a", 5, 2), ("b", "name:b", 5, 1)]
