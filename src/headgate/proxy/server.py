"""The gateway process: its connections, from the port that they came to, to their end.

Follow `_accept`: a client is admitted (`caps`), arrives and sends its first bytes (`arrivals`, or a task if it has a
handshake to do), gets an upstream (`cluster`, `ends`) and becomes a `Connection`. `running` is the life of all of it;
at its end the calls under way are answered before anything closes.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import structlog

from headgate.base.ids import NodeId
from headgate.base.log_throttle import LogThrottle
from headgate.base.tasks import TaskSet
from headgate.config.addresses import Address
from headgate.config.model import Config
from headgate.proxy.advertising import AddressInterceptor, AddressMap, ApiVersionsInterceptor
from headgate.proxy.arrivals import Arrival, Arrivals
from headgate.proxy.cluster import Cluster
from headgate.proxy.connection import Connection
from headgate.proxy.endpoints import ARRIVAL_FAILURES, PeerSocket, PeerSockets, RefusalError, prepare
from headgate.proxy.features import Feature, MetricFamily
from headgate.proxy.gather_budget import GatherBudgets
from headgate.proxy.hangups import HangupWatcher
from headgate.proxy.interceptor import CloseCause, Interceptor
from headgate.proxy.listeners import UNKNOWN_HOST, ConnectionLimits, Ports, bind_all, new_key
from headgate.proxy.metric_series import SeriesLimit
from headgate.proxy.metrics import Metrics, MetricsPage, Snapshot
from headgate.proxy.pipes import make_pool
from headgate.proxy.routes import Routes
from headgate.proxy.unproved_queue import UnprovedPlace, UnprovedQueue

if TYPE_CHECKING:
    from headgate.proxy.status import StatusPages

log = structlog.get_logger()

_ACCEPTS_A_WAKE_UP = 64


class Gateway:
    """One process; `async with gateway.running()` serves clients and, at the end, drains them.

    Without `ports` and `caps`, which workers are given by their supervisor, it has its own.
    """

    def __init__(
        self,
        config: Config,
        interceptors: Sequence[Interceptor[Any]] = (),
        *,
        features: Sequence[Feature] = (),
        families: Sequence[MetricFamily] = (),
        ports: Ports | None = None,
        caps: ConnectionLimits | None = None,
        abandoned_s: float = 5.0,  # how long a broker may take no bytes of a client that has disconnected
        clock: Callable[[], float] | None = None,  # monotonic; the event loop's if there is none
    ) -> None:
        self._abandoned_s = abandoned_s
        self.config = config
        self._features = features
        self.loop = asyncio.get_running_loop()
        self.clock = clock or self.loop.time
        self.metrics = Metrics()
        self._page = MetricsPage((*families, *(family for feature in features for family in feature.families)))
        self.budgets = GatherBudgets(self.clock)
        self.pipes = make_pool(config.gateway.workers, self.clock)
        self._series = SeriesLimit(self._page.families)
        self.addresses = AddressMap(config.gateway, self._open_node)
        versions = ApiVersionsInterceptor()
        # The proxy's own come first: they see requests as clients sent them, and responses as clients will get them.
        own = (versions, AddressInterceptor(self.addresses))
        of_features = [one for feature in features for one in feature.interceptors]
        self.routes = Routes((*own, *interceptors, *of_features), denied=config.gateway.deny_api_keys)
        versions.attach(self.routes)
        self._ends = PeerSockets(config, self.loop)
        self.cluster = Cluster(config, tls=self._ends.upstream_tls, on_seen=self._on_cluster_seen)
        self._arrivals = Arrivals(self, self._ends, self.loop, self.clock)
        self._ports = ports
        self.caps = caps or ConnectionLimits(config.gateway, key=new_key())
        self.connections: set[Connection] = set()
        self.unproved = UnprovedQueue()
        self._tasks = TaskSet(lambda failure: log.error("task of the gateway failed", exc_info=failure))
        self.log_throttle = LogThrottle(self.clock)
        self._draining = False
        self._empty = asyncio.Event()  # no connection is left of a gateway that drains

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Bind, serve, and drain at the end."""
        async with AsyncExitStack() as stack:
            self.hangups = HangupWatcher(self.loop)
            stack.callback(self.hangups.close)
            stack.callback(self.pipes.close)
            stack.callback(self._ends.close)
            if self._ports is None:
                self._ports = Ports(self.config.gateway, bind_all(self.config.gateway))
                stack.callback(self._stop_listening)
                await stack.enter_async_context(self._status_pages().serving(self.config.metrics.listen))
            stack.push_async_callback(self._end_tasks)
            self._tasks.spawn(self.cluster.watch())
            self._tasks.spawn(self._close_idle_ones())
            for feature in self._features:
                await stack.enter_async_context(feature.running())
            for node, listener in self._ports.listeners.items():
                self._listen(node, listener)
            stack.push_async_callback(self._drain)
            yield

    @property
    def task_count(self) -> int:
        """Tasks of its own and of arrivals that run; connections have theirs."""
        return len(self._tasks)

    def problems(self) -> Mapping[str, str]:
        """Why a client that comes now may not be served; what `/readyz` shows."""
        unreachable = {} if self._ports is None else self._ports.unreachable
        problems = {f"node {node}": why for node, why in unreachable.items()}
        if self.cluster.problem is not None:
            problems["upstream"] = self.cluster.problem
        for certificates in (self._ends.listener_tls, self._ends.upstream_tls):
            if certificates is not None and certificates.problem is not None:
                problems[certificates.section] = certificates.problem
        for feature in self._features:
            problems |= feature.problems()
        if self._draining:
            problems["gateway"] = "is draining"
        return problems

    def details(self) -> Mapping[str, str]:
        """What `/readyz` shows of features although clients are served."""
        return {what: text for feature in self._features for what, text in feature.details().items()}

    def snapshot(self) -> Snapshot:
        """What has been counted so far; what `/metrics` shows."""
        tls = self._ends.listener_tls
        samples = self.metrics.snapshot(
            open_connections=len(self.connections),
            unproved_connections=self.caps.unproved,
            connections_limit=self.config.gateway.max_connections,
            routes=self.routes.used(),
            certificate_expires_at=None if tls is None else tls.expires_at,
            budgets=self.budgets,
            pipes=self.pipes,
        )
        for feature in self._features:
            samples.update(feature.samples())
        return self._series.bound(samples)

    def _status_pages(self) -> "StatusPages":
        from headgate.proxy.status import StatusPages  # noqa: PLC0415 - workers have none: the supervisor's are for all

        return StatusPages(self._metrics_page, self.problems, self.details)

    def _metrics_page(self) -> bytes:
        return self._page.render(self.snapshot(), ready=not self.problems())

    # Ports.

    def _listen(self, node: NodeId | None, listener: socket.socket) -> None:
        prepare(listener, patience_ms=self.config.gateway.idle_ms)  # what it accepts inherits it
        self.loop.add_reader(listener.fileno(), self._accept, node, listener)

    def _open_node(self, node: NodeId) -> bool:
        """Open a port for a node outside `gateway.nodes`; False when it cannot have one."""
        if self._draining or self._ports is None:
            return False
        known_problem = self._ports.unreachable.get(node)
        listener = self._ports.open_node(node)
        problem = self._ports.unreachable.get(node)
        if listener is not None:
            self._listen(node, listener)
            log.warning("node outside gateway.nodes, port opened", node=node)
        elif problem is not None and problem != known_problem:
            log.warning("node has no port, its clients wait", node=node, problem=problem)
        return problem is None

    def _on_cluster_seen(self) -> None:
        """Give new nodes their ports; those that could not have one may have it now."""
        self._ends.look_up((*self.cluster.nodes.values(), *self.config.upstream.bootstrap))
        self.addresses.forget_unopened()
        for node in self.cluster.nodes:
            self.addresses.lookup(node)
        if self._ports is not None:
            for node in self._ports.unreachable.keys() - self.cluster.nodes.keys():
                del self._ports.unreachable[node]

    def _stop_listening(self) -> None:
        if self._ports is not None:
            for listener in self._ports.listeners.values():
                self.loop.remove_reader(listener.fileno())
            self._ports.close()

    # Connections.

    def _accept(self, node: NodeId | None, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_A_WAKE_UP):
            try:
                client, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as failure:
                log.warning("new connections cannot be accepted", problem=failure.strerror)
                self.loop.remove_reader(listener.fileno())
                self.loop.call_later(0.1, self._accept_again, node, listener)
                return
            self._admit(node, client, str(peer[0]))

    def _accept_again(self, node: NodeId | None, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._listen(node, listener)

    def _admit(self, node: NodeId | None, client: socket.socket, peer: str) -> None:
        self.metrics.accepted += 1
        # Behind a load balancer the peer is the balancer: the client's address, and its limit, are known later.
        host = UNKNOWN_HOST if self.config.gateway.proxy_protocol else peer
        refusal = self.caps.admit(host)
        if refusal is not None:
            client.close()
            self._count_refusal(refusal, peer)
            return
        client.setblocking(False)
        place = self.unproved.enter(host)
        if self._ends.has_plain_clients:
            self._arrivals.add(node, client, peer, place)
        else:
            place.on_task(self._tasks.spawn(self._arrive(node, client, peer, place)), client)
        self._make_room()

    def _make_room(self) -> None:
        """Close the oldest unproved clients while there are too many: newcomers are not refused for them."""
        for _ in range(self.caps.excess_unproved):
            if (oldest := self.unproved.take_oldest()) is None or oldest.close is None:
                return
            if self.log_throttle.allows("displaced", ""):
                log.warning("too many unproved connections, closing the oldest", unproved=self.caps.unproved)
            if oldest.host:  # it is not counted as a connection yet
                oldest.is_displaced = True
                self.caps.leave(oldest.host, is_proved=False)
                self.metrics.ended[CloseCause.DISPLACED] += 1
            oldest.close()

    def _count_refusal(self, cause: CloseCause, peer: str) -> None:
        self.metrics.ended[cause] += 1
        if cause is CloseCause.TOO_MANY_UNPROVED and self.log_throttle.allows("unproved", ""):
            log.warning("too many unproved connections, refusing more", unproved=self.caps.unproved, peer=peer)

    # What becomes of an arrival (`ArrivalOwner`).

    def known_addresses(self, node: NodeId | None) -> tuple[Address, ...]:
        return () if self._draining or self.cluster.is_wrong else self.cluster.known_addresses(node)

    def on_connected(self, arrival: Arrival, upstream: PeerSocket) -> None:
        if self._draining:
            upstream.sock.close()
            self.on_refused(arrival, CloseCause.DRAINED)
        else:
            self._open(arrival.node, arrival.end, upstream, arrival.place, arrival.silent_s)

    def on_unreached(self, arrival: Arrival, unreachable: Address | None) -> None:
        work = self._connect(arrival.node, arrival.end, arrival.place, arrival.silent_s, unreachable)
        arrival.place.on_task(self._tasks.spawn(work), arrival.client)

    def on_refused(self, arrival: Arrival, cause: CloseCause) -> None:
        self._close_refused(arrival.client, arrival.place, cause, arrival.peer)

    async def _arrive(self, node: NodeId | None, client: socket.socket, peer: str, place: UnprovedPlace) -> None:
        """Do the client's handshakes, wait for its first byte and dial its broker."""
        cause: CloseCause | None = CloseCause.INTERNAL
        try:
            arrived = await self._ends.arrive(client, peer)
            if place.host == UNKNOWN_HOST:
                self.caps.leave(place.host, is_proved=False)
                place.host = ""
                if (refusal := self.caps.admit(arrived.host)) is not None:
                    raise RefusalError(refusal)  # noqa: TRY301 - one place closes what is not served
                place.host = arrived.host
            since = self.clock()
            arrived = await self._ends.first_byte(arrived)
            silent_s = self.clock() - since
            cause = None
        except asyncio.CancelledError:
            cause = CloseCause.DRAINED
            raise
        except RefusalError as refusal:
            cause = refusal.cause
        except ARRIVAL_FAILURES as failure:
            cause = CloseCause.HANDSHAKE_FAILED
            if self.log_throttle.allows("arrival", peer):
                log.info("client failed to connect", peer=peer, problem=str(failure) or "too slow")
        finally:
            if cause is not None:
                self._close_refused(client, place, cause, peer)
        if cause is None:
            await self._connect(node, arrived, place, silent_s)

    async def _connect(
        self,
        node: NodeId | None,
        client: PeerSocket,
        place: UnprovedPlace,
        silent_s: float,
        unreachable: Address | None = None,
    ) -> None:
        """Dial the broker of a client that has sent its first byte; without one the client is closed, and retries."""
        cause: CloseCause | None = CloseCause.INTERNAL
        try:
            upstream = await self._dial(node, unreachable)
            cause = None
            self._open(node, client, upstream, place, silent_s)
        except asyncio.CancelledError:
            cause = CloseCause.DRAINED
            raise
        except RefusalError as refusal:
            cause = refusal.cause
        finally:
            if cause is not None:
                self._close_refused(client.sock, place, cause, client.host)

    def _close_refused(self, client: socket.socket, place: UnprovedPlace, cause: CloseCause, peer: str) -> None:
        client.close()
        self.unproved.leave(place)
        if place.is_displaced:
            return  # it has been counted
        if place.host:
            self.caps.leave(place.host, is_proved=False)
        self._count_refusal(cause, peer)

    def _open(
        self,
        node: NodeId | None,
        client: PeerSocket,
        upstream: PeerSocket,
        place: UnprovedPlace,
        silent_s: float,
    ) -> None:
        versions = self.cluster.versions(node)
        try:
            connection = Connection(self, client, upstream, node_id=node, versions=versions, silent_s=silent_s)
        except BaseException:
            upstream.sock.close()
            self.loop.remove_reader(client.sock.fileno())
            self._close_refused(client.sock, place, CloseCause.INTERNAL, client.host)
            raise
        place.on_connection(connection)
        self.connections.add(connection)
        connection.start()

    async def _dial(self, node: NodeId | None, unreachable: Address | None) -> PeerSocket:
        addresses = await self.cluster.addresses(node)
        if self.cluster.is_wrong:
            raise RefusalError(CloseCause.WRONG_CLUSTER)
        upstream = await self._ends.dial(addresses, self.cluster.refresh_soon, unreachable=unreachable)
        if upstream is None:
            raise RefusalError(CloseCause.UPSTREAM_UNREACHABLE)
        if self._draining:
            upstream.sock.close()
            raise RefusalError(CloseCause.DRAINED)
        return upstream

    def release_unproved(self, connection: Connection) -> None:
        """The broker decides on this connection from now on: it does not count as unproved any more."""
        self.caps.mark_proved(connection.peer)
        self.unproved.release(connection)

    def forget(self, connection: Connection, cause: CloseCause) -> None:
        """A connection has ended."""
        self.connections.discard(connection)
        self.unproved.release(connection)
        if self._draining and not self.connections:
            self._empty.set()
        self.caps.leave(connection.peer, is_proved=connection.is_proof_requested)
        self.metrics.ended[cause] += 1

    # The end.

    async def _close_idle_ones(self) -> None:
        limit = self.config.gateway.idle_ms / 1000
        first_request_s = self.config.gateway.first_request_ms / 1000
        pause_s = min(1.0, limit / 4, first_request_s / 4, self._ends.connect_s / 4)
        while True:
            await asyncio.sleep(pause_s)
            self._ends.refresh()
            self.budgets.end_overdue()
            self._make_room()  # other workers may have taken their share
            self.hangups.register()
            now = self.clock()
            self._arrivals.end_overdue(now)
            for connection in list(self.connections):
                if not connection.is_proof_requested:
                    connection.limit_unproved(now, first_request_s)
                if connection.closed is not None:
                    continue
                if connection.was_active:
                    connection.was_active = False
                    connection.last_active = now
                elif connection.last_active < now - limit and connection.is_idle:
                    connection.close(CloseCause.IDLE)
                elif connection.last_active < now - self._abandoned_s and connection.is_abandoned:
                    connection.close(CloseCause.CLIENT_CLOSED)

    async def _drain(self) -> None:
        """Stop listening, let the calls under way be answered, then end what is left."""
        self._draining = True
        self._stop_listening()
        for connection in list(self.connections):
            connection.drain()
        if self.connections:
            try:
                async with asyncio.timeout(self.config.gateway.drain_ms / 1000):
                    await self._empty.wait()
            except TimeoutError:
                log.warning("requests are still pending, closing their connections", connections=len(self.connections))
        for connection in list(self.connections):
            connection.close(CloseCause.DRAIN_TIMEOUT)
        log.info("drained", ended={cause.value: count for cause, count in self.metrics.ended.items() if count})

    async def _end_tasks(self) -> None:
        self._arrivals.close()
        await self._tasks.cancel_all()
