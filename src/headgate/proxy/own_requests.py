"""Requests of the gateway itself on a client's upstream connection: those of interceptors, and the probe.

A request of an interceptor (`Session.call`) waits until no request of the client is partly sent and the client is not
authenticating: a broker answers nothing else then, and closes the connection. The probe is a Metadata request without
topics; a broker answers it to every authenticated client, so its response proves the connection.
"""

from typing import TYPE_CHECKING, Any, Final

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.chain import OwnRequest
from headgate.proxy.routes import Route
from headgate.wire import frames
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import MetadataRequest
from headgate.wire.schema import Request

if TYPE_CHECKING:
    from headgate.proxy.connection import Connection

_CLIENT_ID: Final = b"headgate"
_PROBE: Final = MetadataRequest(topics=(), allow_auto_topic_creation=False)
_PROBE_VERSION, _LOWEST_PROBE_VERSION = 12, 4  # below, it might create topics


class OwnRequests:
    """The gateway's own requests of one connection."""

    __slots__ = ("_connection", "_correlation_id", "waiting")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._correlation_id = 0
        self.waiting: list[tuple[Route, bytes, OwnRequest]] = []

    def inject(self, request: Request[Any], version: ApiVersion, private: OwnRequest) -> None:
        """Send a request as soon as the client's requests admit it."""
        self.waiting.append((*self._frame(request, version), private))
        self.flush()

    def flush(self) -> None:
        if not self._connection.requests.admits_own:
            return
        waiting = self.waiting.copy()
        self.waiting.clear()
        for route, frame, private in waiting:
            if not private.body.done():  # its caller may have given up
                self._send(route, frame, private)

    def send_probe(self) -> None:
        """Request the proof, when no request of the client is partly sent; only that it is answered matters."""
        version = ApiVersion(min(_PROBE_VERSION, self._connection.broker_versions().get(ApiKey.METADATA, (0, -1))[1]))
        if version >= _LOWEST_PROBE_VERSION:
            probe = OwnRequest(self._connection.gateway.loop.create_future())
            probe.body.cancel()
            self._send(*self._frame(_PROBE, version), probe)

    def abandon(self, reason: ClusterError) -> None:
        """Fail the requests that were not sent before the upstream connection ended."""
        for _, _, private in self.waiting:
            if not private.body.done():
                private.body.set_exception(reason)
        self.waiting.clear()

    def _send(self, route: Route, frame: bytes, private: OwnRequest) -> None:
        connection = self._connection
        connection.mark_proof_requested()
        (correlation_id,) = frames.CORRELATION_ID.unpack_from(frame, frames.CORRELATION_ID_AT)
        connection.pending.append((route, correlation_id, private))
        connection.upstream.write(frame)

    def _frame(self, request: Request[Any], version: ApiVersion) -> tuple[Route, bytes]:
        route = self._connection.routes.route(request.api_key, version)
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        header = frames.RequestHeader(
            api_key=request.api_key,
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=_CLIENT_ID,
            tags=b"\x00" if route.flexible_request else b"",
        )
        return route, frames.frame(header.encode(), encode(request, version))
