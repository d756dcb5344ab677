"""A recorder on the wire: it listens at addresses of its own, forwards every byte, and keeps what went each way.

One rule: bytes go out as they came in, in order, and are kept before they are sent on. It knows nothing of Kafka:
`recording.py` cuts what it kept into calls. It runs an event loop in a thread of its own.
"""

import asyncio
import contextlib
import enum
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

_READ_BYTES = 256 * 1024
_DEADLINE_S = 60.0


class Endpoint(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Side(enum.Enum):
    """Who sent it."""

    CLIENT = "client"
    SERVER = "server"


class Chunk(NamedTuple):
    """Bytes as one read gave them; empty bytes are the end of that side."""

    at: float
    side: Side
    data: bytes


@dataclass(slots=True)
class Connection:
    """One client's connection: `number` counts in order of opening, `listener` is what the client dialled."""

    number: int
    listener: Endpoint
    opened_at: float
    chunks: list[Chunk] = field(default_factory=list)
    closed: bool = False
    reset_by: Side | None = None

    def sent_by(self, side: Side) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks if chunk.side is side)

    def ended_at(self, side: Side) -> float | None:
        """When that side said that it has no more to send; None when it never did, or was reset."""
        return next((chunk.at for chunk in self.chunks if chunk.side is side and not chunk.data), None)

    @property
    def left_by_client(self) -> bool:
        """Whether it was the client who ended it."""
        client, server = self.ended_at(Side.CLIENT), self.ended_at(Side.SERVER)
        if self.reset_by is not None and server is None:
            return self.reset_by is Side.CLIENT
        return client is not None and (server is None or client <= server)


class Recorder:
    """Forwards each listener of `routes` to its target until it is closed."""

    def __init__(self, routes: Mapping[Endpoint, Endpoint]) -> None:
        self._routes = dict(routes)
        self._connections: list[Connection] = []
        self._opened = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="recorder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_DEADLINE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_DEADLINE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_DEADLINE_S)
        self._loop.close()

    def take(
        self, *, quiet: Callable[[Connection], bool] = lambda _: False, deadline: float = _DEADLINE_S
    ) -> list[Connection]:
        """The connections that were opened since the last `take`, once all of them are closed.

        A connection for which `quiet` is true need not be closed: it belongs to somebody who stays.
        """
        until = time.monotonic() + deadline
        while True:
            still_open = [one for one in self._connections if not one.closed and not quiet(one)]
            if not still_open:
                break
            if time.monotonic() > until:
                raise TimeoutError(f"{len(still_open)} connections are still open: {_numbers(still_open)}")
            time.sleep(0.01)
        return asyncio.run_coroutine_threadsafe(self._take(), self._loop).result(_DEADLINE_S)

    def forget(self) -> None:
        """Leave out of the next `take` whatever was recorded so far, and whatever its connections still carry."""
        asyncio.run_coroutine_threadsafe(self._take(), self._loop).result(_DEADLINE_S)

    async def _take(self) -> list[Connection]:
        taken, self._connections = self._connections, []
        return taken

    async def _listen(self) -> None:
        self._servers = [
            await asyncio.start_server(self._accepted(listener, target), *listener, limit=_READ_BYTES, backlog=512)
            for listener, target in self._routes.items()
        ]

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(
        self, listener: Endpoint, target: Endpoint
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._opened += 1
            connection = Connection(self._opened, listener, time.monotonic())
            self._connections.append(connection)
            task = self._loop.create_task(self._forward(connection, reader, writer, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return accepted

    async def _forward(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Endpoint
    ) -> None:
        try:
            to_reader, to_writer = await asyncio.open_connection(*target, limit=_READ_BYTES)
        except OSError:
            # What a client sees of a server that is away is a connection that ends.
            _reset(writer)
            connection.closed = True
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(connection, Side.CLIENT, reader, to_writer))
                both.create_task(_pump(connection, Side.SERVER, to_reader, writer))
        except* OSError:
            # One side was reset: so is the other.
            _reset(writer)
            _reset(to_writer)
        finally:
            writer.close()
            to_writer.close()
            connection.closed = True


async def _pump(connection: Connection, side: Side, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        try:
            data = await reader.read(_READ_BYTES)
        except OSError:
            connection.reset_by = connection.reset_by or side
            raise
        connection.chunks.append(Chunk(time.monotonic(), side, data))
        if not data:
            break
        try:
            writer.write(data)
            await writer.drain()
        except OSError:
            connection.reset_by = connection.reset_by or (Side.SERVER if side is Side.CLIENT else Side.CLIENT)
            raise
    with contextlib.suppress(OSError):
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close without an end: a linger of no time makes it a reset."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _numbers(connections: list[Connection]) -> str:
    return ", ".join(f"{one.number} to {one.listener}" for one in connections)
