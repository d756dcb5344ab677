"""Writers that share a producer: each has its own share of the queue, and its own end."""

import asyncio
import threading
from collections.abc import Callable
from typing import cast

import pytest
from confluent_kafka import Producer
from structlog.testing import capture_logs

from headgate.kafka.fact_writer import FactNotWrittenError, PolledProducer, Position, RecordProducer, RecordWriter
from headgate.kafka.shared_clients import SharedClients
from tests.support.breakable_producers import BreakableProducers

UNREACHABLE = {"bootstrap.servers": "127.0.0.1:1"}
SHARE = 20


def writing(writer: RecordWriter, number: int = 1, size: int = 1) -> "list[asyncio.Task[Position]]":
    return [asyncio.create_task(writer.append("t", b"k", b"v" * size)) for _ in range(number)]


async def failures(tasks: "list[asyncio.Task[Position]]") -> list[str]:
    return [str(one) for one in await asyncio.gather(*tasks, return_exceptions=True)]


async def test_a_writer_whose_share_is_full_takes_no_room_from_another_one() -> None:
    producer = RecordProducer(UNREACHABLE, delivery_timeout_s=60.0, shares=2, share_records=SHARE)
    full, other = RecordWriter(producer, delivery_timeout_s=60.0), RecordWriter(producer, delivery_timeout_s=60.0)
    taken = writing(full, SHARE)
    await asyncio.sleep(0)
    with pytest.raises(FactNotWrittenError, match="too many facts are waiting"):
        await full.append("t", b"k", b"v")
    beside = writing(other, SHARE)
    await asyncio.sleep(0)
    assert not any(one.done() for one in (*taken, *beside)), "they wait for the cluster"
    await asyncio.gather(full.close(timeout_s=0.01), other.close(timeout_s=0.01))
    assert {*await failures(taken), *await failures(beside)} == {"the writer was closed before the fact was written"}
    await producer.close()


async def test_a_share_is_bounded_in_bytes_too() -> None:
    # The queue has room for many such shares.
    producer = RecordProducer(UNREACHABLE, delivery_timeout_s=60.0, shares=100, largest=500, share_bytes=1000)
    writer = RecordWriter(producer, delivery_timeout_s=60.0)
    waiting = writing(writer, size=900)
    await asyncio.sleep(0)
    with pytest.raises(FactNotWrittenError, match="too many facts are waiting"):
        await writer.append("t", b"k", b"v" * 100)
    small = writing(writer, size=50)
    await asyncio.sleep(0)
    assert not small[0].done()
    await writer.close(timeout_s=0.01)
    await failures([*waiting, *small])
    await producer.close()


async def test_records_that_are_not_waited_for_any_more_count_until_the_producer_has_given_them_up() -> None:
    producer = RecordProducer(UNREACHABLE, delivery_timeout_s=60.0, shares=2, share_records=SHARE)
    writer = RecordWriter(producer, delivery_timeout_s=0.05)
    assert await failures(writing(writer, SHARE)) == ["a fact was not written to t in 0.05 s"] * SHARE
    with pytest.raises(FactNotWrittenError, match="too many facts are waiting"):
        await writer.append("t", b"k", b"v")
    producer.replace_settings(UNREACHABLE)  # the next one gives up what this one holds
    with pytest.raises(FactNotWrittenError, match=r"in 0\.05 s"):
        await writer.append("t", b"k", b"v")
    await writer.close()
    await producer.close()


async def test_a_writer_that_is_closed_leaves_the_producer_to_the_others() -> None:
    producer = RecordProducer(UNREACHABLE, delivery_timeout_s=60.0, shares=2)
    first, second = RecordWriter(producer, delivery_timeout_s=60.0), RecordWriter(producer, delivery_timeout_s=60.0)
    waiting = writing(second)
    await asyncio.sleep(0)
    await first.close()
    with pytest.raises(FactNotWrittenError, match="closed"):
        await first.append("t", b"k", b"v")
    assert not waiting[0].done()
    await second.close(timeout_s=0.01)
    await failures(waiting)
    await producer.close()


async def test_a_producer_that_failed_fails_the_records_of_all_its_writers() -> None:
    broken = BreakableProducers()
    producer = RecordProducer(UNREACHABLE, delivery_timeout_s=60.0, shares=2, make_producer=broken.make)
    writers = [RecordWriter(producer, delivery_timeout_s=60.0) for _ in range(2)]
    waiting = [task for one in writers for task in writing(one)]
    await asyncio.sleep(0)
    broken.fail()
    producer.alive()
    assert [text.partition(",")[0] for text in await failures(waiting)] == ["the producer failed"] * 2
    await asyncio.gather(*(one.close() for one in writers))
    await producer.close()


class Answered:
    """A record that the broker has; it does not tell the offset of one that it had before."""

    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int | None:
        return self._offset


