"""Before a client has proved who it is: when its broker is dialled, how long it may stay, and what is opened."""

import asyncio
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.proxy.chain import LARGEST_UNPROVED
from headgate.proxy.interceptor import Answer, Forward
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import SaslHandshakeRequest
from headgate.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from tests.support.clock import FakeClock
from tests.support.fake_upstream import request
from tests.unit.proxy.scripted import Scripted
from tests.unit.proxy.stage import API_VERSIONS, stage, turns, until
from tests.unit.proxy.test_order import heartbeat, metadata, numbers, produce

METADATA = 3


def large_heartbeat(number: int) -> bytes:
    body = HeartbeatRequest(group_id="g", member_id="m", group_instance_id="i" * LARGEST_UNPROVED)
    return request(12, 4, body, correlation_id=number)


# When the broker is dialled.


async def test_a_silent_client_has_no_upstream_connection_and_is_closed_in_time() -> None:
    async with stage(first_request_ms=100) as on:
        silent = [await on.client() for _ in range(50)]
        for client in silent:
            assert await client.rest() == b""
        assert not on.upstream.has_connection()
        assert on.ended == {"no_request": 50}
        assert on.gateway.caps.connections == on.gateway.caps.unproved == 0


async def test_a_client_that_leaves_without_a_byte_has_no_upstream_connection() -> None:
    async with stage() as on:
        (await on.client()).close()
        (await on.client()).reset()
        await until(lambda: sum(on.ended.values()) == 2)
        assert set(on.ended) <= {"client_closed", "client_reset"}
        assert not on.upstream.has_connection()


async def test_the_broker_is_dialled_at_the_first_byte_and_gets_every_byte() -> None:
    async with stage() as on:
        client = await on.client(first=heartbeat(1)[:1])
        broker = await on.upstream.accept()
        await client.send(heartbeat(1)[1:])
        assert (await broker.reply()).frame == heartbeat(1)
        assert await numbers(client, 1) == [1]


@pytest.mark.parametrize("sent", [0, 1, 14, -1])
async def test_a_first_request_that_is_not_whole_in_time_ends_the_connection(sent: int) -> None:
    async with stage(first_request_ms=100) as on:
        client = await on.client(first=API_VERSIONS[:sent] if sent else b"")
        assert await client.rest() == b""
        assert on.ended == {"no_request": 1}


# Until the proof.


async def test_a_client_that_only_greets_is_probed_at_the_end_of_its_time() -> None:
    """The broker closes it unless it has logged in, so that honest clients stay."""
    async with stage(first_request_ms=100) as on:
        client, broker = await on.pair(proved=False)
        connection = await on.connection()
        probe = await broker.request()
        assert (probe.key, probe.header.client_id) == (METADATA, b"headgate")
        await broker.send(probe.answer(on.upstream.metadata()))
        await until(lambda: connection.is_proved)
        assert await client.is_quiet()
        assert on.ended == {}
        other, broker = await on.pair(proved=False)
        await broker.request()
        broker.close()  # as it does when there was no log-in
        assert await other.rest() == b""


async def test_a_client_that_waits_for_its_first_answer_is_not_ended() -> None:
    """The first request to a coordinator may be a JoinGroup, whose answer takes minutes."""
    async with stage(first_request_ms=100) as on:
        client, broker = await on.pair(proved=False)
        await client.send(request(11, 9, b"\x00" * 30, correlation_id=6))
        asked = await broker.request()
        assert on.gateway.caps.unproved == 0
        await asyncio.sleep(0.5)
        assert on.ended == {}
        await broker.send(asked.answer(b"\x00" * 30))
        assert await numbers(client, 1) == [6]


async def test_a_slow_first_request_is_preceded_by_a_probe_and_not_ended() -> None:
    async with stage(first_request_ms=100) as on:
        client, broker = await on.pair(proved=False)
        connection = await on.connection()
        frame = produce(1, 7, size=100_000)
        await client.send(frame[:50_000])
        probe = await broker.reply(on.upstream.metadata())
        assert probe.key == METADATA
        await until(lambda: connection.is_proved)
        await asyncio.sleep(0.5)
        await client.send(frame[50_000:])
        assert (await broker.reply()).frame == frame
        assert await numbers(client, 1) == [7]


async def test_answers_of_the_gateway_itself_do_not_keep_a_connection() -> None:
    it = Scripted(request=lambda *_: Answer(encode(HeartbeatResponse(), 4)))
    async with stage(it, first_request_ms=100) as on:
        client, broker = await on.pair(proved=False)

        async def call_on() -> None:
            while True:
                await client.send(heartbeat(1))
                await client.frame()

        calling = asyncio.create_task(call_on())
        assert (await broker.request()).key == METADATA
        assert not (await on.connection()).is_proved
        calling.cancel()
        await asyncio.wait({calling})


# The caps of unproved connections.


async def test_a_connection_counts_as_unproved_until_its_broker_has_a_request_to_decide_on() -> None:
    async with stage() as on:
        caps = on.gateway.caps
        client, broker = await on.pair(proved=False)
        await client.send(request(17, 1, SaslHandshakeRequest(mechanism="PLAIN")))
        await broker.reply()
        await client.frame()
        assert caps.unproved == 1
        await client.send(metadata(1))
        await broker.request()
        assert caps.unproved == 0
        client.close()
        await until(lambda: not on.gateway.connections)
        assert caps.connections == caps.unproved == 0


