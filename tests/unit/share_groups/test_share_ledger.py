"""What is known of acquired offsets, beside a dictionary that has every offset by itself."""

import math
import os
import tracemalloc
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.share_groups.model.delivery_ledger import AcquiredRange, DeliveryLedger, HeldKey, Holder

TOPIC = bytes(range(16))
M, N = Holder("m", "User:a"), Holder("n", "User:a")
KEY: HeldKey = ("sg", M, TOPIC, 0)


@pytest.fixture
def ledger() -> DeliveryLedger:
    return DeliveryLedger(1_000)


def test_a_range_is_known_from_its_acquisition_to_its_settlement(ledger: DeliveryLedger) -> None:
    ledger.acquire(KEY, 0, 99, 1, 7)
    assert ledger.lookup(KEY, 0, 99) == [AcquiredRange(0, 99, 1, 7)]
    ledger.settle(KEY, 0, 99)
    assert ledger.lookup(KEY, 0, 99) == [AcquiredRange(0, 99, None, None)]
    assert len(ledger) == 0


def test_settling_the_middle_leaves_both_ends(ledger: DeliveryLedger) -> None:
    ledger.acquire(KEY, 0, 99, 1, 0)
    ledger.settle(KEY, 10, 19)
    assert ledger.lookup(KEY, 0, 99) == [
        AcquiredRange(0, 9, 1, 0),
        AcquiredRange(10, 19, None, None),
        AcquiredRange(20, 99, 1, 0),
    ]
    assert len(ledger) == 2


@pytest.mark.parametrize(
    "other",
    [
        ("sg2", M, TOPIC, 0),
        ("sg", N, TOPIC, 0),
        ("sg", Holder("m", 7), TOPIC, 0),
        ("sg", M, bytes(16), 0),
        ("sg", M, TOPIC, 1),
    ],
)
def test_every_part_of_the_key_counts(ledger: DeliveryLedger, other: HeldKey) -> None:
    ledger.acquire(KEY, 0, 9, 1, 0)
    assert ledger.lookup(other, 0, 9) == [AcquiredRange(0, 9, None, None)]
    ledger.settle(other, 0, 9)
    assert ledger.lookup(KEY, 0, 9) == [AcquiredRange(0, 9, 1, 0)]


def test_a_member_that_leaves_takes_its_own_with_it_and_nothing_else(ledger: DeliveryLedger) -> None:
    ledger.acquire(KEY, 0, 9, 1, 0)
    ledger.acquire(("sg", M, TOPIC, 1), 0, 9, 1, 0)
    ledger.acquire(("sg", N, TOPIC, 1), 10, 19, 1, 0)
    ledger.forget_holder("sg", M)
    ledger.forget_holder("sg", Holder("m", "User:b"))
    assert ledger.lookup(KEY, 0, 9) == [AcquiredRange(0, 9, None, None)]
    assert ledger.lookup(("sg", N, TOPIC, 1), 10, 19) == [AcquiredRange(10, 19, 1, 0)]
    assert len(ledger) == 1


def test_a_range_that_ends_before_it_begins_is_nothing(ledger: DeliveryLedger) -> None:
    ledger.acquire(KEY, 5, 4, 1, 0)
    assert len(ledger) == 0
    assert ledger.lookup(KEY, 5, 4) == []
    ledger.acquire(KEY, 0, 9, 1, 0)
    ledger.settle(KEY, 5, 4)
    assert ledger.lookup(KEY, 0, 9) == [AcquiredRange(0, 9, 1, 0)]


def test_a_huge_range_costs_no_more_than_what_is_held(ledger: DeliveryLedger) -> None:
    ledger.acquire(KEY, 5, 6, 1, 0)
    assert len(ledger.lookup(KEY, 0, 2**63 - 1)) == 3
    ledger.settle(KEY, 0, 2**63 - 1)
    assert len(ledger) == 0


def test_the_partitions_that_acquired_longest_ago_make_room() -> None:
    ledger = DeliveryLedger(3)
    for partition in range(3):
        ledger.acquire(("sg", M, TOPIC, partition), 0, 9, 1, 0)
    ledger.acquire(("sg", M, TOPIC, 0), 10, 19, 1, 0)
    assert ledger.lookup(("sg", M, TOPIC, 1), 0, 9) == [AcquiredRange(0, 9, None, None)], "this one was silent longest"
    assert ledger.lookup(("sg", M, TOPIC, 0), 0, 19) == [AcquiredRange(0, 9, 1, 0), AcquiredRange(10, 19, 1, 0)]
    assert (len(ledger), ledger.evicted) == (3, 1)


