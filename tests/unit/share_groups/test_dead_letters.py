"""A dead letter as KIP-1191 shipped it, with what we add under our own prefix."""

from dataclasses import replace

import pytest

from headgate.share_groups.model.dead_letter_records import (
    Cause,
    DeadLetter,
    DeadLetterSource,
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
LETTER = DeadLetter(SOURCE, 4711)


def test_the_six_shipped_headers_come_first_and_are_text() -> None:
    assert LETTER.headers[:6] == [
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"4711"),
        ("__dlq.errors.group", b"sg"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    ]


def test_our_own_have_our_own_prefix() -> None:
    assert LETTER.headers[6:] == [
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
    assert "__headgate.delivery.count" not in dict(LETTER.headers)


def test_a_missing_copy_has_its_reason_in_a_header() -> None:
    headers = dict(replace(LETTER, copy_problem="larger than max.message.bytes").headers)
    assert headers["__headgate.copy.problem"] == b"larger than max.message.bytes"
    assert "__headgate.copy.problem" not in dict(LETTER.headers)


def test_names_that_are_no_ascii_are_utf8() -> None:
    assert dict(DeadLetter(replace(SOURCE, group="gr\u00fcn"), 1).headers)["__dlq.errors.group"] == "gr\u00fcn".encode()


def test_duplicates_of_a_dead_letter_have_one_identity() -> None:
    again = DeadLetter(replace(SOURCE, member="other", at=5, delivery_count=None), 4711)
    assert again.identity == LETTER.identity == ("sg", bytes(range(16)), 3, 4711)
    assert replace(LETTER, offset=4712).identity != LETTER.identity


@pytest.mark.parametrize(("source", "partitions", "target"), [(0, 1, 0), (7, 1, 0), (3, 8, 3), (8, 8, 0), (13, 8, 5)])
def test_the_partition_is_the_sources_modulo(source: int, partitions: int, target: int) -> None:
    assert partition_of(source, partitions) == target


def test_the_headers_that_dead_letters_share_are_encoded_once() -> None:
    first, second = DeadLetter(SOURCE, 1).headers, DeadLetter(SOURCE, 2).headers
    assert [one is other for one, other in zip(first, second, strict=True)] == [True] * 2 + [False] + [True] * 7


@pytest.mark.parametrize("problem", [None, "gr\u00fcn"])
def test_the_size_of_the_headers_is_that_of_all_of_them(problem: str | None) -> None:
    letter = replace(LETTER, copy_problem=problem)
    assert letter.header_bytes == header_bytes(letter.headers)
