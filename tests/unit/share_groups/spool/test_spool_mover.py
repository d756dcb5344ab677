"""The mover: order within a lane, nothing lost whatever fails in between, and no topic waits for another."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from headgate.facts import GroupConfigSet
from headgate.facts.observations import EventName
from headgate.share_groups import late_arrivals
from headgate.share_groups.dead_letter_reports import DeadLetterReports
from headgate.share_groups.dead_letter_topics import DeadLetterTopicInfo
from headgate.share_groups.dead_letter_writer import WriteFailure, WriteFailureCause
from headgate.share_groups.fact_outbox import FactOutbox
from headgate.share_groups.model.dead_letter_records import COPY_PROBLEM
from headgate.share_groups.model.group_configs import DLQ_TOPIC
from headgate.share_groups.model.group_state import ShareStates
from headgate.share_groups.share_metrics import ShareMeter
from headgate.share_groups.spool import parking
from headgate.share_groups.spool.model.index import SpoolIndex, SpoolPlace, spool_record
from headgate.share_groups.spool.model.records import (
    DeadLetterIdentity,
    DeadlinesReported,
    SpooledDeadLetter,
    SpoolTombstone,
)
from headgate.share_groups.spool.mover import SpoolMover
from headgate.share_groups.spool.readers import ReadDeadLetters
from headgate.share_groups.spool.transfer import SpoolClients, SpoolTransfer
from tests.support.clock import FakeClock
from tests.unit.proxy.stage import turns
from tests.unit.share_groups.spool.test_spool_index import dead_letter

DEADLINE = 1_030_000  # the clock begins at 1,000,000
NO_TOPIC, UNREACHABLE, TOO_LARGE = (
    WriteFailureCause.NO_TOPIC,
    WriteFailureCause.UNREACHABLE,
    WriteFailureCause.TOO_LARGE,
)


class FakeTopics:
    """Dead-letter topics as lists; `problems` are of whole topics, `hung` are source partitions."""

    def __init__(self) -> None:
        self.written: dict[str, list[SpooledDeadLetter]] = {}
        self.attempts: list[tuple[str, list[int]]] = []
        self.problems: dict[str, WriteFailureCause] = {}
        self.hung: set[int] = set()
        self.max_bytes = 1000
        self.during_write: Callable[[], None] = lambda: None
        self.goes_on = asyncio.Event()  # cleared: writes do not end
        self.goes_on.set()
        self.on_late: Callable[[SpooledDeadLetter], None] | None = None

    async def write(
        self,
        topic: str,
        dead_letters: Sequence[SpooledDeadLetter],
        deadline_s: float,  # noqa: ARG002
        on_late: Callable[[SpooledDeadLetter], None] | None = None,
    ) -> list[WriteFailure | None]:
        self.on_late = on_late
        self.attempts.append((topic, [one.offset for one in dead_letters]))
        await asyncio.sleep(0)
        await self.goes_on.wait()
        self.during_write()
        results = [self._problem(topic, one) for one in dead_letters]
        written = [one for one, failure in zip(dead_letters, results, strict=True) if failure is None]
        self.written.setdefault(topic, []).extend(written)
        return [None if cause is None else WriteFailure(cause, cause.value) for cause in results]

    def _problem(self, topic: str, one: SpooledDeadLetter) -> WriteFailureCause | None:
        if one.partition in self.hung:
            return UNREACHABLE
        size = len(one.value or b"") + sum(len(value) for _, value in one.headers)
        return self.problems.get(topic, TOO_LARGE if size > self.max_bytes else None)

    async def describe_topic(self, topic: str) -> DeadLetterTopicInfo:
        return DeadLetterTopicInfo(partitions=0 if self.problems.get(topic) is NO_TOPIC else 1, max_message_bytes=None)

    def offsets(self, topic: str = "dlq.g", partition: int = 0) -> list[int]:
        return [one.offset for one in self.written.get(topic, ()) if one.partition == partition]


class FakeSpool:
    """Partitions as lists; what is written is in `index` at once, unless `is_away`."""

    def __init__(self, index: SpoolIndex) -> None:
        self._index = index
        self.log: list[list[SpooledDeadLetter | SpoolTombstone | DeadlinesReported]] = [[], []]
        self.is_away = False
        self.unreadable: set[int] = set()
        self.on_change: Callable[[], None] = lambda: None
        self.read_sizes: list[int] = []
        self.reads: Counter[int] = Counter()  # of each partition

    def append(self, partition: int, one: SpooledDeadLetter | SpoolTombstone | DeadlinesReported) -> int:
        self.log[partition].append(one)
        offset = len(self.log[partition]) - 1
        self._index.apply(spool_record(partition, offset, one))
        self.on_change()
        return offset

    def feed(self, index: SpoolIndex) -> None:
        """As another worker reads it."""
        for partition, records in enumerate(self.log):
            for offset, one in enumerate(records):
                index.apply(spool_record(partition, offset, one))

    async def write(
        self,
        dead_letters: Sequence[SpooledDeadLetter],
        deadline_s: float,  # noqa: ARG002
        *,
        on_written: Callable[[SpooledDeadLetter, int, int], None],
        partition: int,
    ) -> list[WriteFailure | None]:
        for one in dead_letters:
            on_written(one, partition, self.append(partition, one))
        return [None] * len(dead_letters)

    async def remove(self, identities: Sequence[DeadLetterIdentity], *, partition: int) -> list[WriteFailure | None]:
        await asyncio.sleep(0)
        if self.is_away:
            return [WriteFailure(UNREACHABLE, "away")] * len(identities)
        for one in identities:
            self.append(partition, SpoolTombstone(one))
        return [None] * len(identities)

    def mark_reported(self, until_ms: int) -> None:
        if not self.is_away:
            self.append(0, DeadlinesReported(until_ms))

    async def read(self, places: Sequence[SpoolPlace]) -> ReadDeadLetters:
        self.read_sizes.append(sum(one.size for one in places))
        wanted = {one.spool_partition for one in places}
        self.reads.update(wanted)
        await asyncio.sleep(0)
        found = {(one.spool_partition, one.spool_offset): one for one in places}
        dead_letters = {
            place: record
            for place in found
            if place[0] not in self.unreadable and isinstance(record := self.log[place[0]][place[1]], SpooledDeadLetter)
        }
        return ReadDeadLetters(dead_letters, frozenset(self.unreadable & wanted))

    async def close(self) -> None:
        pass


class RecordedEvents(FactOutbox):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.is_delivered: asyncio.Future[bool] | None = None  # None: at once

    def deliver_event(self, event: EventName, group: str, detail: Mapping[str, object]) -> asyncio.Future[bool]:
        self.put_event(event, group, detail)
        delivered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self.is_delivered is None:
            delivered.set_result(True)
            return delivered
        return asyncio.shield(self.is_delivered)

    def put_event(self, event: EventName, group: str, detail: Mapping[str, object], *, by: str | None = None) -> None:  # noqa: ARG002
        self.events.append((event, dict(detail)))


class Bench:
    """A mover on a clock that a test moves, with lists instead of topics."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.index = SpoolIndex()
        self.topics = FakeTopics()
        self.spool = FakeSpool(self.index)
        self.states = ShareStates()
        self.meter = ShareMeter()
        self.outbox = RecordedEvents(self.clock)
        self.reports = DeadLetterReports(meter=self.meter, outbox=self.outbox, known_name=lambda _: "orders")
        self.mover = self.another(self.index)
        self.configure("g", "dlq.g")
        self.configure("h", "dlq.h")

    def another(self, index: SpoolIndex) -> SpoolMover:
        mover = SpoolMover(index=index, states=self.states, clock=self.clock, meter=self.meter, reports=self.reports)
        self.replayed = asyncio.Event()
        self.replayed.set()
        clients: Any = {"dead_letters": self.topics, "spool": self.spool, "reader": self.spool}
        mover.open(SpoolClients(**clients, replayed=self.replayed))
        self.spool.on_change = mover.wake
        return mover

    def configure(self, group: str, topic: str) -> None:
        self.states.apply(GroupConfigSet(group=group, name=DLQ_TOPIC, value=topic, by="o", at=1))

    def spooled(self, *offsets: int, spool_partition: int = 0, **values: Any) -> None:
        for one in offsets:
            self.spool.append(spool_partition, dead_letter(one, **({"deadline": DEADLINE} | values)))

    async def tick(self, seconds: float = 0.0) -> None:
        """Let so much time pass, and let all work that is then due be done."""
        self.clock.now += seconds
        for _ in range(20):
            await self.mover.on_tick()
            await turns(20)
        self.reports.report()

    async def next_leader(self) -> None:
        """The leader ends without further work, and another has read what is in the spool."""
        await self.mover.stop()
        index = SpoolIndex()
        self.spool.feed(index)
        self.spool._index = self.index = index
        self.mover = self.another(index)
        self.mover.start()

    async def late_dead_letters(self, *offsets: int) -> None:
        """Dead letters that were reported as missing are in their topic."""
        self.topics.problems["dlq.g"] = NO_TOPIC
        self.spooled(*offsets)
        await self.tick(31)
        del self.topics.problems["dlq.g"]
        await self.tick(1)

    def events(self, event: str) -> list[dict[str, Any]]:
        return [detail for name, detail in self.outbox.events if name == event]

    def late_offsets(self) -> list[int]:
        """The offsets that events report as late."""
        ranges = [one for event in self.events("late_write") for one in event["offsets"]]
        return [offset for first, last in ranges for offset in range(first, last + 1)]

    @property
    def left(self) -> int:
        return sum(self.index.totals(group).dead_letters for group in self.index.groups())


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    one = Bench()
    one.mover.start()
    try:
        yield one
    finally:
        await one.mover.stop()


