"""Connections of Headgate itself to the brokers of a cluster: connect, log in, learn the versions, send requests.

Invariant: a request goes out only in a version that this very broker supports, because a broker closes the connection
on any other. For a few requests; what goes on for long is confluent-kafka's business. A client's own authentication
passes through untouched and never uses these connections.
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

import headgate
from headgate.base.errors import ClusterError, WireError
from headgate.config.addresses import Address
from headgate.config.files import read_secret
from headgate.config.model import UpstreamConfig
from headgate.wire import frames
from headgate.wire.apis import api_name, has_flexible_request, has_flexible_response
from headgate.wire.codec import decode, encode
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.cluster import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from headgate.wire.schema import Message, Request

M = TypeVar("M", bound=Message)

_CLIENT_ID = b"headgate"
_LARGEST_ANSWER = 64 * 1024 * 1024
_DECODED_ON_LOOP_BYTES = 16 * 1024
_CLOSING_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_GREETING = ApiVersionsRequest(client_software_name="headgate", client_software_version=headgate.__version__)


class UnsupportedError(ClusterError):
    """The broker is too old for a request: retrying does not help."""


class LoginError(ClusterError):
    """The server did not accept the user, or requires one: another user or password may help."""


class BrokerConnection:
    """A connection to one broker, used for one request at a time; every failure is a `ClusterError`, and closes it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float) -> None:
        self._reader = reader
        self._writer = writer
        self._timeout = timeout
        self._correlation_id = 0
        self.versions: Mapping[int, tuple[int, int]] = {}  # of each API, what this broker supports

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        timeout: float,  # noqa: ASYNC109 - one timeout for this and for each request
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        except TimeoutError:
            raise ClusterError(f"no connection to {host}:{port} within {timeout:g} s") from None
        except OSError as failure:
            raise ClusterError(f"no connection to {host}:{port}: {failure.strerror or failure}") from None
        except (ValueError, OverflowError) as failure:  # a name that no resolver takes, a port that is none
            raise ClusterError(f"no connection to {host!r}:{port}: {failure}") from None
        return cls(reader, writer, timeout)

    async def call(self, request: Request[M], version: int) -> M:
        key, answer_class = request.api_key, request.response_class()
        self._correlation_id += 1
        header = frames.RequestHeader(
            api_key=key,
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=_CLIENT_ID,
            tags=b"\x00" if has_flexible_request(key, version) else b"",
        )
        flexible = has_flexible_response(key, version)
        try:
            async with asyncio.timeout(self._timeout):
                self._writer.write(frames.frame(header.encode(), encode(request, version)))
                await self._writer.drain()
                size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
                content = await self._reader.readexactly(_bounded(size))
            (correlation_id,) = frames.CORRELATION_ID.unpack_from(content, 0)
            if correlation_id != self._correlation_id:
                raise WireError(f"correlation id {correlation_id} instead of {self._correlation_id}")  # noqa: TRY301
            begin = frames.response_body(content, flexible=flexible)
            if size <= _DECODED_ON_LOOP_BYTES:
                return decode(answer_class, version, content, begin)
            # The Metadata of 50,000 partitions takes most of a second, and the event loop may be that of the gateway.
            return await asyncio.to_thread(decode, answer_class, version, content, begin)
        except TimeoutError:
            self.close()
            raise ClusterError(f"no response to {api_name(request.api_key)} within {self._timeout:g} s") from None
        except (OSError, asyncio.IncompleteReadError) as failure:
            self.close()
            raise ClusterError(
                f"the connection was closed before the response to {api_name(request.api_key)}: {failure}"
            ) from None
        except WireError as problem:
            self.close()
            raise ClusterError(f"not a Kafka response: {problem}") from None

    @property
    def is_closed(self) -> bool:
        return self._writer.is_closing() or self._reader.at_eof()

    async def ask(self, request: Request[M], *, lowest: int, highest: int) -> M:
        """Send the request in the highest version of `lowest` to `highest` that the broker supports."""
        theirs = self.versions.get(request.api_key, (0, -1))
        version = min(highest, theirs[1])
        if version < max(lowest, theirs[0]):
            raise UnsupportedError(f"the server does not support {api_name(request.api_key)} v{lowest}")
        return await self.call(request, version)

    def close(self) -> None:
        self._writer.close()

    async def shut(self) -> None:
        """Close the connection and wait until it is closed."""
        self.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSING_S):
                await self._writer.wait_closed()


