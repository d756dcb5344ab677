"""What the clients of the headgate.* topics do when something breaks; no broker is needed for that."""

import asyncio

import pytest

from headgate.facts import GroupPaused
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.fact_writer import FactNotWrittenError, FactWriter, RecordProducer
from headgate.kafka.topics import Origin
from tests.support.breakable_producers import BreakableProducers

UNREACHABLE = {"bootstrap.servers": "127.0.0.1:1"}
PAUSED = GroupPaused(at=1, group="g", reason="deploy", by="User:ops")


def writer(source: RecordProducer | dict[str, str] = UNREACHABLE) -> FactWriter:
    origin = Origin(cluster=None, writer="gw/0", boot="b")
    return FactWriter(source, prefix="headgate.", origin=origin, delivery_timeout_s=60.0)


async def test_a_write_to_a_failed_producer_raises_when_the_producer_is_replaced() -> None:
    broken = BreakableProducers()
    writing = writer(RecordProducer(UNREACHABLE, delivery_timeout_s=60.0, make_producer=broken.make))
    first = asyncio.ensure_future(writing.write(PAUSED))
    await asyncio.sleep(0.05)
    broken.fail()
    second = asyncio.ensure_future(writing.write(PAUSED))
    with pytest.raises(FactNotWrittenError, match="the producer failed"):
        await asyncio.wait_for(first, 5)
    await writing.close(timeout_s=0.05)
    with pytest.raises(FactNotWrittenError, match="closed"):
        await second


async def test_a_writer_that_is_closed_takes_nothing() -> None:
    writing = writer()
    await writing.close()
    with pytest.raises(FactNotWrittenError, match="closed"):
        await writing.write(PAUSED)


async def test_a_callback_that_raises_does_not_stop_the_reader() -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    reader: FactReader[int] = FactReader(
        UNREACHABLE,
        topic="headgate.state",
        start=0,
        digest=lambda _: 1,
        forget=lambda _: 0,
        take=broken,
    )
    waiting = asyncio.ensure_future(reader.reached(4))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="a defect"):
        reader._apply([1], {0: 5}, True)
    assert reader.position == 5
    await asyncio.wait_for(waiting, 5)
