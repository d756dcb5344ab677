"""A TCP proxy on the loopback that delays every byte, so that a server beside us answers like one far away.

A round trip takes `round_trip_s` longer than without it; the rate is not limited.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.ports import port_block

_AT_ONCE = 64 * 1024
_MOST_UNDER_WAY = 1024


@contextmanager
def slow_link(port: int, *, round_trip_s: float) -> Iterator[int]:
    """The port that leads to this one, for the duration of the block."""
    listen = port_block()
    ready = threading.Event()
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        running.append((asyncio.get_running_loop(), stop))

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.CancelledError):  # it is cancelled when nothing comes after it
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
                there = _delayed(reader, far_writer, round_trip_s / 2)
                back = _delayed(far_reader, writer, round_trip_s / 2)
                try:
                    await asyncio.gather(there, back)
                finally:
                    far_writer.close()
                    writer.close()

        async with await asyncio.start_server(relay, "127.0.0.1", listen):
            ready.set()
            await stop.wait()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()  # or the end of the server would wait for its connections

    # `run` cancels and awaits what is left, and closes the loop.
    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield listen
    finally:
        loop, stop = running[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


async def _delayed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_UNDER_WAY)

    async def write() -> None:
        while True:
            due, data = await under_way.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                break
            writer.write(data)
            await writer.drain()
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()

    writing = asyncio.create_task(write())
    with suppress(OSError):
        while data := await reader.read(_AT_ONCE):
            await under_way.put((loop.time() + delay_s, data))
    await under_way.put((loop.time() + delay_s, b""))
    with suppress(OSError):
        await writing
