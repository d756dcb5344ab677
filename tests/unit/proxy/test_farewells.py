"""The last word before the upstream ends: made on a connection whose client is gone, and never longer than allowed."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from headgate.base.errors import ClusterError
from headgate.proxy import connection as connection_module
from headgate.proxy.interceptor import Forward, Hold
from headgate.wire.messages.data import FetchRequest
from headgate.wire.messages.groups import HeartbeatResponse
from tests.support.fake_upstream import Broker, request
from tests.unit.proxy.scripted import Farewell, Scripted, at_once, fails
from tests.unit.proxy.stage import Stage, stage, until
from tests.unit.proxy.test_order import heartbeat, metadata, produce
from tests.unit.proxy.test_session import ALLOWED, PROBE, probe


async def leave(on: Stage) -> Broker:
    """A client that has called, and goes."""
    client, broker = await on.pair()
    await client.send(heartbeat(1))
    await broker.reply()
    await client.frame()
    client.close()
    return broker


async def test_the_last_call_is_made_when_the_client_is_gone() -> None:
    it = Farewell(probe)
    async with stage(it) as on:
        broker = await leave(on)
        assert (await broker.reply(ALLOWED)).body == PROBE
        assert await broker.rest() == b""
        assert it.results == [25]
        assert [cause.value for cause in it.causes] == ["client_closed"]
        assert on.ended == {"client_closed": 1}


async def test_answers_to_a_client_that_is_gone_do_not_disturb_the_last_call() -> None:
    it = Farewell(probe)
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1), metadata(2), request(1, 18, FetchRequest(), correlation_id=3))
        asked = [await broker.request() for _ in range(3)]
        client.reset()
        last = await broker.request()
        for one in asked:
            await broker.send(one.answer(on.upstream.metadata() if one.key == 3 else None))
        await broker.send(last.answer(ALLOWED))
        assert await broker.rest() == b""
        assert it.results == [25]


async def test_farewells_come_one_after_the_other_and_a_failing_one_is_counted() -> None:
    first, second, third = Farewell(probe, "1"), Farewell(lambda _: fails(RuntimeError())), Farewell(probe, "3")
    async with stage(first, second, third) as on:
        broker = await leave(on)
        await broker.reply(HeartbeatResponse(error_code=1))
        await broker.reply(HeartbeatResponse(error_code=3))
        assert await broker.rest() == b""
        assert (first.results, third.results) == ([1], [3])
        assert on.gateway.metrics.chain_meter.failures == 1


async def test_a_farewell_that_takes_too_long_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_BEFORE_CLOSE_SECONDS", 0.05)
    it = Farewell(lambda _: asyncio.Event().wait())
    async with stage(it) as on:
        broker = await leave(on)
        async with asyncio.timeout(10):
            assert await broker.rest() == b""
        assert isinstance(it.results[0], asyncio.CancelledError)


FAREWELLS: dict[str, Callable[[Broker], Awaitable[None]]] = {
    "ends": lambda broker: at_once(broker.close()),  # type: ignore[func-returns-value]
    "resets": lambda broker: at_once(broker.reset()),  # type: ignore[func-returns-value]
    "sends what nobody asked for": lambda broker: broker.send(b"\x00\x00\x00\x04\x00\x00\x00\x63"),
}


@pytest.mark.parametrize("how", FAREWELLS)
async def test_a_broker_that_breaks_during_the_farewell_ends_it(how: str) -> None:
    it = Farewell(probe)
    async with stage(it) as on:
        broker = await leave(on)
        await broker.request()
        await FAREWELLS[how](broker)
        async with asyncio.timeout(10):
            await until(lambda: bool(it.results))
        assert isinstance(it.results[0], ClusterError)
        await until(lambda: not on.gateway._farewells)
        assert on.ended == {"client_closed": 1}


@pytest.mark.parametrize("cause", ["upstream_closed", "upstream_reset", "bad_answer"])
async def test_there_is_no_farewell_to_a_broker_that_is_lost(cause: str) -> None:
    it = Farewell(probe)
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        await broker.request()
        if cause == "upstream_closed":
            broker.close()
        elif cause == "upstream_reset":
            broker.reset()
        else:
            await broker.send(b"\x00\x00\x00\x04\x00\x00\x00\x63")
        await client.rest()
        assert on.ended == {cause: 1}
    assert it.causes == []


async def test_nothing_of_the_client_is_sent_during_the_farewell() -> None:
    """Neither a held request whose interceptor does not let itself be cancelled, nor what stands behind a bad one."""

    async def stubborn() -> Forward:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return Forward()

    def broken(*_: object) -> Forward:
        raise RuntimeError("a bug")

    holder = Scripted("holder", keys=(11,), request=lambda *_: Hold(stubborn(), deadline=10))
    failing = Scripted("failing", keys=(93,), adds={93: (0, 0)}, request=broken)
    it = Farewell(probe)
    async with stage(holder, failing, it) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1), request(11, 9, b"\x00" * 30))
        await broker.reply()
        await client.frame()
        client.close()
        assert (await broker.reply(ALLOWED)).body == PROBE
        assert await broker.rest() == b""
        client, broker = await on.pair()
        await client.send(heartbeat(1), request(93, 0, b""), heartbeat(2), metadata(3))
        await broker.request()
        assert (await broker.request()).body == PROBE
        broker.close()
    assert [cause.value for cause in it.causes] == ["client_closed", "unsupported_call"]


async def test_a_client_that_left_in_the_middle_of_a_request_leaves_no_place_for_a_last_call() -> None:
    it = Farewell(lambda session: probe(session, deadline=0.05))
    frame = produce(1, 1, size=300_000)
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(frame[:1000])
        assert await broker.exactly(1000) == frame[:1000]
        client.close()
        assert await broker.rest() == b""
        assert isinstance(it.results[0], ClusterError)


async def test_a_gateway_that_ends_says_its_farewells_first() -> None:
    it = Farewell(probe)
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        await broker.reply()
        await client.frame()
        stopping = on.stop()
        assert (await broker.reply(ALLOWED)).body == PROBE
        await stopping
        assert it.results == [25]
        assert [cause.value for cause in it.causes] == ["drained"]
        assert await broker.rest() == b""
