"""The growth of topics between two polls of their end offsets."""

import pytest

from headgate.activity.model.end_offset_tracker import (
    EndOffsets,
    EndOffsetTracker,
    RecordsAppended,
    TopicKey,
    next_poll_ms,
)

T, RECREATED, NEW = TopicKey("t", "id-1"), TopicKey("t", "id-2"), TopicKey("new", "id-3")
HOUR = 3_600_000
Poll = tuple[dict[TopicKey, dict[int, int | None]], dict[str, int]]  # end offsets, and the growth by topic id
CASES: dict[str, list[Poll]] = {
    "growth is reported, and the first poll is the baseline": [
        ({T: {0: 100, 1: 50}}, {}),
        ({T: {0: 107, 1: 50}}, {"id-1": 7}),
        ({T: {0: 107, 1: 50}}, {}),
    ],
    "a topic created after the first poll counts from offset 0": [
        ({T: {0: 100}}, {}),
        ({T: {0: 100}, NEW: {0: 3, 1: 4}}, {"id-3": 7}),
        ({T: {0: 100}, NEW: {0: 4, 1: 4}}, {"id-3": 1}),
    ],
    "a new topic whose leaders do not answer yet counts from offset 0 later": [
        ({}, {}),
        ({NEW: {0: None, 1: 2}}, {"id-3": 2}),
        ({NEW: {0: 5, 1: 2}}, {"id-3": 5}),
    ],
    "a topic that is deleted and created again is a new topic": [
        ({T: {0: 100}}, {}),
        ({RECREATED: {0: 3}}, {"id-2": 3}),
    ],
    "a topic that a poll did not list keeps its end offsets": [
        ({T: {0: 100}}, {}),
        ({}, {}),
        ({T: {0: 105}}, {"id-1": 5}),
    ],
    "a partition that the first poll could not read begins with its first end offset": [
        ({T: {0: 100, 1: None}}, {}),
        ({T: {0: 100, 1: 1000}}, {}),
        ({T: {0: 100, 1: 1003}}, {"id-1": 3}),
    ],
    "an added partition counts from offset 0, and an unavailable one is caught up later": [
        ({T: {0: 100, 1: 10}}, {}),
        ({T: {0: 101, 1: None, 2: 5}}, {"id-1": 6}),
        ({T: {0: 101, 1: 12, 2: 5}}, {"id-1": 2}),
    ],
    "a truncated log counts from its new end": [
        ({T: {0: 100}}, {}),
        ({T: {0: 90}}, {}),
        ({T: {0: 91}}, {"id-1": 1}),
    ],
}


def growth(tracker: EndOffsetTracker, ends: EndOffsets, now_ms: int) -> dict[str, int]:
    return {one.topic.id: one.records for one in tracker.update(ends, now_ms)}


@pytest.mark.parametrize("polls", CASES.values(), ids=CASES)
def test_growth_between_two_polls(polls: list[Poll]) -> None:
    tracker = EndOffsetTracker()
    for number, (topics, expected) in enumerate(polls, start=1):
        assert growth(tracker, EndOffsets(topics=topics), 1000 * number) == expected


def test_topics_missing_from_an_incomplete_first_poll_are_not_new() -> None:
    tracker = EndOffsetTracker()
    assert growth(tracker, EndOffsets(topics={T: {0: 100}}, is_complete=False), 1) == {}
    assert growth(tracker, EndOffsets(topics={T: {0: 101}, NEW: {0: 1000}}), 2) == {"id-1": 1}
    last = EndOffsets(topics={T: {0: 101}, NEW: {0: 1002}, RECREATED: {0: 4}})
    assert growth(tracker, last, 3) == {"id-3": 2, "id-2": 4}


def test_a_poll_at_an_earlier_time_reports_nothing() -> None:
    tracker = EndOffsetTracker()
    tracker.update(EndOffsets(topics={T: {0: 90}}), 2000)
    assert tracker.update(EndOffsets(topics={T: {0: 95}}), 500) == []
    later = tracker.update(EndOffsets(topics={T: {0: 96}}), 600)
    assert later == [RecordsAppended(topic=T, since_ms=500, until_ms=600, records=1)]


def test_the_end_offsets_of_deleted_topics_are_bounded() -> None:
    tracker = EndOffsetTracker()
    growth(tracker, EndOffsets(topics={T: {0: 1}}), 1)
    for number in range(11):
        others = {TopicKey(str(one), f"{number}-{one}"): {0: 0} for one in range(1000)}
        growth(tracker, EndOffsets(topics=others), number + 2)
    assert growth(tracker, EndOffsets(topics={T: {0: 1}}), 20) == {"id-1": 1}  # forgotten, so it is a new topic


@pytest.mark.parametrize(
    ("now", "then"),
    [(0, 300_000), (HOUR - 300_000, HOUR), (HOUR - 1, HOUR), (HOUR, HOUR + 300_000), (HOUR - 299_999, HOUR)],
)
def test_no_span_lies_in_two_hours(now: int, then: int) -> None:
    assert next_poll_ms(now) == then
