"""A side is read only as fast as the other takes it, and everything goes on once it does."""

import asyncio
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from struct import pack

from headgate.base.pipe_limits import PIPE_BYTES
from headgate.proxy.chain import MOST_PENDING
from headgate.proxy.connection import HIGH_WATER, LARGEST_BACKLOG
from headgate.proxy.interceptor import Answer, Forward, Hold
from headgate.proxy.shared_buffer import BUFFER_BYTES
from headgate.wire.codec import encode
from headgate.wire.messages.data import FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse
from headgate.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from headgate.wire.primitives import write_uvarint
from tests.support.fake_upstream import End, FakeUpstream, request
from tests.support.fake_upstream import answer as answer_frame
from tests.unit.proxy.scripted import Scripted, after, at_once
from tests.unit.proxy.stage import Stage, stage, turns, until
from tests.unit.proxy.test_order import heartbeat, metadata, produce

LARGE = 50_000_000
SMALL_BUFFER = 64 * 1024
# Kernel buffers are not ours; of our own there is one buffer a side, and what holds them.
ALLOWED_BYTES = 4 * BUFFER_BYTES


@contextmanager
def bounded_memory(most: int = ALLOWED_BYTES) -> Iterator[None]:
    """Fails when this process, test included, ever holds that much more than at the start."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        yield
        assert tracemalloc.get_traced_memory()[1] - before < most
    finally:
        tracemalloc.stop()


async def pour(end: End, size: int) -> None:
    """Send so many bytes."""
    piece = bytes(100_000)
    for begin in range(0, size, len(piece)):
        await end.send(piece[: size - begin])


async def drink(end: End, size: int) -> None:
    """Receive so many bytes and keep none of them."""
    left = size
    while left:
        piece = await end.receive(min(left, 200_000))
        assert piece
        left -= len(piece)


async def stalls(on: Stage, side: str) -> int:
    """Wait until the gateway has stopped reading that side; how many bytes it has read."""
    meter = on.gateway.metrics.client_meter if side == "client" else on.gateway.metrics.upstream_meter
    connection = await on.connection()
    link = connection.client if side == "client" else connection.upstream
    await until(lambda: not link.is_reading)
    read = meter.received_bytes
    await asyncio.sleep(0.05)
    assert meter.received_bytes == read
    assert meter.times_paused
    return read


def fetch_answer(size: int) -> tuple[bytes, bytes]:
    """A Fetch answer of version 18 up to its records, and behind them."""
    topic = FetchTopicResponse(partitions=(FetchPartitionResponse(records=b""),))
    body = encode(FetchResponse(responses=(topic,)), 18)
    assert body.endswith(b"\x01\x00\x00\x00")  # no records, and three tag sections
    front = pack(">i", 1) + b"\x00" + body[:-4] + write_uvarint(size + 1)
    return pack(">i", len(front) + size + 3) + front, body[-3:]


def huge_produce(size: int) -> tuple[bytes, bytes]:
    """A Produce request up to its records, and behind them."""
    frame = produce(1, 1, size=0)
    front, behind = frame[4:-4], frame[-3:]
    front += write_uvarint(size + 1)
    return pack(">i", len(front) + size + 3) + front, behind


async def test_a_slow_client_stops_the_broker_and_costs_no_memory() -> None:
    front, behind = fetch_answer(LARGE)
    async with stage() as on:
        client, broker = await on.pair(receive_buffer=SMALL_BUFFER)
        await client.send(request(1, 18, FetchRequest()))
        await broker.request()
        with bounded_memory():
            await broker.send(front)
            pouring = asyncio.create_task(pour(broker, LARGE))
            assert await stalls(on, "upstream") < LARGE // 2
            connection = await on.connection()
            assert 0 < connection.client.backlog <= PIPE_BYTES
            assert await client.exactly(len(front)) == front
            await drink(client, LARGE)
            await pouring
        await broker.send(behind)
        assert await client.exactly(len(behind)) == behind
        await until(lambda: connection.is_idle and not connection.client.backlog)


async def test_copied_bytes_that_wait_for_the_client_stop_the_broker_from_a_mark_on() -> None:
    front, behind = fetch_answer(LARGE)
    async with stage() as on:
        on.gateway.pipes.limit = 0
        client, broker = await on.pair(receive_buffer=SMALL_BUFFER)
        await client.send(request(1, 18, FetchRequest()))
        await broker.request()
        await broker.send(front)
        connection = await on.connection()
        meter = on.gateway.metrics.upstream_meter
        sent = 0
        while not connection.client.backlog:
            received = meter.received_bytes
            await broker.send(bytes(20_000))
            await until(partial(lambda was: meter.received_bytes > was, received))
            sent += 20_000
        assert connection.client.backlog <= HIGH_WATER
        assert connection.upstream.is_reading
        assert not meter.times_paused
        pouring = asyncio.create_task(pour(broker, LARGE - sent))
        await stalls(on, "upstream")
        assert HIGH_WATER < connection.client.backlog <= HIGH_WATER + BUFFER_BYTES
        await drink(client, len(front) + LARGE)
        await pouring
        await broker.send(behind)
        assert await client.exactly(len(behind)) == behind


async def test_a_slow_broker_stops_the_client_and_costs_no_memory() -> None:
    front, behind = huge_produce(LARGE)
    async with stage(upstream=FakeUpstream(receive_buffer=SMALL_BUFFER)) as on:
        client, broker = await on.pair()
        with bounded_memory():
            await client.send(front)
            pouring = asyncio.create_task(pour(client, LARGE))
            assert await stalls(on, "client") < LARGE // 2
            connection = await on.connection()
            assert 0 < connection.upstream.backlog <= BUFFER_BYTES
            assert await broker.exactly(len(front)) == front
            await drink(broker, LARGE)
            await pouring
        await client.send(behind, metadata(2))
        assert await broker.exactly(len(behind)) == behind
        assert (await broker.request()).header.correlation_id == 2
        assert len(connection.pending) == 2


async def test_both_sides_slow_at_once_go_on_at_once() -> None:
    front, behind = fetch_answer(LARGE // 5)
    request_front, request_behind = huge_produce(LARGE // 5)
    async with stage(upstream=FakeUpstream(receive_buffer=SMALL_BUFFER)) as on:
        client, broker = await on.pair(receive_buffer=SMALL_BUFFER)
        await client.send(request(1, 18, FetchRequest()))
        await broker.request()
        async with asyncio.TaskGroup() as group:
            group.create_task(_send_all(broker, front, LARGE // 5, behind))
            group.create_task(_send_all(client, request_front, LARGE // 5, request_behind))
            await stalls(on, "client")
            await stalls(on, "upstream")
            group.create_task(drink(client, len(front) + LARGE // 5 + len(behind)))
            group.create_task(drink(broker, len(request_front) + LARGE // 5 + len(request_behind)))


async def _send_all(end: End, front: bytes, size: int, behind: bytes) -> None:
    await end.send(front)
    await pour(end, size)
    await end.send(behind)


async def test_a_client_that_never_takes_our_own_answers_is_not_read_for_ever() -> None:
    """An answer of our own costs the client nothing: only a bound on what waits for it holds it back."""
    async with stage(Scripted(request=lambda *_: Answer(at_once(bytes(10_000))))) as on:
        client, _ = await on.pair(receive_buffer=SMALL_BUFFER)
        connection = await on.connection()
        count = 2000
        sending = asyncio.create_task(client.send(heartbeat(1) * count))
        await until(lambda: connection.client.backlog > LARGEST_BACKLOG)
        await turns(50)
        assert connection.client.backlog < LARGEST_BACKLOG + 20_000
        await drink(client, count * 10_009)  # and it goes on
        await sending


async def test_a_client_with_thousands_of_open_calls_is_read_again_when_some_are_answered() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        connection = await on.connection()
        asked, count = heartbeat(1), 40_000
        answer = answer_frame(12, 4, 1, HeartbeatResponse())
        sending = asyncio.create_task(client.send(asked * count))
        await until(lambda: not connection.client.is_reading)
        await turns(50)
        assert len(connection.pending) == MOST_PENDING
        drinking = asyncio.create_task(drink(client, len(answer) * count))
        taken = answered = 0
        while answered < count:
            taken += len(await broker.receive())
            await broker.send(answer * (taken // len(asked) - answered))
            answered = taken // len(asked)
        await asyncio.gather(sending, drinking)
        assert not connection.pending


async def test_behind_a_held_request_one_buffer_is_read_and_then_all_of_it() -> None:
    go = asyncio.Event()
    front, behind = huge_produce(3_000_000)
    async with stage(Scripted(request=lambda *_: Hold(after(go, Forward()), deadline=10))) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        sending = asyncio.create_task(_send_all(client, front, 3_000_000, behind))
        await stalls(on, "client")
        connection = await on.connection()
        assert connection.client.unused_bytes == BUFFER_BYTES
        assert not connection.pending
        go.set()
        assert (await broker.request()).key == 12
        await drink(broker, len(front) + 3_000_000 + len(behind))
        await sending
        assert len(connection.pending) == 2


async def test_requests_behind_an_answer_of_our_own_are_not_read_twice() -> None:
    go = asyncio.Event()
    body = HeartbeatRequest(group_id="g" * 1000, member_id="m")
    async with stage(Scripted(request=lambda *_: Answer(after(go, bytes(7))))) as on:
        client, broker = await on.pair()
        count = 3 * BUFFER_BYTES // 1000
        sending = asyncio.create_task(
            client.send(*(request(12, 4, body, correlation_id=number) for number in range(count)), metadata(count))
        )
        await stalls(on, "client")
        go.set()
        for number in range(count):
            assert int.from_bytes((await client.frame())[4:8], "big") == number
        assert (await broker.request()).header.correlation_id == count
        await sending


async def test_a_broker_that_ends_with_much_unread_still_gives_it_all_to_a_slow_client() -> None:
    front, _ = fetch_answer(LARGE)
    async with stage(drain_ms=20_000) as on:
        client, broker = await on.pair(receive_buffer=SMALL_BUFFER)
        await client.send(request(1, 18, FetchRequest()))
        await broker.request()

        async def send_and_end() -> None:
            await broker.send(front, bytes(6_000_000))
            broker.close()

        ending = asyncio.create_task(send_and_end())
        await stalls(on, "upstream")
        received = 0
        while piece := await client.receive():
            received += len(piece)
        await ending
        assert received == len(front) + 6_000_000
        assert on.ended == {"upstream_closed": 1}
