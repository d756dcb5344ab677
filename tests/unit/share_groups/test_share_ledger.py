"""What is known of acquired offsets, beside a dictionary that has every offset by itself."""

import os
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.share_groups.model.delivery_ledger import Held, Ledger, PartitionKey

TOPIC = bytes(range(16))
KEY: PartitionKey = ("sg", "m", TOPIC, 0)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(1_000)


def test_a_range_is_known_from_its_acquisition_to_its_settlement(ledger: Ledger) -> None:
    ledger.acquired(KEY, 0, 99, 1, 7)
    assert ledger.look(KEY, 0, 99) == [Held(0, 99, 1, 7)]
    ledger.settle(KEY, 0, 99)
    assert ledger.look(KEY, 0, 99) == [Held(0, 99, None, None)]
    assert len(ledger) == 0


def test_a_part_of_a_range_is_known_as_well(ledger: Ledger) -> None:
    ledger.acquired(KEY, 0, 99, 2, 7)
    assert ledger.look(KEY, 10, 19) == [Held(10, 19, 2, 7)]


def test_settling_the_middle_leaves_both_ends(ledger: Ledger) -> None:
    ledger.acquired(KEY, 0, 99, 1, 0)
    ledger.settle(KEY, 10, 19)
    assert ledger.look(KEY, 0, 99) == [Held(0, 9, 1, 0), Held(10, 19, None, None), Held(20, 99, 1, 0)]
    assert len(ledger) == 2


def test_a_released_offset_comes_back_at_a_higher_count(ledger: Ledger) -> None:
    ledger.acquired(KEY, 0, 99, 1, 0)
    ledger.settle(KEY, 50, 50)
    ledger.acquired(KEY, 50, 50, 2, 1)
    assert ledger.look(KEY, 49, 51) == [Held(49, 49, 1, 0), Held(50, 50, 2, 1), Held(51, 51, 1, 0)]


def test_an_acquisition_ends_what_was_known_of_the_same_offsets(ledger: Ledger) -> None:
    """The lock expired, nobody told, and the same member has them again."""
    ledger.acquired(KEY, 0, 9, 1, 0)
    ledger.acquired(KEY, 10, 19, 1, 0)
    ledger.acquired(KEY, 5, 14, 2, 0)
    assert ledger.look(KEY, 0, 19) == [Held(0, 4, 1, 0), Held(5, 14, 2, 0), Held(15, 19, 1, 0)]
    assert len(ledger) == 3


def test_an_acquisition_may_begin_with_the_last_offset_that_is_held(ledger: Ledger) -> None:
    ledger.acquired(KEY, 0, 9, 1, 0)
    ledger.acquired(KEY, 9, 12, 2, 0)
    assert ledger.look(KEY, 0, 12) == [Held(0, 8, 1, 0), Held(9, 12, 2, 0)]


def test_what_lies_around_and_between_is_unknown(ledger: Ledger) -> None:
    ledger.acquired(KEY, 10, 19, 1, 0)
    ledger.acquired(KEY, 30, 39, 3, 0)
    assert ledger.look(KEY, 0, 49) == [
        Held(0, 9, None, None),
        Held(10, 19, 1, 0),
        Held(20, 29, None, None),
        Held(30, 39, 3, 0),
        Held(40, 49, None, None),
    ]


@pytest.mark.parametrize(
    "other", [("sg2", "m", TOPIC, 0), ("sg", "m2", TOPIC, 0), ("sg", "m", bytes(16), 0), ("sg", "m", TOPIC, 1)]
)
def test_every_part_of_the_key_counts(ledger: Ledger, other: PartitionKey) -> None:
    ledger.acquired(KEY, 0, 9, 1, 0)
    assert ledger.look(other, 0, 9) == [Held(0, 9, None, None)]
    ledger.settle(other, 0, 9)
    assert ledger.look(KEY, 0, 9) == [Held(0, 9, 1, 0)]


def test_a_member_that_leaves_takes_its_own_with_it_and_nothing_else(ledger: Ledger) -> None:
    ledger.acquired(KEY, 0, 9, 1, 0)
    ledger.acquired(("sg", "m", TOPIC, 1), 0, 9, 1, 0)
    ledger.acquired(("sg", "m2", TOPIC, 1), 10, 19, 1, 0)
    ledger.forget_member("sg", "m")
    ledger.forget_member("sg", "nobody")
    assert ledger.look(KEY, 0, 9) == [Held(0, 9, None, None)]
    assert ledger.look(("sg", "m2", TOPIC, 1), 10, 19) == [Held(10, 19, 1, 0)]
    assert len(ledger) == 1


def test_a_range_that_ends_before_it_begins_is_nothing(ledger: Ledger) -> None:
    ledger.acquired(KEY, 5, 4, 1, 0)
    assert len(ledger) == 0
    assert ledger.look(KEY, 5, 4) == []
    ledger.acquired(KEY, 0, 9, 1, 0)
    ledger.settle(KEY, 5, 4)
    assert ledger.look(KEY, 0, 9) == [Held(0, 9, 1, 0)]


def test_a_huge_range_costs_no_more_than_what_is_held(ledger: Ledger) -> None:
    ledger.acquired(KEY, 5, 6, 1, 0)
    assert len(ledger.look(KEY, 0, 2**63 - 1)) == 3
    ledger.settle(KEY, 0, 2**63 - 1)
    assert len(ledger) == 0


