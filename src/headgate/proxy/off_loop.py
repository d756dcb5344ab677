"""Large messages are read and written beside the event loop: one at a time, so that they starve nobody.

A message of a megabyte can hold a hundred thousand parts, and its decoding takes longer than others should wait.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

SMALL_BYTES: Final = 16 * 1024
T = TypeVar("T")

_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="headgate-large")


async def aside(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_THREAD, work)
