"""How connections live and end: what the other side still gets, who is idle, who is one too many."""

import asyncio
import gc
import socket
import weakref

import pytest

from headgate.proxy.interceptor import CloseCause
from headgate.wire.messages.data import FetchRequest
from tests.support.fake_upstream import FakeUpstream, request
from tests.unit.proxy.stage import stage, turns, until
from tests.unit.proxy.test_back_pressure import SMALL_BUFFER, fetch_answer
from tests.unit.proxy.test_order import heartbeat, metadata, produce


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_gets_all_that_a_broker_had_said_before_its_end(how: str) -> None:
    front, _ = fetch_answer(1_000_000)
    async with stage() as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1), request(1, 18, FetchRequest()))
        whole = (await broker.request()).answer()
        await broker.request()
        said = whole + front + bytes(500_000)
        await broker.send(said)
        await until(lambda: on.gateway.metrics.upstream_meter.received_bytes >= len(said))
        getattr(broker, how)()
        assert await client.rest() == said
        cause = CloseCause.UPSTREAM_CLOSED if how == "close" else CloseCause.UPSTREAM_RESET
        await on.ends_with(cause)


async def test_what_a_broker_said_before_it_broke_reaches_the_client_although_requests_fail() -> None:
    """The client goes on sending to a broker that is gone: the failing send must not hide the last answers."""
    async with stage() as on:
        client, broker = await on.pair()
        connection = await on.connection()
        await client.send(heartbeat(1))
        whole = (await broker.request()).answer()
        connection.upstream.pause()  # as if it had not been its turn yet
        await broker.send(whole)
        broker.sock.shutdown(socket.SHUT_RD)
        broker.close()
        connection.upstream.write(heartbeat(2))
        await asyncio.sleep(0.01)
        connection.upstream.write(heartbeat(3))
        connection.upstream.resume()
        assert await client.rest() == whole
        assert sum(on.ended.values()) == 1


async def test_half_an_opened_answer_is_not_shown() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1), metadata(2))
        whole = (await broker.request()).answer()
        half = (await broker.request()).answer(on.upstream.metadata())
        await broker.send(whole + half[:-1])
        broker.close()
        assert await client.rest() == whole


async def test_a_broker_gets_all_that_a_client_had_sent_before_its_end() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        sent = b"".join(produce(0, number, size=3000) for number in range(300))
        await client.send(sent)
        client.close()
        assert await broker.rest() == sent
        await on.ends_with(CloseCause.CLIENT_CLOSED)


async def test_a_slow_broker_gets_all_that_a_client_had_sent_before_its_end() -> None:
    async with stage(upstream=FakeUpstream(receive_buffer=SMALL_BUFFER)) as on:
        client, broker = await on.pair()
        sent = produce(0, 1, size=6_000_000)
        sending = asyncio.create_task(client.send(sent))
        await asyncio.sleep(0.02)
        received = 0
        while received < len(sent):
            received += len(await broker.receive())
            if sending.done():
                client.close()
        assert received == len(sent)
        assert await broker.rest() == b""


async def test_a_connection_is_not_idle_while_a_call_is_pending() -> None:
    async with stage(idle_ms=100) as on:
        busy, broker = await on.pair()
        await busy.send(heartbeat(1))
        asked = await broker.request()
        silent, _ = await on.pair()
        await until(lambda: on.ended == {"idle": 1})
        assert await silent.rest() == b""
        await asyncio.sleep(0.2)
        await broker.send(asked.answer()[:5])
        await asyncio.sleep(0.2)
        assert on.ended == {"idle": 1}
        await broker.send(asked.answer()[5:])
        assert await busy.frame() == asked.answer()
        await until(lambda: on.ended == {"idle": 2})


async def test_a_connection_is_not_idle_while_its_client_takes_an_answer_slowly() -> None:
    front, behind = fetch_answer(8_000_000)
    async with stage(idle_ms=500) as on:
        client, broker = await on.pair(receive_buffer=SMALL_BUFFER)
        await client.send(request(1, 18, FetchRequest()))
        await broker.request()
        sending = asyncio.create_task(broker.send(front + bytes(8_000_000) + behind))
        left = len(front) + 8_000_000 + len(behind)
        for _ in range(16):
            await asyncio.sleep(0.05)
            left -= len(await client.receive(200_000))
        assert not on.ended
        await client.exactly(left)
        await sending
        await until(lambda: on.ended == {"idle": 1})


async def test_clients_that_wait_for_their_upstream_count_too() -> None:
    upstream = FakeUpstream()
    upstream.answers_metadata.clear()
    async with stage(upstream=upstream, seen=False, max_connections=2) as on:
        waiting = [await on.client() for _ in range(2)]
        await until(lambda: on.gateway.metrics.accepted == 2)
        waiting.append(await on.client())
        assert await waiting[0].rest() == b"", "the oldest makes room"
        for client in waiting:
            client.close()
        upstream.answers_metadata.set()
        await until(lambda: on.ended == {"displaced": 1, "client_closed": 2})
        await on.pair()


async def test_a_thousand_connections_come_and_go_and_leave_nothing() -> None:
    async with stage() as on:
        for _ in range(10):
            clients = [await on.client(first=b"\x00") for _ in range(50)]
            brokers = [await on.upstream.accept() for _ in clients]
            for client in clients[:25]:
                client.close()
            for broker in brokers:
                broker.close()
            await until(lambda: not on.gateway.connections)
            for client in clients[25:]:
                client.close()
        assert sum(on.ended.values()) == on.gateway.metrics.accepted == 500
        assert on.gateway.caps.connections == on.gateway.caps.unproved == 0


@pytest.mark.parametrize("is_answered", [True, False])
@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("who", ["client", "broker"])
async def test_a_connection_that_ended_is_freed_at_once_and_not_by_the_garbage_collector(
    who: str, how: str, *, is_answered: bool
) -> None:
    """A worker collects garbage rarely, so that clients do not wait for it: cycles would hold memory for hours."""
    async with stage() as on:
        client, broker = await on.pair()
        ended = weakref.ref(await on.connection())
        await client.send(heartbeat(1), metadata(2))
        asked = [await broker.request(), await broker.request()]
        if is_answered:
            await broker.send(asked[0].answer(), asked[1].answer(on.upstream.metadata()))
            await client.frame()
            await client.frame()
        gc.disable()
        try:
            getattr(client if who == "client" else broker, how)()
            await until(lambda: not on.gateway.connections)
            await turns()
            assert ended() is None
        finally:
            gc.enable()
