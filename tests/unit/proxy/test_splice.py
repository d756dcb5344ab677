"""Large responses that the kernel moves are the same bytes, and their pipes come back however a connection ends."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from struct import pack
from typing import Any

import pytest

from headgate.base.pipe_limits import PIPE_BYTES
from headgate.proxy import pipes, responses
from headgate.proxy.interceptor import Answer, CloseCause, Forward, Hold
from headgate.wire.codec import encode
from headgate.wire.messages.data import FetchRequest, FetchResponse, FetchTopicResponse, LeaderIdAndEpoch
from tests.support.clock import FakeClock
from tests.support.fake_upstream import Broker, Client, request
from tests.unit.proxy.pipe_leaks import no_pipe_left
from tests.unit.proxy.scripted import Scripted, after
from tests.unit.proxy.stage import Stage, stage, turns, until
from tests.unit.proxy.test_back_pressure import SMALL_BUFFER, fetch_answer
from tests.unit.proxy.test_order import heartbeat, metadata
from tests.unit.proxy.test_split import FETCHED, TOPIC_ID, Call, ask, fetch, produce, send_cut, share_fetch

LARGE = 3_000_000
PATIENT = 20_000


def content(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


@asynccontextmanager
async def splicing(*interceptors: Any, limit: int | None = None, **settings: Any) -> AsyncIterator[Stage]:
    """A stage that leaves no pipe behind; `limit` is of its pipes."""
    with no_pipe_left():
        async with stage(*interceptors, **settings) as on:
            if limit is not None:
                on.gateway.pipes.limit = limit
            assert limit is not None or on.gateway.pipes.limit > 0
            yield on
        assert on.gateway.pipes.open == 0


async def begin(on: Stage, size: int, *, receive_buffer: int | None = None) -> tuple[Client, Broker, bytes]:
    """A client that has asked for records of this size, its broker, and the response."""
    client, broker = await on.pair(receive_buffer=receive_buffer)
    await client.send(request(1, 18, FetchRequest()))
    await broker.request()
    front, behind = fetch_answer(size)
    return client, broker, front + content(size) + behind


async def stalled(on: Stage, frame: bytes, broker: Broker) -> "asyncio.Task[None]":
    """Send as much as it takes until bytes wait in a pipe for the client; the task sends the rest."""
    sending = asyncio.create_task(broker.send(frame))
    connection = await on.connection()
    await until(lambda: connection.client.backlog > 0 and not connection.upstream.is_reading)
    assert on.gateway.pipes.used == 1
    return sending


# The bytes.


def fetch_without_tail(records: bytes, version: int) -> Call:
    """A Fetch of a version that has no NodeEndpoints: its response is not walked."""
    partition = replace(FETCHED, records=records, current_leader=LeaderIdAndEpoch())
    topic = FetchTopicResponse(topic_id=TOPIC_ID, partitions=(partition, partition))
    if version < 13:
        topic = FetchTopicResponse(topic="orders", partitions=(partition, partition))
    return Call(1, version, FetchRequest(), FetchResponse(responses=(topic,)))


SPLICED = [
    fetch(records=content(300_000)),
    fetch_without_tail(content(150_000), 15),
    share_fetch(records=content(150_000)),
]


@pytest.mark.parametrize("call", SPLICED, ids=str)
async def test_the_digest_of_a_response_is_the_same_with_and_without_splice_wherever_it_is_cut(call: Call) -> None:
    body = encode(call.answered, call.version)
    size = len(body) + 8
    # Before the eighth byte nothing has gone out: what is then received at once is changed freely.
    cuts = [*range(8, 100), *range(200, size - 400, size // 20), *range(size - 400, size)]
    digests: dict[bool, list[bytes]] = {}
    for is_spliced in (True, False):
        async with splicing(limit=None if is_spliced else 0) as on:
            client, broker = await on.pair()
            digests[is_spliced] = []
            for number, cut in enumerate(cuts):
                await send_cut(on, broker, await ask(client, broker, call, number), cut)
                digests[is_spliced].append(sha256(await client.frame()).digest())
            moved = on.gateway.pipes.spliced_bytes
            assert (moved > len(cuts) * 10_000) if is_spliced else not moved
            assert on.gateway.snapshot()["headgate_splice_bytes", ()] == moved
    assert digests[True] == digests[False]


SMALL = [
    fetch(),
    fetch_without_tail(b"records", 15),
    fetch_without_tail(b"records", 11),
    share_fetch(),
    produce(message="m" * 100),
]


@pytest.mark.parametrize("call", SMALL, ids=str)
async def test_every_split_point_of_a_response_gives_the_same_bytes_with_and_without_splice(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the thresholds at one byte, all that is skipped is spliced."""
    monkeypatch.setattr(responses, "SPLICE_FROM", 1)
    monkeypatch.setattr(responses, "_SMALL_ANSWER", 0)
    size = len(encode(call.answered, call.version)) + 8
    got: dict[bool, list[bytes]] = {}
    for is_spliced in (True, False):
        async with splicing(limit=None if is_spliced else 0) as on:
            client, broker = await on.pair()
            got[is_spliced] = []
            for number, cut in enumerate(range(1, size)):
                await send_cut(on, broker, await ask(client, broker, call, number), cut)
                got[is_spliced].append(await client.frame())
            assert bool(on.gateway.pipes.spliced_bytes) is is_spliced
    assert got[True] == got[False]


