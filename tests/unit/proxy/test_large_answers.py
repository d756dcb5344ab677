"""Answers that are opened and large: their bytes are not copied more than they must, and never change under way."""

import asyncio
import random
from typing import Any

import pytest

from headgate.proxy.interceptor import Forward, Hold, ResponseFrame, Rewritten
from tests.support.fake_upstream import answer
from tests.unit.proxy.scripted import HEARTBEAT, Scripted, after
from tests.unit.proxy.stage import stage, until
from tests.unit.proxy.test_order import heartbeat, metadata

# Below what is gathered in any case, whole in one read, and over several reads.
SIZES = (60_000, 100_000, 600_000)


def content(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def opening(response: Any) -> Scripted:
    return Scripted(request=lambda *_: Forward(context="mine"), response=response)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("outcome", ["same", "changed", "held", "held and changed"])
async def test_it_reaches_the_client_as_it_was_decided(size: int, outcome: str) -> None:
    go = asyncio.Event()
    seen: list[bytes] = []

    def look(response: ResponseFrame, _: object) -> Any:
        seen.append(bytes(response.body))
        decided: Any = Rewritten(b"ours") if "changed" in outcome else Forward()
        return Hold(after(go, decided), deadline=10) if "held" in outcome else decided

    async with stage(opening(look)) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1), metadata(2))
        await broker.reply(content(size))
        await broker.reply(on.upstream.metadata())
        if "held" in outcome:
            await until(lambda: bool(seen))
            assert await client.is_quiet()
            go.set()
        expected = b"ours" if "changed" in outcome else content(size)
        assert await client.frame() == answer(HEARTBEAT, 4, 1, expected)
        await client.frame()
        assert seen == [content(size)]


async def test_the_tags_of_its_header_stay_when_nobody_changes_it() -> None:
    async with stage(opening(lambda *_: Forward())) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        await broker.request()
        frame = answer(HEARTBEAT, 4, 1, content(100_000), tags=b"\x01\x05\x02xy")
        await broker.send(frame)
        assert await client.frame() == frame


async def test_what_a_slow_client_has_not_taken_does_not_change_when_more_is_read() -> None:
    sizes = [200_000, 3_000_000, 90_000, 3_000_000, 1_000]
    async with stage(opening(lambda *_: Forward())) as on:
        client, broker = await on.pair(0, receive_buffer=4096)
        await client.send(*(heartbeat(number) for number in range(len(sizes))))

        async def reply() -> None:
            for number, size in enumerate(sizes):
                await broker.reply(content(size, number))

        replying = asyncio.create_task(reply())
        for number, size in enumerate(sizes):
            await asyncio.sleep(0.02)  # the socket is full, and what comes meanwhile uses the buffer that links share
            assert await client.frame() == answer(HEARTBEAT, 4, number, content(size, number))
        await replying