def test_the_partitions_that_acquired_longest_ago_make_room() -> None:
    ledger = Ledger(3)
    for partition in range(3):
        ledger.acquired(("sg", "m", TOPIC, partition), 0, 9, 1, 0)
    ledger.acquired(("sg", "m", TOPIC, 0), 10, 19, 1, 0)
    assert ledger.look(("sg", "m", TOPIC, 1), 0, 9) == [Held(0, 9, None, None)], "this one was silent longest"
    assert ledger.look(("sg", "m", TOPIC, 0), 0, 19) == [Held(0, 9, 1, 0), Held(10, 19, 1, 0)]
    assert (len(ledger), ledger.evicted) == (3, 1)


def test_one_partition_alone_loses_its_lowest_offsets() -> None:
    ledger = Ledger(3)
    for first in range(0, 100, 10):
        ledger.acquired(KEY, first, first + 4, 1, 0)
    assert (len(ledger), ledger.evicted) == (3, 7)
    assert ledger.look(KEY, 65, 74) == [Held(65, 69, None, None), Held(70, 74, 1, 0)]


def test_cutting_a_range_in_two_stays_within_the_bound() -> None:
    ledger = Ledger(3)
    ledger.acquired(("sg", "old", TOPIC, 0), 0, 9, 1, 0)
    ledger.acquired(KEY, 0, 99, 1, 0)
    ledger.settle(KEY, 10, 19)
    ledger.settle(KEY, 30, 39)
    ledger.settle(KEY, 50, 59)
    assert len(ledger) <= 3


# --- beside an oracle -----------------------------------------------------------------------------------------------

OFFSET = st.integers(0, 30)
LENGTH = st.integers(1, 12)
KEYS = st.sampled_from([("sg", member, TOPIC, partition) for member in ("m", "n") for partition in (0, 1)])


class Locks(RuleBasedStateMachine):
    """The truth has each offset by itself; a ledger may forget of it only what had no room."""

    ledger: Ledger

    @initialize(most=st.sampled_from([2, 3, 10, 10_000]))
    def begin(self, most: int) -> None:
        self.most = most
        self.ledger = Ledger(most)
        self.truth: dict[PartitionKey, dict[int, tuple[int, int]]] = {}

    @rule(key=KEYS, first=OFFSET, length=LENGTH, count=st.integers(1, 5), generation=st.integers(0, 3))
    def acquire(self, key: PartitionKey, first: int, length: int, count: int, generation: int) -> None:
        self.ledger.acquired(key, first, first + length - 1, count, generation)
        self.truth.setdefault(key, {}).update(dict.fromkeys(range(first, first + length), (count, generation)))
        # What was acquired last is there, unless a single partition has more than all may have.
        if self.most >= 10:
            assert self.ledger.look(key, first, first + length - 1) == [
                Held(first, first + length - 1, count, generation)
            ]

    @rule(key=KEYS, first=OFFSET, length=LENGTH)
    def settle(self, key: PartitionKey, first: int, length: int) -> None:
        self.ledger.settle(key, first, first + length - 1)
        for offset in range(first, first + length):
            self.truth.get(key, {}).pop(offset, None)

    @precondition(lambda self: any(self.truth.values()))
    @rule(data=st.data())
    def settle_what_is_held(self, data: st.DataObject) -> None:
        """As clients do: the very range that they were given."""
        key = data.draw(st.sampled_from([key for key, offsets in self.truth.items() if offsets]))
        known = [held for held in self.ledger.look(key, 0, 60) if held.delivery_count is not None]
        if known:
            held = data.draw(st.sampled_from(known))
            self.settle(key, held.first, held.last - held.first + 1)

    @rule(member=st.sampled_from(["m", "n"]))
    def leave(self, member: str) -> None:
        self.ledger.forget_member("sg", member)
        for key in [key for key in self.truth if key[1] == member]:
            del self.truth[key]

    @rule(key=KEYS, first=OFFSET, length=LENGTH)
    def look(self, key: PartitionKey, first: int, length: int) -> None:
        found = self.ledger.look(key, first, first + length - 1)
        assert found[0].first == first
        assert found[-1].last == first + length - 1
        for held, behind in pairwise(found):
            assert behind.first == held.last + 1
        for held in found:
            self._is_true(key, held)

    def _is_true(self, key: PartitionKey, held: Held) -> None:
        assert held.first <= held.last
        truth = self.truth.get(key, {})
        for offset in range(held.first, held.last + 1):
            if held.delivery_count is not None or self.most == 10_000:
                assert truth.get(offset, (None, None)) == (held.delivery_count, held.generation)

    @invariant()
    def everything_is_true(self) -> None:
        if not hasattr(self, "ledger"):
            return
        for key in (("sg", member, TOPIC, partition) for member in ("m", "n") for partition in (0, 1)):
            for held in self.ledger.look(key, 0, 60):
                self._is_true(key, held)

    @invariant()
    def the_books_are_in_order(self) -> None:
        if not hasattr(self, "ledger"):
            return
        ledger = self.ledger
        assert len(ledger) <= self.most
        assert len(ledger) == sum(len(held) for held in ledger._partitions.values())
        assert all(ledger._partitions.values()), "an empty partition takes no room"
        assert set(ledger._partitions) == {key for keys in ledger._members.values() for key in keys}
        assert all(ledger._members.values()), "nor does a member without one"


TestRandomLocks: Any = Locks.TestCase
TestRandomLocks.settings = settings(
    max_examples=int(os.environ.get("HEADGATE_TEST_HISTORIES", "250")), stateful_step_count=40, deadline=None
)
