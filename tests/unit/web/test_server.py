"""The server on a real socket: it answers before it has read anything, speaks TLS, and ends cleanly."""

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
import uvicorn
from uvicorn.server import ServerState

from headgate.base.errors import PlatformError, UsageError
from headgate.config import Config, load
from headgate.web.client_connections import BoundedProtocol, ClientConnections, ClientLimits
from headgate.web.server import WebServer
from tests.support.certificates import make_certificates
from tests.support.ports import port_block


@pytest.fixture
def port() -> int:
    return port_block()


def configured(port: int, **web: Any) -> Config:
    """There is no cluster, and there are no tables."""
    keys = {"web.listen": f"127.0.0.1:{port}", "upstream.bootstrap": ["127.0.0.1:1"], "tables.path": "/nonexistent"}
    return load(None, {}, {**keys, "connect.main.status_topic": "s", **{f"web.{key}": to for key, to in web.items()}})


def ask(port: int, method: str, path: str, context: ssl.SSLContext | None = None) -> tuple[int, Any]:
    kind = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    if context is not None:
        kind = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    try:
        kind.request(method, path)
        answer = kind.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        kind.close()


async def test_it_responds_while_the_cluster_is_down_and_names_the_problems(port: int) -> None:
    web = WebServer(configured(port))
    assert web.url == f"http://127.0.0.1:{port}"
    with web.listening():
        async with web.running():
            status, health = await asyncio.to_thread(ask, port, "GET", "/api/v1/health")
            assert status == 200
            assert health["ready"] is False
            assert set(health["problems"]) == {"activity", "connect.main", "share_groups"}
            status, error = await asyncio.to_thread(ask, port, "GET", "/connectors/x/topics")
            assert (status, error["error_code"]) == (503, 503)
            status, error = await asyncio.to_thread(ask, port, "PUT", "/connectors/x/topics/reset")
            assert status == 503
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(ask, port, "GET", "/api/v1/health")


