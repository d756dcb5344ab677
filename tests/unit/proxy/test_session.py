"""Calls of our own on a client's connection, and the bytes that watchers see."""

import asyncio
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.base.errors import ClusterError
from headgate.proxy.interceptor import Answer, CloseCause, Forward, Hold, RequestFrame, Rewritten, Session
from headgate.wire import frames
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from headgate.wire.messages.data import FetchRequest
from headgate.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from headgate.wire.messages.streams import StreamsGroupHeartbeatRequest
from headgate.wire.schema import Request
from tests.support.fake_upstream import request
from tests.unit.proxy.scripted import Scripted
from tests.unit.proxy.stage import stage, turns, until
from tests.unit.proxy.test_back_pressure import fetch_answer
from tests.unit.proxy.test_order import heartbeat, metadata, numbers, produce
from tests.unit.proxy.test_split import HEARTBEAT as HEARTBEAT_CALL
from tests.unit.proxy.test_split import LARGE, Call, ask, fetch, reach, send_cut

ASK = HeartbeatRequest(group_id="g", generation_id=-1, member_id="headgate-probe")
PROBE = encode(ASK, 4)
ALLOWED = HeartbeatResponse(error_code=25)


async def probe(session: Session, *, deadline: float = 5.0) -> int:
    """Ask the broker on the client's own connection; the error code."""
    return (await session.call(ASK, 4, deadline=deadline)).error_code


async def opened(watcher: Scripted) -> Session:
    """The session of the only connection."""
    await until(lambda: bool(watcher.sessions))
    return watcher.sessions[0]


# session.call


async def test_a_call_of_our_own_stands_in_line_and_its_answer_is_not_shown() -> None:
    it = Scripted(keys=())
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(request(1, 18, FetchRequest(), correlation_id=1))
        waiting = await broker.request()
        probing = asyncio.create_task(probe(await opened(it)))
        asked = await broker.request()
        assert (asked.key, asked.version, asked.body) == (12, 4, PROBE)
        assert asked.header.client_id == b"headgate"
        await client.send(metadata(1))  # with the same correlation id as our call
        behind = await broker.request()
        assert await client.is_quiet()
        await broker.send(waiting.answer(), asked.answer(ALLOWED), behind.answer(on.upstream.metadata()))
        assert await probing == 25
        assert await numbers(client, 2) == [1, 1]
        assert await client.is_quiet()


async def test_many_calls_at_once_get_their_own_answers() -> None:
    it = Scripted(keys=())
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        await broker.reply()
        await client.frame()
        session = await opened(it)
        probing = [asyncio.create_task(probe(session)) for _ in range(50)]
        for number in range(50):
            asked = await broker.request()
            frame = asked.answer(HeartbeatResponse(error_code=number))
            await broker.send(frame[:6])
            await turns(3)
            await broker.send(frame[6:])
        assert await asyncio.gather(*probing) == list(range(50))
        assert await client.is_quiet()


async def test_a_call_does_not_break_into_a_request() -> None:
    it = Scripted(keys=())
    frame = produce(1, 1, size=300_000)
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(frame[:1000])
        assert await broker.exactly(1000) == frame[:1000]
        probing = asyncio.create_task(probe(await opened(it)))
        assert await broker.is_quiet()
        await client.send(frame[1000:])
        assert await broker.exactly(len(frame) - 1000) == frame[1000:]
        asked = await broker.request()
        assert asked.key == 12
        probing.cancel()
        await asyncio.wait({probing})


async def test_a_call_that_is_not_answered_in_time_is_unknown_and_its_answer_is_dropped_later() -> None:
    it = Scripted(keys=())
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        first = await broker.request()
        with pytest.raises(ClusterError, match=r"did not answer Heartbeat within 0\.02 s"):
            await probe(await opened(it), deadline=0.02)
        late = await broker.request()
        await client.send(heartbeat(2))
        second = await broker.request()
        await broker.send(first.answer(), late.answer(ALLOWED), second.answer())
        assert await numbers(client, 2) == [1, 2]


