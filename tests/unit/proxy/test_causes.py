"""A connection ends once, for one cause, and is counted once; every cause there is has its scenario here."""

from collections.abc import Awaitable, Callable
from struct import pack
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.proxy.interceptor import CloseCause, Forward
from tests.support.fake_upstream import Broker, Client, request
from tests.unit.proxy.scripted import Scripted
from tests.unit.proxy.stage import API_VERSIONS, Stage, stage, until
from tests.unit.proxy.test_order import heartbeat

Blow = Callable[[Stage, Client, Broker], Awaitable[object]]


def does(blow: Callable[[Client, Broker], object]) -> Blow:
    async def act(_: Stage, client: Client, broker: Broker) -> None:
        blow(client, broker)

    return act


def sends(frame: bytes) -> Blow:
    return lambda _on, client, _broker: client.send(frame)


# What happens to a connection with a request under way; both sides then see its end and not a byte more.
UNDER_WAY: dict[CloseCause, Blow] = {
    CloseCause.CLIENT_CLOSED: does(lambda client, _: client.close()),
    CloseCause.CLIENT_RESET: does(lambda client, _: client.reset()),
    CloseCause.UPSTREAM_CLOSED: does(lambda _, broker: broker.close()),
    CloseCause.UPSTREAM_RESET: does(lambda _, broker: broker.reset()),
    CloseCause.BAD_REQUEST: sends(pack(">ihhih", -1, 3, 12, 1, -1)),
    CloseCause.BAD_ANSWER: lambda _on, _client, broker: broker.send(pack(">ii", 4, 99)),
    CloseCause.FRAME_TOO_LARGE: sends(pack(">ihhih", 2**31 - 1, 3, 12, 1, -1)),
    CloseCause.UNSUPPORTED_CALL: sends(pack(">ihhih", 10, 93, 0, 1, -1)),
    CloseCause.DRAIN_TIMEOUT: lambda on, _client, _broker: on.stop(),
    CloseCause.INTERNAL: lambda _on, _client, broker: broker.send(pack(">ii", 7, 1) + bytes(3)),
}


async def upstream_unreachable(on: Stage) -> None:
    await on.upstream.stop_listening(0)
    assert await (await on.client(0, first=b"\x00")).rest() == b""


async def handshake_failed(on: Stage) -> None:
    client = await on.client()
    await client.send(b"no PROXY protocol header")
    assert await client.rest() == b""


async def too_many_connections(on: Stage) -> None:
    for _ in range(3):
        await on.pair()
    assert await (await on.client()).rest() == b""
    assert on.ended == {"too_many_connections": 1}
    assert not on.upstream.has_connection()
    for end in on.ends:
        end.close()
    await until(lambda: on.ended == {"too_many_connections": 1, "client_closed": 3})
    del on.gateway.metrics.ended[CloseCause.CLIENT_CLOSED]


async def too_many_unproved(on: Stage) -> None:
    await on.pair()
    silent = [await on.client() for _ in range(2)]
    await until(lambda: on.gateway.metrics.accepted == 3)
    assert await (await on.client()).rest() == b""
    assert on.ended == {"too_many_unproved": 1}
    for client in (*silent, *on.ends):
        client.close()
    await until(lambda: on.ended == {"too_many_unproved": 1, "client_closed": 3})
    del on.gateway.metrics.ended[CloseCause.CLIENT_CLOSED]


async def displaced(on: Stage) -> None:
    await on.pair()
    oldest, *others = [await on.client() for _ in range(3)]
    assert await oldest.rest() == b""
    assert on.ended == {"displaced": 1}
    for client in (*others, *on.ends):
        client.close()
    await until(lambda: on.ended == {"displaced": 1, "client_closed": 3})
    del on.gateway.metrics.ended[CloseCause.CLIENT_CLOSED]


async def no_request(on: Stage) -> None:
    assert await (await on.client(first=API_VERSIONS[:-1])).rest() == b""


async def unproved(on: Stage) -> None:
    client = await on.client(first=request(18, 99) + request(36, 2, bytes(20))[:-1])
    assert (await client.frame())[8:10] == b"\x00\x23"  # the gateway's own answer: unsupported version
    assert await client.rest() == b""


async def wrong_cluster(on: Stage) -> None:
    on.gateway.cluster.is_wrong = True
    assert await (await on.client(first=b"\x00")).rest() == b""


async def gather_timeout(on: Stage) -> None:
    pair = await on.pair()
    connection = await on.connection()
    connection.budget_share(on.gateway.budgets.responses, lambda: None).on_overdue()
    for end in pair:
        assert await end.rest() == b""


async def idle(on: Stage) -> None:
    for end in await on.pair():
        assert await end.rest() == b""


async def drained(on: Stage) -> None:
    pair = await on.pair()
    await on.stop()
    for end in pair:
        assert await end.rest() == b""


OTHERS: dict[CloseCause, Callable[[Stage], Awaitable[None]]] = {
    CloseCause.UPSTREAM_UNREACHABLE: upstream_unreachable,
    CloseCause.HANDSHAKE_FAILED: handshake_failed,
    CloseCause.TOO_MANY_CONNECTIONS: too_many_connections,
    CloseCause.TOO_MANY_UNPROVED: too_many_unproved,
    CloseCause.DISPLACED: displaced,
    CloseCause.NO_REQUEST: no_request,
    CloseCause.UNPROVED: unproved,
    CloseCause.WRONG_CLUSTER: wrong_cluster,
    CloseCause.GATHER_TIMEOUT: gather_timeout,
    CloseCause.IDLE: idle,
    CloseCause.DRAINED: drained,
}
SETTINGS: dict[CloseCause, dict[str, Any]] = {
    CloseCause.HANDSHAKE_FAILED: {"proxy_protocol": True},
    CloseCause.IDLE: {"idle_ms": 100},
    CloseCause.DRAINED: {"drain_ms": 60_000},
    CloseCause.DRAIN_TIMEOUT: {"drain_ms": 50},
    CloseCause.TOO_MANY_CONNECTIONS: {"max_connections": 3},
    CloseCause.TOO_MANY_UNPROVED: {"max_unproved_connections_per_address": 2},
    CloseCause.DISPLACED: {"max_unproved_connections": 2},
    CloseCause.NO_REQUEST: {"first_request_ms": 100},
    CloseCause.UNPROVED: {"first_request_ms": 100},
}


def broken(*_: object) -> Any:
    raise RuntimeError("a bug")


@pytest.mark.parametrize("cause", CloseCause, ids=lambda cause: cause.value)
async def test_a_connection_ends_for_one_cause_and_is_counted_once(cause: CloseCause, logs: list[EventDict]) -> None:
    it = Scripted(request=lambda *_: Forward("c"), response=broken, fail_closed=True)
    async with stage(*[it][cause is not CloseCause.INTERNAL :], **SETTINGS.get(cause, {})) as on:
        if cause in OTHERS:
            await OTHERS[cause](on)
        else:
            client, broker = await on.pair()
            await client.send(heartbeat(1))
            await broker.request()
            await UNDER_WAY[cause](on, client, broker)
            for end in (client, broker):
                assert end.sock.fileno() < 0 or await end.rest() == b""
        await until(lambda: bool(on.ended))
        assert on.ended == {cause.value: 1}
        page = on.gateway.snapshot()
        assert page["headgate_connections_ended", (cause.value,)] == 1
        assert page["headgate_connections", ()] == 0
    assert on.ended == {cause.value: 1}
    assert bool([event for event in logs if event["log_level"] == "error"]) == (cause is CloseCause.INTERNAL)
