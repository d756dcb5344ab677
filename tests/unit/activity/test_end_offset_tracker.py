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
Ends = dict[TopicKey, dict[int, int | None]]


class Polls:
    """A tracker that is polled every second."""

    def __init__(self) -> None:
        self.tracker = EndOffsetTracker()
        self.now_ms = 0

    def poll(self, topics: Ends, *, is_complete: bool = True) -> dict[str, int]:
        """The records that were appended, by topic id."""
        self.now_ms += 1000
        appended = self.tracker.update(EndOffsets(topics=topics, is_complete=is_complete), self.now_ms)
        assert all((one.since_ms, one.until_ms) == (self.now_ms - 1000, self.now_ms) for one in appended)
        return {one.topic.id: one.records for one in appended}


def test_growth_between_two_polls_is_reported_and_the_first_poll_is_the_baseline() -> None:
    polls = Polls()
    assert polls.poll({T: {0: 100, 1: 50}}) == {}
    assert polls.poll({T: {0: 107, 1: 50}}) == {"id-1": 7}
    assert polls.poll({T: {0: 107, 1: 50}}) == {}


def test_a_topic_created_after_the_first_poll_counts_from_offset_0() -> None:
    polls = Polls()
    polls.poll({T: {0: 100}})
    assert polls.poll({T: {0: 100}, NEW: {0: 3, 1: 4}}) == {"id-3": 7}
    assert polls.poll({T: {0: 100}, NEW: {0: 4, 1: 4}}) == {"id-3": 1}


def test_a_new_topic_whose_leaders_do_not_answer_yet_counts_from_offset_0_later() -> None:
    polls = Polls()
    polls.poll({})
    assert polls.poll({NEW: {0: None, 1: 2}}) == {"id-3": 2}
    assert polls.poll({NEW: {0: 5, 1: 2}}) == {"id-3": 5}


def test_a_topic_that_is_deleted_and_created_again_is_a_new_topic() -> None:
    polls = Polls()
    polls.poll({T: {0: 100}})
    assert polls.poll({RECREATED: {0: 3}}) == {"id-2": 3}


def test_a_topic_that_a_poll_did_not_list_keeps_its_end_offsets() -> None:
    polls = Polls()
    polls.poll({T: {0: 100}})
    polls.poll({})
    assert polls.poll({T: {0: 105}}) == {"id-1": 5}


def test_topics_missing_from_an_incomplete_first_poll_are_not_new() -> None:
    polls = Polls()
    polls.poll({T: {0: 100}}, is_complete=False)
    assert polls.poll({T: {0: 101}, NEW: {0: 1000}}) == {"id-1": 1}
    assert polls.poll({T: {0: 101}, NEW: {0: 1002}, RECREATED: {0: 4}}) == {"id-3": 2, "id-2": 4}


def test_a_partition_that_the_first_poll_could_not_read_begins_with_its_first_end_offset() -> None:
    polls = Polls()
    polls.poll({T: {0: 100, 1: None}})
    assert polls.poll({T: {0: 100, 1: 1000}}) == {}
    assert polls.poll({T: {0: 100, 1: 1003}}) == {"id-1": 3}


def test_an_added_partition_counts_from_offset_0_and_an_unavailable_one_is_caught_up_later() -> None:
    polls = Polls()
    polls.poll({T: {0: 100, 1: 10}})
    assert polls.poll({T: {0: 101, 1: None, 2: 5}}) == {"id-1": 6}
    assert polls.poll({T: {0: 101, 1: 12, 2: 5}}) == {"id-1": 2}


def test_a_truncated_log_reports_nothing_and_counts_from_its_new_end() -> None:
    polls = Polls()
    polls.poll({T: {0: 100}})
    assert polls.poll({T: {0: 90}}) == {}
    assert polls.poll({T: {0: 91}}) == {"id-1": 1}


def test_a_poll_at_an_earlier_time_reports_nothing() -> None:
    tracker = EndOffsetTracker()
    tracker.update(EndOffsets(topics={T: {0: 90}}), 2000)
    assert tracker.update(EndOffsets(topics={T: {0: 95}}), 500) == []
    later = tracker.update(EndOffsets(topics={T: {0: 96}}), 600)
    assert later == [RecordsAppended(topic=T, since_ms=500, until_ms=600, records=1)]


def test_the_end_offsets_of_deleted_topics_are_bounded() -> None:
    polls = Polls()
    polls.poll({T: {0: 1}})
    for number in range(11):
        polls.poll({TopicKey(str(one), f"{number}-{one}"): {0: 0} for one in range(1000)})
    assert polls.poll({T: {0: 1}}) == {"id-1": 1}  # forgotten, so it is a new topic


@pytest.mark.parametrize(
    ("now", "then"),
    [(0, 300_000), (HOUR - 300_000, HOUR), (HOUR - 1, HOUR), (HOUR, HOUR + 300_000), (HOUR - 299_999, HOUR)],
)
def test_no_span_lies_in_two_hours(now: int, then: int) -> None:
    assert next_poll_ms(now) == then