async def test_a_call_that_was_given_up_before_its_turn_is_not_sent() -> None:
    it = Scripted(keys=())
    async with stage(it) as on:
        client, broker = await on.pair(proved=False)
        with pytest.raises(ClusterError):
            await probe(await opened(it), deadline=0.02)  # the client may be going to authenticate
        await client.send(heartbeat(1))
        await broker.reply()
        await client.frame()
        assert await broker.is_quiet()


@pytest.mark.parametrize("who", ["client", "broker", "broker in the middle of the answer", "bad answer"])
async def test_a_call_ends_with_its_connection(who: str) -> None:
    it = Scripted(keys=())
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        first = await broker.request()
        session = await opened(it)
        probing = asyncio.create_task(probe(session))
        asked = await broker.request()
        if who == "client":
            client.close()
        elif who == "broker":
            broker.close()
        elif who == "broker in the middle of the answer":
            await broker.send(first.answer(), asked.answer()[:10])
            broker.close()
        else:
            await broker.send(b"\x00\x00\x00\x04\x00\x00\x00\x63")
        async with asyncio.timeout(10):
            with pytest.raises(ClusterError, match="has ended"):
                await probing
        with pytest.raises(ClusterError, match="has ended"):
            await probe(session)


async def test_a_call_that_waits_for_its_turn_ends_with_its_connection() -> None:
    it = Scripted(keys=())
    async with stage(it) as on:
        client, _ = await on.pair(proved=False)
        probing = asyncio.create_task(probe(await opened(it)))
        await turns()
        client.close()
        with pytest.raises(ClusterError, match="has ended"):
            await probing


HANDSHAKE = {
    17: request(17, 1, SaslHandshakeRequest(mechanism="PLAIN")),
    36: request(36, 2, SaslAuthenticateRequest(auth_bytes=b"secret")),
    18: request(18, 3, ApiVersionsRequest(client_software_name="x", client_software_version="1")),
}


@pytest.mark.parametrize("key", HANDSHAKE)
async def test_a_call_waits_until_the_client_is_through_with_authentication(key: int) -> None:
    it = Scripted(keys=())
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        await broker.reply()
        await client.send(HANDSHAKE[key])
        await broker.reply(on.upstream.api_versions() if key == 18 else None)
        probing = asyncio.create_task(probe(await opened(it)))
        assert await broker.is_quiet()
        await client.send(heartbeat(2))
        assert (await broker.reply()).body != PROBE
        assert (await broker.reply(ALLOWED)).body == PROBE
        assert await probing == 25


async def test_a_call_that_the_broker_does_not_have_is_not_sent() -> None:
    it = Scripted(keys=())
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        await broker.request()
        session = await opened(it)
        asked: tuple[tuple[Request[Any], int], ...] = ((StreamsGroupHeartbeatRequest(), 1), (ASK, 5))
        for message, version in asked:
            with pytest.raises(ClusterError, match=f"does not have api key {message.api_key} version {version}"):
                await session.call(message, version)
        assert await broker.is_quiet()


async def test_a_held_request_may_ask_the_broker_first() -> None:
    def on_request(asked: RequestFrame, session: Session) -> Hold[Any]:  # noqa: ARG001
        async def decide() -> Forward[Any]:
            assert await probe(session) == 25
            return Forward()

        return Hold(decide(), deadline=10)

    async with stage(Scripted(keys=(11,), request=on_request)) as on:
        client, broker = await on.pair()
        joining = request(11, 9, b"\x00" * 30, correlation_id=6)
        await client.send(joining, heartbeat(7))
        assert (await broker.reply(ALLOWED)).body == PROBE
        assert (await broker.request()).frame == joining
        assert (await broker.request()).header.correlation_id == 7


