"""Gathered requests and responses of all connections are bounded together: what does not fit waits in its socket."""

import asyncio
from typing import Any

import pytest

from headgate.base.ids import ApiVersion
from headgate.proxy.gather_budget import FREE_BYTES, GatherBudget
from headgate.proxy.interceptor import Answer, CloseCause, Forward, Hold, Oversize, Session
from headgate.wire.messages.cluster import MetadataRequest, MetadataResponse, MetadataTopic
from tests.support.clock import FakeClock
from tests.support.fake_upstream import Broker, Client, FakeUpstream, answer, request
from tests.unit.proxy.scripted import HEARTBEAT, Scripted, after, at_once
from tests.unit.proxy.stage import Stage, stage, turns, until
from tests.unit.proxy.test_back_pressure import bounded_memory
from tests.unit.proxy.test_large_answers import content
from tests.unit.proxy.test_order import heartbeat, metadata

METADATA = MetadataRequest(topics=())
LARGE = 1_000_000
LIMIT = 4_100_000  # one address gets half of it


def opening(response: Any) -> Scripted:
    return Scripted(request=lambda *_: Forward(context="mine"), response=response)


def large_heartbeat(number: int, size: int = 300_000) -> bytes:
    return request(HEARTBEAT, 4, bytes(size), correlation_id=number)


async def proved_pair(on: Stage) -> tuple[Client, Broker]:
    """A client whose connection the broker has answered."""
    client, broker = await on.pair()
    await client.send(metadata(0))
    await broker.reply(on.upstream.metadata())
    await client.frame()
    return client, broker


async def settled(budget: GatherBudget) -> None:
    await until(lambda: budget.is_idle)


# Responses.


async def test_responses_of_many_connections_are_gathered_within_the_budget_and_all_arrive() -> None:
    go = asyncio.Event()
    async with stage(opening(lambda *_: Hold(after(go, Forward()), deadline=60))) as on:
        budget = on.gateway.budgets.responses
        budget.limit = LIMIT
        pairs = [await on.pair() for _ in range(12)]
        for client, _ in pairs:
            await client.send(heartbeat(1))
        for _, broker in pairs:
            await broker.request()
        body = content(LARGE)
        frame = answer(HEARTBEAT, 4, 1, body)
        with bounded_memory(LIMIT + 12 * 2 * 256 * 1024):
            sending = [asyncio.create_task(broker.send(frame)) for _, broker in pairs]
            await until(lambda: budget.waits == 10)
            await turns(50)
            assert budget.used == 2 * len(frame)
            assert sum(connection.upstream.is_reading for connection in on.gateway.connections) == 2
        go.set()
        received = [asyncio.create_task(client.frame()) for client, _ in pairs]
        assert {bytes(one) for one in await asyncio.gather(*received)} == {frame}
        await asyncio.gather(*sending)
        await settled(budget)
        await until(lambda: all(connection.is_idle and connection.is_flowing for connection in on.gateway.connections))


async def test_a_response_that_is_larger_than_the_budget_arrives() -> None:
    async with stage(opening(lambda *_: Forward())) as on:
        budget = on.gateway.budgets.responses
        budget.limit = 1000
        client, broker = await on.pair()
        await client.send(heartbeat(1), heartbeat(2), heartbeat(3))
        sending = asyncio.create_task(_reply(broker, 3))
        for number in (1, 2, 3):
            assert await client.frame() == answer(HEARTBEAT, 4, number, content(LARGE, number))
        await sending
        await settled(budget)


async def _reply(broker: Broker, count: int, size: int = LARGE) -> None:
    for number in range(1, count + 1):
        await broker.reply(content(size, number))


async def test_a_small_response_does_not_wait() -> None:
    async with stage(opening(lambda *_: Forward())) as on:
        budget = on.gateway.budgets.responses
        budget.limit = 1000
        occupied = (await _occupy(on, budget))[0]
        client, broker = await on.pair()
        await client.send(heartbeat(2))
        await broker.reply(content(FREE_BYTES - 100))
        assert await client.frame() == answer(HEARTBEAT, 4, 2, content(FREE_BYTES - 100))
        assert not budget.waits
        occupied.close()
        await settled(budget)


async def _occupy(on: Stage, budget: GatherBudget) -> tuple[Client, Broker]:
    """A client that does not take its response."""
    client, broker = await on.pair(receive_buffer=4096)
    await client.send(heartbeat(1))
    await broker.reply(content(6_000_000))
    await until(lambda: budget.used > 0 and any(one.client.backlog for one in on.gateway.connections))
    return client, broker


