"""Blocking work beside the event loop: its outcome, and that nobody waits for it at the end."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from headgate.base.threads import off_loop


async def test_the_outcome_is_the_works_and_the_loop_goes_on_meanwhile() -> None:
    go_on = threading.Event()
    work = asyncio.create_task(off_loop(lambda: go_on.wait(10)))
    await asyncio.sleep(0)
    go_on.set()
    assert await work is True


async def test_what_it_raises_is_raised() -> None:
    def work() -> None:
        raise OSError("away")

    with pytest.raises(OSError, match="away"):
        await off_loop(work)


async def test_who_was_cancelled_hears_nothing_more() -> None:
    go_on, ended = threading.Event(), threading.Event()

    def work() -> None:
        go_on.wait(10)
        ended.set()

    waiting = asyncio.create_task(off_loop(work))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 10)


def test_a_process_ends_while_it_waits() -> None:
    program = """
import asyncio, time
from headgate.base.threads import off_loop

async def main():
    waiting = asyncio.create_task(off_loop(lambda: time.sleep(60)))
    await asyncio.sleep(0.2)
    waiting.cancel()

asyncio.run(main())
"""
    began = time.monotonic()
    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode == 0
    assert time.monotonic() - began < 20