async def test_dead_letters_are_moved_in_the_order_of_their_lane_and_removed() -> None:
    async with bench() as on:
        on.spooled(5, sequence=1)
        on.spooled(3, sequence=3)
        on.spooled(4, sequence=2, spool_partition=1)
        on.spooled(9, partition=1)
        await on.tick()
        assert on.topics.offsets() == [5, 4, 3]
        assert on.topics.offsets(partition=1) == [9]
        assert on.left == 0
        assert on.meter.moved == {"g": 4}


async def test_only_the_leader_moves() -> None:
    on = Bench()
    on.spooled(1)
    await on.tick()
    assert on.topics.attempts == []
    on.mover.start()
    await on.tick()
    assert on.topics.offsets() == [1]
    await on.mover.stop()
    on.spooled(2)
    await on.tick()
    assert on.topics.offsets() == [1]


async def test_more_than_a_batch_is_moved_in_order_and_never_read_at_once() -> None:
    async with bench() as on:
        on.topics.max_bytes = 1 << 20
        on.spool.log[0].clear()
        for offset in range(30):
            on.spool.append(0, replace(dead_letter(offset, deadline=DEADLINE), value=bytes(100_000)))
        await on.tick()
        assert on.topics.offsets() == list(range(30))
        assert on.left == 0
        assert max(on.spool.read_sizes) <= 1 << 20


