"""A dead letter as KIP-1191 shipped it, with what we add under our own prefix; ranges of offsets and their chunks."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.share_groups.model.dead_letter_records import (
    BatchOffsets,
    Cause,
    DeadLetter,
    DeadLetterRange,
    DeadLetterSource,
    PartitionKey,
    RecordCopy,
    chunks,
    header_bytes,
    partition_of,
)

SOURCE = DeadLetterSource(
    group="sg",
    member="Zr6kCcS0Qf-8DeEy5PZy4w",
    cluster="c1",
    topic="orders",
    topic_id=bytes(range(16)),
    partition=3,
    delivery_count=2,
    cause=Cause.REJECTED,
    at=1_794_731_901_727,
)
DEAD_LETTER = DeadLetter(SOURCE, 4711)


def test_the_six_shipped_headers_come_first_and_are_text() -> None:
    assert DEAD_LETTER.headers[:6] == [
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"4711"),
        ("__dlq.errors.group", b"sg"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    ]


def test_our_own_have_our_own_prefix() -> None:
    assert DEAD_LETTER.headers[6:] == [
        ("__headgate.topic.id", b"AAECAwQFBgcICQoLDA0ODw"),
        ("__headgate.member", b"Zr6kCcS0Qf-8DeEy5PZy4w"),
        ("__headgate.cluster", b"c1"),
        ("__headgate.at", b"1794731901727"),
    ]


def test_over_the_limit_has_the_other_shipped_text() -> None:
    headers = dict(DeadLetter(replace(SOURCE, cause=Cause.OVER_LIMIT), 1).headers)
    assert headers["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."


def test_an_unknown_delivery_count_is_marked() -> None:
    headers = dict(DeadLetter(replace(SOURCE, delivery_count=None), 1).headers)
    assert headers["__dlq.errors.delivery.count"] == b"0"
    assert headers["__headgate.delivery.count"] == b"unknown"
    assert "__headgate.delivery.count" not in dict(DEAD_LETTER.headers)


def test_a_missing_copy_has_its_reason_in_a_header() -> None:
    headers = dict(replace(DEAD_LETTER, copy_problem="larger than max.message.bytes").headers)
    assert headers["__headgate.copy.problem"] == b"larger than max.message.bytes"
    assert "__headgate.copy.problem" not in dict(DEAD_LETTER.headers)


def test_names_that_are_no_ascii_are_utf8() -> None:
    assert dict(DeadLetter(replace(SOURCE, group="gr\u00fcn"), 1).headers)["__dlq.errors.group"] == "gr\u00fcn".encode()


def test_duplicates_of_a_dead_letter_have_one_identity() -> None:
    again = DeadLetter(replace(SOURCE, member="other", at=5, delivery_count=None), 4711)
    assert again.identity == DEAD_LETTER.identity == ("sg", bytes(range(16)), 3, 4711)
    assert replace(DEAD_LETTER, offset=4712).identity != DEAD_LETTER.identity


@pytest.mark.parametrize(("source", "partitions", "target"), [(0, 1, 0), (7, 1, 0), (3, 8, 3), (8, 8, 0), (13, 8, 5)])
def test_the_partition_is_the_sources_modulo(source: int, partitions: int, target: int) -> None:
    assert partition_of(source, partitions) == target


def test_the_headers_that_dead_letters_share_are_encoded_once() -> None:
    first, second = DeadLetter(SOURCE, 1).headers, DeadLetter(SOURCE, 2).headers
    assert [one is other for one, other in zip(first, second, strict=True)] == [True] * 2 + [False] + [True] * 7


@pytest.mark.parametrize("problem", [None, "gr\u00fcn"])
def test_the_size_of_the_headers_is_that_of_all_of_them(problem: str | None) -> None:
    dead_letter = replace(DEAD_LETTER, copy_problem=problem)
    assert dead_letter.header_bytes == header_bytes(dead_letter.headers)


# --- offsets of rejected ranges in chunks, which are looked up and become dead letters together -----------------------

TOPIC = bytes(16)


def rejected(first: int, last: int, *, partition: int = 0, count: int | None = 1) -> DeadLetterRange:
    return DeadLetterRange(("g", "m", TOPIC, partition), first, last, count, 0, Cause.REJECTED)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 9), st.sampled_from([None, 1, 2]), st.booleans()), max_size=20
    ),
    st.integers(1, 7),
    st.booleans(),
)
def test_every_offset_becomes_one_dead_letter_in_order(
    given_ranges: list[tuple[int, int, int | None, bool]], most: int, copies: bool
) -> None:
    ranges: list[DeadLetterRange] = []
    begin = 0
    for partition, length, count, gap in given_ranges:
        begin += gap
        ranges.append(rejected(begin, begin + length - 1, partition=partition, count=count))
        begin += length
    found = list(chunks(ranges, most, (lambda _, offset: (offset - 2, offset + 2)) if copies else None))
    dead_letters = [
        (index, dead_letter.source.partition, dead_letter.source.delivery_count, dead_letter.offset)
        for chunk in found
        for index, dead_letter in chunk.dead_letters({}, cluster="c", topic="t", at=1)
    ]
    assert dead_letters == [
        (index, one.key[3], one.delivery_count, offset)
        for index, one in enumerate(ranges)
        for offset in range(one.first, one.last + 1)
    ]
    assert all(0 < len(chunk.offsets) <= most for chunk in found)
    assert all(len({some.key for _, some, _ in chunk.parts}) == 1 for chunk in found)


def test_ranges_of_one_partition_are_looked_up_together() -> None:
    ranges = [rejected(1, 1), rejected(3, 3), rejected(5, 6, partition=1), rejected(7, 7, count=None)]
    assert [chunk.offsets for chunk in chunks(ranges, 10)] == [[1, 3], [5, 6], [7]]


def test_records_that_may_have_to_be_fetched_do_not_delay_those_that_are_kept() -> None:
    asked: list[int] = []

    def kept_batch(_: PartitionKey, offset: int) -> BatchOffsets | None:
        asked.append(offset)
        return (offset // 10 * 10, offset // 10 * 10 + 9) if offset < 20 else None

    ranges = [rejected(1, 1), rejected(3, 3), rejected(8, 12), rejected(19, 21), rejected(30, 30), rejected(32, 32)]
    found = [(chunk.offsets, chunk.is_joined) for chunk in chunks(ranges, 100, kept_batch)]
    assert found == [
        ([1, 3, 8, 9, 10, 11, 12], True),
        ([19, 20, 21], False),
        ([30], False),
        ([32], False),
    ]
    assert asked == [1, 12, 19, 21, 30, 32], "a batch is looked for once for all ranges within it"


def test_a_dead_letter_has_the_copy_of_its_offset() -> None:
    [chunk] = chunks([rejected(1, 2)], 10)
    copies = {1: RecordCopy(b"k", b"v"), 2: RecordCopy(problem="gone")}
    found = [dead_letter for _, dead_letter in chunk.dead_letters(copies, cluster="c", topic="t", at=1)]
    assert [(one.key, one.value, one.copy_problem) for one in found] == [(b"k", b"v", None), (None, None, "gone")]
