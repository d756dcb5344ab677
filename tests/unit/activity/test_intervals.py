"""Intervals of use: when they are reported, and that every byte is reported once."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.activity.model.identity import OTHER, ClientKey
from headgate.activity.model.intervals import Interval, Intervals, TopicRef, UsageReport
from headgate.facts import Actor

CLIENT = ClientKey("User:a", "c", "h")
ACTOR = Actor(kind="client", name="a", rule="principal", confidence="likely")
OTHER_ACTOR = replace(ACTOR, name="b")
EPOCH_MS = 1_794_700_000_000


class World:
    """Intervals and a clock; `use` is what a connection and the sweep after it do."""

    def __init__(self, most: int = 100, most_closed: int = 100) -> None:
        self.intervals = Intervals(most, most_closed)
        self.now = 0.0
        self.reports: list[UsageReport] = []

    @property
    def ms(self) -> int:
        return EPOCH_MS + int(self.now * 1000)

    def use(self, interval: Interval, size: int) -> None:
        interval.bytes += size
        self.intervals.mark_used((interval,), self.ms)

    def take(self, most: int = 1000) -> list[UsageReport]:
        reports = self.intervals.take(self.now, most)
        self.reports += reports
        return reports

    def times(self) -> list[float]:
        """The times of reports while a client uses its topic every second for an hour."""
        at = []
        interval = self.intervals.open(CLIENT, TopicRef(name="t"), "write", ACTOR)
        while self.now < 3600:
            self.use(interval, 1)
            if self.take():
                at.append(self.now)
            self.now += 1
        return at


def test_a_use_is_reported_at_once_then_after_1_5_and_15_minutes_and_every_15() -> None:
    assert World().times() == [0, 60, 360, 1260, 2160, 3060]


def test_each_report_covers_the_time_and_the_bytes_since_the_last() -> None:
    world = World()
    world.times()
    assert [(one.since_ms - EPOCH_MS, one.until_ms - EPOCH_MS, one.bytes) for one in world.reports[:3]] == [
        (0, 0, 1),
        (1000, 60_000, 60),
        (61_000, 360_000, 300),
    ]


def test_without_use_nothing_is_reported_and_the_next_use_is_reported_at_once() -> None:
    world = World()
    interval = world.intervals.open(CLIENT, TopicRef(name="t"), "read", ACTOR)
    assert world.take() == []
    world.use(interval, 5)
    assert len(world.take()) == 1
    world.now = 1000
    assert world.take() == []
    world.now = 2000
    world.use(interval, 7)
    [report] = world.take()
    assert (report.since_ms, report.until_ms, report.bytes) == (world.ms, world.ms, 7)


def test_the_rest_is_reported_when_the_last_connection_closes() -> None:
    world = World()
    topic = TopicRef(name="t")
    first = world.intervals.open(CLIENT, topic, "read", ACTOR)
    second = world.intervals.open(CLIENT, topic, "read", ACTOR)
    assert first is second
    world.use(first, 5)
    world.take()
    world.now = 10
    world.use(first, 6)
    world.intervals.release(first, world.ms)
    assert world.take() == []
    assert len(world.intervals) == 1
    second.bytes += 1
    second.touched = True  # not swept yet
    world.now = 11
    world.intervals.release(second, world.ms)
    [report] = world.take()
    assert (report.since_ms - EPOCH_MS, report.until_ms - EPOCH_MS, report.bytes) == (10_000, 11_000, 7)
    assert len(world.intervals) == 0
    world.now = 5000
    assert world.take() == []


def test_use_before_and_after_a_new_attribution_is_reported_for_each_actor() -> None:
    world = World()
    interval = world.intervals.open(CLIENT, TopicRef(name="t"), "read", ACTOR)
    world.use(interval, 5)
    world.take()
    world.now = 10
    world.use(interval, 6)
    assert not world.intervals.attribute(interval, ACTOR)
    assert world.intervals.attribute(interval, OTHER_ACTOR)
    [report] = world.take()
    assert (report.actor, report.bytes) == (ACTOR, 6)
    world.now = 20
    world.use(interval, 7)
    [report] = world.take()
    assert (report.actor, report.bytes) == (OTHER_ACTOR, 7)
    world.now = 70
    world.use(interval, 8)
    assert world.take() == []
    world.now = 80
    assert [one.bytes for one in world.take()] == [8]


def test_when_the_table_is_full_uses_are_added_up_by_topic() -> None:
    world = World(most=10)
    topics = [TopicRef(name=str(number)) for number in range(3)]
    opened = []
    for number in range(1000):
        client = ClientKey("User:a", f"c{number}", "h")
        opened.append(world.intervals.open(client, topics[number % 3], "write", ACTOR))
        world.use(opened[-1], 1)
    assert len(world.intervals) == 10 + 3
    assert world.intervals.overflows == 990
    others = [one for one in world.take() if one.actor is OTHER]
    assert len(others) == 3
    assert sum(one.bytes for one in others) == 990
    for interval in opened:
        world.intervals.release(interval, world.ms)
    assert len(world.intervals) == 0
    assert sum(one.bytes for one in world.reports + world.take()) == 1000


def test_when_the_table_is_full_topics_that_are_used_once_are_added_up_together() -> None:
    """Topics leave the resolver's table, so that the number of `TopicRef`s has no bound of its own."""
    world = World(most=10)
    world.intervals._most_topics = 20
    opened = []
    for number in range(1000):
        opened.append(world.intervals.open(CLIENT, TopicRef(name=str(number)), "write", ACTOR))
        world.use(opened[-1], 1)
    assert len(world.intervals) == 10 + 20 + 1
    world.take()
    for interval in opened:
        world.intervals.release(interval, world.ms)
    assert len(world.intervals) == 0
    assert sum(one.bytes for one in world.reports + world.take()) == 1000