async def test_behind_a_dead_letter_that_failed_no_later_one_of_its_lane_is_written() -> None:
    """Letters are written in several steps, and their partition recovers after the first of them."""
    async with bench() as on:
        on.topics.hung.add(0)
        on.topics.during_write = lambda: on.topics.hung.clear() if len(on.topics.attempts) > 1 else None
        on.spooled(*range(600))
        await on.tick()
        assert on.topics.offsets() == []
        await on.tick(1)
        assert on.topics.offsets() == list(range(600))
        assert on.left == 0


async def test_a_failing_topic_does_not_delay_another() -> None:
    async with bench() as on:
        on.topics.problems["dlq.g"] = UNREACHABLE
        on.spooled(*range(5))
        on.spooled(*range(5), group="h", target="dlq.h")
        await on.tick()
        assert on.topics.offsets("dlq.h") == [0, 1, 2, 3, 4]
        assert on.topics.offsets("dlq.g") == []


async def test_a_partition_that_hangs_does_not_delay_the_others_of_its_topic() -> None:
    async with bench() as on:
        on.topics.hung.add(0)
        on.spooled(1, 2)
        on.spooled(1, 2, partition=1)
        await on.tick()
        assert on.topics.offsets(partition=1) == [1, 2]
        on.spooled(3, partition=1)
        await on.tick()
        assert on.topics.offsets(partition=1) == [1, 2, 3]
        on.topics.hung.clear()
        await on.tick(1)
        assert on.topics.offsets() == [1, 2]