def test_one_partition_alone_loses_its_lowest_offsets() -> None:
    ledger = DeliveryLedger(3)
    for first in range(0, 100, 10):
        ledger.acquire(KEY, first, first + 4, 1, 0)
    assert (len(ledger), ledger.evicted) == (3, 7)
    assert ledger.lookup(KEY, 65, 74) == [AcquiredRange(65, 69, None, None), AcquiredRange(70, 74, 1, 0)]


def test_cutting_a_range_in_two_stays_within_the_bound() -> None:
    ledger = DeliveryLedger(3)
    ledger.acquire(("sg", N, TOPIC, 0), 0, 9, 1, 0)
    ledger.acquire(KEY, 0, 99, 1, 0)
    ledger.settle(KEY, 10, 19)
    ledger.settle(KEY, 30, 39)
    ledger.settle(KEY, 50, 59)
    assert len(ledger) <= 3


def test_partitions_whose_locks_ended_long_ago_are_dropped(ledger: DeliveryLedger) -> None:
    for partition, locked_until in enumerate((30.0, 40.0, 50.0, 35.0)):
        ledger.acquire(("sg", M, TOPIC, partition), 0, 9, 1, 0, locked_until)
    ledger.acquire(("sg", M, TOPIC, 1), 20, 29, 1, 0, 60.0)
    assert ledger.drop_expired(50.0) is False
    assert [ledger.has_any(("sg", M, TOPIC, partition)) for partition in range(4)] == [False, True, True, True]
    assert (len(ledger), ledger.evicted) == (4, 0), "one that acquired later has the lock that ends first; it waits"
    assert ledger.drop_expired(61.0) is False
    assert len(ledger) == 0
    ledger.acquire(KEY, 0, 9, 1, 0)
    assert ledger.drop_expired(1e9) is False
    assert len(ledger) == 1, "a lock of which nothing is known"


def test_so_many_ranges_are_dropped_at_once(ledger: DeliveryLedger) -> None:
    for partition in range(4):
        for first in range(0, 60, 20):
            ledger.acquire(("sg", M, TOPIC, partition), first, first, 1, 0, 30.0)
    assert ledger.drop_expired(31.0, most=4) is True
    assert len(ledger) == 2 * 3


def test_so_many_partitions_are_dropped_at_once(ledger: DeliveryLedger) -> None:
    for partition in range(5):
        ledger.acquire(("sg", M, TOPIC, partition), 0, 9, 1, 0, 30.0)
    assert [ledger.drop_expired(31.0, most=2) for _ in range(3)] == [True, True, False]
    assert len(ledger) == 0


def test_the_lock_of_a_range_stays_with_its_parts(ledger: DeliveryLedger) -> None:
    ledger.acquire(KEY, 0, 9, 1, 0, 30.0)
    ledger.acquire(KEY, 10, 19, 1, 0, 45.0)
    ledger.settle(KEY, 5, 14)
    found = [(one.first, one.last, one.locked_until) for one in ledger.lookup(KEY, 0, 19)]
    assert found == [(0, 4, 30.0), (5, 14, None), (15, 19, 45.0)]


@pytest.mark.parametrize(("a_partition", "most_bytes"), [(50, 200), (1, 1000)])
def test_a_range_takes_two_hundred_bytes_of_memory_beside_others_of_its_partition(
    a_partition: int, most_bytes: int
) -> None:
    count = 20_000
    ledger = DeliveryLedger(count)
    tracemalloc.start()
    try:
        for offset in range(1_000_000, 1_000_000 + 2 * count, 2):
            holder = Holder(f"nz0IMLOrQ2OZ3vqXjAtc{offset // 2 // a_partition:05}", "User:a")
            ledger.acquire(("sg", holder, TOPIC, 0), offset, offset, 1, 0, offset / 1000)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used / count < most_bytes


# --- beside an oracle -----------------------------------------------------------------------------------------------

OFFSET = st.integers(0, 30)
LENGTH = st.integers(1, 12)
KEYS = st.sampled_from([("sg", member, TOPIC, partition) for member in (M, N) for partition in (0, 1)])


