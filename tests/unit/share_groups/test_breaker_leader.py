"""The leader's work: what it cannot write it decides again, and nothing that fails ends it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.config.model import UpstreamConfig
from headgate.facts import BreakerResumed, BreakerTripped, DispositionsCounted, DlqRegistered, GroupConfigSet
from headgate.kafka.fact_writer import Position
from headgate.share_groups import breaker_leader as judging_module
from headgate.share_groups.breaker_leader import Judging
from headgate.share_groups.limits import Limits
from headgate.share_groups.model.group_configs import DLQ_TOPIC
from headgate.share_groups.model.group_state import ShareGroupFact, ShareStates
from headgate.share_groups.share_metrics import ShareMeter
from headgate.share_groups.trip_writer import FencedError
from tests.unit.proxy.stage import until

ENABLE = "share.group.dlq.circuit.breaker.enable"


class Hands:
    """A clock that is set; judging runs on it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def epoch_ms(self) -> int:
        return int(self.now * 1000)


@dataclass
class Bench:
    """A leader without Kafka: what it decides is read back at once."""

    hands: Hands = field(default_factory=Hands)
    states: ShareStates = field(default_factory=ShareStates)
    writers: list["Writer"] = field(default_factory=list)
    fails: list[ClusterError] = field(default_factory=list)  # what the next writes come to
    decided: list[ShareGroupFact] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)
    away: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    prefix: str = "headgate."
    on_decide: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        limits = Limits(UpstreamConfig(), LogThrottle(self.hands.monotonic))
        limits.default, limits.most = 5, 10
        self.meter = ShareMeter()
        self.judging = Judging(
            states=self.states,
            limits=limits,
            clock=self.hands,
            meter=self.meter,
            tell=lambda event, group, _: self.told.append((event, group)),
            parts=lambda: self,  # type: ignore[arg-type,return-value]
        )

    # as `Parts`

    @property
    def writer(self) -> "Bench":
        return self

    def stamped(self, fact: BreakerTripped) -> BreakerTripped:
        return fact

    async def caught_up(self) -> None:
        pass

    async def tripped(self, offset: int) -> None:
        pass

    async def decide(self, *events: ShareGroupFact) -> None:
        self.on_decide()
        if self.away:
            raise ClusterError("the topic is away")
        for event in events:
            self.decided.append(event)
            self.read(event)

    # what the test does

    def read(self, event: ShareGroupFact) -> None:
        self.states.apply(event)
        self.judging.on_event(event)

    def enable(self, group: str = "g", **values: str) -> None:
        named = {ENABLE: "true", **{f"share.group.dlq.{name.replace('_', '.')}": one for name, one in values.items()}}
        for name, value in named.items():
            self.read(GroupConfigSet(group=group, name=name, value=value, by="o", at=1))

    def count(self, accepted: int, dead_lettered: int, *, group: str = "g", generation: int = 0, ago: int = 0) -> None:
        fact = DispositionsCounted(
            at=0,
            group=group,
            member="m",
            topic=None,
            topic_id=None,
            partition=0,
            second=int(self.hands.now) - ago,
            generation=generation,
            accepted=accepted,
            released=0,
            rejected=0,
            over_limit=0,
            dead_lettered=dead_lettered,
            write_timeouts=0,
            by_delivery_count=(),
        )
        self.judging.on_counted([fact])

    async def seconds(self, number: int = 1) -> None:
        """As `run` does it, without its sleep."""
        for _ in range(number):
            self.hands.now += 1
            await self.judging.second()

    @property
    def trips(self) -> list[int]:
        return [one.generation for one in self.decided if isinstance(one, BreakerTripped)]


