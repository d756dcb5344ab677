"""Intervals of use: when they are told, and that nothing is told twice or forgotten."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.activity.model.identity import OTHER, ClientKey, Who
from headgate.activity.model.intervals import Interval, Intervals, Observed, TopicRef

CLIENT = ClientKey("User:a", "c", "h")
WHO = Who(kind="client", name="a", rule="principal", confidence="likely")
SOMEBODY_ELSE = replace(WHO, name="b")
EPOCH_MS = 1_794_700_000_000


class World:
    """Intervals and a clock; `use` is what a connection and the sweep after it do."""

    def __init__(self, most: int = 100, most_closed: int = 100) -> None:
        self.intervals = Intervals(most, most_closed)
        self.now = 0.0
        self.told: list[Observed] = []

    @property
    def ms(self) -> int:
        return EPOCH_MS + int(self.now * 1000)

    def use(self, interval: Interval, size: int) -> None:
        interval.bytes += size
        self.intervals.used((interval,), self.ms)

    def take(self, most: int = 1000) -> list[Observed]:
        told = self.intervals.take(self.now, most)
        self.told += told
        return told

    def times(self) -> list[float]:
        """When something was told while a client uses its topic every second for an hour."""
        at = []
        interval = self.intervals.open(CLIENT, TopicRef(name="t"), "write", WHO)
        while self.now < 3600:
            self.use(interval, 1)
            if self.take():
                at.append(self.now)
            self.now += 1
        return at


def test_a_use_is_told_at_once_then_after_1_5_and_15_minutes_and_every_15() -> None:
    assert World().times() == [0, 60, 360, 1260, 2160, 3060]


def test_each_telling_covers_the_time_and_the_bytes_since_the_last() -> None:
    world = World()
    world.times()
    assert [(one.since_ms - EPOCH_MS, one.until_ms - EPOCH_MS, one.bytes) for one in world.told[:3]] == [
        (0, 0, 1),
        (1000, 60_000, 60),
        (61_000, 360_000, 300),
    ]


def test_without_use_nothing_is_told_and_the_next_use_is_told_at_once() -> None:
    world = World()
    interval = world.intervals.open(CLIENT, TopicRef(name="t"), "read", WHO)
    assert world.take() == []
    world.use(interval, 5)
    assert len(world.take()) == 1
    world.now = 1000
    assert world.take() == []
    world.now = 2000
    world.use(interval, 7)
    [told] = world.take()
    assert (told.since_ms, told.until_ms, told.bytes) == (world.ms, world.ms, 7)


def test_with_the_last_connection_what_was_not_told_is_told() -> None:
    world = World()
    topic = TopicRef(name="t")
    first = world.intervals.open(CLIENT, topic, "read", WHO)
    second = world.intervals.open(CLIENT, topic, "read", WHO)
    assert first is second
    world.use(first, 5)
    world.take()
    world.now = 10
    world.use(first, 6)
    world.intervals.release(first, world.ms)
    assert world.take() == []
    assert len(world.intervals) == 1
    second.bytes += 1
    second.touched = True  # seen by nobody yet
    world.now = 11
    world.intervals.release(second, world.ms)
    [told] = world.take()
    assert (told.since_ms - EPOCH_MS, told.until_ms - EPOCH_MS, told.bytes) == (10_000, 11_000, 7)
    assert len(world.intervals) == 0
    world.now = 5000
    assert world.take() == []


def test_when_somebody_else_turns_out_to_be_behind_it_each_has_his_part() -> None:
    world = World()
    interval = world.intervals.open(CLIENT, TopicRef(name="t"), "read", WHO)
    world.use(interval, 5)
    world.take()
    world.now = 10
    world.use(interval, 6)
    assert not world.intervals.turned_out(interval, WHO)
    assert world.intervals.turned_out(interval, SOMEBODY_ELSE)
    [told] = world.take()
    assert (told.who, told.bytes) == (WHO, 6)
    world.now = 20
    world.use(interval, 7)
    [told] = world.take()
    assert (told.who, told.bytes) == (SOMEBODY_ELSE, 7)
    world.now = 70
    world.use(interval, 8)
    assert world.take() == []
    world.now = 80
    assert [one.bytes for one in world.take()] == [8]


def test_when_the_table_is_full_uses_are_counted_together_by_topic() -> None:
    world = World(most=10)
    topics = [TopicRef(name=str(number)) for number in range(3)]
    opened = []
    for number in range(1000):
        client = ClientKey("User:a", f"c{number}", "h")
        opened.append(world.intervals.open(client, topics[number % 3], "write", WHO))
        world.use(opened[-1], 1)
    assert len(world.intervals) == 10 + 3
    assert world.intervals.overflows == 990
    others = [one for one in world.take() if one.who is OTHER]
    assert len(others) == 3
    assert sum(one.bytes for one in others) == 990
    for interval in opened:
        world.intervals.release(interval, world.ms)
    assert len(world.intervals) == 0
    assert sum(one.bytes for one in world.told + world.take()) == 1000


def test_what_closes_quicker_than_it_is_taken_is_counted_as_lost() -> None:
    world = World(most_closed=2)
    for number in range(5):
        interval = world.intervals.open(CLIENT, TopicRef(name=str(number)), "write", WHO)
        world.use(interval, 1)
        world.intervals.release(interval, world.ms)
    assert len(world.take()) == 2
    assert world.intervals.lost == 3


def test_no_more_is_taken_than_was_asked_for_and_the_rest_comes_next() -> None:
    world = World()
    for number in range(5):
        world.use(world.intervals.open(CLIENT, TopicRef(name=str(number)), "write", WHO), 1)
    assert [len(world.take(2)) for _ in range(4)] == [2, 2, 1, 0]


def test_records_are_estimated_from_samples_and_only_for_writes() -> None:
    world = World()
    topic = TopicRef(name="t")
    write, read = (world.intervals.open(CLIENT, topic, direction, WHO) for direction in ("write", "read"))
    for interval in (write, read):
        world.use(interval, 1000)
    topic.sample(records=10, size=100)
    assert [one.records for one in world.take()] == [100, None]
    for _ in range(100):
        topic.sample(records=1, size=1 << 28)
    assert topic.sampled_bytes <= 1 << 30


@pytest.mark.parametrize("jump_ms", [-5000, 5000])
def test_a_wall_clock_that_jumps_makes_no_interval_end_before_it_began(jump_ms: int) -> None:
    intervals = Intervals()
    interval = intervals.open(CLIENT, TopicRef(name="t"), "read", WHO)
    intervals.used((interval,), EPOCH_MS)
    intervals.used((interval,), EPOCH_MS + jump_ms)
    [told] = intervals.take(0.0, 10)
    assert told.since_ms <= told.until_ms


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("use"), st.integers(0, 3), st.integers(1, 1000)),
        st.tuples(st.just("wait"), st.integers(1, 2000), st.just(0)),
        st.tuples(st.just("take"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("close"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("turn"), st.integers(0, 3), st.booleans()),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 4))
def test_all_bytes_are_told_once_and_tellings_of_a_use_do_not_overlap(
    steps: list[tuple[str, int, int]], most: int
) -> None:
    world = World(most=most)
    topics = [TopicRef(name=str(number)) for number in range(4)]
    opened: dict[int, Interval] = {}
    used = 0
    for step, number, amount in steps:
        if step == "use":
            if number not in opened:
                opened[number] = world.intervals.open(CLIENT, topics[number], "write", WHO)
            world.use(opened[number], amount)
            used += amount
        elif step == "wait":
            world.now += number
        elif step == "take":
            world.take(number)
        elif step == "close" and number in opened:
            world.intervals.release(opened.pop(number), world.ms)
        elif step == "turn" and number in opened:
            world.intervals.turned_out(opened[number], WHO if amount else SOMEBODY_ELSE)
    world.intervals.close_all(world.ms)
    world.take()
    assert len(world.intervals) == 0
    assert sum(one.bytes for one in world.told) == used
    for topic in topics:
        spans = sorted((one.since_ms, one.until_ms) for one in world.told if one.topic is topic)
        assert all(since <= until for since, until in spans)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