async def test_a_failing_topic_is_tried_once_a_second_with_its_first_dead_letter_until_it_recovers() -> None:
    async with bench() as on:
        on.topics.problems["dlq.g"] = NO_TOPIC
        on.spooled(1, 2, 3)
        await on.tick()
        assert on.topics.attempts == [("dlq.g", [1, 2, 3])]
        await on.tick(0.9)
        assert len(on.topics.attempts) == 1
        await on.tick(0.1)
        await on.tick()
        assert on.topics.attempts[1:] == [("dlq.g", [1])]
        del on.topics.problems["dlq.g"]
        await on.tick(1)
        assert on.topics.offsets() == [1, 2, 3]
        assert on.left == 0


@pytest.mark.parametrize(("topics", "probes"), [(1, 4), (20, 64)])
async def test_a_topic_that_hangs_has_four_probes_at_a_time_and_all_topics_together_sixty_four(
    topics: int, probes: int
) -> None:
    async with bench() as on:
        for number in range(topics):
            on.topics.problems[f"dlq.{number}"] = UNREACHABLE
            for lane in range(6):
                on.spooled(1, 2, partition=10 * number + lane, target=f"dlq.{number}")
        await on.tick()
        on.topics.goes_on.clear()
        on.topics.attempts.clear()
        for _ in range(8):
            await on.tick(1)
        assert [offsets for _, offsets in on.topics.attempts] == [[1]] * probes
        on.topics.goes_on.set()
        on.topics.problems.clear()
        for _ in range(8):
            await on.tick(1)
        assert on.left == 0


async def test_no_more_than_six_thousand_are_in_their_topic_and_not_removed_yet() -> None:
    async with bench() as on:
        on.spool.is_away = True
        on.spooled(*range(8000))
        await on.tick()
        await on.tick(1)
        assert 5000 <= len(on.topics.offsets()) <= 6000
        on.spool.is_away = False
        await on.tick(10)
        await on.tick(10)
        assert on.topics.offsets() == list(range(8000))
        assert on.left == 0


async def test_a_leader_that_is_killed_between_write_and_tombstone_leaves_duplicates_and_loses_nothing() -> None:
    async with bench() as on:
        on.spool.is_away = True
        on.spooled(1, 2)
        await on.tick()
        assert on.topics.offsets() == [1, 2]
        on.spool.is_away = False
        await on.next_leader()
        on.spooled(3)
        await on.tick()
        assert on.topics.offsets() == [1, 2, 1, 2, 3]
        assert on.left == 0


async def test_a_tombstone_that_failed_is_written_again_and_its_dead_letter_is_not() -> None:
    async with bench() as on:
        on.spool.is_away = True
        on.spooled(1)
        await on.tick()
        on.spool.is_away = False
        await on.tick(9)
        assert on.left == 1
        await on.tick(1)
        assert on.left == 0
        assert on.topics.offsets() == [1]


