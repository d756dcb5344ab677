"""The short way for calls that a watcher knows: asked instead of `on_request`, and a failure of it stops nothing."""

from typing import Any

from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.interceptor import FastPath, Forward, Interceptor, RequestFrame, Session
from headgate.wire.messages.groups import HeartbeatResponse
from tests.support.fake_upstream import Broker, Client
from tests.unit.proxy.scripted import HEARTBEAT
from tests.unit.proxy.stage import stage
from tests.unit.proxy.test_order import heartbeat


class Known(FastPath):
    """Notes what it is shown; `context` is what it wants to see more by."""

    def __init__(self) -> None:
        self.asks: list[bytes] = []
        self.answers: list[bytes] = []
        self.context: object = None
        self.is_strange = False
        self.fails = ""

    def on_request(self, view: memoryview, pos: int, end: int, length: int) -> "Known | None":
        if self.fails == "asked":
            raise ValueError("a defect")
        assert end == pos + 4 + length
        self.asks.append(bytes(view[pos:end]))
        return None if self.is_strange else self

    def on_response(self, view: memoryview, pos: int, end: int, length: int) -> object | None:
        if self.fails == "answered":
            raise ValueError("a defect")
        assert end == pos + 4 + length
        self.answers.append(bytes(view[pos:end]))
        return self.context


class Watcher(Interceptor[Any]):
    stream_keys = frozenset((ApiKey(HEARTBEAT),))

    def __init__(self, known: Known) -> None:
        self.known = known
        self.requests = 0
        self.chunks: list[bytes] = []

    def on_request(self, request: RequestFrame, session: Session) -> Forward[Any]:
        self.requests += 1
        session.use_fast_path(request.api_key, ApiVersion(request.api_version), self.known)
        return Forward()

    def on_chunk(self, view: memoryview, context: object, session: Session) -> None:  # noqa: ARG002
        self.chunks.append(bytes(view))


async def beat(client: Client, broker: Broker, number: int) -> tuple[bytes, bytes]:
    await client.send(heartbeat(number))
    asked = await broker.reply(HeartbeatResponse())
    assert asked.frame == heartbeat(number)
    answer = await client.frame()
    assert answer == asked.answer(HeartbeatResponse())
    return asked.frame, answer


async def test_from_the_second_call_on_the_familiar_is_asked_and_told_the_answer() -> None:
    watcher = Watcher(Known())
    async with stage(watcher) as on:
        pair = await on.pair()
        calls = [await beat(*pair, number) for number in range(3)]
    assert watcher.requests == 1
    assert watcher.known.asks == [asked for asked, _ in calls[1:]]
    assert watcher.known.answers == [answer for _, answer in calls[1:]]
    assert watcher.chunks == []


async def test_with_a_context_the_watcher_sees_the_answer_and_what_is_not_familiar_goes_to_it_whole() -> None:
    watcher = Watcher(Known())
    watcher.known.context = "look"
    async with stage(watcher) as on:
        pair = await on.pair()
        await beat(*pair, 1)
        _, answer = await beat(*pair, 2)
        assert watcher.chunks == [answer, b""]
        watcher.known.is_strange = True
        await beat(*pair, 3)
    assert watcher.requests == 2


async def test_one_that_fails_stops_nothing_and_is_counted() -> None:
    for fails in ("asked", "answered"):
        watcher = Watcher(Known())
        watcher.known.fails = fails
        async with stage(watcher) as on:
            pair = await on.pair()
            for number in range(3):
                await beat(*pair, number)
            assert on.gateway.metrics.chain_meter.failures == 2


async def test_where_several_watch_a_call_there_is_no_short_way() -> None:
    first, second = Watcher(Known()), Watcher(Known())
    async with stage(first, second) as on:
        pair = await on.pair()
        for number in range(3):
            await beat(*pair, number)
    assert (first.requests, second.requests) == (3, 3)
    assert first.known.asks == second.known.asks == []