async def test_a_slow_client_holds_its_bytes_until_it_has_taken_them() -> None:
    async with stage(opening(lambda *_: Forward())) as on:
        budget = on.gateway.budgets.responses
        budget.limit = 7_000_000
        slow, _ = await _occupy(on, budget)
        client, broker = await on.pair()
        await client.send(heartbeat(2))
        sending = asyncio.create_task(broker.reply(content(LARGE)))
        await until(lambda: budget.waits == 1)
        assert await client.is_quiet()
        assert await slow.frame() == answer(HEARTBEAT, 4, 1, content(6_000_000))
        assert await client.frame() == answer(HEARTBEAT, 4, 2, content(LARGE))
        await sending
        await settled(budget)


async def test_a_client_that_never_takes_its_response_is_ended_while_others_wait() -> None:
    clock = FakeClock()
    async with stage(opening(lambda *_: Forward()), clock=clock.monotonic) as on:
        budget = on.gateway.budgets.responses
        budget.limit = 7_000_000
        await _occupy(on, budget)
        client, broker = await on.pair()
        await client.send(heartbeat(2))
        sending = asyncio.create_task(broker.reply(content(LARGE)))
        await until(lambda: budget.waits == 1)
        on.gateway.budgets.end_overdue()
        assert not on.ended
        clock.now += 60
        assert await client.frame() == answer(HEARTBEAT, 4, 2, content(LARGE))
        assert on.ended == {"gather_timeout": 1}
        await sending
        await settled(budget)


@pytest.mark.parametrize("who", ["client", "broker", "gateway"])
async def test_a_connection_that_ends_while_its_response_waits_leaves_nothing_behind(who: str) -> None:
    go = asyncio.Event()
    async with stage(opening(lambda *_: Hold(after(go, Forward()), deadline=60)), abandoned_s=0.0) as on:
        budget = on.gateway.budgets.responses
        budget.limit = LARGE + 1000
        first, broker = await on.pair()
        await first.send(heartbeat(1))
        await broker.reply(content(LARGE))
        await until(lambda: budget.used > 0)
        client, waiting = await on.pair()
        await client.send(heartbeat(2))
        await waiting.request()
        await waiting.send(answer(HEARTBEAT, 4, 2, content(100_000)))
        await until(lambda: budget.waits == 1)
        if who == "client":
            client.close()
            await until(lambda: len(on.gateway.connections) == 1)
            assert not budget.has_waiting
        elif who == "broker":
            waiting.close()  # what it has sent still reaches the client
        else:
            await on.stop()
        go.set()
        if who != "gateway":
            assert await first.frame() == answer(HEARTBEAT, 4, 1, content(LARGE))
        if who == "broker":
            assert await client.frame() == answer(HEARTBEAT, 4, 2, content(100_000))
            assert await client.rest() == b""
        await settled(budget)


async def test_a_decided_response_behind_a_held_one_keeps_its_bytes() -> None:
    go = asyncio.Event()
    outcomes: list[Any] = [Hold(after(go, Forward()), deadline=60), Forward()]
    async with stage(opening(lambda *_: outcomes.pop(0))) as on:
        budget = on.gateway.budgets.responses
        client, broker = await on.pair()
        await client.send(heartbeat(1), heartbeat(2))
        await _reply(broker, 2, 100_000)
        await until(lambda: not outcomes)
        await turns()
        assert budget.used == 2 * len(answer(HEARTBEAT, 4, 1, content(100_000)))
        go.set()
        for number in (1, 2):
            assert await client.frame() == answer(HEARTBEAT, 4, number, content(100_000, number))
        await settled(budget)


async def test_a_response_to_the_gateways_own_request_does_not_wait_and_is_counted() -> None:
    """What a held request waits for must come, whatever other connections hold."""
    outcome: list[Any] = []

    async def ask(session: Session) -> Any:
        outcome.append(len((await session.call(METADATA, 12, deadline=60)).topics))
        return Forward()

    it = Scripted(request=lambda _, session: Hold(ask(session), deadline=60) if outcome else Forward("mine"))
    async with stage(it) as on:
        budget = on.gateway.budgets.responses
        budget.limit = 1000
        occupied = (await _occupy(on, budget))[0]
        used = budget.used
        outcome.append(0)
        client, broker = await on.pair()
        await client.send(heartbeat(2))
        asked = await broker.request()
        topics = tuple(MetadataTopic(name="t" * 200 + str(number)) for number in range(1000))
        frame = asked.answer(MetadataResponse(topics=topics))
        await broker.send(frame[:-1])
        await until(lambda: budget.used == used + len(frame))
        await broker.send(frame[-1:])
        assert (await broker.request()).header.correlation_id == 2
        assert outcome == [0, 1000]
        await until(lambda: budget.used == used)
        occupied.close()
        await settled(budget)


# Requests.


