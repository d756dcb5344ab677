"""Lags from offsets, and which facts are written."""

from dataclasses import replace

import pytest

from headgate.facts import GroupLagsObserved, encode
from headgate.lags.model.group_lags import PolledGroup, TopicOffsets, WrittenLags, lag_facts

ORDERS = TopicOffsets("orders", (0, 1, 4), (17, 4, 120))


def observed(polled: PolledGroup, ends: dict[tuple[str, int], int]) -> GroupLagsObserved:
    [fact] = lag_facts(polled, ends, {"orders": "id"}, at=5)
    return fact


def test_the_lag_is_the_end_without_the_committed_offset() -> None:
    ends = {("orders", 0): 20, ("orders", 1): 4, ("orders", 4): 1120}
    fact = observed(PolledGroup("billing", "consumer", (ORDERS,)), ends)
    assert fact == GroupLagsObserved(
        at=5,
        group="billing",
        topic="orders",
        kind="consumer",
        topic_id="id",
        partitions=(0, 1, 4),
        committed=(17, 4, 120),
        ends=(20, 4, 1120),
        lags=(3, 0, 1000),
    )


def test_a_commit_past_the_end_is_no_lag_and_an_unknown_end_an_unknown_one() -> None:
    fact = observed(PolledGroup("billing", "classic", (ORDERS,)), {("orders", 0): 3, ("orders", 4): 121})
    assert (fact.ends, fact.lags) == ((3, None, 121), (0, None, 1))


def test_the_lag_of_a_share_group_is_what_the_broker_counts() -> None:
    topic = TopicOffsets("orders", (0, 1), (17, None), (2, None))
    fact = observed(PolledGroup("sg", "share", (topic,)), {("orders", 0): 30, ("orders", 1): 9})
    assert (fact.committed, fact.ends, fact.lags) == ((17, None), (30, 9), (2, None))


def test_many_partitions_are_several_facts() -> None:
    topic = TopicOffsets("orders", tuple(range(2500)), tuple(range(2500)))
    facts = lag_facts(PolledGroup("g", "streams", (topic,)), {}, {}, at=1)
    assert [len(fact.partitions) for fact in facts] == [1000, 1000, 500]
    assert sum((fact.committed for fact in facts), ()) == tuple(range(2500))
    written = WrittenLags()
    for fact in facts:
        written.on_written(fact, 0.0)
    assert written.due("g", facts, 1.0) == []


@pytest.mark.parametrize("name", ["g", "x" * 32_000, "\0" * 32_000, "\udcff" * 100, "é" * 1000])
def test_the_guessed_size_of_facts_is_not_below_the_real_one(name: str) -> None:
    topic = TopicOffsets("orders", tuple(range(1000)), tuple(range(10**10, 10**10 + 1000)))
    polled = PolledGroup(name, "streams", (topic,))
    ends = {("orders", number): 10**10 + 1000 + number for number in range(1000)}
    [fact] = lag_facts(polled, ends, {"orders": "i" * 22}, at=10**12)
    stamped = replace(fact, cluster="c" * 22, writer="gateway-1.internal.example:9092/0", boot="b" * 12, seq=10**6)
    _, key, value = encode(stamped)
    assert value is not None
    assert len(key) + len(value) < polled.fact_bytes < 2 * (len(key) + len(value))


def fact_of(committed: int, group: str = "billing") -> GroupLagsObserved:
    return observed(PolledGroup(group, "consumer", (TopicOffsets("orders", (0,), (committed,)),)), {("orders", 0): 20})


def test_a_fact_is_due_when_something_in_it_has_changed() -> None:
    written = WrittenLags()
    assert written.due("billing", [fact_of(3)], 0.0) == [fact_of(3)]
    assert written.due("billing", [fact_of(3)], 0.0) == [fact_of(3)], "it was not written"
    written.on_written(fact_of(3), 0.0)
    assert written.due("billing", [replace(fact_of(3), at=99)], 60.0) == []
    assert written.due("billing", [fact_of(4)], 60.0) == [fact_of(4)]
    for change in ({"ends": (21,)}, {"lags": (None,)}, {"topic_id": "other"}, {"kind": "classic"}):
        assert written.due("billing", [replace(fact_of(3), **change)], 60.0)


def test_a_fact_that_stays_is_written_again_within_an_hour_and_not_all_at_once() -> None:
    written = WrittenLags()
    facts = [fact_of(3, f"g-{number}") for number in range(300)]
    for fact in facts:
        written.on_written(fact, 0.0)

    def due(now: float) -> int:
        return sum(bool(written.due(fact.group, [fact], now)) for fact in facts)

    assert due(1799.0) == 0
    assert 100 < due(2700.0) < 200
    assert due(3600.0) == 300


def test_what_a_group_does_not_have_any_more_is_forgotten() -> None:
    written = WrittenLags()
    written.on_written(fact_of(3), 0.0)
    written.on_written(fact_of(3, "other"), 0.0)
    assert written.due("billing", [], 1.0) == []
    assert len(written) == 1
    assert written.due("billing", [fact_of(3)], 1.0), "the topic came back"
    written.retain({"billing"})
    assert len(written) == 0