class Writer:
    """What stands for `TripWriter`: after a failure it is of no use, as that one."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._broken = False
        self.closed = False
        bench.writers.append(self)

    async def open(self) -> None:
        if self._bench.away:
            raise ClusterError("the cluster is away")

    async def write(self, fact: BreakerTripped) -> Position:
        if self._broken:
            raise ClusterError("the writer of trips is not open")
        if self._bench.fails:
            self._broken = True
            raise self._bench.fails.pop(0)
        self._bench.decided.append(fact)
        self._bench.read(fact)
        return Position(topic="headgate.trips", partition=0, offset=1)

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    one = Bench()
    monkeypatch.setattr(judging_module, "TripWriter", lambda *_, **__: Writer(one))
    return one


async def test_a_window_over_its_threshold_trips_once_and_says_so(bench: Bench, logs: list[EventDict]) -> None:
    bench.enable()
    await bench.judging.on_gained()
    bench.count(80, 20)
    await bench.seconds(3)
    assert bench.trips == [1]
    assert bench.told == [("tripped", "g")]
    assert bench.meter.trips == {"g": 1}
    [said] = [one for one in logs if one["log_level"] == "warning"]
    assert (said["dlq_written"], said["processed"], said["threshold_percent"]) == (20, 100, 20)


async def test_one_that_does_not_lead_decides_nothing(bench: Bench) -> None:
    bench.enable()
    bench.count(0, 500)
    await bench.seconds(2)
    assert bench.decided == []
    assert bench.judging.breakers.totals("g", bench.hands.now) == (0, 500), "but it can show what was counted"


async def test_a_trip_that_could_not_be_written_is_decided_again_by_a_new_writer(bench: Bench) -> None:
    bench.enable()
    await bench.judging.on_gained()
    bench.fails.append(ClusterError("the commit is in doubt"))
    bench.count(0, 100)
    await bench.seconds()
    assert bench.trips == []
    await bench.seconds()
    assert bench.trips == [1]
    assert len(bench.writers) == 2


async def test_a_trip_that_was_there_all_the_same_is_not_decided_again(bench: Bench) -> None:
    bench.enable()
    await bench.judging.on_gained()
    bench.fails.append(ClusterError("the commit is in doubt"))
    bench.count(0, 100)
    await bench.seconds()
    trip = BreakerTripped(
        group="g",
        generation=1,
        resume_at=None,
        dlq_written=100,
        delivered=0,
        threshold_percent=20,
        window_ms=1,
        at=1,
    )
    bench.read(trip)
    await bench.seconds(3)
    assert bench.trips == []


async def test_a_leader_that_was_fenced_waits_until_it_would_know_and_then_leads_again(bench: Bench) -> None:
    bench.enable()
    await bench.judging.on_gained()
    bench.fails.append(FencedError("another leads"))
    bench.count(0, 100)
    await bench.seconds()
    await bench.seconds(9)
    assert len(bench.writers) == 1, "perhaps it has lost the lead, and does not know it yet"
    await bench.seconds(2)
    assert bench.trips == [1], "nothing of the window was forgotten"


async def test_a_leader_that_was_fenced_and_then_lost_the_lead_does_not_come_back(bench: Bench) -> None:
    bench.enable()
    await bench.judging.on_gained()
    bench.fails.append(FencedError("another leads"))
    bench.count(0, 100)
    await bench.seconds()
    await bench.judging.on_lost()
    await bench.seconds(20)
    assert len(bench.writers) == 1
    assert bench.trips == []


async def test_a_new_leader_begins_with_empty_windows(bench: Bench) -> None:
    bench.enable()
    bench.count(0, 100)
    await bench.judging.on_gained()
    await bench.seconds(2)
    assert bench.trips == []


async def test_what_was_acquired_before_the_trip_never_counts_again(bench: Bench) -> None:
    bench.enable()
    await bench.judging.on_gained()
    bench.count(0, 100)
    await bench.seconds()
    bench.read(BreakerResumed(group="g", generation=1, at=1))
    bench.count(0, 100, generation=0)
    await bench.seconds(2)
    assert bench.trips == [1]
    assert bench.judging.breakers.old_generation == 100
    bench.count(0, 100, generation=1)
    await bench.seconds(2)
    assert bench.trips == [1, 2]


async def test_what_is_older_than_a_window_is_left_out_and_counted(bench: Bench) -> None:
    bench.enable(circuit_breaker_window_ms="10000")
    await bench.judging.on_gained()
    bench.count(0, 100, ago=12)
    await bench.seconds(2)
    assert bench.trips == []
    assert bench.judging.breakers.too_old == 100


async def test_a_wall_clock_that_jumps_neither_trips_nor_forgets(bench: Bench) -> None:
    bench.enable()
    await bench.judging.on_gained()
    bench.count(0, 50, ago=-3600)
    await bench.seconds()
    bench.count(0, 50)
    await bench.seconds()
    assert bench.trips == [1]


async def test_the_breakers_pause_is_ended_when_its_time_has_come_also_by_another_leader(bench: Bench) -> None:
    bench.enable(circuit_breaker_auto_resume_enable="true", circuit_breaker_auto_resume_ms="60000")
    await bench.judging.on_gained()
    bench.count(0, 100)
    await bench.seconds()
    assert bench.states.of("g").is_paused
    await bench.judging.on_lost()
    bench.hands.now += 3600
    await bench.seconds()
    assert bench.states.of("g").is_paused, "nobody leads"
    await bench.judging.on_gained()
    await bench.seconds()
    assert not bench.states.of("g").is_paused
    assert bench.told[-1] == ("resumed", "g")


async def test_a_failure_does_not_end_the_judging(bench: Bench, logs: list[EventDict]) -> None:
    bench.enable()
    await bench.judging.on_gained()
    failures = [ZeroDivisionError()]

    def breaks() -> None:
        if failures:
            raise failures.pop()

    bench.on_decide = breaks
    trip = BreakerTripped(
        group="g", generation=1, resume_at=1, dlq_written=1, delivered=0, threshold_percent=20, window_ms=1, at=1
    )
    bench.read(trip)
    await bench.seconds()
    assert bench.states.of("g").is_paused
    await bench.seconds()
    assert not bench.states.of("g").is_paused
    assert [one["event"] for one in logs if one["log_level"] == "error"] == ["judging failed"]


async def test_a_cluster_that_is_away_is_said_once_a_minute_and_not_each_second(
    bench: Bench, logs: list[EventDict]
) -> None:
    bench.enable()
    await bench.judging.on_gained()
    bench.fails.append(ClusterError("x"))
    bench.count(0, 100)
    await bench.seconds()
    bench.away = True
    await bench.seconds(30)
    assert len([one for one in logs if one["log_level"] == "warning"]) == 2
    bench.away = False
    await bench.seconds()
    assert bench.trips == [1]


# --- beside


async def test_topics_are_registered_and_a_change_meanwhile_is_not_forgotten(bench: Bench) -> None:
    bench.read(GroupConfigSet(group="b", name=DLQ_TOPIC, value="dlq.x", by="o", at=1))
    late = [GroupConfigSet(group="a", name=DLQ_TOPIC, value="dlq.x", by="o", at=2)]

    def changes() -> None:
        if late:
            bench.read(late.pop())

    bench.on_decide = changes
    await bench.judging.on_gained()
    await bench.judging._register()
    await bench.judging._register()
    assert [one.group for one in bench.decided if isinstance(one, DlqRegistered)] == ["b", "a"]
    assert bench.states.registered("dlq.x") == ("b", "a")


async def test_a_registration_that_could_not_be_written_is_tried_again(bench: Bench) -> None:
    bench.read(GroupConfigSet(group="b", name=DLQ_TOPIC, value="dlq.x", by="o", at=1))
    await bench.judging.on_gained()
    bench.away = True
    with pytest.raises(ClusterError):
        await bench.judging._register()
    bench.away = False
    await bench.judging._register()
    assert bench.states.registered("dlq.x") == ("b",)
    assert not bench.judging._is_dirty, "until a config changes"


async def test_looking_after_limits_does_not_keep_judging_waiting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.enable()
    await bench.judging.on_gained()
    begun = asyncio.Event()

    async def for_ever(_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(bench.judging._limits, "own_all", for_ever)
    tending = asyncio.create_task(bench.judging.tend())
    try:
        await until(begun.is_set)
        bench.count(0, 100)
        await bench.seconds()
        assert bench.trips == [1]
    finally:
        tending.cancel()
        await asyncio.wait({tending})
