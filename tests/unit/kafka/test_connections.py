"""Headgate's own connections: TLS, the login, the versions, and errors that name the address."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from scramp import ScramMechanism  # type: ignore[import-untyped]

from headgate.base.errors import ClusterError
from headgate.kafka.connections import (
    BrokerConnection,
    Connections,
    Credentials,
    Dialler,
    UnsupportedError,
    authenticate,
)
from headgate.wire import frames
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import (
    ApiVersionRange,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from headgate.wire.messages.groups import ListGroupsRequest, ListGroupsResponse
from tests.support.certificates import Certificates, make_certificates
from tests.support.scripted_cluster import Answer, ScriptedCluster

LIST_GROUPS = 16
VERSION = 3
RESPONSE = ApiVersionsResponse(api_keys=(ApiVersionRange(api_key=18, min_version=0, max_version=4),))
LISTED: dict[int, Answer] = {LIST_GROUPS: lambda _node, _request: ListGroupsResponse()}
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


# One connection.


async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while size := await reader.read(4):
        request = await reader.readexactly(int.from_bytes(size))
        writer.write(frames.frame(request[4:8], encode(RESPONSE, VERSION)))
    writer.close()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(4)
    writer.close()


async def ask(host: str, port: int, *, times: int = 1, tls: ssl.SSLContext | None = None) -> list[ApiVersionsResponse]:
    connection = await BrokerConnection.connect(host, port, timeout=5, tls=tls)
    request = ApiVersionsRequest(client_software_name="headgate", client_software_version="1")
    try:
        return [await connection.call(request, VERSION) for _ in range(times)]
    finally:
        connection.close()


async def ask_server(
    serve: Serve,
    host: str = "127.0.0.1",
    *,
    times: int = 1,
    server_tls: ssl.SSLContext | None = None,
    tls: ssl.SSLContext | None = None,
) -> list[ApiVersionsResponse]:
    served: set[asyncio.Task[None]] = set()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await serve(reader, writer)
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(
        lambda reader, writer: served.add(asyncio.create_task(serve_one(reader, writer))), host, 0, ssl=server_tls
    )
    try:
        return await ask(host, server.sockets[0].getsockname()[1], times=times, tls=tls)
    finally:
        server.close()
        await asyncio.sleep(0.01)  # closed connections end
        await asyncio.gather(*served)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


async def test_requests_on_one_connection_are_answered_one_after_the_other() -> None:
    assert await ask_server(respond, times=3) == [RESPONSE] * 3
    with pytest.raises(ClusterError, match="the connection was closed before the response to ApiVersions"):
        await ask_server(hang_up)


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".example", "no-such-host.invalid", "127.0.0.1"])
async def test_an_address_that_cannot_be_reached_is_named(host: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ClusterError, match="no connection to"):
            await ask(host, unused.getsockname()[1])


async def test_the_certificate_of_the_broker_is_verified(files: Certificates, tmp_path: Path) -> None:
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(files.server_cert, files.server_key)
    tls = ssl.create_default_context(cafile=files.ca)
    assert await ask_server(respond, server_tls=server_tls, tls=tls) == [RESPONSE]
    with pytest.raises(ClusterError, match=r"no connection to 127\.0\.0\.4:.*not valid for '127\.0\.0\.4'"):
        await ask_server(respond, "127.0.0.4", server_tls=server_tls, tls=tls)
    other = ssl.create_default_context(cafile=make_certificates(tmp_path / "other").ca)
    with pytest.raises(ClusterError, match=r"no connection to .*certificate verify failed"):
        await ask_server(respond, server_tls=server_tls, tls=other)
    with pytest.raises(ClusterError, match="no connection to"):
        await ask_server(hang_up, tls=tls)  # plaintext where TLS is expected


# Connections to a cluster.


async def list_groups(connections: Connections, *, lowest: int = 1, highest: int = 4) -> ListGroupsResponse:
    connection = await connections.bootstrap()
    return await connection.ask(ListGroupsRequest(), lowest=lowest, highest=highest)


@pytest.mark.parametrize(("theirs", "expected"), [((0, 2), 2), ((0, 3), 3), ((1, 9), 4)])
async def test_a_request_is_sent_in_the_highest_version_of_both(theirs: tuple[int, int], expected: int) -> None:
    versions = {**ScriptedCluster().versions, LIST_GROUPS: theirs}
    async with ScriptedCluster(LISTED, versions=versions) as cluster:
        async with Connections(cluster.dialler()) as connections:
            await list_groups(connections)
        assert [one.version for one in cluster.requests(LIST_GROUPS)] == [expected]


@pytest.mark.parametrize("theirs", [(0, 3), (6, 7), None])
async def test_a_version_that_the_broker_does_not_support_is_never_sent(theirs: tuple[int, int] | None) -> None:
    versions = {**ScriptedCluster().versions, LIST_GROUPS: theirs or (0, -1)}
    async with ScriptedCluster(versions=versions) as cluster, Connections(cluster.dialler()) as connections:
        with pytest.raises(UnsupportedError, match="the server does not support ListGroups v4"):
            await list_groups(connections, lowest=4, highest=5)
        assert cluster.requests(LIST_GROUPS) == []


async def test_bootstrap_addresses_are_tried_in_turn_and_each_failure_is_named() -> None:
    async with ScriptedCluster(LISTED, brokers=2, away={0}) as cluster:
        dialler = Dialler(bootstrap=(cluster.address(0), cluster.address(1)))
        async with Connections(dialler) as connections:
            await list_groups(connections)
    async with ScriptedCluster(brokers=2, away={0, 1}) as cluster:
        dialler = Dialler(bootstrap=(cluster.address(0), cluster.address(1)))
        async with Connections(dialler) as connections:
            with pytest.raises(ClusterError, match=f"{cluster.address(0)}.*{cluster.address(1)}"):
                await connections.bootstrap()


async def test_a_connection_is_used_again_until_it_ends() -> None:
    responses = [ListGroupsResponse(), ListGroupsResponse(), None, ListGroupsResponse()]
    async with ScriptedCluster({LIST_GROUPS: lambda _node, _request: responses.pop(0)}) as cluster:
        async with Connections(cluster.dialler()) as connections:
            for _ in range(2):
                await list_groups(connections)
            with pytest.raises(ClusterError, match="the connection was closed before the response to ListGroups"):
                await list_groups(connections)
            await list_groups(connections)
        assert len(cluster.requests(18)) == 2


SASL_REQUIRED = SaslHandshakeResponse(error_code=33, mechanisms=("PLAIN", "SCRAM-SHA-512"))


@pytest.mark.parametrize(
    ("key", "response", "text"),
    [
        (17, SASL_REQUIRED, r"requires SASL \(PLAIN, SCRAM-SHA-512\), and no user is given"),
        (18, None, r"does not respond as a Kafka broker, or expects TLS \(security\.protocol\): "),
    ],
)
async def test_a_listener_of_another_protocol_is_named(
    key: int, response: SaslHandshakeResponse | None, text: str
) -> None:
    async with (
        ScriptedCluster({key: lambda _node, _request: response}) as cluster,
        Connections(cluster.dialler()) as connections,
    ):
        with pytest.raises(ClusterError, match=text):
            await connections.bootstrap()


async def test_retries_end_with_the_timeout() -> None:
    async with Connections(Dialler(bootstrap=(), timeout_s=1.0)) as connections:
        delay = connections.retry_delay()
        attempts = 1
        while await delay.wait():
            attempts += 1
    assert 2 <= attempts <= 4  # at 0, 0.1, 0.3 and 0.7 s, and fewer on a loaded machine


# SASL.

USER, PASSWORD = "svc,=user", "not-for-anybody"
SCRAM = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
Step = Callable[[bytes], SaslAuthenticateResponse]


class FakeBroker:
    """Responds to the requests of an authentication, step by step."""

    def __init__(self, *steps: Step, offered: tuple[str, ...] = ("PLAIN", *SCRAM)) -> None:
        self.steps = list(steps)
        self._offered = offered
        self.requests: list[Any] = []

    async def call(self, request: Any, version: int) -> Any:
        self.requests.append((request.api_key, version, request))
        if isinstance(request, SaslHandshakeRequest):
            code = 0 if request.mechanism in self._offered else 33
            return SaslHandshakeResponse(error_code=code, mechanisms=self._offered)
        return self.steps.pop(0)(request.auth_bytes)

    async def log_in(self, mechanism: str, password: str = PASSWORD) -> None:
        credentials = Credentials(user=USER, password=password, mechanism=mechanism)
        await authenticate(cast("BrokerConnection", self), credentials)
        assert not self.steps


def returns(token: bytes) -> Step:
    return lambda _: SaslAuthenticateResponse(auth_bytes=token)


def rejects(text: str | None) -> Step:
    return lambda _: SaslAuthenticateResponse(error_code=58, error_message=text)


def scram_broker(mechanism: str) -> FakeBroker:
    """A broker that knows the user."""
    method = ScramMechanism(mechanism)
    secrets = method.make_auth_info(PASSWORD)
    server = method.make_server(lambda _: secrets)

    def first(token: bytes) -> SaslAuthenticateResponse:
        server.set_client_first(token.decode())
        return SaslAuthenticateResponse(auth_bytes=server.get_server_first().encode())

    def final(token: bytes) -> SaslAuthenticateResponse:
        server.set_client_final(token.decode())
        return SaslAuthenticateResponse(auth_bytes=server.get_server_final().encode())

    return FakeBroker(first, final)


async def test_plain_sends_user_and_password_as_rfc_4616_says() -> None:
    broker = FakeBroker(returns(b""))
    await broker.log_in("PLAIN")
    assert broker.requests == [
        (17, 1, SaslHandshakeRequest(mechanism="PLAIN")),
        (36, 2, SaslAuthenticateRequest(auth_bytes=b"\0svc,=user\0not-for-anybody")),
    ]


@pytest.mark.parametrize("mechanism", SCRAM)
async def test_scram_proves_the_password_without_sending_it_and_verifies_the_broker(mechanism: str) -> None:
    broker = scram_broker(mechanism)
    await broker.log_in(mechanism)
    sent = b"".join(request.auth_bytes for _, _, request in broker.requests[1:])
    assert b"n=svc=2C=3Duser" in sent
    assert PASSWORD.encode() not in sent
    first, _ = scram_broker(mechanism).steps
    with pytest.raises(ClusterError, match=f"SASL {mechanism} as 'svc,=user' failed"):
        await FakeBroker(first, returns(b"v=" + b"A" * 43 + b"=")).log_in(mechanism)


def _iterations(number: int) -> Step:
    def first(token: bytes) -> SaslAuthenticateResponse:
        nonce = token.decode().rpartition("r=")[2]
        return SaslAuthenticateResponse(auth_bytes=f"r={nonce}more,s=c2FsdHNhbHRzYWx0,i={number}".encode())

    return first


@pytest.mark.parametrize(
    ("broker", "mechanism", "text"),
    [
        *((FakeBroker(rejects("Invalid password")), one, "rejected the login: Invalid") for one in ("PLAIN", *SCRAM)),
        (FakeBroker(rejects(None)), "PLAIN", "rejected the login: 58"),
        (
            FakeBroker(offered=("PLAIN", "OAUTHBEARER")),
            "SCRAM-SHA-512",
            "not offer SASL SCRAM-SHA-512, but: PLAIN",
        ),
        *((FakeBroker(_iterations(number)), "SCRAM-SHA-512", "failed: ") for number in (1, 4095, 1_000_000_000)),
        *(
            (FakeBroker(returns(first)), mechanism, "SASL")
            for mechanism in SCRAM
            for first in (b"", b"garbage", b"\xff\xfe", b"r=other,s=!,i=4096", b"e=other-error", b"i=99999999999")
        ),
    ],
)
async def test_a_login_that_fails_is_an_error_without_the_password(
    broker: FakeBroker, mechanism: str, text: str
) -> None:
    with pytest.raises(ClusterError, match=text) as failure:
        await broker.log_in(mechanism)
    assert PASSWORD not in repr(failure.value)
    assert failure.value.__cause__ is None


async def test_the_password_is_never_shown() -> None:
    shown = f"{Credentials(user=USER, password=PASSWORD, mechanism='PLAIN')}"
    assert PASSWORD not in shown
    assert USER in shown
    with pytest.raises(ClusterError) as failure:  # SCRAM cannot carry a tab
        await FakeBroker().log_in("SCRAM-SHA-256", "tab\tin-the-password")
    assert "in-the-password" not in str(failure.value)