async def test_with_a_certificate_it_speaks_tls(port: int, tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    web = WebServer(configured(port, tls_cert=str(files.server_cert), tls_key=str(files.server_key)))
    assert web.url == f"https://127.0.0.1:{port}"
    context = ssl.create_default_context(cafile=files.ca)
    with web.listening():
        async with web.running():
            status, _ = await asyncio.to_thread(ask, port, "GET", "/api/v1/health", context)
            assert status == 200


async def test_an_invalid_certificate_or_tokens_file_is_an_error(port: int, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("nonsense")
    for web in (
        WebServer(configured(port, tls_cert=str(nonsense), tls_key=str(nonsense))),
        WebServer(configured(port, tokens_file=str(nonsense))),
    ):
        with web.listening(), pytest.raises(UsageError):
            async with web.running():
                pass


async def test_an_address_in_use_is_an_error(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        web = WebServer(configured(port))
        with pytest.raises(PlatformError, match=f"web.listen: 127.0.0.1:{port}"), web.listening():
            pass


async def test_a_silent_client_does_not_delay_the_end(port: int) -> None:
    web = WebServer(configured(port))
    with web.listening(), socket.socket() as silent:
        async with asyncio.timeout(60), web.running():
            silent.connect(("127.0.0.1", port))
            silent.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: local")
            await asyncio.to_thread(ask, port, "GET", "/api/v1/health")
        silent.settimeout(30)
        assert silent.recv(1) == b""


HEALTH: Final = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
EVENTS: Final = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Open = Callable[..., Awaitable[Opened]]


@contextlib.asynccontextmanager
async def served(config: Config, **limits: Any) -> AsyncIterator[Open]:
    """A server with these limits, and what opens connections to it, which are closed before it ends."""
    web = WebServer(config, limits=ClientLimits(**limits))
    with web.listening():
        async with asyncio.timeout(60), web.running(), contextlib.AsyncExitStack() as clients:

            async def open_one(sent: bytes = b"", *, address: str = "127.0.0.1") -> Opened:
                port = config.web.listen.port
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
                clients.callback(writer.close)
                writer.write(sent)
                return reader, writer

            yield open_one


async def status_of(connection: Opened) -> int:
    head = await connection[0].readuntil(b"\r\n\r\n")
    return int(head.split()[1])


async def ended(connection: Opened) -> bytes:
    """What else comes until the server ends the connection."""
    try:
        return await connection[0].read()
    except ConnectionResetError:
        return b""


async def test_silent_connections_do_not_keep_a_client_out(port: int) -> None:
    async with served(configured(port), connections=8, of_one_address=6) as open_one:
        silent = [await open_one(address=f"127.0.0.{2 + number % 2}") for number in range(12)]
        assert await status_of(await open_one(HEALTH)) == 200
        # Those that have waited longest made room.
        for connection in silent[:4]:
            assert await ended(connection) == b""
        for connection in silent[-4:]:
            connection[1].write(HEALTH)
            assert await status_of(connection) == 200


async def test_unfinished_bodies_do_not_keep_a_client_out(port: int) -> None:
    head = b"POST /api/v1/topologies:parse HTTP/1.1\r\nHost: localhost\r\n"
    sent = head + b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    async with served(configured(port), connections=2) as open_one:
        unfinished = [await open_one(sent) for _ in range(2)]
        assert [await status_of(connection) for connection in unfinished] == [100, 100]
        assert await status_of(await open_one(HEALTH)) == 200
        await asyncio.wait(
            [asyncio.create_task(ended(connection)) for connection in unfinished],
            return_when=asyncio.FIRST_COMPLETED,
        )


async def test_where_all_places_are_taken_by_requests_a_newcomer_is_refused(port: int) -> None:
    async with served(configured(port), connections=2) as open_one:
        busy = [await open_one(EVENTS) for _ in range(2)]
        assert [await status_of(connection) for connection in busy] == [200, 200]
        assert await status_of(await open_one(HEALTH)) == 503


async def test_one_address_has_a_bound_of_its_own(port: int) -> None:
    async with served(configured(port), of_one_address=2) as open_one:
        busy = [await open_one(EVENTS) for _ in range(2)]
        assert [await status_of(connection) for connection in busy] == [200, 200]
        assert await ended(await open_one(HEALTH)) == b""
        assert await status_of(await open_one(HEALTH, address="127.0.0.2")) == 200
        for connection in busy:
            connection[1].close()
        # A place is free again when its connection has ended.
        while not await (await open_one(HEALTH))[0].read(1):
            pass


@pytest.mark.parametrize("sent", [b"", HEALTH[:-2]])
async def test_a_head_that_is_not_whole_in_time_ends_its_connection(port: int, sent: bytes) -> None:
    async with served(configured(port), head_s=0.2) as open_one:
        assert await ended(await open_one(sent)) == b""


async def test_the_next_head_of_a_connection_has_a_deadline_too(port: int) -> None:
    async with served(configured(port), head_s=0.5) as open_one:
        connection = await open_one(HEALTH)
        assert await status_of(connection) == 200
        connection[1].write(HEALTH[:-2])  # which ends the timeout of Uvicorn
        assert b"HTTP/1.1" not in await ended(connection)


@pytest.mark.parametrize(
    "request_line", [b"POST /api/v1/topologies:parse", b"GET /api/v1/health", b"GET /api/v1/events"]
)
async def test_a_body_that_is_not_whole_in_time_ends_its_connection(
    port: int, request_line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(configured(port), body_s=0.2) as open_one:
        sent = request_line + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nSub"
        await ended(await open_one(sent))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_request_that_takes_long_has_no_deadline(port: int) -> None:
    async with served(configured(port), head_s=0.2, body_s=0.2, unread_s=0.2) as open_one:
        reader, writer = await open_one(EVENTS)
        assert await status_of((reader, writer)) == 200
        assert await ended(await open_one()) == b""  # after 0.2 s
        assert await ended(await open_one()) == b""
        assert not reader.at_eof()


async def test_a_client_that_does_not_read_its_answers_is_disconnected(port: int) -> None:
    asked = 300
    limits: dict[str, Any] = {"unread_s": 0.2, "of_one_address": 1}
    async with served(configured(port), **limits) as open_one, asyncio.timeout(30):
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", port))
            slow.sendall(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * asked)
            slow.settimeout(30)
            begin = await asyncio.to_thread(slow.recv, 12)
            # The only place of its address is free when it is disconnected.
            while not await (await open_one(HEALTH))[0].read(1):
                pass
            found = begin + await asyncio.to_thread(_read_all, slow)
        assert 0 < found.count(b"HTTP/1.1 200") < asked


async def test_the_addresses_of_an_ipv6_network_share_a_bound() -> None:
    clients = ClientConnections(ClientLimits(of_one_address=2))
    assert [clients.add(f"2001:db8::{number}") for number in range(3)] == [True, True, False]
    assert clients.add("2001:db8:0:1::1")
    clients.remove("2001:db8::1")
    assert clients.add("2001:db8::4")


class UnreadTransport(asyncio.Transport):
    """Of a client that reads nothing: what is written waits, and is less than what would pause the writer."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closing = False
        self.aborted = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.aborted.set()


async def test_a_client_that_does_not_read_its_last_answer_is_disconnected() -> None:
    """A fake transport, because how much the kernel takes decides how much waits."""

    async def answer(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"content"})

    config = uvicorn.Config(answer, lifespan="off", log_config=None)
    config.load()
    clients = ClientConnections(ClientLimits(unread_s=0.05))
    connection, transport = BoundedProtocol(config, ServerState(), {}, clients), UnreadTransport()
    connection.connection_made(transport)
    connection.data_received(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(20):
        await transport.aborted.wait()
    assert b"content" in transport.written
    connection.connection_lost(None)


def _read_all(client: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(1 << 20):
            found += part
    return found


async def test_a_tls_handshake_has_the_deadline_of_a_head(port: int, tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    config = configured(port, tls_cert=str(files.server_cert), tls_key=str(files.server_key))
    async with served(config, head_s=0.2) as open_one:
        assert await ended(await open_one()) == b""
