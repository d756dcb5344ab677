"""One client with its own upstream connection: its life from accept to close, and the session interceptors see.

The two directions are `RequestStream` and `ResponseStream`; this is what they share: the pending calls, who may read
when (back-pressure), the tasks of held calls, draining, and the one place where a connection ends.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING

import structlog

from headgate.base.errors import ClusterError, HeadgateError
from headgate.base.ids import ApiKey, ApiVersion, ClusterId, NodeId
from headgate.gateway.interceptor import CloseCause, Interceptor
from headgate.gateway.link import Link
from headgate.gateway.pending import Entry, Private
from headgate.gateway.requests import RequestStream
from headgate.gateway.responses import ResponseStream
from headgate.gateway.routes import Versions
from headgate.wire import frames

if TYPE_CHECKING:
    from headgate.gateway.server import Gateway

log = structlog.get_logger()

_CLIENT_ID = b"headgate"
_BEFORE_CLOSE_SECONDS = 2.0


class Connection:
    """A client's connection; a `Session` for interceptors."""

    def __init__(
        self,
        gateway: "Gateway",
        client: socket.socket,
        upstream: socket.socket,
        *,
        peer: str,
        node_id: NodeId | None,
        versions: Versions,
    ) -> None:
        loop = gateway.loop
        self.gateway = gateway
        self.routes = gateway.routes
        self.table = gateway.routes.table(versions)
        self.lookup = gateway.addresses.lookup
        self.chain_meter = gateway.metrics.chain_meter
        self.max_frame_bytes = gateway.config.gateway.max_frame_bytes
        self.pending: deque[Entry] = deque()
        self.draining = False
        self.closed: CloseCause | None = None
        self.last_active = loop.time()
        self._versions = versions
        self._peer = peer
        self._node_id = node_id
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._correlation_id = 0
        self._closing: tuple[CloseCause, str] | None = None  # upstream is gone, the client still has to get its bytes
        self.requests = RequestStream(self)
        self.responses = ResponseStream(self)
        self.client = Link(loop, client, self.requests, gateway.metrics.client_meter)
        self.upstream = Link(loop, upstream, self.responses, gateway.metrics.upstream_meter)

    def start(self) -> None:
        for interceptor in self.routes.interceptors:
            try:
                interceptor.on_open(self)
            except Exception as failure:  # noqa: BLE001 - a feature that fails must not stop the stream
                self.chain_meter.failed(interceptor, "on_open", failure)
        self.client.resume()
        self.upstream.resume()

    # What interceptors see.

    @property
    def node_id(self) -> NodeId | None:
        return self._node_id

    @property
    def cluster_id(self) -> ClusterId | None:
        return self.gateway.cluster.cluster_id

    @property
    def peer(self) -> str:
        return self._peer

    def broker_versions(self) -> Versions:
        return self._versions

    def set_broker_versions(self, versions: Versions) -> None:
        self._versions = versions
        self.table = self.routes.table(versions)

    async def call(self, api_key: ApiKey, api_version: ApiVersion, body: bytes, *, deadline: float = 5.0) -> bytes:
        if self.upstream.closed:
            raise ClusterError("the connection to the broker has ended")
        route = self.routes.route(api_key, api_version)
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        header = frames.RequestHeader(
            api_key=api_key,
            api_version=api_version,
            correlation_id=self._correlation_id,
            client_id=_CLIENT_ID,
            tags=b"\x00" if route.flexible_request else b"",
        )
        private = Private(self._loop.create_future())
        self.requests.inject(route, frames.frame(header.encode(), body), private)
        try:
            async with asyncio.timeout(deadline):
                return await private.body
        except TimeoutError:
            raise ClusterError(f"the broker did not answer {route.name} within {deadline:g} s") from None

    # Who may read when.

    def touch(self) -> None:
        self.last_active = self._loop.time()

    def client_drained(self) -> None:
        """The client took what it had not taken: go on reading the broker, or end what was to end."""
        if self._closing is not None:
            self.close(self._closing[0], detail=self._closing[1])
        else:
            self.upstream.resume()

    def upstream_drained(self) -> None:
        if not self.draining:
            self.client.resume()

    def output_released(self) -> None:
        """A held answer is through, and what stood behind it."""
        if not self.client.backlog:
            self.upstream.resume()
        if self.draining:
            self.close_if_drained()

    def request_decided(self) -> None:
        """A held request is through: those behind it are next, from a fresh stack."""
        self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self.closed is not None:
            return
        self.client.release_input()
        if self.draining:
            self.close_if_drained()
        elif not self.upstream.backlog:
            self.client.resume()

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run a held call's work; it ends with the connection."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            if isinstance(failure, HeadgateError | TimeoutError):
                self.close(CloseCause.BAD_ANSWER, detail=str(failure))
            else:
                self.close_on_bug(failure)

    # The end.

    @property
    def is_idle(self) -> bool:
        """Nothing is under way in either direction."""
        return not self.pending and self.requests.between_requests and self.responses.is_quiet

    def drain(self) -> None:
        """Take no more requests; end when those under way are answered."""
        self.draining = True
        if self.requests.between_requests:
            self.client.pause()
        self.close_if_drained()

    def close_if_drained(self) -> None:
        if self.is_idle and not self.client.backlog:
            self.close(CloseCause.DRAINED)

    def close_when_flushed(self, cause: CloseCause, detail: str = "") -> None:
        """The broker is gone: the client still gets what the broker had said."""
        self.upstream.pause()
        if self.client.backlog and self._closing is None:
            self._closing = (cause, detail)
            self.client.pause()
            self._loop.call_later(self.gateway.config.gateway.drain_ms / 1000, self.close, cause)
        else:
            self.close(cause, detail=detail)

    def close_on_bug(self, failure: BaseException) -> None:
        log.error("connection ended by a defect of the gateway", peer=self.peer, exc_info=failure)
        self.close(CloseCause.INTERNAL)

    def close(self, cause: CloseCause, detail: str = "") -> None:
        """End it; the first cause counts."""
        if self.closed is not None:
            return
        self.closed = cause
        if detail:
            log.info("connection ended", cause=cause.value, peer=self.peer, node=self.node_id, detail=detail)
        self.client.close()
        for task in list(self._tasks):
            task.cancel()
        farewells = [one for one in self.routes.interceptors if _has_farewell(one)]
        upstream_lives = cause not in {CloseCause.UPSTREAM_CLOSED, CloseCause.UPSTREAM_RESET}
        if farewells and upstream_lives and not self.upstream.closed:
            self.gateway.see_off(self._say_farewell(farewells, cause))
        else:
            self._close_upstream()
        self.gateway.forget(self, cause)

    async def _say_farewell(self, interceptors: list[Interceptor], cause: CloseCause) -> None:
        self.upstream.resume()
        try:
            for interceptor in interceptors:
                try:
                    async with asyncio.timeout(_BEFORE_CLOSE_SECONDS):
                        await interceptor.before_upstream_close(self, cause, _BEFORE_CLOSE_SECONDS)
                except Exception as failure:  # noqa: BLE001 - a feature that fails must not keep a socket open
                    self.chain_meter.failed(interceptor, "before_upstream_close", failure)
        finally:
            self._close_upstream()

    def _close_upstream(self) -> None:
        self.upstream.close()
        ended = ClusterError("the connection to the broker has ended")
        for _, _, purpose in self.pending:
            if isinstance(purpose, Private) and not purpose.body.done():
                purpose.body.set_exception(ended)
        self.requests.abandon(ended)
        self.pending.clear()


def _has_farewell(interceptor: Interceptor) -> bool:
    return type(interceptor).before_upstream_close is not Interceptor.before_upstream_close
