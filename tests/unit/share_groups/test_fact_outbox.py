"""Facts that wait for their topics: counts and events do not displace each other, and neither do groups."""

import asyncio

from structlog.typing import EventDict

from headgate.base.clock import SystemClock
from headgate.facts import DispositionsCounted, EventHappened, Fact
from headgate.share_groups.fact_outbox import FactOutbox
from tests.support.dispositions import one_accepted
from tests.unit.proxy.stage import turns, until


class Writer:
    """`blocked` are kinds of facts whose topic is unavailable."""

    def __init__(self, *failures: Exception, blocked: type[Fact] | None = None) -> None:
        self.failures = list(failures)
        self.blocked = blocked
        self.written: list[Fact] = []

    async def write(self, fact: Fact) -> None:
        if self.blocked is not None and isinstance(fact, self.blocked):
            await asyncio.Event().wait()
        if self.failures:
            raise self.failures.pop()
        self.written.append(fact)

    def events(self, group: str) -> list[str]:
        return [one.event for one in self.written if isinstance(one, EventHappened) and one.subject == group]


async def flushed(outbox: FactOutbox) -> Writer:
    writer = Writer()
    await outbox.flush(writer)  # type: ignore[arg-type]
    return writer


async def test_facts_beyond_the_bound_are_lost_and_counted() -> None:
    outbox = FactOutbox(SystemClock(), max_bytes=2_000)
    for _ in range(5):
        outbox.put_event("paused", "g", {})
    assert outbox.lost == 2
    assert (await flushed(outbox)).events("g") == ["paused"] * 3


async def test_the_details_of_events_count_as_their_bytes() -> None:
    outbox = FactOutbox(SystemClock(), max_bytes=10_000)
    for _ in range(5):
        outbox.put_event("paused", "g", {"reason": "r" * 4_000})
    assert outbox.lost == 3


async def test_a_flood_of_events_drops_no_counts_and_a_flood_of_counts_no_events() -> None:
    outbox = FactOutbox(SystemClock(), max_bytes=6_500)
    for _ in range(100):
        outbox.put_event("write_timeout", "g", {})
    outbox.put_counts(one_accepted(0))
    assert outbox.lost == 90
    for second in range(1, 100):
        outbox.put_counts(one_accepted(second))
    outbox.put_event("paused", "another", {})
    writer = await flushed(outbox)
    assert [one.second for one in writer.written if isinstance(one, DispositionsCounted)] == list(range(10))
    assert writer.events("another") == ["paused"]


async def test_a_flood_of_one_group_drops_nothing_of_another() -> None:
    outbox = FactOutbox(SystemClock(), max_bytes=20_000)
    for _ in range(100):
        outbox.put_event("write_timeout", "noisy", {})
    for _ in range(10):
        outbox.put_event("paused", "quiet", {})
        outbox.put_event("write_timeout", "noisy", {})
    writer = await flushed(outbox)
    assert writer.events("quiet") == ["paused"] * 10
    assert len(writer.events("noisy")) + len(writer.events("quiet")) == 33
    assert outbox.lost == 120 - 33


async def test_groups_are_written_in_turn_and_the_facts_of_each_in_their_order() -> None:
    outbox = FactOutbox(SystemClock())
    for number in range(1_000):
        outbox.put_event("write_timeout", "noisy", {"number": number})
    outbox.put_event("paused", "quiet", {})
    writer = await flushed(outbox)
    assert isinstance(writer.written[1], EventHappened)
    assert writer.written[1].subject == "quiet"
    noisy = [one for one in writer.written if isinstance(one, EventHappened) and one.subject == "noisy"]
    assert [one.detail.value()["number"] for one in noisy] == list(range(1_000))


async def test_an_unavailable_topic_of_events_does_not_delay_counts() -> None:
    outbox, writer = FactOutbox(SystemClock()), Writer(blocked=EventHappened)
    running = asyncio.create_task(outbox.run(writer))  # type: ignore[arg-type]
    outbox.put_event("paused", "g", {})
    await turns()
    outbox.put_counts(one_accepted(1))
    await until(lambda: len(writer.written) == 1)
    running.cancel()
    await asyncio.wait({running})


async def test_a_fact_that_cannot_be_written_does_not_stop_later_ones(logs: list[EventDict]) -> None:
    outbox, writer = FactOutbox(SystemClock()), Writer(TypeError("no JSON"))
    running = asyncio.create_task(outbox.run(writer))  # type: ignore[arg-type]
    outbox.put_event("paused", "g", {})
    await until(lambda: outbox.lost == 1)
    outbox.put_event("paused", "g", {})
    await until(lambda: len(writer.written) == 1)
    running.cancel()
    await asyncio.wait({running})
    assert [one["event"] for one in logs if one["log_level"] == "warning"] == [
        "records about share groups could not be written"
    ]


async def test_an_event_that_is_waited_for_is_in_its_topic_or_lost() -> None:
    outbox, writer = FactOutbox(SystemClock()), Writer(TypeError("no JSON"))
    running = asyncio.create_task(outbox.run(writer))  # type: ignore[arg-type]
    assert not await outbox.deliver_event("late_write", "g", {})
    assert await outbox.deliver_event("late_write", "g", {})
    assert writer.events("g") == ["late_write"]
    running.cancel()
    await asyncio.wait({running})


async def test_an_event_that_finds_no_room_is_not_waited_for() -> None:
    outbox = FactOutbox(SystemClock(), max_bytes=1_300)
    first = outbox.deliver_event("late_write", "noisy", {"number": 1})
    second = outbox.deliver_event("late_write", "noisy", {"number": 2})
    assert not await outbox.deliver_event("late_write", "noisy", {"number": 3})
    outbox.put_event("paused", "quiet", {})
    await turns()
    assert [one.done() for one in (first, second)] == [False, True], "the last event of the largest group gives way"
    assert not second.result()
    await flushed(outbox)
    assert await first


async def test_an_event_whose_wait_was_cancelled_is_written_all_the_same() -> None:
    outbox = FactOutbox(SystemClock())
    outbox.deliver_event("late_write", "g", {}).cancel()
    assert (await flushed(outbox)).events("g") == ["late_write"]