async def test_a_newer_record_of_the_same_dead_letter_is_not_removed_with_the_older_one() -> None:
    async with bench() as on:
        on.spooled(1, sequence=5)

        def again() -> None:
            on.topics.during_write = lambda: None
            on.spooled(1, sequence=9)

        on.topics.during_write = again
        await on.tick()
        assert [one.sequence for one in on.topics.written["dlq.g"]] == [5, 9]
        assert on.left == 0


async def test_a_dead_letter_in_two_partitions_of_the_spool_is_moved_once_and_removed_from_both() -> None:
    async with bench() as on:
        on.spooled(1)
        on.spooled(1, spool_partition=1)
        await on.tick()
        assert on.topics.offsets() == [1]
        assert on.left == 0


async def test_a_partition_of_the_spool_that_cannot_be_read_does_not_delay_the_others() -> None:
    async with bench() as on:
        on.spool.unreadable.add(1)
        on.spooled(1, 2, spool_partition=1)
        on.spooled(1, 2, partition=1)
        await on.tick()
        assert on.topics.offsets(partition=1) == [1, 2]
        on.spool.unreadable.clear()
        await on.tick(5)
        await on.tick(1)
        assert on.topics.offsets() == [1, 2]


async def test_a_partition_of_the_spool_that_cannot_be_read_is_tried_once_in_five_seconds() -> None:
    """Each read of it takes seconds, and reads run one after the other."""
    async with bench() as on:
        on.spool.unreadable.add(1)
        for number in range(20):
            on.spooled(1, spool_partition=1, target=f"dlq.{number}", partition=number)
        on.topics.hung.add(30)
        on.spooled(1, partition=30, target="dlq.0")
        await on.tick()
        on.spool.reads.clear()
        for second in range(10):
            on.spooled(1, spool_partition=1, partition=40 + second)
            await on.tick(1)
        assert on.spool.reads[1] == 2, "nor for dead letters that come meanwhile"
        on.topics.hung.clear()
        await on.tick(1)
        assert on.topics.offsets("dlq.0", partition=30) == [1], "it has its probes"
        on.spool.unreadable.clear()
        for _ in range(6):
            await on.tick(1)
        assert on.left == 0


async def test_a_lane_waits_for_its_dead_letter_that_cannot_be_read() -> None:
    async with bench() as on:
        on.spool.unreadable.add(1)
        on.spooled(1, 3)
        on.spooled(2, spool_partition=1)
        await on.tick()
        assert on.topics.offsets() == [1]
        on.spool.unreadable.clear()
        await on.tick(5)
        await on.tick(1)
        assert on.topics.offsets() == [1, 2, 3]


async def test_a_dead_letter_that_arrives_after_the_attempt_ended_is_removed() -> None:
    async with bench() as on:
        on.topics.problems["dlq.g"] = UNREACHABLE
        on.spooled(1)
        await on.tick()
        assert on.topics.on_late is not None
        on.topics.on_late(dead_letter(1, deadline=DEADLINE))
        await on.tick(1)
        assert on.left == 0
        assert len(on.topics.attempts) == 1


# --- deadlines


async def test_a_dead_letter_over_its_deadline_is_reported_once_and_its_arrival_as_late() -> None:
    async with bench() as on:
        on.topics.problems["dlq.g"] = NO_TOPIC
        on.spooled(1, 2, 3)
        with capture_logs() as logs:
            await on.tick(29)
            assert on.events("write_timeout") == []
            await on.tick(2)
            await on.tick(60)
        reports = [one for one in logs if one["event"].startswith("a dead letter was not written in time")]
        assert reports == [
            {
                "log_level": "warning",
                "event": "a dead letter was not written in time, it stays in the spool",
                "group": "g",
                "topic": "orders",
                "partition": 0,
                "offsets": "1-3",
                "dlq_topic": "dlq.g",
                "reason": "no_topic",
            }
        ]
        (event,) = on.events("write_timeout")
        assert (event["topic"], event["partition"], event["offsets"]) == ("orders", 0, [[1, 3]])
        assert on.meter.write_timeouts == {"g": 3}
        del on.topics.problems["dlq.g"]
        await on.tick(1)
        await on.tick(1)
        assert on.late_offsets() == [1, 2, 3]
        assert on.meter.late_writes == 3


