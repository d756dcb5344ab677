"""A client that says exactly what a test wants, on a blocking socket: for what no real client can be made to say.

One rule: nothing is retried and nothing is hidden. The end of the connection is an `EOFError`, a wait that is too long
a `TimeoutError`.
"""

import socket
import ssl
from types import TracebackType
from typing import Self, TypeVar

from headgate.wire import frames
from headgate.wire.apis import has_flexible_request, has_flexible_response
from headgate.wire.codec import decode, encode
from headgate.wire.messages.cluster import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from headgate.wire.schema import Message, Request

M = TypeVar("M", bound=Message)

PRODUCE, FETCH, METADATA = 0, 1, 3
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36


class RawClient:
    """A connection to `host:port`; `preface` is sent before everything else, TLS included."""

    def __init__(
        self,
        address: str,
        *,
        tls: ssl.SSLContext | None = None,
        preface: bytes = b"",
        source: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        host, _, port = address.rpartition(":")
        bound = None if source is None else (source, 0)
        self.sock = socket.create_connection((host, int(port)), timeout, source_address=bound)
        self._correlation_id = 0
        try:
            if preface:
                self.sock.sendall(preface)
            if tls is not None:
                self.sock = tls.wrap_socket(self.sock, server_hostname=host)
        except BaseException:
            self.sock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def call(self, request: Request[M], version: int) -> M:
        return decode(request.response_class(), version, self.ask(request.api_key, version, encode(request, version)))

    def ask(self, key: int, version: int, body: bytes) -> bytes:
        """The body of the answer to this request."""
        self.send(key, version, body)
        return self.receive(key, version)

    def send(self, key: int, version: int, body: bytes) -> bytes:
        """Send a request, and say which bytes it was."""
        self._correlation_id += 1
        header = frames.RequestHeader(
            api_key=key,
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=b"raw",
            tags=b"\x00" if has_flexible_request(key, version) else b"",
        )
        frame = frames.frame(header.encode(), body)
        self.sock.sendall(frame)
        return frame

    def receive(self, key: int, version: int) -> bytes:
        content = self.frame()
        return content[frames.response_body(content, flexible=has_flexible_response(key, version)) :]

    def frame(self) -> bytes:
        """The next frame, without its size."""
        return self._exactly(int.from_bytes(self._exactly(4)))

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self.sock.recv(size - len(received))
            if not piece:
                raise EOFError(f"{len(received)} of {size} bytes, then the end")
            received += piece
        return bytes(received)

    def has_ended(self) -> bool:
        """Wait for the end of the connection; False when there is an answer instead."""
        try:
            return not self.sock.recv(1)
        except ConnectionError:
            return True

    # Calls that many tests make.

    def api_versions(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        answer = self.call(request, 3)
        assert answer.error_code == 0
        return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}

    def handshake(self, mechanism: str) -> SaslHandshakeResponse:
        return self.call(SaslHandshakeRequest(mechanism=mechanism), 1)

    def authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        return self.call(SaslAuthenticateRequest(auth_bytes=token), 2)

    def log_in(self, user: str, password: str) -> SaslAuthenticateResponse:
        """SASL PLAIN; the answer says whether it was right."""
        assert self.handshake("PLAIN").error_code == 0
        return self.authenticate(f"\0{user}\0{password}".encode())


def is_served(address: str, *, tls: ssl.SSLContext | None = None, timeout: float = 15.0) -> bool:
    """True when a new connection gets an answer from a broker."""
    try:
        with RawClient(address, tls=tls, timeout=timeout) as client:
            client.api_versions()
    except (OSError, EOFError):
        return False
    return True
