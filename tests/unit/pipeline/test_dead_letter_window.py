"""Which dead letters are triaged when there are too many for the memory of the pipeline."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.pipeline.derived.dead_letter_window import beginnings


def test_the_newest_of_the_group_with_the_most_are_taken_and_a_group_with_few_is_taken_whole() -> None:
    counts = [("few", 1, 5), *(("many", second, 10) for second in range(100))]
    assert beginnings(counts, 65) == {"many": 94}


def test_nothing_is_left_out_where_all_are_few() -> None:
    assert beginnings([("a", 1, 5), ("b", 1, 5)], 10) == {}
    assert beginnings([], 10) == {}


def test_groups_with_many_share_the_room() -> None:
    counts = [(group, second, 10) for group in ("a", "b") for second in range(100)]
    assert beginnings(counts, 100) == {"a": 95, "b": 95}


@given(st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), st.integers(1, 9)), st.integers(30, 300))
def test_no_more_are_taken_than_there_is_room_for(numbers: dict[tuple[str, int], int], most: int) -> None:
    counts = [(group, second, number) for (group, second), number in numbers.items()]
    begins = beginnings(counts, most)
    taken = sum(number for group, second, number in counts if second >= begins.get(group, 0))
    assert taken <= most
    assert bool(begins) == (sum(numbers.values()) > most)