async def test_unproved_connections_of_one_address_do_not_keep_proved_ones_out(logs: list[EventDict]) -> None:
    async with stage(max_unproved_connections_per_address=3) as on:
        proved = [await on.pair() for _ in range(5)]
        silent = [await on.client() for _ in range(3)]
        await until(lambda: on.gateway.metrics.accepted == 8)
        for _ in range(3):
            assert await (await on.client()).rest() == b""
        for client, broker in proved:
            await client.send(heartbeat(1))
            await broker.reply()
            assert await numbers(client, 1) == [1]
        silent[0].close()
        await until(lambda: on.gateway.caps.unproved == 2)
        await on.pair()
    [event] = [one for one in logs if one["log_level"] == "warning"]
    assert event["event"] == "too many unproved connections, refusing more"


# What is opened.


async def test_a_large_request_is_not_opened_before_the_proof() -> None:
    it = Scripted(request=lambda *_: Forward("c"))
    async with stage(it) as on:
        client, broker = await on.pair(proved=False)
        await client.send(large_heartbeat(1), heartbeat(2), metadata(3))
        probe = await broker.request()
        assert probe.key == METADATA
        await turns(20)
        assert it.events == []
        await broker.send(probe.answer(on.upstream.metadata()))
        assert (await broker.reply()).frame == large_heartbeat(1)
        assert (await broker.reply()).frame == heartbeat(2)
        await broker.reply(on.upstream.metadata())
        assert await numbers(client, 3) == [1, 2, 3]
        assert it.events == ["it request 1", "it request 2", "it response c", "it response c"]


@pytest.mark.parametrize("length", range(LARGEST_UNPROVED - 5, LARGEST_UNPROVED + 6))
async def test_a_request_of_any_length_around_the_limit_is_opened_without_delay(length: int) -> None:
    """It is opened at once, or the proof that it waits for is requested."""
    it = Scripted(request=lambda *_: Forward())
    filled = "i" * (LARGEST_UNPROVED - 100)
    body = HeartbeatRequest(group_id="g", member_id="m", group_instance_id=filled)
    missing = length + 4 - len(request(12, 4, body))
    body = HeartbeatRequest(group_id="g", member_id="m", group_instance_id=filled + "i" * missing)
    frame = request(12, 4, body, correlation_id=1)
    assert len(frame) == 4 + length
    async with stage(it) as on:
        client, broker = await on.pair(proved=False)
        await client.send(frame)
        asked = await broker.request()
        assert (asked.key == METADATA) == (length > LARGEST_UNPROVED)
        if asked.key == METADATA:
            await broker.send(asked.answer(on.upstream.metadata()))
            asked = await broker.request()
        assert asked.frame == frame


async def test_a_large_request_behind_another_waits_for_its_answer_and_needs_no_probe() -> None:
    it = Scripted(request=lambda *_: Forward())
    async with stage(it) as on:
        client, broker = await on.pair(proved=False)
        await client.send(heartbeat(1), large_heartbeat(2))
        asked = await broker.request()
        assert await broker.is_quiet()
        await broker.send(asked.answer())
        assert (await broker.reply()).frame == large_heartbeat(2)
        assert await numbers(client, 2) == [1, 2]


async def test_a_large_request_of_an_unauthenticated_client_is_never_opened() -> None:
    it = Scripted(request=lambda *_: Forward())
    async with stage(it) as on:
        client, broker = await on.pair(proved=False)
        await client.send(large_heartbeat(1))
        await broker.request()
        broker.close()
        assert await client.rest() == b""
    assert it.events == []


async def test_an_answer_of_the_gateway_to_a_large_request_follows_the_proof() -> None:
    answers: Any = Answer(encode(HeartbeatResponse(error_code=7), 4))
    it = Scripted(request=lambda *_: answers)
    async with stage(it) as on:
        client, broker = await on.pair(proved=False)
        await client.send(metadata(1), large_heartbeat(2))
        await broker.reply(on.upstream.metadata())
        assert await numbers(client, 2) == [1, 2]


async def test_an_api_versions_request_over_4_kib_is_refused_before_the_proof() -> None:
    async with stage() as on:
        client = await on.client(first=request(18, 3, b"\x02a\x021" + bytes(5000)))
        assert await client.rest() == b""
        await until(lambda: on.ended == {"frame_too_large": 1})


# What is logged.


async def test_the_ends_of_unproved_connections_are_logged_once_a_minute_for_an_address(logs: list[EventDict]) -> None:
    clock = FakeClock(0)
    async with stage(clock=clock.monotonic) as on:
        for now in (0, 1, 59, 61):
            clock.now = now
            client = await on.client(first=request(999, 0, b""))
            await on.upstream.accept()
            assert await client.rest() == b""
        await until(lambda: sum(on.ended.values()) == 4)
        for _ in range(2):
            client, _ = await on.pair()
            await client.send(request(999, 0, b""))
            assert await client.rest() == b""
    ended = [one["cause"] for one in logs if one["event"] == "connection ended"]
    assert ended == ["unsupported_call"] * 4  # two of the first four, and both of clients that had proved who they are
