"""A broker that does what a test says, and a client beside it: for faults that no real broker can be made to show.

The gateway's own questions (Metadata at the bootstrap port, ApiVersions once at each node's port) are answered by
themselves; every other connection is handed to the test, which plays the broker line by line. It listens on an
address of its own, so that a test can assert that this address never reaches a client.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from struct import pack
from typing import Self

from headgate.base.errors import WireError
from headgate.wire import frames
from headgate.wire.apis import APIS, has_flexible_request, has_flexible_response
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import ApiVersionRange, ApiVersionsResponse, MetadataBroker, MetadataResponse
from headgate.wire.schema import Message
from tests.support.messages import REQUESTS

HOST = "127.0.0.77"
CLUSTER_ID = "fake-cluster"
DEADLINE_SECONDS = 20.0
UNKNOWN_KEY = 2000

# What a 4.3.1 broker has (KAFKA-FACTS 2), and one call that nobody knows.
BROKER_VERSIONS: Mapping[int, tuple[int, int]] = {
    **{key: (api.min_version, api.max_version) for key, api in APIS.items() if key not in {93, 94}},
    0: (0, 13),
    18: (0, 4),
    22: (0, 5),
    28: (0, 5),
    42: (0, 2),
    88: (0, 0),
    89: (0, 0),
    UNKNOWN_KEY: (0, 3),
}


class End:
    """One side of a connection that a test plays; every wait has a deadline."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, *data: bytes) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await self._loop.sock_sendall(self.sock, b"".join(data))

    async def receive(self, most: int = 65536) -> bytes:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self._loop.sock_recv(self.sock, most)

    async def exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = await self.receive(min(size - len(received), 1 << 20))
            if not piece:
                raise EOFError(f"{len(received)} of {size} bytes, then the end")
            received += piece
        return bytes(received)

    async def frame(self) -> bytes:
        """One whole frame, its size included."""
        size = await self.exactly(4)
        return size + await self.exactly(int.from_bytes(size, "big", signed=True))

    async def rest(self) -> bytes:
        """Everything up to the end; a reset is an end too."""
        received = b""
        with suppress(ConnectionError):
            while piece := await self.receive():
                received += piece
        return received

    async def is_quiet(self, seconds: float = 0.05) -> bool:
        """True when nothing comes for that long."""
        try:
            async with asyncio.timeout(seconds):
                await self._loop.sock_recv(self.sock, 1)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Close as a process does that was killed with unread bytes."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        self.sock.close()


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it reached the broker."""

    frame: bytes
    header: frames.RequestHeader
    body: bytes

    @property
    def key(self) -> int:
        return self.header.api_key

    @property
    def version(self) -> int:
        return self.header.api_version

    def answer(self, body: bytes | Message | None = None) -> bytes:
        """The frame of an answer to this request; without a body the shortest that there is."""
        if body is None:
            body = REQUESTS[self.key].response_class()()
        return answer(self.key, self.version, self.header.correlation_id, body)


class Broker(End):
    """The broker's side of a client's connection."""

    async def request(self) -> Request:
        frame = await self.frame()
        header, body_at = frames.request_header(frame, flexible=_is_flexible(frame))
        return Request(frame, header, frame[body_at:])

    async def reply(self, body: bytes | Message | None = None) -> Request:
        """Answer the next request."""
        request = await self.request()
        await self.send(request.answer(body))
        return request


class Client(End):
    """A client of the gateway."""

    @classmethod
    async def connect(
        cls, host: str, port: int, *, receive_buffer: int | None = None, source: str | None = None
    ) -> Self:
        """`source` is the address that the gateway sees."""
        sock = socket.socket()
        if source is not None:
            sock.bind((source, 0))
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await asyncio.get_running_loop().sock_connect(sock, (host, port))
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    async def call(self, key: int, version: int, body: bytes | Message = b"", *, correlation_id: int = 1) -> bytes:
        """Send a request and take the frame that comes back."""
        await self.send(request(key, version, body, correlation_id=correlation_id))
        return await self.frame()


class FakeUpstream:
    """One or more brokers of a cluster; an async context manager."""

    def __init__(
        self,
        *,
        nodes: tuple[int, ...] = (0,),
        versions: Mapping[int, tuple[int, int]] = BROKER_VERSIONS,
        receive_buffer: int | None = None,
    ) -> None:
        self.cluster_id = CLUSTER_ID
        self.versions = versions
        self.extra_brokers: tuple[MetadataBroker, ...] = ()  # in Metadata, and nowhere else
        self.answers_metadata = asyncio.Event()
        self.answers_metadata.set()
        self.answers_versions = asyncio.Event()
        self.answers_versions.set()
        self.replies: bytes | None = None  # instead of an answer to Metadata
        self.times_asked = 0
        self._listeners: dict[int | None, socket.socket] = {node: _listener(receive_buffer) for node in nodes}
        self._listeners[None] = _listener(None)  # bootstrap
        self._ports = {node: _port(listener) for node, listener in self._listeners.items()}
        self._serving: dict[int | None, asyncio.Task[None]] = {}
        self._asked: set[int] = set()  # nodes that the gateway's monitor has asked for their versions
        self._accepted: dict[int, asyncio.Queue[Broker]] = {node: asyncio.Queue() for node in nodes}
        self._tasks: set[asyncio.Task[None]] = set()
        self._brokers: list[Broker] = []

    @property
    def port(self) -> int:
        """Of the bootstrap listener."""
        return self._ports[None]

    def node_port(self, node: int = 0) -> int:
        return self._ports[node]

    async def __aenter__(self) -> Self:
        for node in self._listeners:
            self._serving[node] = self._spawn(self._serve(node))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listener in self._listeners.values():
            listener.close()
        for broker in self._brokers:
            broker.close()

    async def accept(self, node: int = 0) -> Broker:
        """The next connection that is not the monitor's."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self._accepted[node].get()

    def has_connection(self, node: int = 0) -> bool:
        return not self._accepted[node].empty()

    async def stop_listening(self, node: int | None = 0) -> None:
        """Refuse connections to a node; None is the bootstrap port."""
        self._serving[node].cancel()
        await asyncio.wait({self._serving[node]})
        self._listeners[node].close()

    def listen_again(self, node: int | None = 0) -> None:
        """Take connections again, on the same port."""
        self._listeners[node] = _listener(None, self._ports[node])
        self._serving[node] = self._spawn(self._serve(node))

    def _spawn(self, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        return task

    async def _serve(self, node: int | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self._listeners[node])
            broker = Broker(sock)
            if node is None:
                self._spawn(self._answer_monitor(broker))
            elif node not in self._asked:
                self._asked.add(node)
                self._spawn(self._answer_monitor(broker))
            else:
                self._brokers.append(broker)
                self._accepted[node].put_nowait(broker)

    async def _answer_monitor(self, broker: Broker) -> None:
        try:
            while True:
                asked = await broker.request()
                if asked.key == 3:
                    await self.answers_metadata.wait()
                    self.times_asked += 1
                    await broker.send(self.replies or asked.answer(self.metadata()))
                else:
                    await self.answers_versions.wait()
                    await broker.send(asked.answer(self.api_versions()))
        except (EOFError, ConnectionError, WireError):
            pass
        finally:
            broker.close()

    def metadata(self) -> MetadataResponse:
        nodes = (node for node in self._listeners if node is not None)
        brokers = tuple(MetadataBroker(node_id=node, host=HOST, port=self._ports[node]) for node in nodes)
        return MetadataResponse(brokers=(*brokers, *self.extra_brokers), cluster_id=self.cluster_id, controller_id=0)

    def api_versions(self) -> ApiVersionsResponse:
        ranges = (
            ApiVersionRange(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        )
        return ApiVersionsResponse(api_keys=tuple(ranges))


def request(
    key: int,
    version: int,
    body: bytes | Message = b"",
    *,
    correlation_id: int = 1,
    client_id: bytes | None = b"test",
    tags: bytes = b"\x00",
) -> bytes:
    """The frame of a client's request."""
    header = frames.RequestHeader(
        api_key=key,
        api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
        tags=tags if key not in APIS or has_flexible_request(key, version) else b"",
    )
    return frames.frame(header.encode(), body if isinstance(body, bytes) else encode(body, version))


def answer(key: int, version: int, correlation_id: int, body: bytes | Message, *, tags: bytes = b"\x00") -> bytes:
    """The frame of a broker's answer."""
    header = pack(">i", correlation_id) + (tags if has_flexible_response(key, version) else b"")
    return frames.frame(header, body if isinstance(body, bytes) else encode(body, version))


def body_of(frame: bytes, key: int, version: int) -> bytes:
    """The body of an answer."""
    return frame[4 + frames.response_body(frame[4:], flexible=has_flexible_response(key, version)) :]


@asynccontextmanager
async def closing(*ends: End) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for end in ends:
            end.close()


def _is_flexible(frame: bytes) -> bool:
    _, key, version, _, _ = frames.REQUEST_START.unpack_from(frame, 0)
    return key in APIS and has_flexible_request(key, version)


def _listener(receive_buffer: int | None, port: int = 0) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if receive_buffer is not None:  # those of accepted sockets are the listener's
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    listener.bind((HOST, port))
    listener.listen(512)
    listener.setblocking(False)
    return listener


def _port(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port