async def test_a_held_answer_may_ask_the_broker_first() -> None:
    it: Scripted

    def on_response(*_: object) -> Hold[Any]:
        async def decide() -> Forward[Any]:
            assert await probe(it.sessions[0]) == 25
            return Forward()

        return Hold(decide(), deadline=10)

    it = Scripted(keys=(3,), request=lambda *_: Forward("c"), response=on_response)
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(metadata(1))
        await broker.reply(on.upstream.metadata())
        assert (await broker.reply(ALLOWED)).body == PROBE
        assert await numbers(client, 1) == [1]


# is_proved


async def test_answers_to_the_handshake_prove_nothing_and_the_first_other_answer_does() -> None:
    it = Scripted(keys=())
    async with stage(it) as on:
        client, broker = await on.pair(proved=False)
        session = await opened(it)
        for key in (18, 17, 36):
            await client.send(HANDSHAKE[key])
            await broker.reply(on.upstream.api_versions() if key == 18 else None)
            await client.frame()
            assert not session.is_proved
        await client.send(metadata(1))
        asked = await broker.request()
        assert not session.is_proved
        await broker.send(asked.answer(on.upstream.metadata()))
        await client.frame()
        assert session.is_proved


async def test_the_answer_to_a_call_of_our_own_proves_a_connection() -> None:
    proofs: list[bool] = []

    def on_request(asked: RequestFrame, session: Session) -> Hold[Any]:  # noqa: ARG001
        async def decide() -> Forward[Any]:
            proofs.append(session.is_proved)
            await probe(session)
            proofs.append(session.is_proved)
            return Forward()

        return Hold(decide(), deadline=10)

    async with stage(Scripted(keys=(11,), request=on_request)) as on:
        client, broker = await on.pair(proved=False)
        await client.send(request(11, 9, b"\x00" * 30, correlation_id=6))
        assert (await broker.reply(ALLOWED)).body == PROBE
        await broker.request()
    assert proofs == [False, True]


async def test_an_answer_of_the_gateway_itself_proves_nothing() -> None:
    it = Scripted(request=lambda *_: Answer(encode(HeartbeatResponse(error_code=0), 4)))
    async with stage(it) as on:
        client, _ = await on.pair(proved=False)
        await client.send(heartbeat(1))
        assert await numbers(client, 1) == [1]
        assert not (await opened(it)).is_proved


# on_open


async def test_an_interceptor_that_fails_at_the_opening_is_passed_over(logs: list[EventDict]) -> None:
    def broken(_: Session) -> None:
        raise RuntimeError("a bug")

    async with stage(Scripted(opened=broken), Scripted("second")) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        await broker.reply()
        assert await numbers(client, 1) == [1]
        assert on.gateway.metrics.chain_meter.failures == 1
    assert [event["step"] for event in logs if event["log_level"] == "warning"] == ["on_open"]


# on_chunk


@pytest.mark.parametrize("call", [fetch(), HEARTBEAT_CALL, *LARGE], ids=str)
async def test_a_watcher_sees_exactly_the_bytes_that_the_broker_sent(call: Call) -> None:
    it = Scripted(keys=(), stream_keys=(call.key,), request=lambda *_: Forward("c"))
    async with stage(it) as on:
        client, broker = await on.pair()
        for number, cut in enumerate((1, 7, 8, 9, 50, 1000, -40, -10, -1)):
            frame = await ask(client, broker, call, number)
            await send_cut(on, broker, frame, cut % len(frame))
            await client.frame()
            assert b"".join(it.chunks) == frame
            assert b"" not in it.chunks
            it.chunks.clear()


async def test_the_empty_end_of_a_large_response_goes_with_what_is_in_front_of_it() -> None:
    front, behind = fetch_answer(70_000)
    frame = front + bytes(70_000) + behind
    it = Scripted(keys=(), stream_keys=(1,), request=lambda *_: Forward("c"))
    async with stage(it) as on:
        client, broker = await on.pair()
        for left in (10, 3):
            await client.send(request(1, 18, FetchRequest()))
            await broker.request()
            await send_cut(on, broker, frame, len(frame) - left)
            assert await client.frame() == frame
            assert it.chunks[-1] == frame[-left:]


