"""A join that puts in doubt what is stored: its answer waits for the doubt to be written, and for nothing else."""

import asyncio

import pytest

from headgate.topologies import heartbeats
from headgate.topologies.model.group_events import WriteEpochs
from headgate.wire.codec import decode
from headgate.wire.messages.streams import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from tests.support.fake_upstream import body_of, request
from tests.unit.topologies.scene import STREAMS_HEARTBEAT, Scene, fine, joining, scene

A_WHILE_S = 0.1


class SlowTopic:
    """`headgate.state` that takes nothing before `opened`."""

    def __init__(self, it: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = asyncio.Event()
        self._write = it.service.epochs.write
        monkeypatch.setattr(it.service.epochs, "write", self.write)

    async def write(self, effect: WriteEpochs) -> None:
        await self.opened.wait()
        await self._write(effect)


async def store(it: Scene) -> None:
    assert await it.join()
    assert await it.pushes() == 0


async def sent(it: Scene, message: StreamsGroupHeartbeatRequest, version: int = 1) -> "asyncio.Task[bytes]":
    """The frame that will come; the broker has answered."""
    await it.client.send(request(STREAMS_HEARTBEAT, version, message, correlation_id=1))
    await it.broker.reply(fine())
    return asyncio.create_task(it.client.frame())


def is_asked(frame: bytes, version: int = 1) -> bool:
    body = body_of(frame, STREAMS_HEARTBEAT, version)
    return decode(StreamsGroupHeartbeatResponse, version, body).topology_description_required


@pytest.mark.parametrize("version", [0, 1])
async def test_a_newcomer_is_answered_when_its_doubt_is_written(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene() as it:
        await store(it)
        topic, newcomer = SlowTopic(it, monkeypatch), await it.another()
        message = joining("n", process="another")
        if version == 0:
            message = StreamsGroupHeartbeatRequest(group_id="g", member_id="n", process_id="another")
        coming = await sent(newcomer, message, version)
        await asyncio.sleep(A_WHILE_S)
        assert not coming.done()
        topic.opened.set()
        assert is_asked(await coming, version) is (version == 1)
        assert it.service.groups.life("g").in_doubt
        assert it.service.epochs.written[-1].epochs.stored_epoch == -2


async def test_nobody_else_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene() as it:
        await store(it)
        SlowTopic(it, monkeypatch)
        waiting = await sent(await it.another(), joining("n", process="another"))
        assert not is_asked(await (await sent(it, joining("t"))))
        assert not is_asked(await (await sent(it, joining("first", group="h"), 0)), 0)
        assert not waiting.done()
        waiting.cancel()


async def test_a_topic_that_hangs_costs_no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "DOUBT_S", A_WHILE_S)
    async with scene() as it:
        await store(it)
        topic = SlowTopic(it, monkeypatch)
        assert is_asked(await (await sent(await it.another(), joining("n", process="another"))))
        written = len(it.service.epochs.written)
        topic.opened.set()
        await asyncio.sleep(A_WHILE_S)
        assert len(it.service.epochs.written) == written + 1, "it is written all the same"


async def test_a_topic_that_is_away_keeps_nobody_waiting() -> None:
    async with scene() as it:
        await store(it)
        it.service.epochs.away = True
        async with asyncio.timeout(heartbeats.DOUBT_S / 2):
            assert is_asked(await (await sent(await it.another(), joining("n", process="another"))))
        assert it.service.groups.life("g").in_doubt
