"""The resources of a reader of Connect's topics, without a cluster."""

import asyncio

import pytest

from headgate.activity.connect_status_topic import ConnectStatusTopic
from headgate.kafka.fact_reader import FactReader


async def test_readers_are_closed_when_the_end_is_cancelled_while_the_task_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, cancelled, leave = asyncio.Event(), asyncio.Event(), asyncio.Event()
    open_readers: list[object] = []

    async def end_slowly(*_: object) -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await asyncio.sleep(0.05)

    def start(reader: object) -> None:
        open_readers.append(reader)

    async def close(reader: object) -> None:
        open_readers.remove(reader)

    monkeypatch.setattr(ConnectStatusTopic, "_reset_deleted", end_slowly)
    monkeypatch.setattr(FactReader, "start", start)
    monkeypatch.setattr(FactReader, "close", close)
    topic = ConnectStatusTopic({"bootstrap.servers": "127.0.0.1:1"}, status_topic="s", config_topic="c")

    async def run() -> None:
        async with topic.running():
            await leave.wait()

    running = asyncio.create_task(run())
    await started.wait()
    assert len(open_readers) == 2
    leave.set()
    await cancelled.wait()
    running.cancel()
    await asyncio.wait([running])
    assert not open_readers