async def test_many_responses_behind_each_other_arrive_in_order() -> None:
    sizes = [1_000, 2_000_000, 70_000, 64, 1_000_000, 200_000, 0, 600_000]
    frames_ = []
    for number, size in enumerate(sizes):
        front, behind = fetch_answer(size)
        frames_.append(front[:4] + pack(">i", number) + front[8:] + content(size, number) + behind)
    expected = b"".join(frames_)
    async with splicing() as on:
        client, broker = await on.pair()
        await client.send(*(request(1, 18, FetchRequest(), correlation_id=number) for number in range(len(sizes))))
        for _ in sizes:
            await broker.request()
        sending = asyncio.create_task(broker.send(expected))
        assert sha256(await client.exactly(len(expected))).digest() == sha256(expected).digest()
        await sending
        meters = on.gateway.metrics
        assert on.gateway.pipes.spliced_bytes > 2_500_000
        assert meters.client_meter.sent_bytes - meters.upstream_meter.received_bytes == 0
        assert on.gateway.pipes.used == 0


async def test_a_response_that_an_interceptor_watches_is_shown_whole_and_not_spliced() -> None:
    it = Scripted(stream_keys=(1,), keys=(), request=lambda *_: Forward("mine"))
    async with splicing(it) as on:
        client, broker, frame = await begin(on, LARGE)
        sending = asyncio.create_task(broker.send(frame))
        assert await client.exactly(len(frame)) == frame
        await sending
        assert b"".join(it.chunks) == frame
        assert on.gateway.pipes.spliced_bytes == 0


async def test_a_large_response_behind_a_held_one_waits_for_it_and_is_not_spliced() -> None:
    go = asyncio.Event()
    it = Scripted(request=lambda *_: Forward("c"), response=lambda *_: Hold(after(go, Forward()), deadline=10))
    async with splicing(it) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1), request(1, 18, FetchRequest()))
        await broker.reply()
        await broker.request()
        front, behind = fetch_answer(400_000)
        frame = front + content(400_000) + behind
        await broker.send(frame)
        await until(lambda: on.gateway.metrics.upstream_meter.received_bytes >= len(frame))
        assert await client.is_quiet()
        assert on.gateway.pipes.spliced_bytes == 0
        go.set()
        assert int.from_bytes((await client.frame())[4:8], "big") == 1
        assert await client.exactly(len(frame)) == frame


