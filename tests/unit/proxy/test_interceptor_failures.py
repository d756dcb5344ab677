"""An interceptor that fails does not stop the stream, unless the call must not pass without it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.proxy.decoding import SMALL_BYTES, DecodingInterceptor
from headgate.proxy.interceptor import Answer, Forward, Hold
from headgate.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from tests.support.fake_upstream import request
from tests.unit.proxy.scripted import Scripted, after, at_once, fails
from tests.unit.proxy.stage import stage
from tests.unit.proxy.test_interceptors import THEIRS, exchange, sends
from tests.unit.proxy.test_order import heartbeat

FAILURE = RuntimeError("a bug")


def raising(*_: Any) -> Any:
    raise FAILURE


def nothing(*_: Any) -> Any:
    return None


FAILING: dict[str, Callable[[], Scripted]] = {
    "on_request": lambda: Scripted(request=raising),
    "on_request returns nothing": lambda: Scripted(request=nothing),
    "hold of a request": lambda: Scripted(request=lambda *_: Hold(fails(FAILURE), deadline=10)),
    "hold of a request comes to nothing": lambda: Scripted(request=lambda *_: Hold(at_once(None), deadline=10)),
    "hold of a request is cancelled": lambda: Scripted(request=lambda *_: Hold(cancelled(), deadline=10)),
    "hold of a request times out by itself": lambda: Scripted(
        request=lambda *_: Hold(fails(TimeoutError()), deadline=9)
    ),
    "answer": lambda: Scripted(request=lambda *_: Answer(fails(FAILURE))),
    "answer is cancelled": lambda: Scripted(request=lambda *_: Answer(cancelled())),
    "on_response": lambda: Scripted(request=sends(Forward("c")), response=raising),
    "on_response returns nothing": lambda: Scripted(request=sends(Forward("c")), response=nothing),
    "hold of an answer": lambda: Scripted(
        request=sends(Forward("c")), response=lambda *_: Hold(fails(FAILURE), deadline=10)
    ),
    "hold of an answer comes to an answer": lambda: Scripted(
        request=sends(Forward("c")), response=lambda *_: Hold(at_once(Answer(b"")), deadline=10)
    ),
    "hold of an answer is cancelled": lambda: Scripted(
        request=sends(Forward("c")), response=lambda *_: Hold(cancelled(), deadline=10)
    ),
}


class TimesOut(DecodingInterceptor[HeartbeatRequest, HeartbeatResponse, Any]):
    request_class = HeartbeatRequest

    def on_decoded_request(self, *_: Any) -> Any:
        return Hold(fails(TimeoutError()), deadline=9)


async def test_the_hold_of_a_large_request_that_times_out_by_itself_is_counted_as_a_failure() -> None:
    large = request(12, 4, HeartbeatRequest(group_id="g" * SMALL_BYTES))
    async with stage(TimesOut()) as on:
        client, broker = await on.pair()
        await client.send(large)
        assert (await broker.request()).frame == large
        assert on.gateway.metrics.chain_meter.failures == 1


def cancelled() -> "asyncio.Future[Any]":
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.cancel()
    return future


@pytest.mark.parametrize("where", FAILING)
async def test_a_call_passes_when_an_interceptor_fails(where: str, logs: list[EventDict]) -> None:
    events: list[str] = []
    after_it = Scripted("next", events=events, request=sends(Forward("n")))
    async with stage(FAILING[where](), after_it) as on:
        client, broker = await on.pair()
        for number in (1, 2):
            asked, answered = await exchange(client, broker, number=number)
            assert asked.frame == heartbeat(number)
            assert answered == asked.answer(THEIRS)
        assert on.gateway.metrics.chain_meter.failures == 2
        assert on.gateway.snapshot()["headgate_interceptor_failures", ()] == 2
    warnings = [event for event in logs if event["log_level"] in {"warning", "error"}]
    assert [event["event"] for event in warnings] == ["interceptor failed, forwarding without it"]
    assert warnings[0]["interceptor"] == "Scripted"
    if "answer" not in where or "hold" in where:
        assert events == ["next request 1", "next response n", "next request 2", "next response n"]


async def test_a_call_that_only_the_failed_interceptor_has_is_not_forwarded() -> None:
    it = Scripted(keys=(93,), adds={93: (0, 0)}, request=raising)
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(request(93, 0, b""), heartbeat(2))
        assert await client.rest() == b""
        assert await broker.rest() == b""
        assert on.ended == {"unsupported_call": 1}


@pytest.mark.parametrize(
    "it",
    [
        Scripted(fail_closed=True, request=raising),
        Scripted(fail_closed=True, request=lambda *_: Hold(fails(FAILURE), deadline=9)),
        Scripted(fail_closed=True, request=lambda *_: Hold(after(asyncio.Event(), Forward()), deadline=0.02)),
        Scripted(fail_closed=True, request=lambda *_: Answer(fails(FAILURE))),
        Scripted(fail_closed=True, request=sends(Forward("c")), response=raising),
        Scripted(fail_closed=True, request=sends(Forward("c")), response=lambda *_: Hold(fails(FAILURE), deadline=9)),
        Scripted(
            fail_closed=True,
            request=sends(Forward("c")),
            response=lambda *_: Hold(after(asyncio.Event(), Forward()), deadline=0.02),
        ),
    ],
    ids=["on_request", "hold", "late hold", "answer", "on_response", "held answer", "late answer"],
)
async def test_one_that_must_not_fail_ends_the_connection_instead(it: Scripted) -> None:
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        if it.api_keys and it.response is not None:
            await broker.reply(THEIRS)
        assert await client.rest() == b""
        assert on.ended in ({"internal": 1}, {"bad_answer": 1})