async def test_requests_of_many_connections_are_gathered_within_the_budget_and_all_arrive() -> None:
    go = asyncio.Event()
    async with stage(Scripted(request=lambda *_: Hold(after(go, Forward()), deadline=60))) as on:
        budget = on.gateway.budgets.proved_requests
        budget.limit = 1_300_000
        pairs = [await proved_pair(on) for _ in range(8)]
        sending = [asyncio.create_task(client.send(large_heartbeat(1), metadata(2))) for client, _ in pairs]
        await until(lambda: budget.waits == 6)
        await turns(50)
        assert budget.used == 2 * len(large_heartbeat(1))
        go.set()
        for _, broker in pairs:
            assert len((await broker.request()).body) == 300_000
            assert (await broker.request()).header.correlation_id == 2
        await asyncio.gather(*sending)
        await settled(budget)


async def test_a_request_that_is_larger_than_the_budget_arrives() -> None:
    async with stage(Scripted(request=lambda *_: Answer(at_once(b"ours")))) as on:
        budget = on.gateway.budgets.proved_requests
        budget.limit = 1000
        client, _ = await proved_pair(on)
        await client.send(*(large_heartbeat(number) for number in (1, 2, 3)))
        for number in (1, 2, 3):
            assert await client.frame() == answer(HEARTBEAT, 4, number, b"ours")
        await settled(budget)


async def test_clients_that_have_proved_nothing_do_not_use_the_budget_of_the_others() -> None:
    async with stage(Scripted()) as on:
        budgets = on.gateway.budgets
        budgets.unproved_requests.limit = 1000
        lazy, _ = await on.pair(proved=False)
        await lazy.send(large_heartbeat(1)[:100_000])
        await until(lambda: budgets.unproved_requests.used > 0)
        client, broker = await proved_pair(on)
        await client.send(large_heartbeat(2))
        assert (await broker.request()).header.correlation_id == 2
        assert not budgets.proved_requests.waits
        lazy.close()
        await settled(budgets.unproved_requests)


async def test_a_client_that_does_not_finish_its_request_is_ended_while_others_wait() -> None:
    clock = FakeClock()
    async with stage(Scripted(), clock=clock.monotonic) as on:
        budget = on.gateway.budgets.proved_requests
        budget.limit = 1000
        lazy, _ = await proved_pair(on)
        await lazy.send(large_heartbeat(1)[:100_000])
        await until(lambda: budget.used > 0)
        client, broker = await proved_pair(on)
        sending = asyncio.create_task(client.send(large_heartbeat(2)))
        await until(lambda: budget.waits == 1)
        clock.now += 60
        assert (await broker.request()).header.correlation_id == 2
        assert on.ended == {"gather_timeout": 1}
        await sending
        await settled(budget)


async def test_requests_to_a_slow_broker_hold_their_bytes_until_it_has_taken_them() -> None:
    async with stage(Scripted(), upstream=FakeUpstream(receive_buffer=64 * 1024)) as on:
        budget = on.gateway.budgets.proved_requests
        client, broker = await proved_pair(on)
        connection = await on.connection()
        sending = asyncio.create_task(client.send(*(large_heartbeat(number, 3_000_000) for number in range(3))))
        await until(lambda: bool(connection.upstream.backlog))
        await turns()
        assert budget.used >= connection.upstream.backlog
        for number in range(3):
            assert (await broker.request()).header.correlation_id == number
        await sending
        await settled(budget)
        assert not budget.waits


async def test_requests_behind_one_that_ends_the_connection_reserve_nothing() -> None:
    """What a closed connection holds would be held for ever."""
    it = Scripted(adds={HEARTBEAT: (4, 5)})  # version 5, which the broker does not have, is not answered by it
    async with stage(it) as on:
        budget = on.gateway.budgets.proved_requests
        client, _ = await proved_pair(on)
        connection = await on.connection()
        refused = request(HEARTBEAT, 5, bytes(100), correlation_id=1)
        await client.send(refused[:50])
        await until(lambda: not connection.requests.between_requests)
        await client.send(refused[50:] + large_heartbeat(2)[:100])
        await on.ends_with(CloseCause.UNSUPPORTED_CALL)
        await settled(budget)


# Requests that are too large to be gathered before proof.


class _PassingUnproved(Scripted):
    max_bytes = 700_000

    def oversize(self, api_version: ApiVersion) -> Oversize:  # noqa: ARG002
        return Oversize.PASS_UNPROVED


async def test_a_request_that_may_pass_before_proof_passes_unopened_up_to_its_limit() -> None:
    interceptor = _PassingUnproved()
    async with stage(interceptor) as on:
        client, broker = await on.pair(proved=False)
        sent = large_heartbeat(1, 600_000)
        sending = asyncio.create_task(client.send(sent))
        asked = await broker.request()
        if asked.key == METADATA.api_key:  # the probe in front of it
            await broker.send(asked.answer(on.upstream.metadata()))
            asked = await broker.request()
        assert asked.frame == sent
        await sending
        assert interceptor.events == []
        other, _ = await on.pair(proved=False)
        await other.send(large_heartbeat(1, 800_000)[:1000])
        assert await other.rest() == b""
        assert on.ended == {CloseCause.FRAME_TOO_LARGE.value: 1}