async def test_a_late_dead_letter_is_removed_when_its_event_is_written_and_not_before() -> None:
    async with bench() as on:
        on.outbox.is_delivered = asyncio.get_running_loop().create_future()
        await on.late_dead_letters(1, 2)
        assert (on.topics.offsets(), on.late_offsets(), on.left) == ([1, 2], [1], 2)
        on.outbox.is_delivered.set_result(True)
        await on.tick()
        assert (on.topics.offsets(), on.late_offsets(), on.left) == ([1, 2], [1, 2], 0)


async def test_late_dead_letters_of_a_leader_that_ended_before_their_event_was_written_are_reported_by_the_next() -> (
    None
):
    async with bench() as on:
        on.outbox.is_delivered = asyncio.get_running_loop().create_future()
        await on.late_dead_letters(1, 2)
        on.outbox.events.clear()  # they were lost with the leader
        on.outbox.is_delivered = None
        await on.next_leader()
        await on.tick()
        assert (on.late_offsets(), on.left) == ([1, 2], 0)


async def test_a_dead_letter_in_time_is_removed_at_once_while_the_event_of_a_late_one_is_not_written() -> None:
    async with bench() as on:
        on.outbox.is_delivered = asyncio.get_running_loop().create_future()
        await on.late_dead_letters(1)
        on.spooled(2, deadline=DEADLINE + 60_000)
        await on.tick()
        assert (on.topics.offsets(), on.left) == ([1, 2], 1)
        assert [one.offset for one in on.index.waiting("dlq.g", dead_letter(1).lane)] == [1]


async def test_late_dead_letters_are_removed_when_their_event_is_lost() -> None:
    async with bench() as on:
        on.outbox.is_delivered = asyncio.get_running_loop().create_future()
        on.outbox.is_delivered.set_result(False)
        with capture_logs() as logs:
            await on.late_dead_letters(1)
        assert on.left == 0
        (found,) = [one for one in logs if one["event"].startswith("late dead letters were removed")]
        assert (found["log_level"], found["number"]) == ("warning", 1)


async def test_an_unavailable_events_topic_delays_the_removal_of_late_dead_letters_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(late_arrivals, "_REPORT_S", 0.0)
    async with bench() as on:
        on.outbox.is_delivered = asyncio.get_running_loop().create_future()
        await on.late_dead_letters(1)
        await asyncio.sleep(0.02)
        await on.tick()
        assert on.left == 0
        monkeypatch.setattr(late_arrivals, "_REPORT_S", 600)
        await on.late_dead_letters(2)
        assert (on.late_offsets(), on.left) == ([1, 2], 0)
        await on.tick(60)
        on.spooled(3, deadline=DEADLINE)
        await on.tick()
        assert (on.late_offsets(), on.left) == ([1, 2, 3], 1)


async def test_a_dead_letter_that_is_moved_in_time_is_not_reported() -> None:
    async with bench() as on:
        on.spool.is_away = True  # its tombstone is late
        on.spooled(1)
        await on.tick(29)
        await on.tick(5)
        assert on.events("write_timeout") + on.events("late_write") == []


