"""Blocking work off the event loop, on a thread that nobody waits for when the process ends.

`asyncio.to_thread` keeps the end of a process waiting for its threads; a call of a library that waits half a minute for
a cluster that is away must not do that.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def off_loop(work: Callable[[], T]) -> T:
    """What the work returns or raises; if the caller is cancelled it goes on, and nobody hears of it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, failure: BaseException | None) -> None:
        if done.done():
            return
        if failure is not None:
            done.set_exception(failure)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            result, failure = work(), None
        except BaseException as raised:  # noqa: BLE001 - it is raised where it is awaited
            result, failure = None, raised
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="headgate-off-loop", daemon=True).start()
    return await done