class Locks(RuleBasedStateMachine):
    """The truth has each offset by itself; a ledger may forget of it only what had no room."""

    ledger: DeliveryLedger

    @initialize(most=st.sampled_from([2, 3, 10, 10_000]))
    def begin(self, most: int) -> None:
        self.most = most
        self.ledger = DeliveryLedger(most)
        self.truth: dict[HeldKey, dict[int, tuple[int, int]]] = {}

    @rule(key=KEYS, first=OFFSET, length=LENGTH, count=st.integers(1, 5), generation=st.integers(0, 3))
    def acquire(self, key: HeldKey, first: int, length: int, count: int, generation: int) -> None:
        self.ledger.acquire(key, first, first + length - 1, count, generation, 30.0)
        self.truth.setdefault(key, {}).update(dict.fromkeys(range(first, first + length), (count, generation)))
        # What was acquired last is there, unless a single partition has more than all may have.
        if len(self.ledger) < self.most:
            assert self.ledger.lookup(key, first, first + length - 1) == [
                AcquiredRange(first, first + length - 1, count, generation, 30.0)
            ]

    @rule(key=KEYS, first=OFFSET, length=LENGTH)
    def settle(self, key: HeldKey, first: int, length: int) -> None:
        self.ledger.settle(key, first, first + length - 1)
        for offset in range(first, first + length):
            self.truth.get(key, {}).pop(offset, None)

    @rule(key=KEYS, edges=st.lists(st.integers(0, 45), min_size=2, max_size=12, unique=True), joins=st.booleans())
    def take(self, key: HeldKey, edges: list[int], joins: bool) -> None:
        """Ascending ranges with gaps between them, or without; every other one has another tag."""
        edges = sorted(edges)
        pairs = pairwise(edges) if joins else zip(edges[::2], edges[1::2], strict=False)
        ranges = [(first, end - 1, number % 2) for number, (first, end) in enumerate(pairs)]
        truth = self.truth.get(key, {})
        overlapping = [
            held
            for held in self.ledger.lookup(key, 0, 60)
            if held.delivery_count is not None and any(a <= held.last and b >= held.first for a, b, _ in ranges)
        ]
        assert list(self.ledger.overlapping(key, ranges)) == overlapping
        known: Counter[tuple[int, int | None, int | None]] = Counter()
        for first, last, tag in ranges:
            for held in self.ledger.lookup(key, first, last):
                known[tag, held.delivery_count, held.generation] += held.last - held.first + 1
        assert self.ledger.take(key, ranges) == known
        for first, last, _ in ranges:
            for offset in range(first, last + 1):
                truth.pop(offset, None)

    @precondition(lambda self: any(self.truth.values()))
    @rule(data=st.data())
    def settle_what_is_held(self, data: st.DataObject) -> None:
        """As clients do: the very range that they were given."""
        key = data.draw(st.sampled_from([key for key, offsets in self.truth.items() if offsets]))
        known = [held for held in self.ledger.lookup(key, 0, 60) if held.delivery_count is not None]
        if known:
            held = data.draw(st.sampled_from(known))
            self.settle(key, held.first, held.last - held.first + 1)

    @rule(member=st.sampled_from([M, N]))
    def leave(self, member: Holder) -> None:
        self.ledger.forget_holder("sg", member)
        for key in [key for key in self.truth if key[1] == member]:
            del self.truth[key]

    @rule(most=st.integers(1, 3))
    def drop_expired(self, most: int) -> None:
        """Every lock has ended: what is left is true, and in order."""
        left = most
        for key, held in list(self.ledger._partitions.items()):
            if left > 0:
                left -= len(held)
                del self.truth[key]
        self.ledger.drop_expired(math.inf, most=most)

    @rule(key=KEYS, first=OFFSET, length=LENGTH)
    def look(self, key: HeldKey, first: int, length: int) -> None:
        found = self.ledger.lookup(key, first, first + length - 1)
        assert found[0].first == first
        assert found[-1].last == first + length - 1
        for held, behind in pairwise(found):
            assert behind.first == held.last + 1
        for held in found:
            self._is_true(key, held)

    def _is_true(self, key: HeldKey, held: AcquiredRange) -> None:
        assert held.first <= held.last
        truth = self.truth.get(key, {})
        for offset in range(held.first, held.last + 1):
            if held.delivery_count is not None or self.most == 10_000:
                assert truth.get(offset, (None, None)) == (held.delivery_count, held.generation)

    @invariant()
    def everything_is_true(self) -> None:
        if not hasattr(self, "ledger"):
            return
        for key in (("sg", member, TOPIC, partition) for member in (M, N) for partition in (0, 1)):
            for held in self.ledger.lookup(key, 0, 60):
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
    max_examples=int(os.environ.get("HEADGATE_TEST_HISTORIES", "100")), stateful_step_count=40, deadline=None
)
