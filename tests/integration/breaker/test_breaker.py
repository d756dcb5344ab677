"""Too many dead letters pause a group, and a paused group stands still without losing anything."""

import json
import time
from collections.abc import Callable

import numpy as np

from headgate.facts import BreakerTripped, DispositionsCounted
from headgate.share_groups.model.backtest import TRIP_DELAY_S, CountColumns, GroupHistory, SimulatedTrip
from headgate.share_groups.model.recorded_history import paused_periods, recorded_event, recorded_settings, rules_of
from tests.support.fact_records import read_facts
from tests.support.share_consumers import LibrdkafkaMember, ShareJvm, ShareMember
from tests.support.share_scene import (
    AUTO_RESUME,
    AUTO_RESUME_MS,
    BREAKER,
    DLQ_TOPIC,
    LIMIT,
    MINIMUM,
    PAUSE,
    RESUME,
    THRESHOLD,
    TRIPPED,
    WINDOW,
    ShareScene,
    until,
)

QUIET_S = 2.0  # ten long polls of every member
WIDE = {WINDOW: "60000"}  # for counts that a test waits for: a busy machine takes its time


def breaking(dlq: str, **more: str) -> dict[str, str]:
    """A breaker that is quick to trip."""
    return {DLQ_TOPIC: dlq, BREAKER: "true", THRESHOLD: "20", MINIMUM: "20", WINDOW: "10000"} | more


