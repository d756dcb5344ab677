"""The index of the spool equals a plain model of its records: of each partition and key the last one counts."""

import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.share_groups.spool.model import index as spool_index
from headgate.share_groups.spool.model.index import SpoolIndex, SpoolPlace, SpoolRecord, SpoolTotals, spool_record
from headgate.share_groups.spool.model.records import (
    SEQUENCES_A_MS,
    SpooledDeadLetter,
    SpoolLane,
    SpoolTombstone,
    decode_spooled,
    encode_identity,
    encode_spooled,
)

TOPIC = b"t" * 16
LANE = SpoolLane("g", TOPIC, 0)


def dead_letter(offset: int, **values: Any) -> SpooledDeadLetter:
    chosen: dict[str, Any] = {
        "group": "g",
        "partition": 0,
        "deadline": 40_000,
        "target": "dlq.g",
        "sequence": offset + 1,
    } | values
    return SpooledDeadLetter(
        topic_id=TOPIC, offset=offset, key=None, value=b"v", headers=(("__dlq.errors.topic", b"orders"),), **chosen
    )


class Log:
    """Partitions of a spool; what is appended is also applied to an index."""

    def __init__(self) -> None:
        self.index = SpoolIndex()
        self._ends = [0, 0]

    def add(self, one: SpooledDeadLetter, *, partition: int = 0) -> None:
        self._append(partition, one)

    def remove(self, one: SpooledDeadLetter, *, partition: int = 0) -> None:
        self._append(partition, SpoolTombstone(one.identity))

    def _append(self, partition: int, found: SpooledDeadLetter | SpoolTombstone) -> None:
        self.index.apply(spool_record(partition, self._ends[partition], found))
        self._ends[partition] += 1

    def waiting(self, target: str = "dlq.g", lane: SpoolLane = LANE) -> list[int]:
        return [one.offset for one in self.index.waiting(target, lane)]


def expired(index: SpoolIndex, until_ms: int) -> list[SpoolPlace]:
    found = []
    while (some := index.take_expired(until_ms)) is not None:
        found += some
    return found


# --- against a plain model

DEAD_LETTERS = st.builds(
    dead_letter,
    st.integers(0, 3),
    group=st.sampled_from(["g", "h"]),
    partition=st.integers(0, 1),
    deadline=st.integers(1, 4).map(lambda second: 1000 * second),
    target=st.sampled_from(["dlq.g", "dlq.h"]),
    sequence=st.integers(0, 20).map(lambda ms: ms * SEQUENCES_A_MS),
    parked=st.sampled_from([None, None, "too large", "no topic"]),
)
APPENDED = st.tuples(
    st.integers(0, 2), st.one_of(DEAD_LETTERS, DEAD_LETTERS.map(lambda one: SpoolTombstone(one.identity)))
)


def records_of(appended: Sequence[tuple[int, SpooledDeadLetter | SpoolTombstone]]) -> list[SpoolRecord]:
    """As they are read: encoded and decoded, with their offsets."""
    records, ends = [], [0, 0, 0]
    for partition, one in appended:
        key, value, headers = (
            (encode_identity(one.identity), None, None) if isinstance(one, SpoolTombstone) else encode_spooled(one)
        )
        records.append(spool_record(partition, ends[partition], decode_spooled(key, value, headers)))
        ends[partition] += 1
    return records


def outstanding(records: Sequence[SpoolRecord]) -> list[SpoolPlace]:
    """The plain model."""
    dead_letters = SpoolPlace | SpoolTombstone
    last = {(partition, found.identity): found for partition, _, found in records if isinstance(found, dead_letters)}
    return [one for one in last.values() if isinstance(one, SpoolPlace)]


def in_order(places: Sequence[SpoolPlace]) -> list[SpoolPlace]:
    return sorted(places, key=lambda one: (one.sequence, one))


