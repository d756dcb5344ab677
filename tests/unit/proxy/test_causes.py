"""A connection ends once, for one cause, and is counted once; every cause there is has its scenario here."""

from collections.abc import Awaitable, Callable
from struct import pack
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.base.ids import ApiKey
from headgate.proxy.interceptor import (
    CloseCause,
    Forward,
    Interceptor,
    OnRequest,
    OnResponse,
    RequestFrame,
    ResponseFrame,
    Session,
)
from tests.unit.proxy.stage import Stage, stage, until
from tests.unit.proxy.test_order import heartbeat


class Broken(Interceptor[Any]):
    """Has a bug, and must not let the answer pass."""

    api_keys = frozenset((ApiKey(12),))
    fail_closed = True

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[Any]:  # noqa: ARG002
        return Forward(context=self)

    def on_response(self, response: ResponseFrame, context: object, session: Session) -> OnResponse:  # noqa: ARG002
        raise RuntimeError("a bug")


async def client_closed(on: Stage) -> None:
    client, broker = await on.pair()
    await client.send(heartbeat(1))
    await broker.request()
    client.close()
    assert await broker.rest() == b""


async def client_reset(on: Stage) -> None:
    client, broker = await on.pair()
    client.reset()
    assert await broker.rest() == b""


async def upstream_closed(on: Stage) -> None:
    client, broker = await on.pair()
    await client.send(heartbeat(1))
    await broker.request()
    broker.close()
    assert await client.rest() == b""


async def upstream_reset(on: Stage) -> None:
    client, broker = await on.pair()
    await client.send(heartbeat(1))
    await broker.request()
    broker.reset()
    assert await client.rest() == b""


async def upstream_unreachable(on: Stage) -> None:
    await on.upstream.stop_listening(0)
    assert await (await on.client(0)).rest() == b""


async def handshake_failed(on: Stage) -> None:
    client = await on.client()
    await client.send(b"no PROXY protocol header")
    assert await client.rest() == b""


async def bad_request(on: Stage) -> None:
    client, _ = await on.pair()
    await client.send(pack(">ihhih", -1, 3, 12, 1, -1))
    assert await client.rest() == b""


async def bad_answer(on: Stage) -> None:
    client, broker = await on.pair()
    await broker.send(pack(">ii", 4, 1))
    assert await client.rest() == b""


async def frame_too_large(on: Stage) -> None:
    client, _ = await on.pair()
    await client.send(pack(">ihhih", 2**31 - 1, 3, 12, 1, -1))
    assert await client.rest() == b""


async def unsupported_call(on: Stage) -> None:
    client, _ = await on.pair()
    await client.send(pack(">ihhih", 10, 93, 0, 1, -1))
    assert await client.rest() == b""


async def too_many_connections(on: Stage) -> None:
    clients = [await on.client() for _ in range(4)]
    assert await clients[-1].rest() == b""
    assert on.ended == {"too_many_connections": 1}
    for client in clients[:3]:
        await on.upstream.accept()
        client.close()
    await until(lambda: not on.gateway.connections)
    assert on.ended == {"too_many_connections": 1, "client_closed": 3}
    del on.gateway.metrics.ended[CloseCause.CLIENT_CLOSED]


async def wrong_cluster(on: Stage) -> None:
    on.gateway.cluster.is_wrong = True
    assert await (await on.client()).rest() == b""


async def idle(on: Stage) -> None:
    client, broker = await on.pair()
    assert await client.rest() == b""
    assert await broker.rest() == b""


async def drained(on: Stage) -> None:
    client, broker = await on.pair()
    await on.stop()
    assert await client.rest() == b""
    assert await broker.rest() == b""


async def drain_timeout(on: Stage) -> None:
    client, broker = await on.pair()
    await client.send(heartbeat(1))
    await broker.request()
    await on.stop()
    assert await client.rest() == b""
    assert await broker.rest() == b""


async def internal(on: Stage) -> None:
    client, broker = await on.pair()
    await client.send(heartbeat(1))
    await broker.reply()
    assert await client.rest() == b""


SCENARIOS: dict[CloseCause, Callable[[Stage], Awaitable[None]]] = {
    CloseCause.CLIENT_CLOSED: client_closed,
    CloseCause.CLIENT_RESET: client_reset,
    CloseCause.UPSTREAM_CLOSED: upstream_closed,
    CloseCause.UPSTREAM_RESET: upstream_reset,
    CloseCause.UPSTREAM_UNREACHABLE: upstream_unreachable,
    CloseCause.HANDSHAKE_FAILED: handshake_failed,
    CloseCause.BAD_REQUEST: bad_request,
    CloseCause.BAD_ANSWER: bad_answer,
    CloseCause.FRAME_TOO_LARGE: frame_too_large,
    CloseCause.UNSUPPORTED_CALL: unsupported_call,
    CloseCause.TOO_MANY_CONNECTIONS: too_many_connections,
    CloseCause.WRONG_CLUSTER: wrong_cluster,
    CloseCause.IDLE: idle,
    CloseCause.DRAINED: drained,
    CloseCause.DRAIN_TIMEOUT: drain_timeout,
    CloseCause.INTERNAL: internal,
}
SETTINGS: dict[CloseCause, dict[str, object]] = {
    CloseCause.HANDSHAKE_FAILED: {"proxy_protocol": True},
    CloseCause.IDLE: {"idle_ms": 100},
    CloseCause.DRAIN_TIMEOUT: {"drain_ms": 50},
    CloseCause.TOO_MANY_CONNECTIONS: {"max_connections": 3},
}


@pytest.mark.parametrize("cause", CloseCause, ids=lambda cause: cause.value)
async def test_a_connection_ends_for_one_cause_and_is_counted_once(cause: CloseCause, logs: list[EventDict]) -> None:
    interceptors = [Broken()] if cause is CloseCause.INTERNAL else []
    async with stage(*interceptors, **SETTINGS.get(cause, {})) as on:  # type: ignore[arg-type]
        await SCENARIOS[cause](on)
        await until(lambda: bool(on.ended))
        assert on.ended == {cause.value: 1}
        page = on.gateway.snapshot()
        assert page["headgate_connections_ended", (cause.value,)] == 1
        assert page["headgate_connections", ()] == 0
    assert on.ended == {cause.value: 1}
    assert bool([event for event in logs if event["log_level"] == "error"]) == (cause is CloseCause.INTERNAL)