async def test_a_dead_letter_whose_timeout_is_not_reported_yet_is_not_reported_as_late() -> None:
    async with bench() as on:
        on.topics.problems["dlq.g"] = UNREACHABLE
        on.spooled(1)
        await on.tick()
        assert on.topics.on_late is not None
        on.clock.now += 30.1  # over its deadline, and no round of the mover has seen that
        on.topics.on_late(dead_letter(1, deadline=DEADLINE))
        await on.tick(5)
        assert on.events("write_timeout") + on.events("late_write") == []
        assert on.meter.late_writes == 0


async def test_a_new_leader_reports_all_deadlines_that_passed_while_there_was_no_leader() -> None:
    async with bench() as on:
        on.topics.problems["dlq.g"] = NO_TOPIC
        on.spooled(1)
        on.spooled(2, deadline=DEADLINE + 8_000)
        on.spooled(3, deadline=DEADLINE + 60_000)
        await on.tick(31)
        await on.tick(6)  # it is in the spool now that the first deadline was reported
        await on.mover.stop()
        on.clock.now += 1_000
        await on.next_leader()
        await on.tick()
        assert [one["offsets"] for one in on.events("write_timeout")] == [[[1, 1]], [[2, 2], [3, 3]]]
        await on.tick(6)
        await on.next_leader()
        await on.tick()
        assert len(on.events("write_timeout")) == 2, "none is left"


async def test_deadlines_that_were_reported_a_moment_before_the_leader_was_killed_are_reported_again() -> None:
    async with bench() as on:
        on.topics.problems["dlq.g"] = NO_TOPIC
        on.spooled(1)
        await on.tick(31)  # its event may not be written yet
        await on.next_leader()
        await on.tick()
        assert [one["offsets"] for one in on.events("write_timeout")] == [[[1, 1]], [[1, 1]]]


async def test_other_workers_keep_the_deadlines_that_are_not_reported_for_an_hour_at_most() -> None:
    async with bench() as on:
        on.topics.problems["dlq.g"] = NO_TOPIC
        await on.tick()
        await on.mover.stop()
        on.spooled(1)
        on.spooled(2, deadline=DEADLINE + 1_000_000)
        await on.tick(3_700)
        on.mover.start()
        await on.tick()
        assert [one["offsets"] for one in on.events("write_timeout")] == [[[2, 2]]]


async def test_before_any_leader_has_written_its_reports_those_of_fifteen_seconds_are_reported() -> None:
    on = Bench()
    on.topics.problems["dlq.g"] = NO_TOPIC
    on.spooled(1, deadline=1_010_000)
    on.spooled(2, deadline=1_020_000)
    await on.tick(30)
    on.mover.start()
    await on.tick()
    assert [one["offsets"] for one in on.events("write_timeout")] == [[[2, 2]]]
    await on.mover.stop()


async def test_a_spool_that_is_read_again_does_not_report_its_deadlines_again() -> None:
    async with bench() as on:
        on.topics.problems["dlq.g"] = NO_TOPIC
        on.spooled(1)
        await on.tick(31)
        await on.tick(60)
        on.replayed.clear()
        on.index.clear()
        await on.tick()
        on.spool.feed(on.index)
        on.replayed.set()
        await on.tick(1)
        assert [one["offsets"] for one in on.events("write_timeout")] == [[[1, 1]]]


# --- parked


async def test_a_dead_letter_that_is_too_large_is_written_without_its_copy() -> None:
    async with bench() as on:
        on.spool.append(0, replace(dead_letter(1, deadline=DEADLINE), value=bytes(2000)))
        on.spooled(2)
        await on.tick()
        (found,) = [one for one in on.topics.written["dlq.g"] if one.offset == 1]
        assert (found.key, found.value, dict(found.headers)[COPY_PROBLEM]) == (None, None, b"too_large")
        assert on.left == 0