def test_reports_of_closed_intervals_above_the_bound_are_counted_as_lost() -> None:
    world = World(most_closed=2)
    for number in range(5):
        interval = world.intervals.open(CLIENT, TopicRef(name=str(number)), "write", ACTOR)
        world.use(interval, 1)
        world.intervals.release(interval, world.ms)
    assert len(world.take()) == 2
    assert world.intervals.lost == 3


def test_no_more_reports_are_taken_than_asked_for_and_the_rest_comes_next() -> None:
    world = World()
    for number in range(5):
        world.use(world.intervals.open(CLIENT, TopicRef(name=str(number)), "write", ACTOR), 1)
    assert [len(world.take(2)) for _ in range(4)] == [2, 2, 1, 0]


def test_records_are_estimated_from_samples_and_only_for_writes() -> None:
    world = World()
    topic = TopicRef(name="t")
    write, read = (world.intervals.open(CLIENT, topic, direction, ACTOR) for direction in ("write", "read"))
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
    interval = intervals.open(CLIENT, TopicRef(name="t"), "read", ACTOR)
    intervals.mark_used((interval,), EPOCH_MS)
    intervals.mark_used((interval,), EPOCH_MS + jump_ms)
    [report] = intervals.take(0.0, 10)
    assert report.since_ms <= report.until_ms


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
def test_all_bytes_are_reported_once_and_reports_of_a_use_do_not_overlap(
    steps: list[tuple[str, int, int]], most: int
) -> None:
    world = World(most=most)
    topics = [TopicRef(name=str(number)) for number in range(4)]
    opened: dict[int, Interval] = {}
    used = 0
    for step, number, amount in steps:
        if step == "use":
            if number not in opened:
                opened[number] = world.intervals.open(CLIENT, topics[number], "write", ACTOR)
            world.use(opened[number], amount)
            used += amount
        elif step == "wait":
            world.now += number
        elif step == "take":
            world.take(number)
        elif step == "close" and number in opened:
            world.intervals.release(opened.pop(number), world.ms)
        elif step == "turn" and number in opened:
            world.intervals.attribute(opened[number], ACTOR if amount else OTHER_ACTOR)
    world.intervals.close_all(world.ms)
    world.take()
    assert len(world.intervals) == 0
    assert sum(one.bytes for one in world.reports) == used
    for topic in topics:
        spans = sorted((one.since_ms, one.until_ms) for one in world.reports if one.topic is topic)
        assert all(since <= until for since, until in spans)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
