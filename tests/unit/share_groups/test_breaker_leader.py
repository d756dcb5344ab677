"""The leader's work: what it cannot write it decides again, and nothing that fails ends it."""

import asyncio

import pytest
from structlog.typing import EventDict

from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.facts import (
    BreakerResumed,
    BreakerTripped,
    DispositionsCounted,
    DlqRegistered,
    EventHappened,
    GroupConfigSet,
)
from headgate.share_groups.breaker_leader import BreakerLeader
from headgate.share_groups.broker_configs import DeliveryLimits
from headgate.share_groups.fact_outbox import FactOutbox
from headgate.share_groups.model.breaker import Breakers
from headgate.share_groups.model.group_configs import DLQ_TOPIC, LIMIT
from headgate.share_groups.model.group_state import ShareGroupFact, ShareStates
from headgate.share_groups.resources import FactListeners, FencedError
from headgate.share_groups.share_metrics import ShareMeter
from tests.support.clock import FakeClock
from tests.unit.proxy.stage import until
from tests.unit.share_groups.fake_kafka import FakeKafka, trip

ENABLE = "share.group.dlq.circuit.breaker.enable"


class Bench:
    """A leader on a clock that a test moves, with `kafka` instead of a cluster."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.states = ShareStates()
        self.kafka = FakeKafka()
        self.meter = ShareMeter()
        self._outbox = FactOutbox(self.clock)
        limits = DeliveryLimits(self.kafka.group_configs, LogThrottle(self.clock.monotonic))  # type: ignore[arg-type]
        self.breakers = Breakers()
        self.leader = BreakerLeader(
            breakers=self.breakers,
            states=self.states,
            limits=limits,
            clock=self.clock,
            meter=self.meter,
            outbox=self._outbox,
        )
        self.leader.open(self.kafka)  # type: ignore[arg-type]
        self.kafka.listeners = FactListeners(
            on_fact=self._on_fact,
            on_lost=_ignore,
            on_replayed=_ignore,
            on_counted=self.leader.on_counted,
            on_happened=_ignore,
        )

    def _on_fact(self, fact: ShareGroupFact) -> None:
        self.states.apply(fact)
        self.leader.on_fact(fact)

    def read(self, *facts: ShareGroupFact) -> None:
        self.kafka.read(*facts)

    def totals(self) -> tuple[int, int]:
        return self.breakers.totals("g", self.clock.monotonic())

    def enable(self, group: str = "g", **values: str) -> None:
        named = {ENABLE: "true", **{f"share.group.dlq.{name.replace('_', '.')}": one for name, one in values.items()}}
        for name, value in named.items():
            self.read(GroupConfigSet(group=group, name=name, value=value, by="o", at=1))

    def count(
        self, accepted: int, dead_lettered: int, *, group: str = "g", generation: int = 0, ago: int = 0, others: int = 0
    ) -> None:
        """`others`: each of the dispositions that are in no rate."""
        fact = DispositionsCounted(
            at=0,
            group=group,
            member="m",
            topic=None,
            topic_id=None,
            partition=0,
            second=int(self.clock.now) - ago,
            generation=generation,
            accepted=accepted,
            released=others,
            rejected=others,
            over_limit=others,
            dead_lettered=dead_lettered,
            write_timeouts=others,
            by_delivery_count=(),
        )
        self.leader.on_counted([fact])

    async def seconds(self, number: int = 1) -> None:
        """As `run` does it, without its sleep."""
        for _ in range(number):
            self.clock.now += 1
            await self.leader.on_second()

    @property
    def trips(self) -> list[int]:
        return [one.generation for one in self.kafka.decided if isinstance(one, BreakerTripped)]

    async def events(self) -> list[tuple[str, str]]:
        await self._outbox.flush(self.kafka.writer)  # type: ignore[arg-type]
        return [(one.event, one.subject) for one in self.kafka.writer.facts if isinstance(one, EventHappened)]


def _ignore(_: object) -> None:
    pass


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_window_over_its_threshold_trips_once_and_is_logged(bench: Bench, logs: list[EventDict]) -> None:
    bench.enable()
    await bench.leader.on_gained()
    bench.count(80, 20)
    await bench.seconds(3)
    assert bench.trips == [1]
    assert await bench.events() == [("tripped", "g")]
    assert bench.meter.trips == {"g": 1}
    assert [one for one in logs if one["log_level"] == "warning"] == [
        {
            "log_level": "warning",
            "event": "circuit breaker tripped, share group paused",
            "group": "g",
            "reason": "DLQ_CIRCUIT_BREAKER_TRIPPED",
            "dlq_written": 20,
            "processed": 100,
            "threshold_percent": 20,
            "window_ms": 60_000,
            "generation": 1,
            "resume_at": None,
        }
    ]


async def test_only_accepted_and_dead_lettered_records_are_in_the_rate(bench: Bench) -> None:
    """Not those that were released, rejected or over their limit, and not those archived without their dead letter."""
    bench.enable()
    await bench.leader.on_gained()
    bench.count(81, 19, others=1000)
    assert bench.totals() == (81, 19)
    await bench.seconds()
    assert bench.trips == []


@pytest.mark.parametrize(("auto_resume", "resume_at"), [("false", None), ("true", 1_061_000)])
async def test_a_trip_has_a_time_of_resumption_only_with_auto_resume(
    bench: Bench, auto_resume: str, resume_at: int | None
) -> None:
    bench.enable(circuit_breaker_auto_resume_enable=auto_resume, circuit_breaker_auto_resume_ms="60000")
    await bench.leader.on_gained()
    bench.count(0, 100)
    await bench.seconds()
    tripped = bench.states.of("g").trip
    assert tripped is not None
    assert tripped.resume_at == resume_at


async def test_a_tripped_group_is_not_evaluated(bench: Bench) -> None:
    bench.enable()
    await bench.leader.on_gained()
    bench.read(trip())
    bench.count(0, 100, generation=1)
    await bench.seconds(2)
    assert bench.trips == []


async def test_a_worker_that_does_not_lead_decides_nothing(bench: Bench) -> None:
    bench.enable()
    bench.count(0, 500)
    await bench.seconds(2)
    assert bench.kafka.decided == []
    assert bench.totals() == (0, 500), "but it can show what was counted"


async def test_a_trip_that_could_not_be_written_is_decided_again_by_a_new_writer(bench: Bench) -> None:
    bench.enable()
    await bench.leader.on_gained()
    bench.kafka.trip_failures.append(ClusterError("the commit is in doubt"))
    bench.count(0, 100)
    await bench.seconds()
    assert bench.trips == []
    await bench.seconds()
    assert bench.trips == [1]
    assert len(bench.kafka.trip_writers) == 2


async def test_a_trip_that_was_there_all_the_same_is_not_decided_again(bench: Bench) -> None:
    bench.enable()
    await bench.leader.on_gained()
    bench.kafka.trip_failures.append(ClusterError("the commit is in doubt"))
    bench.count(0, 100)
    await bench.seconds()
    bench.read(trip())
    await bench.seconds(3)
    assert bench.trips == []


async def test_a_trip_that_is_read_back_late_trips_once_and_keeps_no_other_group_from_tripping(bench: Bench) -> None:
    bench.kafka.late_trips = []
    for group in ("a", "b"):
        bench.enable(group)
    await bench.leader.on_gained()
    for group in ("a", "b"):
        bench.count(0, 100, group=group)
    await bench.seconds()
    assert [one.group for one in bench.kafka.late_trips] == ["a", "b"]
    await bench.seconds(15)
    for group in ("a", "b"):
        bench.count(0, 100, group=group)
    await bench.seconds(15)
    assert len(bench.kafka.late_trips) == 2
    assert bench.meter.trips == {"a": 1, "b": 1}
    bench.read(*bench.kafka.late_trips)
    await bench.seconds(2)
    assert len(bench.kafka.late_trips) == 2
    for group in ("a", "b"):
        bench.read(BreakerResumed(group=group, generation=1, at=1))
        bench.count(0, 100, group=group, generation=1)
    await bench.seconds()
    assert [(one.group, one.generation) for one in bench.kafka.late_trips[2:]] == [("a", 2), ("b", 2)]


async def test_a_trip_of_an_earlier_term_that_was_not_written_after_all_is_decided_again(bench: Bench) -> None:
    bench.kafka.late_trips = []
    bench.enable()
    await bench.leader.on_gained()
    bench.count(0, 100)
    await bench.seconds()
    await bench.leader.on_lost()
    await bench.leader.on_gained()
    bench.count(0, 100)
    await bench.seconds()
    assert len(bench.kafka.late_trips) == 2, "a new term has read all that there was"


async def test_a_leader_that_was_fenced_waits_until_it_would_know_and_then_leads_again(bench: Bench) -> None:
    bench.enable()
    await bench.leader.on_gained()
    bench.kafka.trip_failures.append(FencedError("another leads"))
    bench.count(0, 100)
    await bench.seconds()
    await bench.seconds(9)
    assert len(bench.kafka.trip_writers) == 1, "perhaps it has lost the lead, and does not know it yet"
    await bench.seconds(2)
    assert bench.trips == [1], "nothing of the window was forgotten"


async def test_a_leader_that_was_fenced_and_then_lost_the_lead_does_not_come_back(bench: Bench) -> None:
    bench.enable()
    await bench.leader.on_gained()
    bench.kafka.trip_failures.append(FencedError("another leads"))
    bench.count(0, 100)
    await bench.seconds()
    await bench.leader.on_lost()
    await bench.seconds(20)
    assert len(bench.kafka.trip_writers) == 1
    assert bench.trips == []


async def test_a_new_leader_begins_with_empty_windows(bench: Bench) -> None:
    bench.enable()
    bench.count(0, 100)
    await bench.leader.on_gained()
    await bench.seconds(2)
    assert bench.trips == []


async def test_records_acquired_before_a_trip_never_count_after_it(bench: Bench) -> None:
    bench.enable()
    await bench.leader.on_gained()
    bench.count(0, 100)
    await bench.seconds()
    bench.read(BreakerResumed(group="g", generation=1, at=1))
    bench.count(0, 100, generation=0)
    await bench.seconds(2)
    assert bench.trips == [1]
    assert bench.breakers.ignored()["old_generation"] == 100
    bench.count(0, 100, generation=1)
    await bench.seconds(2)
    assert bench.trips == [1, 2]


async def test_counts_older_than_a_window_are_ignored_and_added_up(bench: Bench) -> None:
    bench.enable(circuit_breaker_window_ms="10000")
    await bench.leader.on_gained()
    bench.count(0, 100, ago=12)
    await bench.seconds(2)
    assert bench.trips == []
    assert bench.breakers.ignored()["too_old"] == 100


async def test_a_wall_clock_that_jumps_neither_trips_nor_forgets(bench: Bench) -> None:
    bench.enable()
    await bench.leader.on_gained()
    bench.count(0, 50, ago=-3600)
    await bench.seconds()
    bench.count(0, 50)
    await bench.seconds()
    assert bench.trips == [1]


async def test_the_breakers_pause_is_ended_when_its_time_has_come_also_by_another_leader(bench: Bench) -> None:
    bench.enable(circuit_breaker_auto_resume_enable="true", circuit_breaker_auto_resume_ms="60000")
    await bench.leader.on_gained()
    bench.count(0, 100)
    await bench.seconds()
    assert bench.states.of("g").is_paused
    await bench.leader.on_lost()
    bench.clock.now += 3600
    await bench.seconds()
    assert bench.states.of("g").is_paused, "nobody leads"
    await bench.leader.on_gained()
    await bench.seconds()
    assert not bench.states.of("g").is_paused
    assert (await bench.events())[-1] == ("resumed", "g")


async def test_after_a_resume_the_group_is_counted_from_zero(bench: Bench) -> None:
    bench.enable()
    await bench.leader.on_gained()
    bench.count(0, 100)
    await bench.seconds()
    bench.read(BreakerResumed(group="g", generation=1, at=1))
    assert bench.totals() == (0, 0)
    bench.count(0, 99, generation=1)
    await bench.seconds()
    assert bench.trips == [1], "99 of them are not enough"
    bench.count(0, 1, generation=1)
    await bench.seconds()
    assert bench.trips == [1, 2]


async def test_a_failure_does_not_end_the_evaluation(bench: Bench, logs: list[EventDict]) -> None:
    bench.enable()
    await bench.leader.on_gained()
    failures = [ZeroDivisionError()]

    def breaks() -> None:
        if failures:
            raise failures.pop()

    bench.kafka.on_decide = breaks
    bench.read(trip(resume_at=1))
    await bench.seconds()
    assert bench.states.of("g").is_paused
    await bench.seconds()
    assert not bench.states.of("g").is_paused
    assert [one["event"] for one in logs if one["log_level"] == "error"] == ["evaluation of circuit breakers failed"]


async def test_an_unavailable_cluster_is_logged_once_a_minute_and_not_each_second(
    bench: Bench, logs: list[EventDict]
) -> None:
    bench.enable()
    await bench.leader.on_gained()
    bench.kafka.trip_failures.append(ClusterError("x"))
    bench.count(0, 100)
    await bench.seconds()
    bench.kafka.is_away = True
    await bench.seconds(30)
    assert len([one for one in logs if one["log_level"] == "warning"]) == 2
    bench.kafka.is_away = False
    await bench.seconds()
    assert bench.trips == [1]


# --- maintenance


async def test_topics_are_registered_and_a_change_meanwhile_is_not_forgotten(bench: Bench) -> None:
    bench.read(GroupConfigSet(group="b", name=DLQ_TOPIC, value="dlq.x", by="o", at=1))
    late = [GroupConfigSet(group="a", name=DLQ_TOPIC, value="dlq.x", by="o", at=2)]

    def changes() -> None:
        if late:
            bench.read(late.pop())

    bench.kafka.on_decide = changes
    await bench.leader.on_gained()
    await bench.leader.register_topics()
    await bench.leader.register_topics()
    assert [one.group for one in bench.kafka.decided if isinstance(one, DlqRegistered)] == ["b", "a"]
    assert bench.states.registered_groups("dlq.x") == ("b", "a")


async def test_groups_are_registered_in_the_order_in_which_they_got_their_topic(bench: Bench) -> None:
    for group, at in (("a", 3), ("b", 1), ("c", 2)):
        bench.read(GroupConfigSet(group=group, name=DLQ_TOPIC, value="dlq.x", by="o", at=at))
        bench.read(GroupConfigSet(group=group, name=LIMIT, value="4", by="o", at=9 - at))
    await bench.leader.on_gained()
    await bench.leader.register_topics()
    assert bench.states.registered_groups("dlq.x") == ("b", "c", "a")
    assert bench.states.earlier_groups("a") == ("b", "c")
    assert bench.states.earlier_groups("b") == ()


async def test_a_registration_that_could_not_be_written_is_tried_again(bench: Bench) -> None:
    bench.read(GroupConfigSet(group="b", name=DLQ_TOPIC, value="dlq.x", by="o", at=1))
    await bench.leader.on_gained()
    bench.kafka.is_away = True
    with pytest.raises(ClusterError):
        await bench.leader.register_topics()
    bench.kafka.is_away = False
    await bench.leader.register_topics()
    assert bench.states.registered_groups("dlq.x") == ("b",)
    assert not bench.leader.has_new_configs, "until a config changes"


async def test_limits_that_were_not_raised_or_restored_are_corrected(bench: Bench) -> None:
    bench.read(
        GroupConfigSet(group="raised", name=DLQ_TOPIC, value="dlq.x", by="o", at=1),
        GroupConfigSet(group="restored", name=LIMIT, value="4", by="o", at=1),
    )
    bench.kafka.group_configs.limits = {"raised": 3, "restored": 10}
    await bench.leader.check_limits()
    assert bench.kafka.group_configs.limits == {"raised": 10, "restored": 4}
    assert bench.states.of("restored").values == {}


async def test_checking_limits_does_not_delay_the_evaluation(bench: Bench) -> None:
    bench.enable()
    await bench.leader.on_gained()
    bench.kafka.group_configs.blocks = begun = asyncio.Event()
    maintaining = asyncio.create_task(bench.leader.maintain())
    try:
        await until(begun.is_set)
        bench.count(0, 100)
        await bench.seconds()
        assert bench.trips == [1]
    finally:
        maintaining.cancel()
        await asyncio.wait({maintaining})
