"""The gateway process: its ports, its connections, and their beginning and end.

All ports are bound before anything else happens, so that a gateway that cannot have one of them starts nothing. Then
clients may come: they are connected as soon as the cluster has been seen, and refused only when that takes too long.
"""

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from headgate.base.errors import PlatformError
from headgate.base.ids import NodeId
from headgate.config.addresses import Address
from headgate.config.model import Config
from headgate.gateway.addresses import AddressInterceptor, AddressMap
from headgate.gateway.api_versions import ApiVersionsInterceptor
from headgate.gateway.cluster import Cluster
from headgate.gateway.connection import Connection
from headgate.gateway.interceptor import CloseCause, Interceptor
from headgate.gateway.metrics import Metrics, page
from headgate.gateway.routes import Routes
from headgate.gateway.status import StatusPages

log = structlog.get_logger()

_BACKLOG = 1024
_ACCEPTS_A_WAKE_UP = 64
_HIGHEST_PORT = 65535
_OUT_OF_SOCKETS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Gateway:
    """One process; `async with gateway.running()` binds its ports and, at the end, drains it."""

    def __init__(self, config: Config, interceptors: Sequence[Interceptor] = ()) -> None:
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.metrics = Metrics()
        self.addresses = AddressMap(config.gateway, self._open_node)
        versions = ApiVersionsInterceptor()
        # Ours come first: they see requests as clients sent them, and answers as clients will get them.
        ours = (versions, AddressInterceptor(self.addresses))
        self.routes = Routes((*ours, *interceptors), denied=config.gateway.deny_api_keys)
        versions.attach(self.routes)
        timeout = config.gateway.connect_timeout_ms / 1000
        self.cluster = Cluster(config.upstream.bootstrap, timeout=timeout, on_seen=self._on_cluster_seen)
        self._connect_timeout = timeout
        self._listeners: dict[NodeId | None, socket.socket] = {}
        self._connections: set[Connection] = set()
        self._by_address: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unreachable: dict[str, str] = {}
        self._draining = False
        self._empty = asyncio.Event()  # no connection is left of a gateway that drains

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Bind, serve, and drain at the end."""
        async with AsyncExitStack() as stack:
            stack.callback(self._close_listeners)
            self._bind(None, self.config.gateway.listen)
            for node in self.config.gateway.nodes:
                self._bind(node, self.config.gateway.node_address(node))
            stack.push_async_callback(self._end_tasks)
            await self._serve_status(stack)
            self._spawn(self.cluster.watch())
            self._spawn(self._close_idle_ones())
            for whose, listener in self._listeners.items():
                self._listen(whose, listener)
            stack.push_async_callback(self._drain)
            yield

    def problems(self) -> Mapping[str, str]:
        """Why a client that comes now may not be served; what `/readyz` shows."""
        problems = dict(self._unreachable)
        if self.cluster.problem is not None:
            problems["upstream"] = self.cluster.problem
        if self._draining:
            problems["gateway"] = "is draining"
        return problems

    # Ports.

    def _bind(self, node: NodeId | None, address: Address) -> socket.socket:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address.host, address.port))
            listener.listen(_BACKLOG)
        except OSError as failure:
            listener.close()
            whose = "the bootstrap port" if node is None else f"node {node}"
            raise PlatformError(
                f"cannot listen on {address} for {whose}: {failure.strerror}. Choose another gateway.listen "
                "(node i needs its port + 1 + i), or end the program that has the port"
            ) from None
        listener.setblocking(False)
        self._listeners[node] = listener
        return listener

    def _listen(self, node: NodeId | None, listener: socket.socket) -> None:
        self.loop.add_reader(listener.fileno(), self._accept, node, listener)

    def _open_node(self, node: NodeId) -> None:
        """A node that is not in `gateway.nodes` has appeared: give it a port, or say why it has none."""
        port = self.config.gateway.listen.port + 1 + node
        if self._draining:
            return
        if port > _HIGHEST_PORT:
            self._no_port(node, f"node {node} would need port {port}: choose a lower gateway.listen")
            return
        try:
            self._listen(node, self._bind(node, self.config.gateway.node_address(node)))
        except PlatformError as problem:
            self._no_port(node, str(problem))
        else:
            log.warning("node outside gateway.nodes, port opened", node=node, port=port)

    def _no_port(self, node: NodeId, problem: str) -> None:
        self._unreachable[f"node {node}"] = problem
        log.warning("node has no port, its clients wait", node=node, problem=problem)

    def _on_cluster_seen(self) -> None:
        for node in self.cluster.nodes:
            self.addresses.lookup(node)
        for name in list(self._unreachable):
            if name not in {f"node {node}" for node in self.cluster.nodes}:
                del self._unreachable[name]

    def _close_listeners(self) -> None:
        for listener in self._listeners.values():
            self.loop.remove_reader(listener.fileno())
            listener.close()
        self._listeners.clear()

    # Connections.

    def _accept(self, node: NodeId | None, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_A_WAKE_UP):
            try:
                client, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as failure:
                if failure.errno not in _OUT_OF_SOCKETS:
                    raise
                log.warning("cannot accept, pausing", problem=failure.strerror)
                self.loop.remove_reader(listener.fileno())
                self.loop.call_later(0.1, self._accept_again, node, listener)
                return
            self._admit(node, client, str(peer[0]))

    def _accept_again(self, node: NodeId | None, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._listen(node, listener)

    def _admit(self, node: NodeId | None, client: socket.socket, host: str) -> None:
        limits = self.config.gateway
        self.metrics.accepted += 1
        crowd = self._by_address.total()
        per_address = limits.max_connections_per_address
        if crowd >= limits.max_connections or (per_address is not None and self._by_address[host] >= per_address):
            self.metrics.ended[CloseCause.TOO_MANY_CONNECTIONS] += 1
            client.close()
            return
        self._by_address[host] += 1
        _prepare(client)
        self._spawn(self._connect(node, client, host))

    async def _connect(self, node: NodeId | None, client: socket.socket, host: str) -> None:
        """Give the client its upstream; without one it is closed, and tries again."""
        cause = CloseCause.UPSTREAM_UNREACHABLE
        try:
            addresses = await self.cluster.addresses(node)
            if self.cluster.is_wrong:
                cause = CloseCause.WRONG_CLUSTER
                addresses = ()
            upstream = await self._dial(addresses)
        except BaseException:
            self._let_go(client, host, CloseCause.DRAINED)
            raise
        if upstream is None or self._draining:
            if upstream is not None:
                upstream.close()
            self._let_go(client, host, cause)
            return
        versions = self.cluster.versions(node)
        connection = Connection(self, client, upstream, peer=host, node_id=node, versions=versions)
        self._connections.add(connection)
        connection.start()

    async def _dial(self, addresses: Sequence[Address]) -> socket.socket | None:
        for address in addresses:
            try:
                async with asyncio.timeout(self._connect_timeout):
                    return await self._dial_one(address)
            except (OSError, TimeoutError) as failure:
                log.warning("broker cannot be reached", address=str(address), problem=str(failure) or "no answer")
                self.cluster.refresh_soon()
        return None

    async def _dial_one(self, address: Address) -> socket.socket:
        found = await self.loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, target = found[0]
        upstream = socket.socket(family, kind, protocol)
        try:
            _prepare(upstream)
            await self.loop.sock_connect(upstream, target)
        except BaseException:
            upstream.close()
            raise
        return upstream

    def _let_go(self, client: socket.socket, host: str, cause: CloseCause) -> None:
        client.close()
        self._leave(host)
        self.metrics.ended[cause] += 1

    def _leave(self, host: str) -> None:
        self._by_address[host] -= 1
        if not self._by_address[host]:
            del self._by_address[host]

    def forget(self, connection: Connection, cause: CloseCause) -> None:
        """A connection has ended."""
        self._connections.discard(connection)
        if self._draining and not self._connections:
            self._empty.set()
        self._leave(connection.peer)
        self.metrics.ended[cause] += 1

    def see_off(self, farewell: Coroutine[object, object, None]) -> None:
        """What interceptors still do for a connection that has ended."""
        self._spawn(farewell)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("task of the gateway failed", exc_info=failure)

    async def _close_idle_ones(self) -> None:
        limit = self.config.gateway.idle_ms / 1000
        while True:
            await asyncio.sleep(min(1.0, limit / 4))
            oldest = self.loop.time() - limit
            for connection in [one for one in self._connections if one.last_active < oldest and one.is_idle]:
                connection.close(CloseCause.IDLE)

    # The end, and the pages.

    async def _drain(self) -> None:
        """Stop listening, let the calls under way be answered, then end what is left."""
        self._draining = True
        self._close_listeners()
        seconds = self.config.gateway.drain_ms / 1000
        for connection in list(self._connections):
            connection.drain()
        if self._connections:
            try:
                async with asyncio.timeout(seconds):
                    await self._empty.wait()
            except TimeoutError:
                log.warning("calls are still under way, ending them", connections=len(self._connections))
        for connection in list(self._connections):
            connection.close(CloseCause.DRAIN_TIMEOUT)
        log.info("drained", ended={cause.value: count for cause, count in self.metrics.ended.items() if count})

    async def _end_tasks(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve_status(self, stack: AsyncExitStack) -> None:
        pages = StatusPages(self._metrics_page, self.problems)
        listen = self.config.metrics.listen
        try:
            server = await pages.serve(listen.host, listen.port)
        except OSError as failure:
            raise PlatformError(
                f"cannot listen on {listen} for the status pages: {failure.strerror}. Choose another metrics.listen"
            ) from None
        stack.callback(server.close)

    def _metrics_page(self) -> bytes:
        return page(
            self.metrics,
            open_connections=len(self._connections),
            routes=self.routes.used(),
            ready=not self.problems(),
        )


def _prepare(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
