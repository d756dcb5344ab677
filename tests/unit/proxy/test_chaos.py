"""Everything at once, from a seed: held, rewritten, answered and passing calls, in pieces, with slow readers.

The client must get an answer to each request, in order, with the content that belongs to it. A link that is paused or
held and never goes on shows here as a deadline that passes.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.interceptor import (
    Answer,
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    OnResponse,
    RequestFrame,
    ResponseFrame,
    Rewritten,
    Session,
)
from headgate.wire.codec import decode, encode
from headgate.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from tests.support.fake_upstream import Broker, Client, End, FakeUpstream, body_of, request
from tests.unit.proxy.stage import Stage, stage, until
from tests.unit.proxy.test_order import metadata, produce

HEARTBEAT, VERSION = ApiKey(12), ApiVersion(4)
COUNT = 150
PROBE = HeartbeatRequest(group_id="probe")


class Moody(Interceptor[Any]):
    """Does another thing with each Heartbeat; the error code of the answer must be what the request asked for."""

    api_keys = frozenset((HEARTBEAT,))

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[Any]:
        wanted = decode(HeartbeatRequest, 4, request.body).generation_id
        body = bytes(request.body)
        answer = encode(HeartbeatResponse(error_code=wanted), 4)
        outcomes: list[Any] = [
            Forward,
            lambda: Forward(context=wanted),
            lambda: Rewritten(body, context=wanted),
            lambda: Answer(self._later(answer)),
        ]
        choose = self._chance.choice(outcomes)
        if self._chance.random() < 0.3:
            return Hold(self._probed(session, choose), deadline=10)
        outcome: OnRequest[Any] = choose()
        return outcome

    def on_response(self, response: ResponseFrame, context: object, session: Session) -> OnResponse:  # noqa: ARG002
        outcome: OnResponse = Forward()
        if self._chance.random() < 0.5:
            outcome = Rewritten(bytes(response.body))
        return Hold(self._later(outcome), deadline=10) if self._chance.random() < 0.4 else outcome

    async def _later(self, value: Any) -> Any:
        if self._chance.random() < 0.5:
            await asyncio.sleep(self._chance.random() * 0.003)
        return value

    async def _probed(self, session: Session, choose: Callable[[], Any]) -> Any:
        if self._chance.random() < 0.5:
            await session.call(PROBE, 4)
        return await self._later(None) or choose()


async def send_in_pieces(end: End, data: bytes, chance: random.Random) -> None:
    while data:
        size = chance.choice((1, 7, 100, 5_000, 100_000))
        await end.send(data[:size])
        data = data[size:]
        if chance.random() < 0.2:
            await asyncio.sleep(0)


async def play_broker(on: Stage, broker: Broker, chance: random.Random) -> None:
    """Answer everything, as a broker does: one request after the other."""
    while True:
        asked = await broker.request()
        if asked.key == 0:
            answered = asked.answer() if asked.body[1:3] != b"\x00\x00" else b""
        elif asked.key == 3:
            answered = asked.answer(on.upstream.metadata())
        else:
            wanted = decode(HeartbeatRequest, 4, asked.body).generation_id
            padding = ((10_000, bytes(chance.choice((0, 10, 40_000, 100_000)))),)
            answered = asked.answer(HeartbeatResponse(error_code=wanted, unknown_tags=padding))
        await send_in_pieces(broker, answered, chance)


async def check_answers(client: Client, expected: list[tuple[int, int]], chance: random.Random) -> None:
    for number, key in expected:
        frame = await client.frame()
        assert int.from_bytes(frame[4:8], "big") == number
        if key == HEARTBEAT:
            assert decode(HeartbeatResponse, 4, body_of(frame, 12, 4)).error_code == number
        if chance.random() < 0.1:
            await asyncio.sleep(chance.random() * 0.005)


async def play_client(on: Stage, seed: int, *, leave: bool, connecting: asyncio.Lock | None = None) -> None:
    chance = random.Random(seed)
    async with connecting or asyncio.Lock():
        client, broker = await on.pair(receive_buffer=chance.choice((None, 8192)))
    playing = asyncio.create_task(play_broker(on, broker, random.Random(seed + 1)))
    sent: list[bytes] = []
    expected: list[tuple[int, int]] = []
    for number in range(COUNT):
        match chance.randrange(5):
            case 0:
                sent.append(metadata(number))
                expected.append((number, 3))
            case 1:
                acks = chance.choice((0, 1))
                sent.append(produce(acks, number, size=chance.choice((10, 50_000))))
                expected += [(number, 0)] if acks else []
            case _:
                padding = ((10_000, bytes(chance.choice((0, 0, 0, 80_000)))),)
                body = HeartbeatRequest(group_id="g", generation_id=number, unknown_tags=padding)
                sent.append(request(12, 4, body, correlation_id=number))
                expected.append((number, HEARTBEAT))
    sending = asyncio.create_task(send_in_pieces(client, b"".join(sent), chance))
    try:
        await check_answers(client, expected[: COUNT // 3] if leave else expected, chance)
        if not leave:
            await sending
    finally:
        client.close()
        for task in (sending, playing):
            task.cancel()
        await asyncio.gather(sending, playing, return_exceptions=True)
        if connecting is not None:  # so that nothing is under way that would keep the connection
            broker.close()


@pytest.mark.parametrize("seed", range(6))
async def test_every_request_gets_its_answer_in_order_whatever_happens_to_it(seed: int) -> None:
    upstream = FakeUpstream(receive_buffer=8192 if seed % 2 else None)
    async with stage(Moody(random.Random(seed)), upstream=upstream) as on:
        for turn in range(2):
            await play_client(on, 1000 * seed + turn, leave=False)
        assert not on.ended.keys() - {"client_closed"}
        assert on.gateway.metrics.chain_meter.failures == 0


@pytest.mark.parametrize("seed", range(3))
async def test_it_is_so_for_many_clients_that_wait_for_the_same_gathered_bytes(seed: int) -> None:
    upstream = FakeUpstream(receive_buffer=8192 if seed % 2 else None)
    async with stage(Moody(random.Random(seed)), upstream=upstream, abandoned_s=0.1) as on:
        budgets = on.gateway.budgets.by_name()
        for _, budget in budgets:
            budget.limit = (150_000, 150_000, 1)[seed]
        brokers = asyncio.Lock()  # each client has its own
        await asyncio.gather(
            *(play_client(on, 1000 * seed + turn, leave=turn % 3 == 2, connecting=brokers) for turn in range(4))
        )
        await until(lambda: not on.gateway.connections)
        assert not on.ended.keys() - {"client_closed", "client_reset", "upstream_closed", "upstream_reset"}
        assert on.gateway.metrics.chain_meter.failures == 0
        assert sum(budget.waits for _, budget in budgets) > 10
        assert all(budget.is_idle for _, budget in budgets)


@pytest.mark.parametrize("seed", range(3))
async def test_clients_that_leave_in_the_middle_of_it_leave_nothing(seed: int) -> None:
    async with stage(Moody(random.Random(seed))) as on:
        for turn in range(3):
            await play_client(on, 1000 * seed + turn, leave=True)
        assert not on.ended.keys() - {"client_closed", "client_reset"}
