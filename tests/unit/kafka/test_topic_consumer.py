"""Several topics on one consumer: what each follower reads, and that none waits for another one."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from headgate.base.errors import ClusterError
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactReader, FactTail
from headgate.kafka.topic_consumer import Next, TopicConsumer
from tests.unit.kafka.fake_topics import FakeTopics


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> FakeTopics:
    found = FakeTopics()
    found.install(monkeypatch)
    return found


def values(records: Sequence[ConsumedRecord]) -> list[bytes | None]:
    return [one.value for one in records]


class Reading(FactReader[list[bytes | None]]):
    """A reader that keeps what it read, with `lost` where it began again."""

    retry_s = 0.02
    look_s = 0.01

    def __init__(self, consumer: TopicConsumer, topic: str, **options: Any) -> None:
        self.read: list[bytes | None] = []
        super().__init__(
            consumer,
            topic=topic,
            digest=options.pop("digest", values),
            forget=lambda lost: [b"lost" if lost else b"again"],
            take=self.read.extend,
            **options,
        )


@asynccontextmanager
async def consuming(log: FakeTopics) -> AsyncIterator[TopicConsumer]:
    consumer = TopicConsumer({}, admin=log.admin)
    try:
        yield consumer
    finally:
        await consumer.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - another thread makes it true
            await asyncio.sleep(0.002)


async def test_one_consumer_reads_several_topics_and_each_has_its_own_end(log: FakeTopics) -> None:
    log.create("a")
    log.create("b", partitions=2)
    log.write("a", b"1", b"2")
    log.write("b", b"3", partition=1)
    async with consuming(log) as consumer:
        a, b = Reading(consumer, "a"), Reading(consumer, "b", every_partition=True)
        absent = Reading(consumer, "c")
        for one in (a, b, absent):
            one.start()
        await until(lambda: a.replayed.is_set() and b.replayed.is_set())
        assert (a.read, b.read, a.problem, b.problem) == ([b"1", b"2"], [b"3"], None, None)
        assert not absent.replayed.is_set()
        log.write("a", b"4")
        await asyncio.wait_for(a.reached(2), 20)
        assert a.position == 3
    assert len(log.consumers) == 1
    assert log.consumers[0].is_closed


async def test_two_followers_of_a_topic_read_all_of_it_whenever_they_begin(log: FakeTopics) -> None:
    log.create("a")
    log.write("a", *(b"%d" % number for number in range(2000)))
    async with consuming(log) as consumer:
        first, second = Reading(consumer, "a"), Reading(consumer, "a")
        first.start()
        await until(lambda: first.position > 700)
        second.start()
        await until(lambda: first.replayed.is_set() and second.replayed.is_set())
        log.write("a", b"last")
        await asyncio.gather(first.reached(2000), second.reached(2000))
    assert first.read == second.read == [*(b"%d" % number for number in range(2000)), b"last"]


async def test_a_follower_whose_digest_raises_gets_the_batch_again_and_the_others_go_on(log: FakeTopics) -> None:
    failures = iter((True, True, False))

    def fails_twice(records: Sequence[ConsumedRecord]) -> list[bytes | None]:
        if next(failures, False):
            raise ValueError("a damaged cache")
        return values(records)

    log.create("a")
    log.create("b")
    log.write("a", b"1", b"2")
    async with consuming(log) as consumer:
        bad, good, beside = Reading(consumer, "a", digest=fails_twice), Reading(consumer, "b"), Reading(consumer, "a")
        with capture_logs() as logs:
            for one in (bad, good, beside):
                one.start()
            await until(lambda: "a damaged cache" in (bad.problem or ""))
            log.write("b", b"3")
            await until(lambda: good.read == [b"3"] and beside.read == [b"1", b"2"])
            await until(bad.replayed.is_set)
        assert (bad.read, bad.problem) == ([b"1", b"2"], None)
    assert [one["topic"] for one in logs if one["event"] == "consuming a topic failed"] == ["a"]
    assert len(log.consumers) == 1, "the others are not interrupted"


async def test_a_cluster_that_does_not_answer_about_one_topic_delays_no_other(log: FakeTopics) -> None:
    asked, answers = threading.Event(), threading.Event()

    def on_lookup(topic: str) -> None:
        if topic == "slow":
            asked.set()
            answers.wait(20)

    log.on_lookup = on_lookup
    log.create("slow")
    log.create("a")
    async with consuming(log) as consumer:
        slow: FactTail[list[bytes | None]] = FactTail(consumer, topic="slow", digest=values, take=lambda _: None)
        a = Reading(consumer, "a", detects_loss=True)
        slow.start()
        a.start()
        assert await asyncio.to_thread(asked.wait, 20)
        log.write("a", b"1")
        await until(lambda: a.read == [b"1"])
        assert not slow.started.is_set()
        answers.set()
        await asyncio.wait_for(slow.started.wait(), 20)


async def test_a_topic_that_lost_records_is_read_again_and_the_others_miss_and_repeat_nothing(log: FakeTopics) -> None:
    log.create("a")
    log.create("b")
    log.write("a", b"1", b"2")
    log.write("b", b"3")
    async with consuming(log) as consumer:
        a, b = Reading(consumer, "a", detects_loss=True), Reading(consumer, "b")
        a.start()
        b.start()
        await until(lambda: a.replayed.is_set() and b.replayed.is_set())
        log.create("a", topic_id="second")
        log.write("a", b"4", b"5")
        await until(lambda: a.read[-3:] == [b"lost", b"4", b"5"] and a.replayed.is_set())
        log.write("b", b"6")
        await until(lambda: b.read == [b"3", b"6"])
    assert len(log.consumers) == 2, "librdkafka may not look for the new topic for minutes"


async def test_the_id_of_a_topic_is_known_before_it_is_read(log: FakeTopics) -> None:
    """Otherwise a topic that is created again between its first record and the first look is not noticed."""
    assigned: list[int] = []
    answers = threading.Event()

    def on_lookup(_topic: str) -> None:
        assigned.append(len(log.consumers[0].assignments))
        if len(assigned) > 1:
            answers.wait(20)

    log.on_lookup = on_lookup
    log.create("a")
    log.write("a", b"1", b"2")
    async with consuming(log) as consumer:
        a = Reading(consumer, "a", detects_loss=True)
        a.start()
        await until(lambda: a.read == [b"1", b"2"] and a.replayed.is_set())
        log.create("a", topic_id="second")
        log.write("a", b"3", b"4", b"5")
        answers.set()
        await until(lambda: a.read[-4:] == [b"lost", b"3", b"4", b"5"])
    assert assigned[0] == 0


async def test_records_that_were_deleted_after_a_failed_look_are_noticed_by_what_was_read(log: FakeTopics) -> None:
    looks, answers = itertools.count(), threading.Event()

    def on_lookup(_topic: str) -> None:
        if next(looks) == 0:
            raise ClusterError("not now")
        answers.wait(20)

    log.on_lookup = on_lookup
    log.create("a")
    log.write("a", b"1", b"2")
    async with consuming(log) as consumer:
        a = Reading(consumer, "a", detects_loss=True)
        a.start()
        await until(lambda: a.read == [b"1", b"2"] and a.replayed.is_set())
        log.first["a", 0] = 2
        answers.set()
        await until(lambda: a.read == [b"1", b"2", b"lost"] and a.replayed.is_set())
        log.write("a", b"3")
        await until(lambda: a.read[-1] == b"3")
    assert a.read == [b"1", b"2", b"lost", b"3"], "and are lost once"


async def test_a_topic_that_is_written_all_the_time_is_replayed(log: FakeTopics) -> None:
    """The end of such a partition is not reported by librdkafka."""
    log.create("a", partitions=2)
    log.write("a", b"1", b"2")
    log.busy = ("a", 0)
    async with consuming(log) as consumer:
        a, first = Reading(consumer, "a", every_partition=True), Reading(consumer, "a")
        a.start()
        first.start()
        await until(lambda: a.replayed.is_set() and first.replayed.is_set())
        assert (a.read, first.read) == ([b"1", b"2"], [b"1", b"2"])


async def test_a_partition_that_is_not_fetched_is_fetched_by_a_new_consumer(log: FakeTopics) -> None:
    """As librdkafka does with some partitions of a topic that was created a moment ago; records of others come."""
    log.create("a", partitions=3)
    log.write("a", b"1", partition=1)
    log.not_fetched = ("a", 2)  # by the first consumer
    async with consuming(log) as consumer:
        a = Reading(consumer, "a", every_partition=True)
        a.stalled_s = 0.2
        a.start()

        def is_replayed() -> bool:
            log.write("a", b"2", partition=1)
            return a.replayed.is_set()

        await until(is_replayed)
        assert len(log.consumers) >= 2
        assert not a._has_stalled()
    assert a.read[:2] == [b"1", b"2"]


async def test_a_topic_that_was_created_again_and_is_not_fetched_is_fetched_by_a_new_consumer(log: FakeTopics) -> None:
    """Which librdkafka does for half a minute, when it was asked for the topic before its leader was known."""
    log.create("a")
    log.write("a", b"1")
    log.not_fetched = ("a", 0)  # by the first consumer
    async with consuming(log) as consumer:
        a = Reading(consumer, "a", detects_loss=True)
        a.stalled_s = 0.2
        a.start()
        await until(lambda: a.read == [b"1"] and a.replayed.is_set())
    assert len(log.consumers) == 2


async def test_a_topic_that_does_not_exist_yet_is_waited_for_with_one_consumer(log: FakeTopics) -> None:
    log.not_fetched = ("a", 0)
    async with consuming(log) as consumer:
        a = Reading(consumer, "a", detects_loss=True)
        a.stalled_s = 0.0
        a.start()
        await until(lambda: bool(log.consumers) and log.consumers[0].assignments != [])
        assert a._log is None
        assert a.on_step() is Next.GO_ON


async def test_a_partition_that_was_read_to_its_end_may_be_silent(log: FakeTopics) -> None:
    log.create("a", partitions=2)
    async with consuming(log) as consumer:
        a = Reading(consumer, "a", every_partition=True)
        a.start()
        await until(a.replayed.is_set)
        a.stalled_s = 0.0
        log.write("a", b"1")
        await until(lambda: a.read == [b"1"])
    assert len(log.consumers) == 1


async def test_reading_again_replaces_no_consumer_and_repeats_the_topic_for_one_follower(log: FakeTopics) -> None:
    log.create("a")
    log.write("a", b"1", b"2")
    async with consuming(log) as consumer:
        one, other = Reading(consumer, "a"), Reading(consumer, "a")
        one.start()
        other.start()
        await until(lambda: one.replayed.is_set() and other.replayed.is_set())
        one.read_again()
        await until(lambda: one.read == [b"1", b"2", b"again", b"1", b"2"])
        assert other.read == [b"1", b"2"]
    assert len(log.consumers) == 1


async def test_a_follower_that_is_closed_is_not_called_again_and_its_topic_is_not_fetched(log: FakeTopics) -> None:
    log.create("a")
    log.create("b")
    async with consuming(log) as consumer:
        a, b = Reading(consumer, "a"), Reading(consumer, "b")
        a.start()
        b.start()
        await until(lambda: a.replayed.is_set() and b.replayed.is_set())
        await a.close()
        log.write("a", b"1")
        log.write("b", b"2")
        await until(lambda: b.read == [b"2"])
        assert a.read == []
        assert list(log.consumers[0].next) == [("b", 0)]


async def test_a_problem_of_one_topic_is_that_of_its_followers_alone(log: FakeTopics) -> None:
    log.create("a")
    log.create("b")
    async with consuming(log) as consumer:
        a, b = Reading(consumer, "a"), Reading(consumer, "b")
        a.start()
        b.start()
        await until(lambda: a.replayed.is_set() and b.replayed.is_set())
        consumer._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert "_ALL_BROKERS_DOWN" in (a.problem or "")
        assert a.problem == b.problem
        await until(lambda: a.problem is None and b.problem is None)  # the cluster answers again
        b.report(ValueError("its own"))
        assert a.problem is None


async def test_new_settings_are_used_by_a_new_consumer_which_goes_on_where_the_other_was(log: FakeTopics) -> None:
    log.create("a")
    log.write("a", b"1")
    async with consuming(log) as consumer:
        a = Reading(consumer, "a")
        a.start()
        await until(a.replayed.is_set)
        consumer.replace_settings({"sasl.password": "new"})
        log.write("a", b"2")
        await until(lambda: a.read == [b"1", b"2"])
        await until(lambda: len(log.consumers) == 2)
    assert log.consumers[1].settings["sasl.password"] == "new"
    assert log.consumers[1].assignments[0][2] >= 1


async def test_partitions_that_are_added_are_followed_from_their_beginning(log: FakeTopics) -> None:
    log.create("t")
    log.write("t", b"before")
    found: list[bytes | None] = []
    async with consuming(log) as consumer:
        tail: FactTail[list[bytes | None]] = FactTail(consumer, topic="t", digest=values, take=found.extend)
        tail.look_s = 0.01
        tail.start()
        await asyncio.wait_for(tail.started.wait(), 20)
        log.topics["t"][1] = []
        log.write("t", b"new", partition=1)
        log.write("t", b"after")
        await until(lambda: sorted(map(bytes, filter(None, found))) == [b"after", b"new"])


async def test_a_partition_of_a_tail_whose_position_is_gone_is_read_from_its_start(log: FakeTopics) -> None:
    log.create("t")
    log.write("t", b"1", b"2", b"3")
    found: list[bytes | None] = []
    async with consuming(log) as consumer:
        tail: FactTail[list[bytes | None]] = FactTail(consumer, topic="t", digest=values, take=found.extend)
        tail.start()
        await asyncio.wait_for(tail.started.wait(), 20)
        with capture_logs() as logs:
            log.create("t")
            log.write("t", b"new")
            await until(lambda: found == [b"new"])
    assert [one["event"] for one in logs] == ["a partition is read again from its start"]