@given(st.lists(APPENDED, max_size=40), st.randoms(use_true_random=False))
def test_the_index_equals_the_last_records_in_whatever_order_the_partitions_are_read(
    appended: list[tuple[int, SpooledDeadLetter | SpoolTombstone]], chance: Any
) -> None:
    records = records_of(appended)
    queues = [[one for one in records if one[0] == partition] for partition in range(3)]
    index = SpoolIndex()
    while any(queues):
        index.apply(chance.choice([one for one in queues if one]).pop(0))
    expected = outstanding(records)
    waiting = [one for one in expected if one.parked is None]

    assert set(index.targets()) == {one.target for one in waiting}
    for target in ("dlq.g", "dlq.h"):
        assert set(index.lanes(target)) == {one.lane for one in waiting if one.target == target}
        for lane in index.lanes(target):
            found = list(index.waiting(target, lane))
            assert in_order(found) == in_order([one for one in waiting if (one.target, one.lane) == (target, lane)])
            assert [one.sequence for one in found] == sorted(one.sequence for one in found)
        parked = [one for one in expected if one.parked is not None and one.target == target]
        assert in_order([*index.parked(target, 0, 2), *index.parked(target, 2, 100)]) == in_order(parked)
        assert (target in index.parked_targets()) == bool(parked)
    for group in ("g", "h"):
        these = [one for one in expected if one.lane.group == group]
        free = [one for one in these if one.parked is None]
        aside = [one for one in these if one.parked is not None]
        assert index.totals(group) == SpoolTotals(
            dead_letters=len(free),
            bytes=sum(one.size for one in free),
            oldest_at=min((one.sequence // SEQUENCES_A_MS for one in free), default=None),
            parked_dead_letters=len(aside),
            parked_bytes=sum(one.size for one in aside),
        )
        assert index.group_bytes(group) == sum(one.size for one in these)
        assert sum(sum(reasons.values()) for reasons in index.parked_counts(group).values()) == len(aside)
    assert set(index.groups()) == {one.lane.group for one in expected}
    for place in expected:
        assert place in index.places(place.identity)
        assert index.has_dead_letters(place.lane) == any(one.lane == place.lane for one in waiting)
    assert {one.identity for one in expired(index, 3000)} == {one.identity for one in expected if one.deadline < 3000}
    assert expired(index, 3000) == []
    index.clear()
    assert (index.targets(), index.parked_targets(), list(index.groups())) == ((), (), [])
    assert expired(index, 1 << 60) == []


# --- by example


def test_a_lane_is_in_the_order_of_its_sequences_also_over_two_partitions() -> None:
    log = Log()
    log.add(dead_letter(7, sequence=30), partition=1)
    log.add(dead_letter(9, sequence=10))
    log.add(dead_letter(8, sequence=20), partition=1)
    assert log.waiting() == [9, 8, 7]


def test_a_tombstone_removes_only_the_record_of_its_partition() -> None:
    log = Log()
    for partition in (0, 1):
        log.add(dead_letter(1), partition=partition)
    log.remove(dead_letter(1), partition=1)
    assert [one.spool_partition for one in log.index.places(dead_letter(1).identity)] == [0]
    log.remove(dead_letter(1))
    assert not log.index.has_dead_letters(LANE)


def test_a_parked_dead_letter_does_not_hold_its_lane() -> None:
    log = Log()
    log.add(dead_letter(1))
    assert log.index.has_dead_letters(LANE)
    log.add(dead_letter(1, parked="too large"))
    assert not log.index.has_dead_letters(LANE)
    assert log.index.parked_counts("g") == {"dlq.g": {"too large": 1}}
    assert log.index.totals("g")[:3] == (0, 0, None)


def test_a_deadline_is_returned_once_also_when_the_dead_letter_is_written_again() -> None:
    log = Log()
    log.add(dead_letter(1, deadline=5_000))
    assert expired(log.index, 5_999) == []
    assert [one.offset for one in expired(log.index, 6_000)] == [1]
    log.add(dead_letter(1, deadline=5_000, parked="too large"))
    assert expired(log.index, 60_000) == []


def test_what_was_moved_before_its_deadline_does_not_expire() -> None:
    log = Log()
    log.add(dead_letter(1, deadline=5_000))
    log.remove(dead_letter(1))
    assert expired(log.index, 60_000) == []


def test_deadlines_that_another_leader_reported_are_dropped() -> None:
    log = Log()
    log.add(dead_letter(1, deadline=5_000))
    log.add(dead_letter(2, deadline=9_000))
    log.index.drop_expired(6_000)
    assert [one.offset for one in expired(log.index, 60_000)] == [2]


def test_a_record_counts_as_read_whatever_it_holds() -> None:
    index = SpoolIndex()
    assert not index.has_read(2, 0)
    index.apply((2, 7, None))
    assert index.has_read(2, 7)
    assert not index.has_read(2, 8)


def test_a_dead_letter_takes_less_than_two_hundred_bytes_of_memory() -> None:
    count = 20_000
    records = [
        spool_record(0, one, dead_letter(1_000_000 + one, sequence=one * SEQUENCES_A_MS)) for one in range(count)
    ]
    index = SpoolIndex()
    tracemalloc.start()
    try:
        for record in records:
            index.apply(record)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used / count < 200
    for one in range(count):
        index.apply((0, count + one, SpoolTombstone(("g", TOPIC, 0, 1_000_000 + one))))
    assert list(index.groups()) == []


def test_the_dead_letters_of_several_workers_are_in_order_without_sorting_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They come a little out of order all the time, and a lane may have 100,000 of them."""
    rebuilt: list[int] = []
    monkeypatch.setattr(spool_index._Queue, "_rebuild", lambda _: rebuilt.append(1))
    index = SpoolIndex()
    for offset in range(1_000):
        index.apply(spool_record(0, offset, dead_letter(offset, sequence=(offset ^ 5))))
        index.totals("g")
    assert [one.sequence for one in index.waiting("dlq.g", dead_letter(0).lane)] == list(range(1_000))
    assert rebuilt == []


def test_dead_letters_that_are_far_out_of_order_are_sorted() -> None:
    """As when a worker starts and reads the partitions of the spool one after the other."""
    index, number = SpoolIndex(), 3_000
    for spool_partition in (2, 0, 1):
        for at in range(number):
            one = dead_letter(spool_partition * number + at, sequence=spool_partition * number + at)
            index.apply(spool_record(spool_partition, at, one))
    lane = dead_letter(0).lane
    assert [one.sequence for one in index.waiting("dlq.g", lane)] == list(range(3 * number))
    index.apply(spool_record(0, number, dead_letter(9 * number, sequence=7)))
    assert [one.sequence for one in index.waiting("dlq.g", lane)] == sorted([*range(3 * number), 7])