async def test_a_watcher_is_told_who_asks_and_sees_the_request_as_far_as_it_has_come() -> None:
    seen: list[tuple[int, str | None, int, bytes]] = []

    def look(frame: RequestFrame, _: Session) -> Forward[Any]:
        seen.append((frame.correlation_id, frame.client_id, frame.size, bytes(frame.body)))
        return Forward()

    async with stage(Scripted(keys=(), stream_keys=(12,), request=look)) as on:
        client, broker = await on.pair()
        frame = heartbeat(7)
        body = frame[frames.request_header(frame, flexible=True)[1] :]
        meter = on.gateway.metrics.client_meter
        before = meter.received_bytes
        await client.send(frame[:16])  # inside the client id
        await reach(meter, before + 16)
        await client.send(frame[16:])
        await broker.reply()
        assert await numbers(client, 1) == [7]
        assert seen == [(7, "test", len(frame) - 4, body)]


async def test_a_watcher_sees_the_answer_to_a_call_that_another_opens_as_the_broker_sent_it() -> None:
    changed = encode(HeartbeatResponse(error_code=7), 4)
    opener = Scripted("opener", request=lambda *_: Forward("c"), response=lambda *_: Rewritten(changed))
    watcher = Scripted("watcher", keys=(), stream_keys=(12,), request=lambda *_: Forward("c"))
    async with stage(opener, watcher) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        asked = await broker.reply()
        assert await client.frame() != asked.answer()
        assert b"".join(watcher.chunks) == asked.answer()


async def test_a_watcher_sees_no_other_calls() -> None:
    it = Scripted(keys=(), stream_keys=(1,), request=lambda *_: Forward("c"))
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1), request(1, 4, FetchRequest(), correlation_id=2), heartbeat(3))
        asked = [await broker.request() for _ in range(3)]
        frames = [one.answer() for one in asked]
        await broker.send(*frames)
        assert await numbers(client, 3) == [1, 2, 3]
        assert b"".join(it.chunks) == frames[1]


async def test_a_watcher_sees_nothing_of_a_connection_that_has_ended() -> None:
    it = Scripted(keys=(), stream_keys=(12,), request=lambda *_: Forward("c"))
    async with stage(it) as on:
        client, broker = await on.pair()
        connection = await on.connection()
        await client.send(heartbeat(1))
        asked = await broker.request()
        broker.sock.send(asked.answer())  # it is there when the connection ends
        connection.close(CloseCause.IDLE)
        await turns()
        assert it.chunks == []


async def test_a_watcher_without_a_context_sees_nothing() -> None:
    it = Scripted(keys=(), stream_keys=(12,))
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        await broker.reply()
        assert await numbers(client, 1) == [1]
    assert it.events == ["it request 1"]
    assert it.chunks == []


async def test_a_watcher_that_fails_or_wants_more_than_watching_is_passed_over(logs: list[EventDict]) -> None:
    def broken(_: bytes) -> None:
        raise RuntimeError("a bug")

    raising = Scripted("raising", keys=(), stream_keys=(12,), request=lambda *_: 1 / 0)
    failing = Scripted("failing", keys=(), stream_keys=(12,), request=lambda *_: Forward("c"), chunk=broken)
    holding = Scripted("holding", keys=(), stream_keys=(12,), request=lambda *_: Hold(_nothing(), deadline=1))
    watching = Scripted("watching", keys=(), stream_keys=(12,), request=lambda *_: Forward("c"))
    async with stage(raising, failing, holding, watching) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        asked = await broker.reply()
        assert await client.frame() == asked.answer()
        assert b"".join(watching.chunks) == asked.answer()
        assert on.gateway.metrics.chain_meter.failures == 3
    assert {event["step"] for event in logs if event["log_level"] == "warning"} == {"on_request", "on_chunk"}


def _nothing() -> "asyncio.Future[Forward[Any]]":
    return asyncio.get_running_loop().create_future()
