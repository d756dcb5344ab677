"""Topics that lost records: no group is resumed by it, requests wait, and what was known is written again."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from structlog.typing import EventDict

from headgate.base.errors import ClusterError
from headgate.facts import (
    BreakerResumed,
    BreakerTripped,
    DlqRegistered,
    GroupConfigSet,
    GroupConfigUnset,
    GroupPaused,
    GroupPauseEnded,
)
from headgate.share_groups.model.group_configs import DLQ_TOPIC
from headgate.share_groups.model.group_state import ShareGroupFact, ShareStates
from headgate.share_groups.model.known_facts import KnownFacts
from headgate.share_groups.state_recovery import OTHERS_WRITE_AFTER_S, StateRecovery
from tests.support.clock import FakeClock
from tests.unit.proxy.stage import until
from tests.unit.share_groups.fake_kafka import FakeKafka, trip
from tests.unit.share_groups.scene import ACCEPT, REJECT, fetched, fetching, scene
from tests.unit.share_groups.test_share_service import running

STATE, TRIPS = False, True


def paused(at: int = 5, group: str = "g") -> GroupPaused:
    return GroupPaused(group=group, reason="r", by="o", at=at)


def config(value: str, at: int = 5) -> GroupConfigSet:
    return GroupConfigSet(group="g", name=DLQ_TOPIC, value=value, by="o", at=at)


ENDED, UNSET = GroupPauseEnded(group="g"), GroupConfigUnset(group="g", name=DLQ_TOPIC)


@pytest.mark.parametrize(
    ("known", "found", "new", "lost"),
    [
        # nothing is known
        ([], [], [], []),
        ([], [paused()], [paused()], []),
        ([], [ENDED], [], []),
        # the topic is empty: created again, or emptied
        ([paused(), config("a")], [], [], [paused(), config("a")]),
        ([paused(), ENDED], [], [], []),
        # it says the same
        ([paused()], [paused()], [], []),
        # it was truncated: it ends before the last facts
        ([ENDED, paused()], [ENDED], [], [paused()]),
        ([config("a", 1), config("b", 2)], [config("a", 1)], [], [config("b", 2)]),
        ([config("a", 1), UNSET, config("b", 2)], [config("a", 1), UNSET], [], [config("b", 2)]),
        # and a pause whose end is lost comes back, which an operator can end
        ([paused(), ENDED], [paused()], [paused()], []),
        # facts of another gateway, written since
        ([paused(1)], [paused(2)], [paused(2)], []),
        ([config("a", 1)], [config("b", 1)], [config("b", 1)], []),
        ([paused(1)], [config("a", 2)], [config("a", 2)], [paused(1)]),
    ],
)
def test_what_holds_when_a_topic_that_lost_records_was_read_again(
    known: Sequence[ShareGroupFact],
    found: Sequence[ShareGroupFact],
    new: list[ShareGroupFact],
    lost: list[ShareGroupFact],
) -> None:
    facts = KnownFacts()
    for one in known:
        assert facts.read(one)
    facts.begin_again()
    for one in found:
        assert not facts.read(one), "nothing holds before the end"
    assert list(facts.end_again()) == new
    assert list(facts.lost) == lost
    for one in lost:
        facts.read(one)
    assert not facts.lost


def test_the_order_of_registrations_is_kept() -> None:
    facts = KnownFacts()
    first, second = (DlqRegistered(topic="dlq.t", group=group, at=1) for group in "ba")
    for one in (second, first, second):
        facts.read(one)
    facts.begin_again()
    facts.end_again()
    assert list(facts.lost) == [first, second]


class Recovery:
    """A recovery with a trip and a pause that both topics lost."""

    def __init__(self, *facts: ShareGroupFact) -> None:
        self.clock = FakeClock()
        states = ShareStates()
        self.on = StateRecovery(states, self.clock)
        for fact in facts:
            self.on.read(fact)
            states.apply(fact)
        self.written: list[ShareGroupFact] = []
        self.failures: list[ClusterError] = []
        for of_trips in (STATE, TRIPS):
            self.on.begin(of_trips=of_trips)
        for of_trips in (STATE, TRIPS):
            self.on.end(of_trips=of_trips)

    async def _write(self, fact: ShareGroupFact) -> None:
        if self.failures:
            raise self.failures.pop()
        self.written.append(fact)

    async def after(self, seconds: float, *, leading: bool) -> list[ShareGroupFact]:
        self.clock.now += seconds
        self.written = []
        await self.on.write_lost(self._write, leading=leading)
        return self.written


async def test_the_leader_writes_lost_facts_at_once_and_again_only_when_they_were_not_read_back() -> None:
    lost = Recovery(paused(), trip())
    assert await lost.after(0, leading=True) == [paused(), trip()]
    assert await lost.after(1, leading=True) == []
    lost.on.read(paused())
    assert await lost.after(10, leading=True) == [trip()]
    lost.on.read(trip())
    assert lost.on.lost_facts == 0


async def test_other_workers_write_them_when_no_leader_did() -> None:
    lost = Recovery(paused())
    assert await lost.after(OTHERS_WRITE_AFTER_S - 1, leading=False) == []
    assert await lost.after(1, leading=False) == [paused()]


async def test_a_trip_that_was_resumed_is_not_written_again() -> None:
    resumed = BreakerResumed(group="g", generation=1, at=2)
    lost = Recovery(trip(), resumed)
    assert await lost.after(0, leading=True) == [resumed]
    lost.on.read(resumed)
    assert lost.on.lost_facts == 0


async def test_lost_facts_that_cannot_be_written_are_tried_again(logs: list[EventDict]) -> None:
    lost = Recovery(paused())
    lost.failures = [ClusterError("away")]
    assert await lost.after(0, leading=True) == []
    assert await lost.after(10, leading=True) == [paused()]
    assert [one["problem"] for one in logs if "could not be written" in one["event"]] == ["away"]


# --- the service


@pytest.mark.parametrize("of_trips", [STATE, TRIPS])
async def test_a_topic_that_was_created_again_resumes_no_group(of_trips: bool) -> None:
    async with scene() as on:
        on.configure()
        on.pause()
        on.kafka.read(trip())
        on.kafka.listeners_of().on_lost(of_trips)
        assert on.service.is_opening
        assert "lost records" in on.service.problems()["share groups"]
        assert on.service.is_paused("g")
        on.kafka.listeners_of().on_replayed(of_trips)
        assert on.service.is_ready
        state = on.state("g")
        assert state.pause is not None
        assert state.is_tripped
        assert state.settings.dlq_topic is not None
        assert on.service.manages_name(b"g")


async def test_nothing_is_acquired_until_the_topic_was_read_again() -> None:
    async with scene() as on:
        on.configure()
        on.kafka.listeners_of().on_lost(STATE)
        asked, _ = await on.fetch(fetching(), fetched({}))
        assert asked.max_bytes == 0
        on.kafka.listeners_of().on_replayed(STATE)
        asked, _ = await on.fetch(fetching(), fetched({}))
        assert asked.max_bytes > 0


async def test_a_reject_is_dead_lettered_and_counted_also_while_the_topic_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.share_groups.service.MAX_HOLD_S", 0.05)
    async with scene() as on:
        on.configure()
        await on.acquires((10, 11, 1))
        on.kafka.listeners_of().on_lost(STATE)
        await on.rejects({0: [(10, 11, [ACCEPT, REJECT])]})
        assert on.dead_letters.offsets == [(0, 11)]
        assert on.counted() == {"accepted": 1, "rejected": 1, "dead_lettered": 1}
        await on.send(fetching({0: [(12, 12, [REJECT])]}))
        await on.names_topic()
        asked, _ = await on.goes_on_fetching(fetched({}, codes={0: 0}))
        assert asked.max_bytes == 0


async def test_what_a_truncated_topic_says_is_not_applied_before_its_end() -> None:
    kafka = FakeKafka()
    kafka.history = [paused()]
    async with running(kafka) as service:
        await until(lambda: service.is_ready)
        kafka.listeners_of().on_lost(STATE)
        kafka.read(ENDED)
        assert service.is_paused("g")
        kafka.listeners_of().on_replayed(STATE)
        assert service.is_paused("g")
        kafka.read(ENDED)  # an operator's, from now on
        assert not service.is_paused("g")


async def test_the_wait_is_bounded_and_then_what_was_known_holds(logs: list[EventDict]) -> None:
    kafka = FakeKafka()
    kafka.history = [paused()]
    async with running(kafka, max_opening_s=0.05) as service:
        await until(lambda: service.is_ready)
        kafka.listeners_of().on_lost(STATE)
        await until(lambda: not service.is_opening)
        assert service.is_paused("g")
        [logged] = [one for one in logs if one["log_level"] == "error"]
        assert logged["event"] == "share groups were not read again in time, what was known holds"
        with pytest.raises(ClusterError):
            await service.pause("h", "r", "o")
        kafka.listeners_of().on_replayed(STATE)
        assert service.is_ready


async def test_both_topics_must_have_been_read_again() -> None:
    kafka = FakeKafka()
    async with running(kafka) as service:
        await until(lambda: service.is_ready)
        kafka.listeners_of().on_lost(STATE)
        kafka.listeners_of().on_lost(TRIPS)
        kafka.listeners_of().on_replayed(STATE)
        assert service.is_opening
        kafka.listeners_of().on_replayed(TRIPS)
        assert service.is_ready


async def test_a_topic_that_is_lost_while_it_is_read_for_the_first_time_leaves_nothing_of_itself() -> None:
    kafka = FakeKafka()
    kafka.history = [paused(), trip()]
    kafka.opens.clear()
    async with running(kafka) as service:
        await until(lambda: kafka.attempts == 1)
        kafka.listeners_of().on_lost(STATE)
        kafka.opens.set()
        await until(lambda: kafka.group_configs.loads > 0)
        assert not service.is_ready
        kafka.listeners_of().on_replayed(STATE)
        await until(lambda: service.is_ready)
        assert service.state("g").pause is None
        assert service.state("g").is_tripped, "that is in the other topic"


async def test_lost_facts_are_a_metric() -> None:
    kafka = FakeKafka()
    kafka.history = [paused()]
    async with running(kafka) as service:
        await until(lambda: service.is_ready)
        kafka.listeners_of().on_lost(STATE)
        kafka.listeners_of().on_replayed(STATE)
        assert service.samples()["headgate_share_groups_unwritten_facts", ()] == 1
        kafka.read(paused())
        assert service.samples()["headgate_share_groups_unwritten_facts", ()] == 0


def test_a_later_trip_of_another_leader_holds() -> None:
    facts = KnownFacts()
    facts.read(trip())
    later = BreakerTripped(
        group="g",
        generation=2,
        resume_at=None,
        dlq_written=1,
        delivered=0,
        threshold_percent=20,
        window_ms=1,
        at=9,
    )
    facts.begin_again()
    facts.read(later)
    assert list(facts.end_again()) == [later]
    assert not facts.lost


def tripped(generation: int, at: int) -> BreakerTripped:
    return replace(trip(), generation=generation, at=at)


@pytest.mark.parametrize("clock_ms", [1, 100], ids=["in order", "the clock of the later leader was behind"])
async def test_an_earlier_trip_in_a_truncated_topic_does_not_take_the_place_of_one_in_force(clock_ms: int) -> None:
    kafka = FakeKafka()
    kafka.history = [tripped(1, clock_ms), BreakerResumed(group="g", generation=1, at=2), tripped(2, 3)]
    async with running(kafka) as service:
        await until(lambda: service.is_ready)
        kafka.listeners_of().on_lost(TRIPS)
        kafka.read(tripped(1, clock_ms))
        kafka.listeners_of().on_replayed(TRIPS)
        assert service.is_paused("g")


@pytest.mark.parametrize("of_trips", [STATE, TRIPS], ids=["before the topics were read again", "afterwards"])
async def test_a_trip_of_a_leader_that_did_not_know_the_earlier_ones_is_not_resumed(of_trips: bool) -> None:
    """Both topics were created again, and a gateway that was started since leads and counts its trips from 1."""
    kafka = FakeKafka()
    kafka.history = [tripped(5, 1), BreakerResumed(group="g", generation=5, at=2)]
    async with running(kafka) as service:
        await until(lambda: service.is_ready)
        for topic in (STATE, TRIPS):
            kafka.listeners_of().on_lost(topic)
        if of_trips is STATE:
            kafka.read(tripped(1, 3))
        for topic in (STATE, TRIPS):
            kafka.listeners_of().on_replayed(topic)
        if of_trips is TRIPS:
            kafka.read(tripped(1, 3))
        written: list[ShareGroupFact] = []

        async def write(fact: ShareGroupFact) -> None:
            written.append(fact)

        await service._recovery.write_lost(write, leading=True)
        assert written == []
        assert service.is_paused("g")
        assert service._recovery.lost_facts == 0


async def test_a_trip_that_is_not_read_back_yet_is_not_decided_again_while_a_topic_is_read_again() -> None:
    kafka = FakeKafka()
    async with running(kafka) as service:
        await until(lambda: service.is_ready)
        unread = service._leader._unread
        unread["g"] = 1
        for of_trips in (STATE, TRIPS):
            kafka.listeners_of().on_lost(of_trips)
        kafka.listeners_of().on_replayed(STATE)
        assert unread == {"g": 1}
        kafka.listeners_of().on_replayed(TRIPS)
        assert unread == {}, "a trip in a topic that was replaced is never read back"
