"""What was appended between two looks at the ends of topics."""

import pytest

from headgate.activity.model.topic_growth import Appended, Coverage, Topic, next_look_ms

T, AGAIN = Topic("t", "id-1"), Topic("t", "id-2")
HOUR = 3_600_000


def test_what_came_between_two_looks_is_told_and_nothing_of_the_first() -> None:
    coverage = Coverage()
    assert coverage.looked({T: {0: 100, 1: 50}}, 1000) == []
    assert coverage.looked({T: {0: 107, 1: 50}}, 2000) == [Appended(topic=T, since_ms=1000, until_ms=2000, records=7)]
    assert coverage.looked({T: {0: 107, 1: 50}}, 3000) == []


def test_a_topic_that_is_new_or_was_made_again_begins_anew() -> None:
    coverage = Coverage()
    coverage.looked({T: {0: 100}}, 1000)
    assert coverage.looked({AGAIN: {0: 3}}, 2000) == []
    assert [one.records for one in coverage.looked({AGAIN: {0: 4}}, 3000)] == [1]


def test_partitions_that_are_added_count_and_those_that_are_away_wait() -> None:
    coverage = Coverage()
    coverage.looked({T: {0: 100, 1: 10}}, 1000)
    assert [one.records for one in coverage.looked({T: {0: 101, 2: 5}}, 2000)] == [6]
    assert [one.records for one in coverage.looked({T: {0: 101, 1: 12, 2: 5}}, 3000)] == [2]


def test_an_end_that_went_back_and_a_clock_that_did_tell_nothing() -> None:
    coverage = Coverage()
    coverage.looked({T: {0: 100}}, 1000)
    assert coverage.looked({T: {0: 90}}, 2000) == []
    assert coverage.looked({T: {0: 95}}, 500) == []
    assert [one.records for one in coverage.looked({T: {0: 96}}, 600)] == [1]


@pytest.mark.parametrize(
    ("now", "then"),
    [(0, 300_000), (HOUR - 300_000, HOUR), (HOUR - 1, HOUR), (HOUR, HOUR + 300_000), (HOUR - 299_999, HOUR)],
)
def test_no_span_lies_in_two_hours(now: int, then: int) -> None:
    assert next_look_ms(now) == then
