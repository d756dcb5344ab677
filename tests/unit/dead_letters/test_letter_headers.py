"""Headers of dead letters are read defensively, from every kind of writer."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.dead_letters.model.headers import FORMAT_NAMES, MAX_NAME, MAX_REASON, LetterHeaders, read_headers
from headgate.share_groups.model.dead_letter_records import Cause, DeadLetter, DeadLetterSource, topic_id_text

TOPIC_ID = bytes(range(16))
SOURCE = DeadLetterSource(
    group="sg",
    member="m-1",
    cluster="c",
    topic="orders",
    topic_id=TOPIC_ID,
    partition=3,
    delivery_count=5,
    cause=Cause.OVER_LIMIT,
    at=1_794_745_800_000,
)
KAFKA = tuple(DeadLetter(source=SOURCE, offset=4711).headers)
CONNECT = (
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"0"),
    ("__connect.errors.offset", b"12"),
    ("__connect.errors.connector.name", b"sink-a"),
    ("__connect.errors.task.id", b"1"),
    ("__connect.errors.exception.class.name", b"org.example.DataException"),
    ("__connect.errors.exception.message", b"no schema"),
)
STREAMS = (
    ("__streams.errors.exception", b"org.example.SerializationException"),
    ("__streams.errors.message", b"bad bytes"),
    ("__streams.errors.topic", b"orders"),
    ("__streams.errors.partition", b"1"),
    ("__streams.errors.offset", b"13"),
)
SPRING = (
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", struct.pack(">i", 2)),
    ("kafka_dlt-original-offset", struct.pack(">q", 14)),
    ("kafka_dlt-original-consumer-group", b"billing"),
    ("kafka_dlt-exception-fqcn", b"org.example.ListenerException"),
    ("kafka_dlt-exception-message", b"failed"),
)


def replaced(name: str, value: bytes | None) -> list[tuple[str, bytes | None]]:
    return [(one, value if one == name else old) for one, old in KAFKA]


def test_a_dead_letter_of_the_gateway_is_read_as_it_was_written() -> None:
    assert read_headers(KAFKA) == LetterHeaders(
        format="kafka",
        group="sg",
        topic="orders",
        topic_id=topic_id_text(TOPIC_ID),
        partition=3,
        offset=4711,
        at=1_794_745_800_000,
        delivery_count=5,
        reason=Cause.OVER_LIMIT.value,
        member="m-1",
    )


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (CONNECT, ("connect", "sink-a", 0, 12, "no schema", "org.example.DataException")),
        (STREAMS, ("streams", None, 1, 13, "bad bytes", "org.example.SerializationException")),
        (SPRING, ("spring", "billing", 2, 14, "failed", "org.example.ListenerException")),
    ],
    ids=["connect", "streams", "spring"],
)
def test_letters_of_other_writers_are_read(
    headers: tuple[tuple[str, bytes], ...], expected: tuple[object, ...]
) -> None:
    found = read_headers(headers)
    assert (found.format, found.group, found.partition, found.offset, found.reason, found.exception) == expected
    assert (found.topic, found.problem) == ("orders", None)


def test_a_record_without_such_headers_is_of_an_unknown_writer() -> None:
    assert read_headers([("trace", b"1")]) == LetterHeaders()
    assert read_headers([]) == LetterHeaders()


@pytest.mark.parametrize(
    "value", [b"", None, b"-1", b"+1", b" 1", b"1e3", b"9" * 20, b"9" * 10**6, b"9223372036854775808"]
)
def test_an_offset_that_is_none_names_no_record(value: bytes | None) -> None:
    found = read_headers(replaced("__dlq.errors.offset", value))
    assert (found.topic, found.partition, found.offset, found.topic_id) == (None, None, None, None)
    assert found.problem is not None
    assert "__dlq.errors.offset is not a number" in found.problem
    assert found.group == "sg"


@pytest.mark.parametrize("value", [b"", b".", b"..", b"a/b", b"a" * 250, b"\xff", b"orders\n"])
def test_a_topic_that_cannot_exist_names_no_record(value: bytes) -> None:
    found = read_headers(replaced("__dlq.errors.topic", value))
    assert found.topic is None
    assert found.problem == "__dlq.errors.topic is not the name of a topic"


def test_numbers_of_spring_have_their_exact_length_and_are_not_negative() -> None:
    for value in (b"", b"2", b"0" * 8, struct.pack(">i", -1)):
        headers = [(name, value if name.endswith("partition") else old) for name, old in SPRING]
        found = read_headers(headers)
        assert found.topic is None
        assert found.problem is not None


def test_of_a_duplicated_header_the_last_counts_and_the_problem_says_so() -> None:
    found = read_headers([("__dlq.errors.offset", b"1"), *KAFKA])
    assert found.offset == 4711
    assert found.problem == "__dlq.errors.offset is there more than once, with different values"
    assert read_headers([*KAFKA, *KAFKA]).problem is None


def test_the_writer_whose_headers_come_last_wrote_the_letter() -> None:
    """Connect keeps the headers of the record, which may have been a dead letter of Spring before."""
    assert read_headers([*SPRING, *CONNECT]).format == "connect"
    assert read_headers([*CONNECT, *SPRING]).format == "spring"


def test_headers_that_name_a_record_win_over_later_ones_that_do_not() -> None:
    assert read_headers([*CONNECT, ("kafka_dlt-exception-fqcn", b"x")]).format == "connect"


def test_an_id_that_is_none_is_left_out() -> None:
    found = read_headers(replaced("__headgate.topic.id", b"x" * 10**6))
    assert (found.topic, found.topic_id) == ("orders", None)
    assert found.problem == "__headgate.topic.id is not the id of a topic"


def test_a_delivery_count_of_0_is_unknown() -> None:
    found = read_headers(replaced("__dlq.errors.delivery.count", b"0"))
    assert (found.delivery_count, found.problem) == (None, None)


def test_a_letter_of_kafka_without_a_group_says_so() -> None:
    found = read_headers([one for one in KAFKA if one[0] != "__dlq.errors.group"])
    assert (found.group, found.problem) == (None, "__dlq.errors.group: missing")


_NAMES = st.sampled_from([name for name, _ in (*KAFKA, *CONNECT, *STREAMS, *SPRING)]) | st.text(max_size=20)
_VALUES = st.none() | st.binary(max_size=40) | st.sampled_from([old for _, old in (*KAFKA, *SPRING)])


@given(st.lists(st.tuples(_NAMES, _VALUES), max_size=30))
def test_no_headers_make_reading_fail_and_everything_is_bounded(headers: list[tuple[str, bytes | None]]) -> None:
    found = read_headers(headers)
    assert found.format in FORMAT_NAMES
    numbers = (found.partition, found.offset)
    assert (found.topic is None) == (None in numbers)
    assert all(number is None or 0 <= number < 2**63 for number in numbers)
    assert len(found.reason or "") <= MAX_REASON
    assert len(found.exception or "") <= MAX_NAME
    assert found.topic_id is None or len(found.topic_id) == 22
    for text in (found.group, found.reason, found.exception, found.member, found.problem):
        assert text is None or text.encode()


@given(st.sampled_from([KAFKA, CONNECT, STREAMS, SPRING]), st.integers(0, 40), _VALUES)
def test_a_changed_header_never_moves_the_letter_to_another_record_unnoticed(
    headers: tuple[tuple[str, bytes], ...], at: int, value: bytes | None
) -> None:
    """Headers of the record itself, which come before, change nothing but `problem`."""
    forged = (headers[at % len(headers)][0], value)
    found, expected = read_headers([forged, *headers]), read_headers(headers)
    assert (found.topic, found.partition, found.offset, found.group) == (
        expected.topic,
        expected.partition,
        expected.offset,
        expected.group,
    )
