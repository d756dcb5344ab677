"""Which dead letters are triaged when there are too many for the memory of the pipeline."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.pipeline.derived.dead_letter_window import allowances


def test_a_group_with_few_is_taken_whole_and_leaves_its_room_to_the_others() -> None:
    assert allowances({"few": 5, "many": 1000}, 65) == {"few": 5, "many": 60}
    assert allowances({"a": 1000, "b": 1000, "few": 20}, 100) == {"few": 20, "a": 40, "b": 40}


def test_many_groups_with_many_are_no_more_than_there_is_room_for() -> None:
    """A hundred groups with 10,000 each had 500,000 of their newest second, of room for 300,000."""
    found = allowances({f"g{number}": 10_000 for number in range(100)}, 300_000)
    assert set(found.values()) == {3_000}


@given(st.dictionaries(st.text("abc"), st.integers(1, 400)), st.integers(0, 300))
def test_all_the_room_is_used_and_no_more(totals: dict[str, int], most: int) -> None:
    found = allowances(totals, most)
    assert found.keys() == totals.keys()
    assert all(0 <= found[group] <= totals[group] for group in totals)
    assert sum(found.values()) == min(most, sum(totals.values()))
