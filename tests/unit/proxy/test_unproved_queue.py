"""Too many unproved connections: the oldest makes room, newcomers are served, and proved ones are never touched."""

import asyncio
import gc
import weakref
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.proxy.listeners import ConnectionLimits, table_bytes
from headgate.wire.messages.cluster import SaslHandshakeRequest
from tests.support.fake_upstream import Client, request
from tests.unit.proxy.stage import GATEWAY_HOST, Stage, base_port, config, stage, until
from tests.unit.proxy.test_order import heartbeat, numbers

ONE, OTHER, NEWCOMER = "127.0.0.2", "127.0.0.3", "127.0.0.4"
DISPLACED = "displaced"


async def come(on: Stage, source: str) -> Client:
    client = await Client.connect(GATEWAY_HOST, base_port(), source=source)
    on.ends.append(client)
    return client


async def has_arrived(on: Stage, number: int) -> None:
    await until(lambda: on.gateway.metrics.accepted == number)


async def test_a_flood_from_two_addresses_does_not_keep_a_newcomer_out(logs: list[EventDict]) -> None:
    async with stage(max_unproved_connections=20, max_unproved_connections_per_address=10) as on:
        flood = [await come(on, source) for source in (ONE, OTHER) for _ in range(10)]
        await has_arrived(on, 20)
        assert on.ended == {}
        for number in range(5):
            newcomer = await come(on, NEWCOMER)
            await on.greet(newcomer)
            again = await come(on, ONE)  # the flood goes on
            await has_arrived(on, 22 + 2 * number)
            flood.append(again)
        assert on.gateway.caps.unproved <= 20
        assert await flood[0].rest() == b""
        assert on.ended[DISPLACED] >= 1
        assert on.ended.keys() <= {DISPLACED, "too_many_unproved"}  # its addresses have their own limit
    [event] = [one for one in logs if "closing the oldest" in one["event"]]  # throttled
    assert event == {
        "event": "too many unproved connections, closing the oldest",
        "unproved": 21,
        "log_level": "warning",
    }


async def test_a_newcomer_can_log_in_while_the_flood_goes_on() -> None:
    async with stage(max_unproved_connections=20, max_unproved_connections_per_address=15) as on:
        for _ in range(15):
            await come(on, ONE)
        newcomer = await come(on, NEWCOMER)
        broker = await on.greet(newcomer, proved=False)
        for source in (ONE, OTHER) * 4:  # younger than the newcomer
            await come(on, source)
        await newcomer.send(request(17, 1, SaslHandshakeRequest(mechanism="PLAIN"), correlation_id=2))
        await broker.reply()
        await newcomer.frame()
        await newcomer.send(heartbeat(3))
        await broker.reply()
        assert await numbers(newcomer, 1) == [3]


async def test_the_oldest_goes_first_whatever_it_has_sent() -> None:
    async with stage(max_unproved_connections=3) as on:
        greeted, _ = await on.pair(proved=False)
        silent = [await on.client() for _ in range(2)]
        await has_arrived(on, 3)
        for number, oldest in enumerate((greeted, *silent), start=1):
            await on.client()
            assert await oldest.rest() == b""
            assert on.ended == {DISPLACED: number}
        assert on.gateway.caps.unproved == len(on.gateway.unproved) == 3


async def test_proved_connections_are_never_closed_to_make_room() -> None:
    async with stage(max_unproved_connections=2) as on:
        proved = [await on.pair() for _ in range(5)]
        for _ in range(20):
            await on.client()
        await has_arrived(on, 25)
        assert on.ended == {DISPLACED: 18}
        for client, broker in proved:
            await client.send(heartbeat(1))
            await broker.reply()
            assert await numbers(client, 1) == [1]


async def test_a_connection_that_is_proved_or_ends_leaves_the_queue() -> None:
    async with stage(max_unproved_connections=10) as on:
        queue = on.gateway.unproved
        client, broker = await on.pair(proved=False)
        silent = await on.client()
        await until(lambda: len(queue) == 2)
        await client.send(heartbeat(1))
        await broker.reply()
        await client.frame()
        assert len(queue) == 1
        silent.close()
        await until(lambda: len(queue) == 0)
        other, _ = await on.pair(proved=False)
        assert len(queue) == 1
        other.close()
        await until(lambda: len(queue) == 0)
        assert on.gateway.caps.unproved == 0


@pytest.mark.parametrize("proxy_protocol", [False, True])
async def test_of_many_in_one_wake_up_all_but_the_last_are_closed_and_counted_once(*, proxy_protocol: bool) -> None:
    """Behind the PROXY protocol each has a task, which has not begun yet when it is cancelled."""
    async with stage(max_unproved_connections=1, proxy_protocol=proxy_protocol) as on:
        clients = await asyncio.gather(*(on.client() for _ in range(30)))  # many in one wake-up
        await has_arrived(on, 30)
        closing = [asyncio.create_task(client.rest()) for client in clients]
        await until(lambda: sum(task.done() for task in closing) == 29)
        assert on.ended == {DISPLACED: 29}
        assert on.gateway.caps.unproved == on.gateway.caps.connections == len(on.gateway.unproved) == 1
        [left] = [task for task in closing if not task.done()]
        left.cancel()
        await asyncio.wait({left})


async def test_a_client_whose_broker_is_being_looked_for_makes_room_too(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: list[object] = []

    async def never(node: object) -> None:
        looked_for.append(node)
        await asyncio.get_running_loop().create_future()

    async with stage(max_unproved_connections=1) as on:
        monkeypatch.setattr(on.gateway, "known_addresses", lambda _: ())
        monkeypatch.setattr(on.gateway.cluster, "addresses", never)
        oldest = await on.client(first=heartbeat(1))
        await until(lambda: bool(looked_for))
        newcomer = await on.client()
        assert await oldest.rest() == b""
        await until(lambda: not on.gateway.task_count or len(on.gateway.unproved) == 1)
        assert on.ended == {DISPLACED: 1}
        assert on.gateway.caps.connections == on.gateway.caps.unproved == 1
        newcomer.close()
        await until(lambda: on.gateway.caps.connections == 0)


async def test_a_worker_sheds_what_is_beyond_its_share_when_others_have_theirs() -> None:
    """The other worker is another row of the same table."""
    settings: dict[str, Any] = {"max_unproved_connections": 4, "workers": 2}
    limits = config(1, **settings).gateway
    memory = memoryview(bytearray(table_bytes(limits, rows=2)))
    caps, others = (ConnectionLimits(limits, memory=memory, row=row) for row in range(2))
    async with stage(caps=caps, first_request_ms=60_000, idle_ms=1000, **settings) as on:
        for _ in range(4):
            await on.client()
        await has_arrived(on, 4)
        for _ in range(2):
            assert others.admit(NEWCOMER) is None
        await until(lambda: on.ended == {DISPLACED: 2})
        assert caps.unproved == 2


async def test_a_connection_that_was_displaced_is_freed_at_once() -> None:
    async with stage(max_unproved_connections=1) as on:
        await on.pair(proved=False)
        [connection] = on.gateway.connections
        freed = weakref.ref(connection)
        del connection
        gc.disable()
        try:
            await on.client()
            await until(lambda: on.ended == {DISPLACED: 1})
            await until(lambda: freed() is None)
        finally:
            gc.enable()