async def test_a_response_of_the_gateway_waits_for_a_spliced_one_before_it() -> None:
    it = Scripted(request=lambda *_: Answer(b"ours"))
    async with splicing(it) as on:
        client, broker = await on.pair()
        call = fetch_without_tail(content(LARGE), 15)
        frame = await ask(client, broker, call, 1)
        await client.send(heartbeat(2))
        await broker.send(frame[: LARGE // 2])
        await until(lambda: on.gateway.pipes.spliced_bytes > 0)
        await turns()
        sending = asyncio.create_task(broker.send(frame[LARGE // 2 :]))
        assert await client.frame() == frame
        await sending
        assert (await client.frame()).endswith(b"ours")
        await client.send(metadata(3))
        await broker.reply(on.upstream.metadata())
        await client.frame()


@pytest.mark.parametrize("is_spliced", [True, False])
@pytest.mark.parametrize("wrong", ["no tail", "records past the end"])
async def test_lengths_that_contradict_each_other_end_the_connection(is_spliced: bool, wrong: str) -> None:
    front, _ = fetch_answer(400_000)
    left = len(front) - 4 + 400_000 - (1_000 if wrong == "records past the end" else 0)
    async with splicing(limit=None if is_spliced else 0) as on:
        client, broker = await on.pair()
        await client.send(request(1, 18, FetchRequest()))
        await broker.request()
        await broker.send(pack(">i", left), front[4:], bytes(400_000))
        await client.rest()
        await on.ends_with(CloseCause.BAD_ANSWER)


# Slow clients.


async def test_what_waits_in_a_pipe_for_a_slow_client_is_backlog_and_stops_the_broker() -> None:
    async with splicing() as on:
        client, broker, frame = await begin(on, 20_000_000, receive_buffer=SMALL_BUFFER)
        sending = await stalled(on, frame, broker)
        connection = await on.connection()
        assert 0 < connection.client.backlog <= PIPE_BYTES
        assert not connection.is_drained
        read = on.gateway.metrics.upstream_meter.received_bytes
        await asyncio.sleep(0.05)
        assert on.gateway.metrics.upstream_meter.received_bytes == read < len(frame)
        assert await client.exactly(len(frame)) == frame
        await sending
        await until(lambda: on.gateway.pipes.used == 0)
        assert on.gateway.pipes.open == 1


async def test_responses_are_copied_while_a_slow_client_has_the_only_pipe_and_it_gives_it_back_in_time() -> None:
    clock = FakeClock()
    async with splicing(limit=1, clock=clock.monotonic) as on:
        pool = on.gateway.pipes
        slow, slow_broker, frame = await begin(on, 20_000_000, receive_buffer=SMALL_BUFFER)
        sending = await stalled(on, frame, slow_broker)
        [connection] = on.gateway.connections
        before = pool.spliced_bytes

        async def fetch_beside() -> None:
            other, broker, other_frame = await begin(on, LARGE)
            sending_other = asyncio.create_task(broker.send(other_frame))
            assert await other.exactly(len(other_frame)) == other_frame
            await sending_other

        await fetch_beside()
        assert pool.spliced_bytes == before
        assert pool.fallbacks > 0
        clock.now += 2
        backlog = connection.client.backlog
        await fetch_beside()
        assert pool.spliced_bytes > before
        assert connection.client.backlog == backlog  # in memory now
        assert pool.used == 0
        assert await slow.exactly(len(frame)) == frame
        await sending


async def test_a_kind_of_socket_that_cannot_be_spliced_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(22, "Invalid argument")

    async with splicing() as on:
        client, broker, frame = await begin(on, LARGE)
        monkeypatch.setattr(pipes.Pipe, "receive", refuse)
        sending = asyncio.create_task(broker.send(frame))
        assert await client.exactly(len(frame)) == frame
        await sending
        assert on.gateway.pipes.limit == 0


# Ends, each with bytes in a pipe.


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
async def test_a_client_that_stops_reading_and_leaves_in_the_middle_leaves_no_pipe(how: str) -> None:
    async with splicing() as on:
        client, broker, frame = await begin(on, 20_000_000, receive_buffer=SMALL_BUFFER)
        sending = await stalled(on, frame, broker)
        if how == "half-close":
            client.sock.shutdown(socket.SHUT_WR)
        else:
            getattr(client, how)()
        await until(lambda: not on.gateway.connections)
        assert sum(on.ended.values()) == 1
        assert on.gateway.pipes.used == 0
        sending.cancel()
        other, other_broker, frame = await begin(on, LARGE)
        sending = asyncio.create_task(other_broker.send(frame))
        assert await other.exactly(len(frame)) == frame
        await sending


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_broker_that_leaves_in_the_middle_has_all_that_it_sent_delivered(how: str) -> None:
    async with splicing(drain_ms=PATIENT) as on:
        client, broker, frame = await begin(on, 20_000_000, receive_buffer=SMALL_BUFFER)
        sent = frame[:6_000_000]
        sending = await stalled(on, sent, broker)
        received = bytearray(await client.exactly(1_000_000))
        if how == "close":
            sending.add_done_callback(lambda _: broker.close())
            received += await client.rest()
            assert bytes(received) == sent
            assert on.ended == {"upstream_closed": 1}
        else:
            sending.cancel()
            await asyncio.wait((sending,))
            broker.reset()
            received += await client.rest()
            assert sent.startswith(received)
            assert on.ended == {"upstream_reset": 1}


async def test_a_gateway_that_drains_sends_the_rest_of_a_spliced_response_first() -> None:
    async with splicing(drain_ms=PATIENT) as on:
        client, broker, frame = await begin(on, 20_000_000, receive_buffer=SMALL_BUFFER)
        sending = await stalled(on, frame, broker)
        stopping = on.stop()
        assert await client.exactly(len(frame)) == frame
        await sending
        await stopping
        assert on.ended == {"drained": 1}


async def test_a_client_that_never_reads_is_ended_by_the_drain_and_leaves_no_pipe() -> None:
    async with splicing(drain_ms=100) as on:
        _client, broker, frame = await begin(on, 20_000_000, receive_buffer=SMALL_BUFFER)
        sending = await stalled(on, frame, broker)
        await on.stop()
        sending.cancel()
        assert on.ended == {"drain_timeout": 1}
        assert on.gateway.pipes.open == 0


async def test_a_client_that_reads_slowly_gets_every_byte() -> None:
    async with splicing() as on:
        client, broker, frame = await begin(on, 8_000_000, receive_buffer=SMALL_BUFFER)
        sending = asyncio.create_task(broker.send(frame))
        digest = sha256()
        left = len(frame)
        while left:
            piece = await client.receive(min(left, 30_000))
            digest.update(piece)
            left -= len(piece)
            await asyncio.sleep(0)
        await sending
        assert digest.digest() == sha256(frame).digest()
        assert on.gateway.pipes.spliced_bytes > 7_000_000