async def test_a_dead_letter_that_is_too_large_without_its_copy_is_parked_and_tried_once_a_minute() -> None:
    async with bench() as on:
        large = replace(dead_letter(1, deadline=DEADLINE), headers=(("x", bytes(2000)),), value=b"v")
        on.spool.append(0, large)
        on.spooled(2)
        await on.tick()
        assert on.topics.offsets() == [2]
        assert on.index.totals("g").parked_dead_letters == 1
        ((reason, number),) = on.index.parked_counts("g")["dlq.g"].items()
        assert ("too large" in reason, number) == (True, 1)
        await on.tick()
        tried = len(on.topics.attempts)
        await on.tick(59)
        assert len(on.topics.attempts) == tried
        on.topics.max_bytes = 1 << 20
        await on.tick(1)
        assert on.topics.written["dlq.g"][-1].value == b"v"
        assert list(on.index.groups()) == []


async def test_dead_letters_are_parked_when_their_topic_is_gone_and_no_group_has_it() -> None:
    async with bench() as on:
        on.topics.problems["dlq.old"] = NO_TOPIC
        on.spooled(*range(1500), target="dlq.old")
        with capture_logs() as logs:
            await on.tick()
            await on.tick(1)
        assert on.left == 0
        assert sum(on.index.parked_counts("g")["dlq.old"].values()) == 1500
        assert any(one["event"] == "dead letters were parked in the spool" for one in logs)
        tried = len(on.topics.attempts)
        await on.tick(59)
        assert len(on.topics.attempts) == tried
        del on.topics.problems["dlq.old"]
        await on.tick(60)
        assert on.topics.offsets("dlq.old") == list(range(1500))
        assert list(on.index.groups()) == []


async def test_dead_letters_of_a_configured_topic_are_not_parked() -> None:
    async with bench() as on:
        on.topics.problems["dlq.g"] = NO_TOPIC
        on.spooled(1)
        for _ in range(5):
            await on.tick(60)
        assert (on.left, on.index.parked_targets()) == (1, ())
        on.configure("g", "dlq.other")
        await on.tick(1)
        await on.tick(1)
        assert (on.left, on.index.parked_targets()) == (0, ("dlq.g",))


async def test_large_parked_dead_letters_do_not_keep_later_ones_from_being_tried() -> None:
    async with bench() as on:
        on.topics.max_bytes = 10
        for offset in range(250):
            large = replace(dead_letter(offset, deadline=DEADLINE), headers=(("x", bytes(2000)),))
            on.spool.append(0, replace(large, parked="too large"))
        on.spool.append(0, dead_letter(250, parked="too large"))
        for _ in range(4):
            await on.tick(60)
        assert on.topics.offsets() == [250]
        assert on.index.totals("g").parked_dead_letters == 250


async def test_parked_dead_letters_that_cannot_be_removed_from_the_spool_are_not_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parking, "_PARK_S", 0.001)
    async with bench() as on:
        on.spool.append(0, dead_letter(1, deadline=DEADLINE, parked="too large"))
        on.spool.is_away = True
        for _ in range(3):
            await on.tick(60)
            await asyncio.sleep(0.02)
        assert on.topics.offsets() == [1]
        on.spool.is_away = False
        await on.tick(10)
        assert list(on.index.groups()) == []


async def test_the_groups_are_searched_once_for_all_dead_letters_of_a_topic_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as on:
        searches: list[str] = []

        def is_configured(_: SpoolTransfer, target: str) -> bool:
            searches.append(target)
            return True

        monkeypatch.setattr(SpoolTransfer, "is_configured", is_configured)
        on.topics.problems["dlq.g"] = NO_TOPIC
        on.spooled(*range(200))
        await on.tick()
        assert len(on.topics.attempts) == len(searches) == 1


async def test_an_unexpected_failure_is_counted_and_tried_again() -> None:
    async with bench() as on:

        def fail() -> None:
            on.topics.during_write = lambda: None
            raise RuntimeError("unexpected")

        on.topics.during_write = fail
        on.spooled(1)
        await on.tick()
        assert (on.meter.failures, on.left) == (1, 1)
        await on.tick(1)
        assert on.left == 0
