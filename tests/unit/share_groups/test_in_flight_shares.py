"""Shares of the dead letters in flight: no group takes the last of the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.share_groups.model.in_flight_shares import InFlightShares

MAX_DEAD_LETTERS, MAX_BYTES = 64, 6_400
steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 800), st.booleans()), max_size=300
)  # group, size, whether its oldest dead letter ends instead


@given(steps)
def test_the_bounds_hold_and_a_group_holds_no_more_than_it_leaves_free(
    found: list[tuple[str, int, bool]],
) -> None:
    shares = InFlightShares(MAX_DEAD_LETTERS, MAX_BYTES)
    held: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for group, size, ends in found:
        if ends:
            if held[group]:
                shares.release(group, held[group].pop(0))
            continue
        before = (shares.dead_letters, shares.bytes)
        free_dead_letters, free_bytes = MAX_DEAD_LETTERS - shares.dead_letters - 1, MAX_BYTES - shares.bytes - size
        fits = len(held[group]) + 1 <= free_dead_letters and sum(held[group]) + size <= free_bytes
        refused = shares.take(group, size)
        assert (refused is None) == fits, "a group may hold no more than it leaves free"
        if refused is None:
            held[group].append(size)
        else:
            assert (shares.dead_letters, shares.bytes) == before
        assert shares.dead_letters == sum(map(len, held.values())) <= MAX_DEAD_LETTERS
        assert shares.bytes == sum(map(sum, held.values())) <= MAX_BYTES


@given(st.lists(st.integers(1, 800), max_size=200), st.integers(1, MAX_BYTES // 4))
def test_a_group_that_takes_all_it_can_never_refuses_another_one(sizes: list[int], size: int) -> None:
    shares = InFlightShares(MAX_DEAD_LETTERS, MAX_BYTES)
    for one in sizes:
        shares.take("a", one)
    assert shares.take("b", size) is None


@pytest.mark.parametrize("groups", range(1, 6))
def test_of_n_groups_that_take_all_they_can_each_leaves_half_to_the_next(groups: int) -> None:
    small = InFlightShares(MAX_DEAD_LETTERS, MAX_BYTES)
    assert fill(small, groups, 1) is None
    assert MAX_DEAD_LETTERS - small.dead_letters == MAX_DEAD_LETTERS // 2**groups - 1
    large, size = InFlightShares(MAX_BYTES, MAX_BYTES), MAX_BYTES // MAX_DEAD_LETTERS
    assert fill(large, groups, size) is None
    assert MAX_BYTES - large.bytes == MAX_BYTES // 2**groups - size


def fill(shares: InFlightShares, groups: int, size: int) -> str | None:
    """Groups take all that they can, and then another one takes one dead letter."""
    for number in range(groups):
        while shares.take(str(number), size) is None:
            pass
    return shares.take("next", size)


def test_alone_a_dead_letter_of_any_size_is_accepted() -> None:
    shares = InFlightShares(MAX_DEAD_LETTERS, MAX_BYTES)
    assert shares.take("a", 10 * MAX_BYTES) is None
    assert shares.take("a", 1) is not None
    shares.release("a", 10 * MAX_BYTES)
    assert shares.take("b", 1) is None
