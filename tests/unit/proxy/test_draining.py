"""A gateway that ends answers what is under way, takes nothing new, and waits no longer than it was told."""

import asyncio
import socket
from typing import Any

import pytest

from headgate.proxy.interceptor import Forward, Hold
from headgate.wire.messages.data import FetchRequest
from tests.support.fake_upstream import Client, FakeUpstream, request
from tests.unit.proxy.scripted import Scripted, after
from tests.unit.proxy.stage import GATEWAY_HOST, base_port, socket_of, stage, turns, until
from tests.unit.proxy.test_back_pressure import SMALL_BUFFER, drink, fetch_answer
from tests.unit.proxy.test_order import heartbeat, metadata, numbers, produce

PATIENT = 60_000
DRAINED = {"drained": 1}


async def test_calls_under_way_are_answered_and_no_new_call_or_client_is_taken() -> None:
    async with stage(drain_ms=PATIENT) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1), metadata(2), heartbeat(3))
        asked = [await broker.request() for _ in range(3)]
        stopping = on.stop()
        await turns()
        assert (await on.page("/readyz"))[0] == 503
        for port in (base_port(), base_port() + 1):
            with pytest.raises(ConnectionRefusedError):
                await Client.connect(GATEWAY_HOST, port)
        await client.send(heartbeat(4), metadata(5))
        for one in asked:
            assert not stopping.done()
            await broker.send(one.answer(on.upstream.metadata() if one.key == 3 else None))
        assert await numbers(client, 3) == [1, 2, 3]
        await stopping
        assert on.ended == DRAINED
        assert await broker.rest() == b""


@pytest.mark.parametrize(
    "frame", [heartbeat(1), metadata(1), produce(1, 1, size=100_000)], ids=["passing", "opened", "large"]
)
async def test_a_request_that_is_half_here_is_finished_and_answered(frame: bytes) -> None:
    async with stage(drain_ms=PATIENT) as on:
        client, broker = await on.pair()
        half = len(frame) - 3
        before = on.gateway.metrics.client_meter.received_bytes
        await client.send(frame[:half])
        await until(lambda: on.gateway.metrics.client_meter.received_bytes == before + half)
        stopping = on.stop()
        await turns()
        await client.send(frame[half:], heartbeat(2))
        asked = await broker.request()
        assert asked.frame == frame
        await broker.send(asked.answer())
        assert await numbers(client, 1) == [1]
        await stopping
        assert on.ended == DRAINED
        assert await broker.rest() == b""


async def test_a_large_request_to_a_slow_broker_is_finished_and_answered() -> None:
    frame = produce(1, 1, size=8_000_000)
    async with stage(upstream=FakeUpstream(receive_buffer=SMALL_BUFFER), drain_ms=PATIENT) as on:
        client, broker = await on.pair()
        connection = await on.connection()
        sending = asyncio.create_task(client.send(frame))
        await until(lambda: connection.upstream.backlog > 0)
        stopping = on.stop()
        await turns()
        asked = await broker.request()
        await sending
        await broker.send(asked.answer())
        assert await numbers(client, 1) == [1]
        await stopping
        assert on.ended == DRAINED


async def test_a_request_without_an_answer_is_finished() -> None:
    frame = produce(0, 1, size=8_000_000)
    async with stage(upstream=FakeUpstream(receive_buffer=SMALL_BUFFER), drain_ms=PATIENT) as on:
        client, broker = await on.pair()
        connection = await on.connection()
        sending = asyncio.create_task(client.send(frame))
        await until(lambda: connection.upstream.backlog > 0)
        stopping = on.stop()
        await drink(broker, len(frame))
        await sending
        await stopping
        assert on.ended == DRAINED
        assert await broker.rest() == b""


async def test_a_request_without_an_answer_that_the_broker_has_not_taken_yet_is_given_to_it() -> None:
    frame = produce(0, 1, size=55_000)  # one read of the gateway
    async with stage(upstream=FakeUpstream(receive_buffer=4096), drain_ms=PATIENT) as on:
        client, broker = await on.pair()
        connection = await on.connection()
        with socket_of(connection.upstream) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        before = on.gateway.metrics.client_meter.received_bytes
        await client.send(frame)
        await until(lambda: on.gateway.metrics.client_meter.received_bytes == before + len(frame))
        assert connection.upstream.backlog
        assert connection.is_idle
        stopping = on.stop()
        await turns()
        assert await broker.exactly(len(frame)) == frame
        await stopping
        assert on.ended == DRAINED


async def test_a_slow_client_still_gets_its_last_answer() -> None:
    front, behind = fetch_answer(8_000_000)
    async with stage(drain_ms=PATIENT) as on:
        client, broker = await on.pair(receive_buffer=SMALL_BUFFER)
        await client.send(request(1, 18, FetchRequest()))
        await broker.request()
        sending = asyncio.create_task(broker.send(front + bytes(8_000_000) + behind))
        connection = await on.connection()
        await until(lambda: connection.client.backlog > 0)
        stopping = on.stop()
        await drink(client, len(front) + 8_000_000 + len(behind))
        await sending
        await stopping
        assert on.ended == DRAINED


@pytest.mark.parametrize("held", ["request", "response"])
async def test_what_is_held_is_decided_and_given(held: str) -> None:
    go = asyncio.Event()
    hold: Hold[Any] = Hold(after(go, Forward("c")), deadline=10)
    it = Scripted(
        request=lambda *_: hold if held == "request" else Forward("c"),
        response=lambda *_: hold if held == "response" else Forward(),
    )
    async with stage(it, drain_ms=PATIENT) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        if held == "response":
            await broker.reply()
        else:
            await client.send(heartbeat(2))  # which is not taken any more
        connection = await on.connection()
        await until(lambda: connection.requests.blocked or not connection.responses.is_released)
        stopping = on.stop()
        await turns()
        assert not stopping.done()
        go.set()
        if held == "request":
            await broker.reply()
        assert await numbers(client, 1) == [1]
        await stopping
        assert on.ended == DRAINED
        assert await broker.rest() == b""


@pytest.mark.parametrize("who", ["client", "upstream"])
async def test_a_side_that_leaves_is_not_waited_for(who: str) -> None:
    async with stage(drain_ms=PATIENT) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        await broker.request()
        stopping = on.stop()
        await turns()
        (client if who == "client" else broker).close()
        async with asyncio.timeout(10):
            await stopping
        assert on.ended == {f"{who}_closed": 1}


async def test_a_client_that_still_waits_for_its_upstream_is_let_go() -> None:
    upstream = FakeUpstream()
    upstream.answers_metadata.clear()
    async with stage(upstream=upstream, seen=False, drain_ms=PATIENT) as on:
        client = await on.client()
        await until(lambda: on.gateway.metrics.accepted == 1)
        async with asyncio.timeout(10):
            await on.stop()
        assert on.ended == DRAINED
        assert await client.rest() == b""


async def test_many_connections_drain_together() -> None:
    async with stage(drain_ms=PATIENT) as on:
        pairs = [await on.pair() for _ in range(30)]
        for number, (client, _) in enumerate(pairs):
            if number % 2:
                await client.send(heartbeat(number))
        stopping = on.stop()
        for number, (client, broker) in enumerate(pairs):
            if number % 2:
                await broker.reply()
                assert await numbers(client, 1) == [number]
        await stopping
        assert on.ended == {"drained": 30}
