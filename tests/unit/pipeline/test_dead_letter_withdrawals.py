"""How many events withdraw a dead letter."""

import json

from hypothesis import given
from hypothesis import strategies as st

from headgate.pipeline.derived.dead_letter_withdrawals import event_numbers, number_at

PLACE = ("sg", "t", 0)
_RANGES = st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=4), max_size=6)


def event(ranges: list[tuple[int, int]]) -> dict[str, object]:
    return {"group": "sg", "detail": json.dumps({"topic_id": "t", "partition": 0, "offsets": ranges})}


@given(_RANGES)
def test_as_many_as_there_are_ranges_with_the_offset(events: list[list[tuple[int, int]]]) -> None:
    numbers = event_numbers(map(event, events))
    for offset in range(-1, 33):
        expected = sum(first <= offset <= last for ranges in events for first, last in ranges)
        assert number_at(numbers, PLACE, offset) == expected


def test_other_partitions_and_what_is_no_event_count_for_none() -> None:
    numbers = event_numbers([event([(0, 2**63 - 1)]), {"group": "sg", "detail": "{}"}, {"group": "sg", "detail": "?"}])
    assert number_at(numbers, PLACE, 2**62) == 1
    assert number_at(numbers, ("sg", "t", 1), 5) == number_at(numbers, ("other", "t", 0), 5) == 0
