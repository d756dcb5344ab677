"""One client with its own upstream connection: its life from accept to close, and the session interceptors see.

The two directions are `RequestStream` and `ResponseStream`; this is what they share: the pending calls, who may read
when (back-pressure), the tasks of held calls, draining, and the one place where a connection ends.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from math import ceil
from typing import TYPE_CHECKING, Final

import structlog

from headgate.base.errors import ClusterError, HeadgateError
from headgate.base.ids import ApiKey, ApiVersion, ClusterId, NodeId
from headgate.proxy.chain import MOST_PENDING, Entry, OwnRequest, discard
from headgate.proxy.decoding import SMALL_BYTES, run_off_loop
from headgate.proxy.endpoints import PeerSocket
from headgate.proxy.gather_budget import BudgetShare, GatherBudget
from headgate.proxy.interceptor import CloseCause, FastPath, M, Versions
from headgate.proxy.requests import RequestStream
from headgate.proxy.responses import ResponseStream
from headgate.proxy.routes import Route
from headgate.wire.apis import api_name
from headgate.wire.codec import decode
from headgate.wire.schema import Request

if TYPE_CHECKING:
    from headgate.proxy.server import Gateway
    from headgate.proxy.unproved_queue import UnprovedPlace

log = structlog.get_logger()

_UNAUTHENTICATED_BYTES: Final = 512 * 1024  # a broker's own cap for clients that have not authenticated
LARGEST_BACKLOG: Final = 1024 * 1024  # of responses that the client does not take: then its requests are not read
# So much may wait for the client while its broker is read on: clients are often slower for a moment only. Spliced bytes
# wait in one pipe.
HIGH_WATER: Final = 128 * 1024
PROOF_PERIODS: Final = 3  # of `first_request_ms`, until a connection must be proved
_FLOAT_ERROR_MS: Final = 0.001  # of the difference of two times: rounding it up must not add a millisecond
_NUMBERS: Final = count(1)


class Connection:
    """A client's connection; a `Session` for interceptors."""

    __slots__ = (
        "__weakref__",
        "_closing",
        "_flush_timer",
        "_loop",
        "_node_id",
        "_peer",
        "_since",
        "_tasks",
        "_throttled_until",
        "_versions",
        "chain_meter",
        "client",
        "closed",
        "draining",
        "fast_paths",
        "gateway",
        "is_flowing",
        "is_proof_requested",
        "is_proved",
        "last_active",
        "lookup",
        "max_frame_bytes",
        "max_gathered_bytes",
        "number",
        "pending",
        "place",
        "requests",
        "responses",
        "routes",
        "table",
        "upstream",
        "was_active",
    )

    def __init__(
        self,
        gateway: "Gateway",
        client: PeerSocket,
        upstream: PeerSocket,
        *,
        node_id: NodeId | None,
        versions: Versions,
        silent_s: float = 0.0,
    ) -> None:
        """`silent_s` is how long the client took to send its first byte."""
        loop = gateway.loop
        self.number = next(_NUMBERS)
        self.gateway = gateway
        self.routes = gateway.routes
        self.table = gateway.routes.table(versions)
        self.lookup = gateway.addresses.lookup
        self.chain_meter = gateway.metrics.chain_meter
        self.max_frame_bytes = gateway.config.gateway.max_frame_bytes
        self.is_proved = False
        # The broker has got a request that it answers only to authenticated clients: it closes any other's connection.
        self.is_proof_requested = False
        self.place: UnprovedPlace | None = None  # as long as it is not proved
        self.max_gathered_bytes = min(_UNAUTHENTICATED_BYTES, self.max_frame_bytes)
        self.pending: list[Entry] = []  # at most MOST_PENDING; an empty deque would take ten times its memory
        self.fast_paths: dict[Route, FastPath] = {}
        self.draining = False
        self.closed: CloseCause | None = None
        self.was_active = True  # since the last check for idle connections, which updates `last_active`
        self.last_active = gateway.clock()
        self._since = self.last_active - silent_s  # without the time that it took to dial
        self.is_flowing = False  # both sides are read and nothing waits: there is nothing to regulate
        self._versions = versions
        self._peer = client.host
        self._node_id = node_id
        self._loop = loop
        # Of held requests and responses. No `TaskSet`: most connections never have one of these tasks, a failure closes
        # the connection, and what a cancelled task awaits is discarded with it.
        self._tasks: set[asyncio.Task[None]] | None = None
        self._closing: tuple[CloseCause, str] | None = None  # upstream is gone, the client still has to get its bytes
        self._flush_timer: asyncio.TimerHandle | None = None
        self._throttled_until = 0.0
        self.requests = RequestStream(self)
        self.responses = ResponseStream(self)
        self.client = client.link(loop, self.requests, gateway.metrics.client_meter)
        self.upstream = upstream.link(loop, self.responses, gateway.metrics.upstream_meter)

    def start(self) -> None:
        for interceptor in self.routes.on_open:
            try:
                interceptor.on_open(self)
            except Exception as failure:  # noqa: BLE001 - a feature that fails must not stop the stream
                self.chain_meter.failed(interceptor, "on_open", failure)
        for link in (self.client, self.upstream):
            link.watch_for_hangup(self.gateway.hangups)
            link.resume()
        self.client.release_input()  # what was received before the broker was there

    # Proof: see `Session.is_proved`.

    def mark_proved(self) -> None:
        """The broker has answered a request that it answers only to authenticated clients."""
        self.is_proved = True
        self.max_gathered_bytes = self.max_frame_bytes
        self.mark_proof_requested()
        if self.requests.opened.is_awaiting_proof:
            self._loop.call_soon(
                self.requests.opened.open_proved
            )  # not in the middle of the response that is the proof

    def request_proof(self, *, by_probe: bool) -> None:
        """The broker gets what it answers only to authenticated clients: the client's next request, or a probe."""
        if by_probe and not self.is_proof_requested:
            self.requests.own.send_probe()
        elif not by_probe:
            self.mark_proof_requested()

    def mark_proof_requested(self) -> None:
        """The broker, and not the gateway, decides how long the connection lasts."""
        if not self.is_proof_requested:
            self.is_proof_requested = True
            self.gateway.release_unproved(self)

    def limit_unproved(self, now: float, first_request_s: float) -> None:
        """End a connection that has sent no whole request in time; one that only began to log in is probed."""
        age = now - self._since
        if not self.requests.has_request:
            if age > first_request_s:
                self.close(CloseCause.NO_REQUEST)
        elif age > PROOF_PERIODS * first_request_s:
            if not self.requests.is_passing:
                self.request_proof(by_probe=True)
            if not self.is_proof_requested:
                self.close(CloseCause.UNPROVED)

    # Session.

    @property
    def node_id(self) -> NodeId | None:
        return self._node_id

    @property
    def cluster_id(self) -> ClusterId | None:
        return self.gateway.cluster.cluster_id

    @property
    def peer(self) -> str:
        return self._peer

    def use_fast_path(self, api_key: ApiKey, api_version: ApiVersion, fast_path: FastPath) -> None:
        route = self.routes.route(api_key, api_version)
        is_opened = route.interceptors and not (route.prefilter and fast_path.covers_prefilter)
        if len(route.watchers) == 1 and not is_opened:
            self.fast_paths[route] = fast_path

    def broker_versions(self) -> Versions:
        return self._versions

    def set_broker_versions(self, versions: Versions) -> None:
        self._versions = versions
        self.table = self.routes.table(versions)

    def carries(self, api_key: int, api_version: int) -> bool:
        """Whether the broker supports this version: it closes the socket on an unsupported one."""
        low, high = self._versions.get(api_key, (0, -1))
        return low <= api_version <= high or api_key == ApiKey.API_VERSIONS

    @property
    def throttle_ms(self) -> int:
        if not self._throttled_until:
            return 0
        left_ms = (self._throttled_until - self._loop.time()) * 1000
        return max(0, ceil(left_ms - _FLOAT_ERROR_MS))

    async def call(self, request: Request[M], api_version: int, *, deadline: float = 5.0) -> M:
        api_key, version = request.api_key, ApiVersion(api_version)
        if self.upstream.closed or self.upstream.ended:
            raise ClusterError("the connection to the broker has ended")
        if not self.carries(api_key, version):
            raise ClusterError(f"the broker does not have api key {api_key} version {version}")
        private = OwnRequest(self._loop.create_future())
        self.requests.own.inject(request, version, private)
        try:
            async with asyncio.timeout(deadline):
                body = await private.body
        except TimeoutError:
            raise ClusterError(f"the broker did not answer {api_name(api_key)} within {deadline:g} s") from None
        response_class = request.response_class()
        if len(body) <= SMALL_BYTES:
            response = decode(response_class, version, body)
        else:
            response = await run_off_loop(lambda: decode(response_class, version, body))
        if throttle_ms := getattr(response, "throttle_time_ms", 0):
            self._throttled_until = max(self._throttled_until, self._loop.time() + throttle_ms / 1000)
        return response

    # Back-pressure.

    def drained(self) -> None:
        """One of the sockets took the bytes that were kept for it."""
        self.was_active = True
        self.regulate()

    def regulate(self) -> None:
        """Decide who is read; called whenever a backlog, the pending calls or the held responses may have changed.

        A side is not read while what it sends cannot go on. An end that waited for this comes now.
        """
        if self.closed is not None:
            return
        client, upstream = self.client, self.upstream
        if self._closing is not None:
            if not client.backlog and self.responses.is_released:
                self.close(*self._closing)
            return
        if self.draining and self.is_drained:
            self.close(CloseCause.DRAINED)
            return
        if self.requests.reserved:
            self.requests.settle()
        if self.responses.unsent and not client.backlog:
            self.responses.settle()
        if self._is_clogged:
            client.pause()
        else:
            client.resume()
            if client.held and not self.requests.blocked:
                self.request_decided()
        high_water = 0 if upstream.is_splicing else HIGH_WATER
        if client.backlog > high_water or self.responses.is_crowded or self.responses.is_waiting:
            upstream.pause()
        else:
            upstream.resume()
        waiting = client.held or self.draining or not self.responses.is_released
        waiting = waiting or bool(self.requests.reserved or self.responses.unsent)
        self.is_flowing = client.is_reading and upstream.is_reading and not waiting

    @property
    def _is_clogged(self) -> bool:
        """Whether requests must wait: bytes for either side are kept, or too many requests are pending or gathered."""
        too_many = len(self.pending) >= self.requests.most_pending or self.requests.is_waiting
        return bool(self.upstream.backlog) or self.client.backlog > LARGEST_BACKLOG or too_many

    def budget_share(self, budget: GatherBudget, on_granted: Callable[[], None]) -> BudgetShare:
        """A share of a budget for gathered bytes; the connection ends when it holds it for too long."""
        text = "gathered bytes were held while others waited for them"
        return BudgetShare(budget, self.peer, on_granted, lambda: self.close(CloseCause.GATHER_TIMEOUT, text))

    def responses_granted(self) -> None:
        """Continue with the response that waited to be gathered, from a fresh stack."""
        self._loop.call_soon(self._gather_on)

    def _gather_on(self) -> None:
        if self.closed is None:
            self.upstream.release_input()
            self.regulate()

    def request_decided(self) -> None:
        """Continue with the requests behind a held one, from a fresh stack."""
        self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self.closed is None and not self.requests.blocked:
            if self.client.held and not self._is_clogged:
                self.requests.most_pending = MOST_PENDING
                self.client.release_input()
            self.regulate()

    def spawn(self, work: Coroutine[object, object, None], awaited: object) -> None:
        """Run the work of a held request or response; it is cancelled, with what it awaits, with the connection."""
        task = self._loop.create_task(work)
        if self._tasks is None:
            self._tasks = set()
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, awaited))

    def _done(self, awaited: object, task: "asyncio.Task[None]") -> None:
        assert self._tasks is not None
        self._tasks.discard(task)
        discard(awaited)
        if not task.cancelled() and (failure := task.exception()) is not None and self.closed is None:
            if isinstance(failure, HeadgateError | TimeoutError):
                self.close(CloseCause.BAD_ANSWER, detail=str(failure))
            else:
                self.close_on_bug(failure)

    # The end.

    @property
    def is_idle(self) -> bool:
        """No request is under way. A request that was received in part does not count: it may stay so."""
        nothing_pending = len(self.pending) == self.requests.unfinished_calls
        return nothing_pending and not self.requests.blocked and self.responses.is_quiet

    @property
    def is_abandoned(self) -> bool:
        """The client has disconnected, and this was not read because the broker does not take the bytes before it."""
        return not self.client.is_reading and self.client.peer_has_left

    @property
    def is_drained(self) -> bool:
        """Nothing is under way in either direction."""
        nothing_to_send = not self.client.backlog and not self.upstream.backlog
        return self.is_idle and self.requests.between_requests and nothing_to_send

    def drain(self) -> None:
        """Accept no more requests; close when those under way are answered. The client is still read, for its end."""
        self.draining = True
        self.is_flowing = False
        self.regulate()

    def close_when_flushed(self, cause: CloseCause, detail: str = "") -> None:
        """The broker has closed: close when the client has got what the broker sent before."""
        if self.closed is None and self._closing is None:
            self._closing = (cause, detail)
            self.is_flowing = False
            self.client.pause()
            self._flush_timer = self._loop.call_later(self.gateway.config.gateway.drain_ms / 1000, self.close, cause)
            self.regulate()

    def close_on_bug(self, failure: BaseException) -> None:
        log.error("connection ended by a defect of the gateway", peer=self.peer, exc_info=failure)
        self.close(CloseCause.INTERNAL)

    def close(self, cause: CloseCause, detail: str = "") -> None:
        """End the connection; the first cause counts."""
        if self.closed is not None:
            return
        if self._closing is not None:
            cause, detail = self._closing
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        self.closed = cause
        if detail and (self.is_proved or self.gateway.log_throttle.allows(cause.value, self.peer)):
            log.info("connection ended", cause=cause.value, peer=self.peer, node=self.node_id, detail=detail)
        self.client.close()
        for task in list(self._tasks or ()):
            task.cancel()
        for interceptor in self.routes.on_close:
            try:
                interceptor.on_close(self)
            except Exception as failure:  # noqa: BLE001 - a feature that fails must not keep a socket open
                self.chain_meter.failed(interceptor, "on_close", failure)
        self.upstream.close()
        ended = ClusterError("the connection to the broker has ended")
        for _, _, purpose in self.pending:
            if isinstance(purpose, OwnRequest) and not purpose.body.done():
                purpose.body.set_exception(ended)
        self.requests.abandon(ended)
        self.responses.abandon(ended)
        self.pending.clear()
        del self.requests, self.responses  # they have this connection: without cycles it is freed at once
        self.gateway.forget(self, cause)
