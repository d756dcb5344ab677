"""The pipeline's status pages: `/metrics`, `/healthz` and `/readyz` on a thread of their own.

One rule: they only ask. The queries are blocking calls on other threads, so the pages have an event loop to themselves,
and go with the block that serves them.
"""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headgate.config.addresses import Address
from headgate.proxy.status import StatusPages

if TYPE_CHECKING:
    from headgate.pipeline.health import Health

_END_S = 10.0


@contextmanager
def status_pages(listen: Address | None, health: "Health") -> Iterator[None]:
    """The pages as long as the block runs; none without an address. `PlatformError` when it is taken."""
    if listen is None:
        yield
        return
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    listening: Future[None] = Future()

    async def serve() -> None:
        pages = StatusPages(health.page, health.problems)
        async with pages.serving(listen, named="--status"):
            listening.set_result(None)
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except Exception as failure:  # noqa: BLE001 - raised where it is waited for
            listening.set_exception(failure)
        finally:
            loop.close()

    thread = threading.Thread(target=run, name="headgate-status", daemon=True)
    thread.start()
    listening.result(_END_S)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_END_S)
