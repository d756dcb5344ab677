"""Dead letters without a cluster: deadlines hold, bounds hold, and closing leaves nobody waiting."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from unittest.mock import Mock

from headgate.share_groups.dead_letter_topics import DeadLetterTopicInfo
from headgate.share_groups.dead_letter_writer import DeadLetterWriter, WriteFailureCause
from headgate.share_groups.model.dead_letter_records import Cause, DeadLetter, DeadLetterSource
from tests.support.breakable_producers import BreakableProducers
from tests.support.clock import FakeClock

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
SOURCE = DeadLetterSource(
    group="sg",
    member="m",
    cluster="c",
    topic="orders",
    topic_id=bytes(16),
    partition=0,
    delivery_count=1,
    cause=Cause.REJECTED,
    at=1,
)
DEAD_LETTER = DeadLetter(SOURCE, offset=1)


@asynccontextmanager
async def opened(**bounds: object) -> AsyncIterator[DeadLetterWriter]:
    writer = DeadLetterWriter(NOWHERE, **bounds)  # type: ignore[arg-type]
    try:
        yield writer
    finally:
        await writer.close()
        gc.collect()  # clients of librdkafka, with their threads, end when they are collected


async def test_without_a_cluster_dead_letters_end_at_their_deadline() -> None:
    loop = asyncio.get_running_loop()
    async with opened() as writer:
        began = loop.time()
        said = await writer.write("dlq.o", [DEAD_LETTER, replace(DEAD_LETTER, offset=2)], 0.3)
        assert 0.25 <= loop.time() - began < 5.0
        assert [one and one.cause for one in said] == [WriteFailureCause.UNREACHABLE] * 2
        assert all(one and "to dlq.o within 0.3 s: " in one.text for one in said)
        assert (writer.dead_letters, writer.bytes) == (0, 0)


async def test_after_the_deadline_no_attempt_begins() -> None:
    clock, attempts = FakeClock(), []

    async def describe(topic: str, producer: object) -> DeadLetterTopicInfo:
        attempts.append((topic, producer))
        clock.now += 10
        return DeadLetterTopicInfo(partitions=0)

    async with opened(clock=clock, topics=StubTopics(describe)) as writer:
        [said] = await writer.write("dlq.o", [DEAD_LETTER], 15)
    assert len(attempts) == 2
    assert said is not None
    assert said.cause is WriteFailureCause.NO_TOPIC


async def test_dead_letters_beyond_the_bounds_are_refused_at_once() -> None:
    async with opened(max_dead_letters=4) as writer:
        waiting = asyncio.create_task(writer.write("dlq.o", [DEAD_LETTER], 0.5))
        await asyncio.sleep(0)
        began = asyncio.get_running_loop().time()
        taken, refused = await writer.write("dlq.o", [DEAD_LETTER, DEAD_LETTER], 0.5)
        assert taken is not None
        assert taken.cause is WriteFailureCause.UNREACHABLE
        assert refused is not None
        assert refused.cause is WriteFailureCause.OVERLOADED
        assert refused.text.startswith("2 dead letters of ")
        await waiting
        assert writer.dead_letters == 0
        both = asyncio.create_task(writer.write("dlq.o", [DEAD_LETTER, DEAD_LETTER], 3600))
        await asyncio.sleep(0)
        [refused] = await writer.write("dlq.o", [DEAD_LETTER], 3600)
        assert refused is not None
        assert asyncio.get_running_loop().time() - began < 60
        both.cancel()


async def test_closing_ends_all_waiting_writes() -> None:
    async with opened() as writer:
        waiting = asyncio.create_task(writer.write("dlq.o", [DEAD_LETTER], 3600))
        await asyncio.sleep(0.05)
    async with asyncio.timeout(20):
        assert await waiting != [None]
    [said] = await writer.write("dlq.o", [DEAD_LETTER], 3600)
    assert said is not None
    assert "closed" in said.text


async def test_a_producer_that_broke_keeps_no_dead_letters() -> None:
    broken = BreakableProducers()
    async with opened(topics=StubTopics(at_once), make_producer=broken.make) as writer:
        dead_letters = [replace(DEAD_LETTER, offset=offset, value=bytes(1000)) for offset in range(20)]
        waiting = asyncio.create_task(writer.write("dlq.o", dead_letters, 0.3))
        await asyncio.sleep(0.05)
        assert writer.expected_reports == 20
        broken.fail()
        await writer.describe_topic("dlq.o")  # looks for a producer that is alive
        assert (writer.expected_reports, writer.dead_letters) == (0, 20), "they are tried again until the deadline"
        assert all(one and one.cause is WriteFailureCause.UNREACHABLE for one in await waiting)
        broken.fail()
        await writer.describe_topic("dlq.o")
        assert (writer.expected_reports, writer.dead_letters, writer.bytes) == (0, 0, 0)
        dead_letters.clear()
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, DeadLetter) and one.value]


class StubTopics:
    """What is known of dead-letter topics, without a cluster that could say it."""

    def __init__(self, describe: Callable[[str, object], Awaitable[DeadLetterTopicInfo]]) -> None:
        self.describe = describe

    def expire(self, topic: str) -> None:
        pass

    async def close(self) -> None:
        pass


async def at_once(*_: object) -> DeadLetterTopicInfo:
    return DeadLetterTopicInfo(partitions=1, max_message_bytes=None)


class KeepingProducer:
    """Keeps the callbacks of what it is given."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[None, object], None]] = []

    def poll(self, _timeout: float) -> None:
        threading.Event().wait(0.001)

    def __len__(self) -> int:
        return 0

    def purge(self) -> None:
        pass

    def produce(self, _topic: str, *, on_delivery: Callable[[None, object], None], **_: object) -> None:
        self.callbacks.append(on_delivery)


async def test_a_late_success_is_told_and_an_old_call_back_means_nothing() -> None:
    late: list[DeadLetter] = []
    keeping = KeepingProducer()
    async with opened(topics=StubTopics(at_once), make_producer=lambda _: keeping) as writer:
        [said] = await writer.write("dlq.o", [DEAD_LETTER], 0.0, late.append)
        assert said is not None
        [told] = keeping.callbacks
        told(None, Mock())
        told(None, Mock())
        await asyncio.sleep(0.05)
        assert late == [DEAD_LETTER]
        assert (writer.dead_letters, writer.bytes) == (0, 0)