class AnsweringProducer:
    """Answers from another thread, as librdkafka does, with these offsets."""

    def __init__(self, *offsets: int | None) -> None:
        self.records: list[tuple[str, bytes, bytes]] = []
        self._offsets = list(offsets)

    def poll(self, _timeout: float) -> None:
        threading.Event().wait(0.001)

    def __len__(self) -> int:
        return 0

    def purge(self) -> None:
        pass

    def produce(self, topic: str, *, key: bytes, value: bytes, on_delivery: Callable[[None, Answered], None]) -> None:
        self.records.append((topic, key, value))
        thread = threading.Thread(target=on_delivery, args=(None, Answered(self._offsets.pop(0))))
        thread.start()
        thread.join()


def as_producer(double: AnsweringProducer) -> Callable[[object], Producer]:
    return lambda _: cast("Producer", double)


async def test_a_record_whose_offset_the_broker_does_not_tell_is_written_once_more() -> None:
    answering = AnsweringProducer(None, 7, 8)
    producer = RecordProducer(UNREACHABLE, make_producer=as_producer(answering))
    writer = RecordWriter(producer)
    assert await writer.append("t", b"k", b"v") == Position(topic="t", partition=0, offset=7)
    assert answering.records == [("t", b"k", b"v")] * 2
    assert (await writer.append("t", b"l", b"w")).offset == 8
    await writer.close()
    await producer.close()


async def test_a_broker_that_never_tells_offsets_fails_the_write() -> None:
    producer = RecordProducer(UNREACHABLE, make_producer=as_producer(AnsweringProducer(None, None, None)))
    writer = RecordWriter(producer)
    with pytest.raises(FactNotWrittenError, match="does not tell its offset"):
        await writer.append("t", b"k", b"v")
    await writer.close()
    await producer.close()


async def test_clients_are_made_once_and_get_a_password_that_was_replaced() -> None:
    passwords = iter(("old", "old", "new"))
    clients = SharedClients(lambda: {**UNREACHABLE, "sasl.password": next(passwords)})
    await clients.open()
    admin, consumer, producer = clients.admin, clients.consumer, clients.producer
    connect = clients.connect_producer
    await clients.open()
    was_due = consumer.is_replacement_due
    await clients.open()
    assert (admin, consumer, producer, connect) == (
        clients.admin,
        clients.consumer,
        clients.producer,
        clients.connect_producer,
    )
    settings = (admin.settings, consumer.settings, producer.settings, connect.settings)
    assert [one["sasl.password"] for one in settings] == ["new"] * 4
    assert connect.settings["partitioner"] == "murmur2_random"
    assert (was_due, consumer.is_replacement_due) == (False, True)
    await clients.close()


class FailingProducer:
    """Raises from its first poll what a callback raised, as librdkafka's does."""

    def __init__(self, *, fails: bool) -> None:
        self.polls = 0
        self._fails = fails

    def poll(self, _timeout: float) -> None:
        self.polls += 1
        if self._fails and self.polls == 1:
            raise AssertionError("a callback")
        threading.Event().wait(0.001)

    def __len__(self) -> int:
        return 0

    def purge(self) -> None:
        pass


async def test_a_callback_that_raises_does_not_end_the_thread_and_the_producer_is_replaced() -> None:
    made = [FailingProducer(fails=True), FailingProducer(fails=False)]
    making = iter(made)
    given_up: list[int] = []
    polled = PolledProducer(
        {}, thread="t", give_up=lambda: given_up.append(1), make_producer=lambda _: cast("Producer", next(making))
    )
    with capture_logs() as logs:
        first = polled.alive()
        async with asyncio.timeout(20):
            while polled.alive() is first:  # noqa: ASYNC110 - another thread makes it false
                await asyncio.sleep(0.001)
            while made[1].polls == 0:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.001)
    assert given_up == [1]
    assert [one["event"] for one in logs] == ["callback of a producer failed"]
    await polled.close()


class HoldingProducer:
    """Holds a given number of records, and notes when it is polled."""

    def __init__(self) -> None:
        self.polled = threading.Semaphore(0)
        self.held = 0

    def poll(self, _timeout: float) -> None:
        self.polled.release()
        threading.Event().wait(0.001)

    def __len__(self) -> int:
        return self.held

    def purge(self) -> None:
        pass


def polled_by_a_thread(producer: HoldingProducer, idle_s: float) -> PolledProducer:
    return PolledProducer(
        {}, thread="t", give_up=lambda: None, make_producer=lambda _: cast("Producer", producer), idle_s=idle_s
    )


async def test_a_producer_that_holds_nothing_is_not_polled_until_something_was_produced() -> None:
    producer = HoldingProducer()
    polled = polled_by_a_thread(producer, 600.0)
    polled.alive()
    assert producer.polled.acquire(timeout=20)
    assert not producer.polled.acquire(timeout=0.1), "it holds nothing"
    producer.held = 1
    polled.wake()
    for _ in range(20):
        assert producer.polled.acquire(timeout=20), "it is polled for as long as it holds something"
    async with asyncio.timeout(20):
        await polled.close()


async def test_a_producer_that_holds_nothing_is_polled_now_and_then_for_its_other_callbacks() -> None:
    producer = HoldingProducer()
    polled = polled_by_a_thread(producer, 0.001)
    polled.alive()
    for _ in range(20):
        assert producer.polled.acquire(timeout=20)
    await polled.close()