def test_too_many_dead_letters_pause_the_group_until_the_time_to_resume_has_passed(
    scene: ShareScene, java_431: ShareJvm, java_440: ShareJvm
) -> None:
    topic, dlq = scene.new_topic(partitions=3), scene.new_topic("dlq")
    group = scene.new_group(breaking(dlq, **{AUTO_RESUME: "true", AUTO_RESUME_MS: "4000"}))
    scene.send(topic, ["R:", "A:"] * 30, partitions=3)
    old = java_431.join(f"{group}-431", scene.bootstrap, group, [topic], commit="sync")
    new = java_440.join(f"{group}-440", scene.bootstrap, group, [topic])
    with LibrdkafkaMember(scene.clients, group, [topic]) as third:
        members: list[Callable[[], int]] = [lambda one=one: len(one.deliveries()) for one in (old, new)]  # type: ignore[misc]
        members.append(lambda: len(third.deliveries))
        seen = scene.wait_for_status(group, lambda status: status["paused"])
        [reason] = seen["pause_reasons"]
        assert (reason["code"], seen["enabled"], seen["generation"]) == (TRIPPED, True, 1)
        assert seen["auto_resume_at"] is not None
        until(lambda: bool(scene.events(group, "tripped")))
        [trip] = scene.events(group, "tripped")
        trips = "headgate_share_group_dlq_circuit_breaker_tripped_total"
        until(lambda: scene.gateway.metric(trips, group=group) == 1)  # workers report twice a second
        assert trip["detail"]["dlq_written"] * 5 >= trip["detail"]["dlq_written"] + trip["detail"]["delivered"]
        before = sum(count() for count in members)
        scene.send(topic, ["A:"] * 30, partitions=3)
        resumed = scene.wait_for_status(group, lambda status: not status["paused"])
        scene.wait_for_end(group, topic, 90)
        assert before <= 60 < sum(count() for count in members)
        assert resumed["generation"] == 1
    until(lambda: bool(scene.events(group, "resumed")))
    for one in (old, new):
        one.close()
        assert one.errors == []
    assert third.errors == []
    fate = scene.fate(group, topic)
    assert fate.archived == {dead_letter.spot for dead_letter in scene.dead_letters(dlq, len(fate.archived))}
    assert (len(fate.archived), len(fate.acknowledged)) == (30, 60)
    # None of what waited was delivered before the resume, or twice.
    late = [(place, count) for one in (old, new) for place, count, _ in one.deliveries() if place[2] >= 20]
    late += [(place, count) for place, count, _ in third.deliveries if place[2] >= 20]
    assert sorted(late) == [((topic, partition, offset), 1) for partition in range(3) for offset in range(20, 30)]
    # A back-test of the recorded counts with the live setting has the trip that happened, and no other.
    [simulated] = backtested(scene, group)
    # The leader's seconds begin at other moments, and it reads a count a moment after it was written.
    assert abs(simulated.second - trip["at"] // 1000) <= TRIP_DELAY_S


def test_a_back_test_of_the_live_setting_has_every_trip_that_the_leader_has_written(
    scene: ShareScene, java_440: ShareJvm
) -> None:
    """`headgate.trips` and the simulation have the same trips, each within a leader's delay."""
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group(breaking(dlq, **{AUTO_RESUME: "true", AUTO_RESUME_MS: "2000"}))
    member = java_440.join(group, scene.bootstrap, group, [topic], commit="sync")
    for generation in (1, 2, 3):
        scene.send(topic, ["R:"] * 30)
        scene.wait_for_status(group, lambda status, least=generation: status["generation"] >= least)  # type: ignore[misc]
        scene.wait_for_status(group, lambda status: not status["paused"])
    scene.wait_for_end(group, topic, 90)
    close(member)
    written = [
        fact
        for fact in read_facts(scene.direct, scene.facts, "trips")
        if isinstance(fact, BreakerTripped) and fact.group == group
    ]
    assert [one.generation for one in written] == list(range(1, len(written) + 1))
    assert len(written) >= 3
    until(lambda: len(scene.events(group, "resumed")) == len(written))
    delays = [one.at // 1000 - found.second for one, found in zip(written, backtested(scene, group), strict=True)]
    assert all(0 <= delay <= TRIP_DELAY_S for delay in delays), delays


def backtested(scene: ShareScene, group: str) -> list[SimulatedTrip]:
    """The trips of the group's own setting, by what the gateway has written down."""
    counted = [
        fact
        for fact in read_facts(scene.direct, scene.facts, "dispositions")
        if isinstance(fact, DispositionsCounted) and fact.group == group
    ]
    events = [
        recorded_event(one["at"], one["event"], one.get("by"), json.dumps(one["detail"])) for one in scene.events(group)
    ]
    rows = np.array([(one.at // 1000, one.accepted, one.dead_lettered) for one in counted], dtype=np.int64)
    columns = CountColumns(
        second=rows[:, 0], member=np.zeros(len(rows), np.int64), delivered=rows[:, 1], dlq_written=rows[:, 2]
    )
    begin, end = int(rows[:, 0].min()), int(rows[:, 0].max()) + 1
    history = GroupHistory(columns, begin=begin, end=end, paused=paused_periods(events, end=end))
    settings = recorded_settings(events)
    return history.simulate(rules_of(settings), settings.auto_resume_ms // 1000)


def test_below_the_threshold_or_the_minimum_nothing_is_paused(scene: ShareScene, java_440: ShareJvm) -> None:
    dlq = scene.new_topic("dlq")
    few, rare = scene.new_topic(), scene.new_topic()
    group_few, group_rare = scene.new_group(breaking(dlq, **WIDE)), scene.new_group(breaking(dlq, **WIDE))
    scene.send(few, ["R:"] * 19)
    scene.send(rare, (["R:"] + ["A:"] * 5) * 10)
    one = java_440.join(group_few, scene.bootstrap, group_few, [few], commit="sync")
    other = java_440.join(group_rare, scene.bootstrap, group_rare, [rare], commit="async")
    # Everything was judged when it has been counted and a second has passed.
    seen = scene.wait_for_status(group_few, lambda status: status["dlq_written"] == 19)
    assert (seen["paused"], seen["dlq_rate"]) == (False, 1.0)
    seen = scene.wait_for_status(group_rare, lambda status: (status["delivered"], status["dlq_written"]) == (50, 10))
    assert not seen["paused"]
    time.sleep(1.5)
    assert [scene.status(group)["paused"] for group in (group_few, group_rare)] == [False, False]
    for member in (one, other):
        member.close()
        assert member.errors == []


def test_what_a_member_consumes_without_a_word_is_delivered(scene: ShareScene, java_431: ShareJvm) -> None:
    topic, group = scene.new_topic(), scene.new_group(breaking(scene.new_topic("dlq"), **WIDE))
    scene.send(topic, ["A:"] * 40)
    member = java_431.join(group, scene.bootstrap, group, [topic], mode="implicit")
    seen = scene.wait_for_status(group, lambda status: status["delivered"] == 40)
    assert (seen["dlq_written"], seen["paused"]) == (0, False)
    member.close()
    assert member.errors == []


def test_a_paused_group_acquires_nothing_and_loses_nothing_and_its_acknowledgements_pass(
    scene: ShareScene, java_431: ShareJvm, java_440: ShareJvm
) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq, LIMIT: "2"})
    scene.send(topic, ["H:", "A:", "L:"])
    holding = java_431.join(f"{group}-431", scene.bootstrap, group, [topic], commit="sync")
    holding.wait("hanging")
    waiting = java_440.join(f"{group}-440", scene.bootstrap, group, [topic])
    with LibrdkafkaMember(scene.clients, group, [topic]) as third:
        scene.configure(group, {PAUSE: "deploy"})
        seen = scene.status(group)
        assert [(one["code"], one["text"]) for one in seen["pause_reasons"]] == [("OPERATOR", "deploy")]
        # A fetch that was forwarded before the pause may still acquire: both waiting members send others first.
        before = scene.gateway.metric("headgate_calls_total", api="ShareFetch")
        until(lambda: scene.gateway.metric("headgate_calls_total", api="ShareFetch") >= before + 6)
        # Held records are acknowledged, and a released one stays available at its delivery count.
        holding.go()
        fate = scene.wait_for_end(group, topic, 2)
        assert fate.acknowledged == {(0, 0), (0, 1)}
        scene.send(topic, ["A:"] * 30)
        requests, quiet = scene.gateway.metric("headgate_calls_total", api="ShareFetch"), time.monotonic()
        time.sleep(QUIET_S)
        asked = scene.gateway.metric("headgate_calls_total", api="ShareFetch") - requests
        quiet_s = time.monotonic() - quiet
        fate = scene.fate(group, topic)
        assert {spot: last.deliveries for spot, last in fate.last.items() if spot[1] >= 2} == {(0, 2): 1}
        assert scene.lag(group, topic) == 31
        assert scene.dead_letters(dlq) == []
        assert asked < 100 * quiet_s, "no client spins"
        # A member that comes meanwhile waits like the others.
        late = java_440.join(f"{group}-late", scene.bootstrap, group, [topic])
        began = time.time()
        scene.configure(group, {RESUME: "deployed"})
        until(lambda: scene.lag(group, topic) == 0, 60)
        members = (holding, waiting, late)
        firsts = [event["at_ms"] / 1000 for one in members for event in one.events("polled")]
        firsts += third.polled_at
        took = min(at for at in firsts if at > began) - began
        print(f"first delivery {took * 1000:.0f} ms after the resume")
        close(*members)
    assert third.errors == []
    fate = scene.wait_for_end(group, topic, 33)
    assert fate.archived == {(0, 2)}, "released again, and then over its limit"
    assert [dead_letter.spot for dead_letter in scene.dead_letters(dlq, 1)] == [(0, 2)]
    until(lambda: [one["event"] for one in scene.events(group, "paused", "resumed")] == ["paused", "resumed"])


def close(*members: ShareMember) -> None:
    for one in members:
        one.close()
        assert one.errors == []


def test_switching_the_breaker_off_does_not_resume_and_an_operator_does(scene: ShareScene, java_440: ShareJvm) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group(breaking(dlq))
    scene.send(topic, ["R:"] * 30)
    one = java_440.join(group, scene.bootstrap, group, [topic])
    scene.wait_for_status(group, lambda status: status["paused"])
    assert len(scene.dead_letters(dlq, 30)) == 30
    scene.configure(group, {BREAKER: "false"})
    assert scene.status(group)["paused"]
    scene.send(topic, ["A:"] * 5)
    scene.configure(group, {RESUME: "mended"})
    scene.wait_for_end(group, topic, 35)
    seen = scene.wait_for_status(group, lambda status: status["last_resume"] is not None)
    assert (seen["paused"], seen["last_resume"]["reason"]) == (False, "mended")
    assert (seen["delivered"], seen["dlq_written"])[1] == 0, "counted anew"
    one.close()
    assert one.errors == []
