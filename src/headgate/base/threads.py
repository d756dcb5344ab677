"""Blocking work on a thread that does not delay the end of the process.

The threads of `asyncio.to_thread` do: a library call that waits half a minute for a cluster that is down must not.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def off_loop(work: Callable[[], T]) -> T:
    """Await the result of `work`; if the caller is cancelled the work goes on, and its result is dropped."""
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
