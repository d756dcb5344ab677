"""What a worker reports to its supervisor, and how it sets up its interpreter."""

import asyncio
import gc
import socket
import sys
from collections.abc import Mapping
from typing import Any, cast

from structlog.typing import EventDict

from headgate.cli.worker import send_reports, tune_interpreter
from headgate.proxy.metrics import Snapshot
from headgate.proxy.worker_reports import decode_report


def test_a_thread_that_decodes_gives_the_interpreter_away_within_a_millisecond() -> None:
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    try:
        tune_interpreter()
        assert sys.getswitchinterval() < 0.001
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)


class _Gateway:
    """Its metrics cannot be collected while it is `broken`."""

    def __init__(self) -> None:
        self.broken = False
        self.collected = 0

    def problems(self) -> Mapping[str, str]:
        return {"upstream": "is away"}  # reports come more often then

    def details(self) -> Mapping[str, str]:
        return {"topology store": "2 cancelled calls have not ended"}

    def snapshot(self) -> Snapshot:
        if self.broken:
            raise RuntimeError("dictionary changed size during iteration")
        self.collected += 1
        return {("headgate_connections", ()): self.collected}


async def test_a_worker_whose_metrics_cannot_be_collected_reports_the_last_ones(logs: list[EventDict]) -> None:
    """Without reports it would be ended as one that hangs, with all of its connections."""
    own, inherited = socket.socketpair()
    inherited.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=own)
    gateway, drained = _Gateway(), asyncio.Event()
    reporting = asyncio.create_task(send_reports(cast("Any", gateway), inherited, drained))
    async with asyncio.timeout(60):
        before = decode_report(await reader.readline())
        assert before.details == gateway.details()
        gateway.broken = True
        while (last := decode_report(await reader.readline())) != before:
            before = last
        for _ in range(3):
            assert decode_report(await reader.readline()) == last
        gateway.broken = False
        while decode_report(await reader.readline()) == last:
            pass
        drained.set()
        await reporting
    assert [one["event"] for one in logs] == ["metrics cannot be collected, the last ones are reported again"]
    inherited.close()
    writer.close()


async def test_a_worker_whose_metrics_can_never_be_collected_says_so() -> None:
    own, inherited = socket.socketpair()
    inherited.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=own)
    gateway, drained = _Gateway(), asyncio.Event()
    gateway.broken = True
    drained.set()
    await send_reports(cast("Any", gateway), inherited, drained)
    assert decode_report(await reader.readline()) == ({}, {"metrics": "cannot be collected"}, {})
    inherited.close()
    writer.close()
