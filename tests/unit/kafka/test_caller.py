"""A call of our own: where it went and why it failed is said, whatever is at the other end."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path

import pytest

from headgate.base.errors import ClusterError
from headgate.kafka.connections import BrokerConnection
from headgate.wire import frames
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import ApiVersionRange, ApiVersionsRequest, ApiVersionsResponse
from tests.support.certificates import Certificates, make_certificates

API_VERSIONS, VERSION = 18, 3
ANSWER = ApiVersionsResponse(api_keys=(ApiVersionRange(api_key=18, min_version=0, max_version=4),))

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


async def honest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers ApiVersions as long as it is asked."""
    while size := await reader.read(4):
        request = await reader.readexactly(int.from_bytes(size))
        writer.write(frames.frame(request[4:8], encode(ANSWER, VERSION)))
    writer.close()


async def hanging_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(4)
    writer.close()


async def ask(host: str, port: int, *, times: int = 1, tls: ssl.SSLContext | None = None) -> list[ApiVersionsResponse]:
    caller = await BrokerConnection.connect(host, port, timeout=5, tls=tls)
    request = ApiVersionsRequest(client_software_name="headgate", client_software_version="1")
    try:
        return [await caller.call(request, VERSION) for _ in range(times)]
    finally:
        caller.close()


def ask_server(
    serve: Serve,
    host: str = "127.0.0.1",
    *,
    times: int = 1,
    server_tls: ssl.SSLContext | None = None,
    tls: ssl.SSLContext | None = None,
) -> list[ApiVersionsResponse]:
    served: set[asyncio.Task[None]] = set()

    async def see_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await serve(reader, writer)
        with suppress(OSError):
            await writer.wait_closed()

    async def run() -> list[ApiVersionsResponse]:
        server = await asyncio.start_server(
            lambda reader, writer: served.add(asyncio.create_task(see_off(reader, writer))), host, 0, ssl=server_tls
        )
        try:
            return await ask(host, server.sockets[0].getsockname()[1], times=times, tls=tls)
        finally:
            server.close()
            await asyncio.sleep(0.01)  # what was closed ends
            await asyncio.gather(*served)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def server_context(files: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server_cert, files.server_key)
    return context


def test_calls_on_one_connection_are_answered_one_after_the_other() -> None:
    assert ask_server(honest, times=3) == [ANSWER] * 3


def test_a_call_over_tls_is_answered(files: Certificates) -> None:
    trusting = ssl.create_default_context(cafile=files.ca)
    assert ask_server(honest, server_tls=server_context(files), tls=trusting) == [ANSWER]


def test_a_port_that_nobody_listens_on_is_named_with_the_reason() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ClusterError, match=f"no connection to 127.0.0.1:{port}: .*[Cc]onnect"):
            asyncio.run(ask("127.0.0.1", port))


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".example", "no-such-host.invalid"])
def test_a_name_that_leads_nowhere_is_an_error_of_the_cluster(host: str) -> None:
    with pytest.raises(ClusterError, match="no connection to"):
        asyncio.run(ask(host, 9092))


def test_a_connection_that_ends_without_an_answer_says_which_answer_is_missing() -> None:
    with pytest.raises(ClusterError, match="the connection was closed before the response to ApiVersions"):
        ask_server(hanging_up)


def test_a_certificate_for_another_name_is_refused_and_both_are_named(files: Certificates) -> None:
    trusting = ssl.create_default_context(cafile=files.ca)
    with pytest.raises(ClusterError, match=r"no connection to 127\.0\.0\.4:.*not valid for '127\.0\.0\.4'"):
        ask_server(honest, "127.0.0.4", server_tls=server_context(files), tls=trusting)


def test_a_certificate_of_an_unknown_authority_is_refused(files: Certificates, tmp_path: Path) -> None:
    trusting = ssl.create_default_context(cafile=make_certificates(tmp_path / "other").ca)
    with pytest.raises(ClusterError, match=r"no connection to .*certificate verify failed"):
        ask_server(honest, server_tls=server_context(files), tls=trusting)


def test_plaintext_where_tls_is_expected_is_an_error_of_the_cluster(files: Certificates) -> None:
    trusting = ssl.create_default_context(cafile=files.ca)
    with pytest.raises(ClusterError, match="no connection to"):
        ask_server(hanging_up, tls=trusting)
