"""The short way for calls that a watcher knows: asked instead of `on_request`, and a failure of it stops nothing."""

from typing import Any

from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.chain import MOST_PENDING
from headgate.proxy.interceptor import UNWATCHED, FastPath, Forward, Interceptor, Prefilter, RequestFrame, Session
from headgate.wire.messages.groups import HeartbeatResponse
from tests.support.fake_upstream import Broker, Client
from tests.unit.proxy.scripted import HEARTBEAT, Scripted
from tests.unit.proxy.stage import stage
from tests.unit.proxy.test_order import heartbeat


class Known(FastPath):
    """Notes what it is shown; `context` is what it wants to see more by."""

    def __init__(self) -> None:
        self.asks: list[bytes] = []
        self.answers: list[bytes] = []
        self.context: object = None
        self.is_strange = False
        self.is_unwatched = False
        self.fails = ""

    def on_request(self, view: memoryview, pos: int, end: int, length: int) -> "FastPath | None":
        if self.fails == "asked":
            raise ValueError("a defect")
        assert end == pos + 4 + length
        self.asks.append(bytes(view[pos:end]))
        if self.is_strange:
            return None
        return UNWATCHED if self.is_unwatched else self

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
        self.opened = 0
        self.chunks: list[bytes] = []

    def on_request(self, request: RequestFrame, session: Session) -> Forward[Any]:
        self.requests += 1
        self.opened += request.is_opened
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
        assert watcher.chunks == [answer]
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


async def test_what_is_unwatched_passes_and_its_response_is_shown_to_nothing() -> None:
    watcher = Watcher(Known())
    watcher.known.is_unwatched = True
    async with stage(watcher) as on:
        pair = await on.pair()
        for number in range(3):
            await beat(*pair, number)
    assert len(watcher.known.asks) == 2
    assert (watcher.requests, watcher.known.answers, watcher.chunks) == (1, [], [])


async def test_before_the_proof_no_fast_path_is_asked() -> None:
    watcher = Watcher(Known())
    async with stage(watcher) as on:
        client, broker = await on.pair(proved=False)
        await client.send(heartbeat(1), heartbeat(2))
        for _ in range(2):
            await broker.reply(HeartbeatResponse())
            await client.frame()
        assert (watcher.requests, watcher.known.asks) == (2, [])
        await beat(client, broker, 3)
    assert len(watcher.known.asks) == 1


class Filtered(Scripted):
    """Opens requests whose body is longer than `most`."""

    most = 1000

    def prefilter(self, api_version: ApiVersion) -> Prefilter | None:  # noqa: ARG002
        return lambda _, pos, end: end - pos > self.most


class Covering(Known):
    covers_prefilter = True


async def test_a_fast_path_that_covers_the_prefilter_is_asked_before_it_and_any_other_not_at_all() -> None:
    for known, asks in ((Covering(), 2), (Known(), 0)):
        watcher, filtered = Watcher(known), Filtered()
        async with stage(filtered, watcher) as on:
            pair = await on.pair()
            for number in range(3):
                await beat(*pair, number)
            assert (len(known.asks), watcher.requests, watcher.opened) == (asks, 3 - asks, 0)
            known.is_strange = True
            filtered.most = 0
            await beat(*pair, 4)
            assert filtered.events == ["it request 4"]
            assert watcher.opened == 1


async def test_where_every_request_is_opened_there_is_no_fast_path() -> None:
    watcher, opening = Watcher(Covering()), Scripted()
    async with stage(opening, watcher) as on:
        pair = await on.pair()
        for number in range(3):
            await beat(*pair, number)
    assert (watcher.requests, watcher.opened, watcher.known.asks) == (3, 3, [])
    assert opening.events == [f"it request {number}" for number in range(3)]


async def test_recognized_requests_wait_too_while_too_many_are_pending() -> None:
    watcher = Watcher(Known())
    async with stage(watcher) as on:
        client, broker = await on.pair()
        await beat(client, broker, 0)
        await client.send(*map(heartbeat, range(1, MOST_PENDING + 3)))
        for number in range(1, MOST_PENDING + 1):
            assert (await broker.request()).frame == heartbeat(number)
        assert await broker.is_quiet()
        connection = await on.connection()
        assert len(connection.pending) == MOST_PENDING
