"""Dead letters without a cluster: deadlines hold, bounds hold, and closing leaves nobody waiting."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headgate.domain.dead_letters import Cause, DeadLetter
from headgate.kafka.dead_letter_writer import DeadLetterNotWrittenError, DeadLetterWriter, Trouble

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
LETTER = DeadLetter(
    group="sg",
    member="m",
    cluster="c",
    topic="orders",
    topic_id=bytes(16),
    partition=0,
    offset=1,
    delivery_count=1,
    cause=Cause.REJECTED,
    at=1,
)


@asynccontextmanager
async def opened(**bounds: int) -> AsyncIterator[DeadLetterWriter]:
    writer = DeadLetterWriter(NOWHERE, **bounds)  # type: ignore[arg-type]
    try:
        yield writer
    finally:
        await writer.close()


async def test_without_a_cluster_a_letter_ends_at_its_deadline() -> None:
    loop = asyncio.get_running_loop()
    async with opened() as writer:
        began = loop.time()
        with pytest.raises(DeadLetterNotWrittenError, match=r"to dlq\.o within 0\.3 s: ") as caught:
            await writer.write("dlq.o", LETTER, 0.3)
        assert 0.25 <= loop.time() - began < 5.0
        assert caught.value.trouble is Trouble.UNREACHABLE
        assert not caught.value.too_large
        assert (writer.letters, writer.bytes) == (0, 0)


async def test_beyond_the_bounds_nobody_waits() -> None:
    async with opened(most_letters=2) as writer:
        waiting = [asyncio.create_task(writer.write("dlq.o", LETTER, 0.5)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(DeadLetterNotWrittenError, match=r"2 dead letters of [0-9]+ bytes wait") as caught:
            await writer.write("dlq.o", LETTER, 3600)
        assert caught.value.trouble is Trouble.OVERLOADED
        await asyncio.gather(*waiting, return_exceptions=True)
        assert writer.letters == 0


async def test_closing_leaves_nobody_waiting() -> None:
    async with opened() as writer:
        waiting = asyncio.create_task(writer.write("dlq.o", LETTER, 3600))
        await asyncio.sleep(0.05)
    async with asyncio.timeout(20):
        with pytest.raises(DeadLetterNotWrittenError):
            await waiting
    with pytest.raises(DeadLetterNotWrittenError, match="closed"):
        await writer.write("dlq.o", LETTER, 3600)
