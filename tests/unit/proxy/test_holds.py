"""An interceptor may decide later: about a request, whose followers wait, or about an answer, which keeps its place."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.proxy.chain import MOST_BEFORE_OPENED
from headgate.proxy.interceptor import Answer, CloseCause, Forward, Hold, Rewritten
from headgate.wire.codec import encode
from headgate.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from tests.unit.proxy.scripted import Scripted, after, at_once
from tests.unit.proxy.stage import stage, until
from tests.unit.proxy.test_interceptors import OURS, THEIRS, code, exchange, sends
from tests.unit.proxy.test_order import heartbeat, metadata, numbers, produce


@pytest.mark.parametrize("outcome", ["forward", "rewritten", "answer"])
async def test_a_held_request_goes_as_it_is_decided(outcome: str) -> None:
    go = asyncio.Event()
    body = encode(HeartbeatRequest(group_id="another"), 4)
    outcomes: dict[str, Callable[[], Any]] = {
        "forward": Forward,
        "rewritten": lambda: Rewritten(body),
        "answer": lambda: Answer(encode(OURS, 4)),
    }
    async with stage(Scripted(request=lambda *_: Hold(after(go, outcomes[outcome]()), deadline=10))) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1), metadata(2))
        assert await broker.is_quiet()
        go.set()
        if outcome != "answer":
            asked = await broker.reply(THEIRS)
            assert (asked.frame == heartbeat(1)) == (outcome == "forward")
            assert (asked.body == body) == (outcome != "forward")
        assert code(await client.frame()) == (OURS if outcome == "answer" else THEIRS).error_code
        await broker.reply(on.upstream.metadata())
        assert await numbers(client, 1) == [2]


async def test_a_hold_whose_deadline_passes_forwards_the_request(logs: list[EventDict]) -> None:
    cancelled: list[bool] = []

    async def never() -> Forward[Any]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return Forward()

    async with stage(Scripted(request=lambda *_: Hold(never(), deadline=0.02))) as on:
        asked, answered = await exchange(*await on.pair())
        assert asked.frame == heartbeat(1)
        assert answered == asked.answer(THEIRS)
        assert on.gateway.metrics.chain_meter.failures == 0
    assert cancelled == [True]
    assert not [event for event in logs if event["log_level"] == "warning"]


async def test_a_hold_of_a_client_that_goes_away_is_cancelled_and_nothing_is_sent() -> None:
    cancelled = asyncio.Event()

    async def stubborn() -> Forward[Any]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
        return Forward()  # although it was told to stop

    async with stage(Scripted(request=lambda *_: Hold(stubborn(), deadline=10))) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1), metadata(2))
        connection = await on.connection()
        await until(lambda: connection.requests.blocked)
        client.close()
        async with asyncio.timeout(10):
            assert await broker.rest() == b""
            await cancelled.wait()
        assert on.ended == {"client_closed": 1}


async def test_a_held_answer_keeps_later_answers_waiting_in_their_order() -> None:
    events = {number: asyncio.Event() for number in (1, 2, 5)}

    def hold(_: Any, context: object) -> Any:
        assert isinstance(context, int)
        return Hold(after(events[context], Rewritten(encode(HeartbeatResponse(error_code=context), 4))), deadline=10)

    it = Scripted(request=lambda request, _: Forward(request.correlation_id), response=hold)
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1), heartbeat(2), metadata(3), produce(1, 4), heartbeat(5))
        for _ in range(5):
            asked = await broker.request()
            await broker.send(asked.answer(on.upstream.metadata() if asked.key == 3 else None))
        assert await client.is_quiet()
        events[2].set()
        events[5].set()
        assert await client.is_quiet()
        events[1].set()
        frames = [await client.frame() for _ in range(5)]
        assert [frame[7] for frame in frames] == [1, 2, 3, 4, 5]
        assert [code(frames[at]) for at in (0, 1, 4)] == [1, 2, 5]


async def test_a_held_answer_whose_deadline_passes_goes_as_it_came() -> None:
    it = Scripted(
        request=sends(Forward("c")), response=lambda *_: Hold(after(asyncio.Event(), Forward()), deadline=0.02)
    )
    async with stage(it) as on:
        asked, answered = await exchange(*await on.pair())
        assert answered == asked.answer(THEIRS)


async def test_what_waits_behind_a_held_answer_is_bounded() -> None:
    go = asyncio.Event()
    it = Scripted(request=sends(Forward("c")), response=lambda *_: Hold(after(go, Forward()), deadline=10))
    body = encode(HeartbeatResponse(unknown_tags=((10_000, bytes(100_000)),)), 4)
    async with stage(it) as on:
        client, broker = await on.pair()
        count = MOST_BEFORE_OPENED
        await client.send(*(heartbeat(number) for number in range(count)))
        frames = b"".join([(await broker.request()).answer(body) for _ in range(count)])
        sending = asyncio.create_task(broker.send(frames))
        connection = await on.connection()
        await until(lambda: not connection.upstream.is_reading)
        await asyncio.sleep(0.05)
        assert on.gateway.metrics.upstream_meter.received_bytes < 2_000_000
        go.set()
        assert await client.exactly(len(frames)) == frames
        await sending


async def test_held_answers_reach_the_client_although_the_broker_has_ended() -> None:
    go = asyncio.Event()
    it = Scripted(request=sends(Forward("c")), response=lambda *_: Hold(after(go, Forward()), deadline=10))
    async with stage(it, drain_ms=10_000) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1), produce(1, 2))
        first = (await broker.request()).answer(THEIRS)
        second = (await broker.request()).answer()
        await broker.send(first + second)
        broker.close()
        assert await client.is_quiet()
        assert not on.ended
        go.set()
        assert await client.rest() == first + second
        assert on.ended == {"upstream_closed": 1}


@pytest.mark.parametrize("kind", ["held request", "answer", "held answer"])
async def test_work_that_never_began_is_ended_with_its_connection(kind: str) -> None:
    """Whether it is a coroutine, which would complain, or a future, which somebody may be waiting to fill."""
    coroutine, future = at_once(Forward()), asyncio.get_running_loop().create_future()
    left = [future, coroutine]

    def outcome(*_: Any) -> Any:
        return Answer(left.pop()) if kind == "answer" else Hold(left.pop(), deadline=10)

    it = Scripted(request=outcome)
    if kind == "held answer":
        it = Scripted(request=sends(Forward("c")), response=outcome)
    async with stage(it) as on:
        for turn in (1, 2):
            client, broker = await on.pair()
            connection = await on.connection()
            asked = memoryview(heartbeat(1))
            connection.requests.on_bytes(asked, len(asked))
            if kind == "held answer":
                answered = memoryview((await broker.request()).answer())
                connection.responses.on_bytes(answered, len(answered))
            connection.close(CloseCause.IDLE)
            assert await client.rest() == b""
            assert on.ended == {"idle": turn}
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    assert future.cancelled()