def _bounded(size: int) -> int:
    if not frames.SMALLEST_RESPONSE <= size <= _LARGEST_ANSWER:
        raise WireError(f"a response of {size} bytes")
    return size


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A user of the cluster; `repr` does not show the password."""

    user: str
    password: str
    mechanism: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, mechanism={self.mechanism!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialler:
    """The address of a cluster, and the user; without `credentials` there is no SASL."""

    bootstrap: tuple[Address, ...]
    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None
    call_timeout_s: float = 10.0  # of each connection and each request
    timeout_s: float = 30.0  # of all attempts together

    async def connect(self, address: Address) -> BrokerConnection:
        """Open a connection that is logged in; a `ClusterError` names the address and what is wrong there."""
        link = await BrokerConnection.connect(*address, timeout=min(self.call_timeout_s, self.timeout_s), tls=self.tls)
        try:
            await self._greet(link, address)
            await self._log_in(link, address)
        except BaseException:
            link.close()
            raise
        return link

    async def _greet(self, link: BrokerConnection, address: Address) -> None:
        try:
            api_versions = await link.call(_GREETING, 3)
        except ClusterError as failure:
            maybe = "" if self.tls is not None else ", or expects TLS (security.protocol)"
            raise ClusterError(f"{address} does not respond as a Kafka broker{maybe}: {failure}") from None
        link.versions = {one.api_key: (one.min_version, one.max_version) for one in api_versions.api_keys}

    async def _log_in(self, link: BrokerConnection, address: Address) -> None:
        try:
            if self.credentials is not None:
                await authenticate(link, self.credentials)
                return
            # A listener without SASL answers a handshake with ILLEGAL_SASL_STATE; one with SASL would close the
            # connection on the first other request without a response.
            answer = await link.call(SaslHandshakeRequest(), 1)
        except ClusterError as failure:
            who = "" if self.credentials is None else f" as User:{self.credentials.user}"
            raise LoginError(f"login at {address}{who} failed: {failure}") from None
        if answer.error_code != ErrorCode.ILLEGAL_SASL_STATE:
            offered = ", ".join(sorted(answer.mechanisms))
            raise LoginError(f"{address} requires SASL ({offered}), and no user is given")


class Connections:
    """Connections to the brokers of one cluster: opened when they are needed, closed at the end.

    Requests on one connection must not overlap: two tasks may use two brokers, never the same one.
    """

    def __init__(self, dialler: Dialler) -> None:
        self.dialler = dialler
        self._deadline = asyncio.get_running_loop().time() + dialler.timeout_s
        self._links: dict[Address, BrokerConnection] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with asyncio.TaskGroup() as closing:
            for link in self._links.values():
                closing.create_task(link.shut())

    def retry_delay(self) -> "RetryDelay":
        return RetryDelay(self._deadline)

    async def to(self, address: Address) -> BrokerConnection:
        link = self._links.get(address)
        if link is None or link.is_closed:
            link = await self.dialler.connect(address)
            self._links[address] = link
        return link

    async def bootstrap(self) -> BrokerConnection:
        """The connection to the first bootstrap address that responds; a `ClusterError` names the failure of each."""
        failures = []
        for address in self.dialler.bootstrap:
            try:
                return await self.to(address)
            except ClusterError as failure:
                failures.append(str(failure))
        raise ClusterError("; ".join(failures))


class RetryDelay:
    """Growing pauses between attempts, until the timeout of the connections."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._pause_s = _FIRST_PAUSE_S

    async def wait(self) -> bool:
        """Wait, and return True for another attempt; False at once when no time is left for one."""
        if asyncio.get_running_loop().time() + self._pause_s >= self._deadline:
            return False
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return True


async def authenticate(connection: BrokerConnection, credentials: Credentials) -> None:
    """Log in on a new connection; a failure is a `ClusterError` with the broker's own text."""
    request = SaslHandshakeRequest(mechanism=credentials.mechanism)
    answer = await connection.call(request, 1)
    if answer.error_code:
        offered = ", ".join(answer.mechanisms)
        raise ClusterError(f"the broker does not offer SASL {credentials.mechanism}, but: {offered}")
    if credentials.mechanism == "PLAIN":
        await _exchange(connection, f"\0{credentials.user}\0{credentials.password}".encode())
        return
    from scramp import ScramClient, ScramException  # type: ignore[import-untyped]  # noqa: PLC0415 - 3 MB

    try:
        client = ScramClient([credentials.mechanism], credentials.user, credentials.password)
        first = await _exchange(connection, client.get_client_first().encode())
        client.set_server_first(first.decode())
        # The broker says how often to hash, up to millions of times: not on the event loop.
        proof: str = await asyncio.to_thread(client.get_client_final)
        final = await _exchange(connection, proof.encode())
        client.set_server_final(final.decode())
    except (ScramException, UnicodeDecodeError) as problem:
        raise ClusterError(f"SASL {credentials.mechanism} as {credentials.user!r} failed: {problem}") from None


async def _exchange(connection: BrokerConnection, token: bytes) -> bytes:
    request = SaslAuthenticateRequest(auth_bytes=token)
    answer = await connection.call(request, 2)
    if answer.error_code:
        raise ClusterError(f"the broker rejected the login: {answer.error_message or answer.error_code}")
    return answer.auth_bytes


def credentials_of(upstream: UpstreamConfig) -> Credentials | None:
    """The service account of `[upstream]`, with its password read now; None where the cluster has no SASL."""
    if upstream.service_user is None or upstream.service_password_file is None:
        return None
    password = read_secret(upstream.service_password_file).get_secret_value()
    return Credentials(user=upstream.service_user, password=password, mechanism=upstream.service_mechanism)


def dialler_of(upstream: UpstreamConfig) -> Dialler:
    """Headgate's own connection to the cluster; certificates and password are read anew each time."""
    tls = ssl.create_default_context(cafile=upstream.tls_ca) if upstream.tls else None
    return Dialler(bootstrap=upstream.bootstrap, tls=tls, credentials=credentials_of(upstream))
