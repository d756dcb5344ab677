"""Runs the web server: it reads the topics and serves the application on a socket that was bound before.

It responds as soon as it listens; what has not been read yet is a 503 with the reason. At the end, requests in
progress are answered, for a few seconds at most.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

import structlog
import uvicorn

from headgate.activity.connect_status_topic import ConnectStatusTopic
from headgate.activity.observed_connectors import ObservedConnectors
from headgate.base.clock import SystemClock
from headgate.base.errors import PlatformError, UsageError
from headgate.config.addresses import is_loopback, is_wildcard
from headgate.config.model import Config
from headgate.kafka.shared_clients import clients_of
from headgate.web.access import AccessControl
from headgate.web.application import make_application
from headgate.web.audit import AuditWriter
from headgate.web.breaker_statuses import BreakerStatuses
from headgate.web.client_connections import BoundedProtocol, ClientConnections, ClientLimits
from headgate.web.connectors import ConnectCluster, problems
from headgate.web.gateway_leader import LeaderStatus
from headgate.web.live_sources import LiveSources
from headgate.web.operations import GatewayAccess, LoginRate, ShareGroupOperations
from headgate.web.share_states import ShareStateTopics
from headgate.web.tokens import read_tokens
from headgate.web.upstream_cluster import UpstreamCluster

if TYPE_CHECKING:
    from headgate.web.api.estate_tables import EstateTables
    from headgate.web.estate_topics import EstateTopics
    from headgate.web.replay_runs.service import ReplayService

log = structlog.get_logger()

_SHUTDOWN_S: Final = 5
_BACKLOG: Final = 128
_LIMITS: Final = ClientLimits()


class _UvicornServer(uvicorn.Server):
    """Serves `listener` with bounded connections; the command handles signals."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, limits: ClientLimits) -> None:
        super().__init__(config)
        self._listener = listener
        self._limits = limits

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - it opens none
        await super().startup(sockets=[])
        clients = ClientConnections(self._limits)
        is_tls = self.config.ssl is not None
        server = await asyncio.get_running_loop().create_server(
            lambda: BoundedProtocol(self.config, self.server_state, self.lifespan.state, clients),
            sock=self._listener,
            ssl=self.config.ssl,
            ssl_handshake_timeout=self._limits.head_s if is_tls else None,
            backlog=_BACKLOG,
        )
        self.servers.append(server)


class WebServer:
    """Created on its event loop; it serves while `running`."""

    def __init__(self, config: Config, *, limits: ClientLimits = _LIMITS) -> None:
        self._config = config
        self._limits = limits
        self._listener: socket.socket | None = None
        self._clients = clients_of(config)
        # Without a config topic: resetting deleted connectors is left to Connect and to gateways with `record`.
        self._status_topics = {
            name: ConnectStatusTopic(self._clients, status_topic=connect.status_topic)
            for name, connect in config.connect.items()
            if connect.tracking_enable
        }
        self._wire = None
        if config.activity.enable:
            self._wire = ObservedConnectors(self._clients.bulk_consumer, prefix=config.facts.prefix)
        self._shares = None
        if config.share_groups.enable:
            self._shares = ShareStateTopics(self._clients.consumer, prefix=config.facts.prefix)
        self._clusters = {
            name: ConnectCluster(status=self._status_topics.get(name), allow_reset=connect.tracking_allow_reset)
            for name, connect in config.connect.items()
        }

    @property
    def url(self) -> str:
        """The URL for clients on this machine."""
        host, port = self._config.web.listen
        if is_wildcard(host):
            host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104 - compared, not bound
        scheme = "http" if self._config.web.tls_cert is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def problems(self) -> dict[str, str]:
        """The topics that cannot be read, by config section."""
        return problems(self._clusters, self._wire, self._shares)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Bind the address; `PlatformError` if it is in use. Connections wait until the server is `running`."""
        host, port = self._config.web.listen
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        except OSError as failure:
            raise PlatformError(f"web.listen: {self._config.web.listen} cannot be opened: {failure.strerror}") from None
        with listener:
            self._listener = listener
            yield

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve, inside of `listening`. `UsageError` if the certificate or the tokens file is not valid."""
        assert self._listener is not None
        web = self._config.web
        access = AccessControl(
            tokens_file=web.tokens_file, is_read_open=is_loopback(web.listen.host), clock=SystemClock()
        )
        if web.tokens_file is not None:
            await asyncio.to_thread(read_tokens, web.tokens_file)
        upstream = UpstreamCluster.of(self._clients)
        tables, topics = self._open_estate(upstream)
        live = LiveSources(
            port=self._shares,
            tables=tables,
            clock=SystemClock(),
            consumer=None if self._shares is None else self._clients.consumer,
            prefix=self._config.facts.prefix,
        )
        audit, logins = AuditWriter(self._config, self._clients), LoginRate(SystemClock())
        operations, statuses = None, None
        if self._shares is not None:
            gateway = GatewayAccess.of(self._config)
            operations = ShareGroupOperations(
                gateway, audit=audit.write, port=self._shares, clock=SystemClock(), logins=logins
            )
            statuses = BreakerStatuses(gateway, self._config.upstream, SystemClock())
        replays = None if tables is None else self._open_replays(tables, audit, logins)
        application = make_application(
            clusters=self._clusters,
            wire=self._wire,
            access=access,
            allowed_hosts=web.allowed_hosts,
            tables=tables,
            share_port=self._shares,
            feed=live.feed,
            leader=LeaderStatus(self._config, self._clients, SystemClock()),
            operations=operations,
            statuses=statuses,
            replays=replays,
        )
        settings = _settings(self._config, application, self._limits)
        server = _UvicornServer(settings, self._listener, self._limits)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._clients.close)
            stack.push_async_callback(audit.close)
            if statuses is not None:
                stack.push_async_callback(statuses.close)
            if tables is not None:
                stack.push_async_callback(tables.close)
                await stack.enter_async_context(upstream.running())
            for topic in self._status_topics.values():
                await stack.enter_async_context(topic.running())
            if self._wire is not None:
                self._wire.start()
                stack.push_async_callback(self._wire.close)
            if self._shares is not None:
                self._shares.start()
                stack.push_async_callback(self._shares.close)
            await stack.enter_async_context(live.running())
            if replays is not None:
                await stack.enter_async_context(replays.running())
            if topics is not None:
                topics.start()
                stack.push_async_callback(topics.close)
            serving = asyncio.create_task(server.serve())
            try:
                await _wait_started(server, serving)
                yield
            finally:
                live.feed.close()  # or the server would wait for its listeners
                server.should_exit = True
                await serving

    def _open_estate(self, upstream: UpstreamCluster) -> "tuple[EstateTables | None, EstateTopics | None]":
        """The tables, and the topics for what they do not have yet: None where the libraries are not installed."""
        try:
            from headgate.web.api.estate_tables import EstateTables  # noqa: PLC0415 - optional libraries
            from headgate.web.estate_topics import EstateTopics  # noqa: PLC0415
        except ModuleNotFoundError as missing:
            log.warning("tables cannot be read: pip install 'headgate[pipeline]'", missing=missing.name)
            return None, None
        config, topics = self._config, None
        if config.activity.enable:
            topics = EstateTopics(
                self._clients.bulk_consumer,
                prefix=config.facts.prefix,
                quiet_ms=config.activity.quiet_after_ms,
                clock=SystemClock(),
                shares=self._shares,
            )
        tables = EstateTables(
            config.tables.path,
            SystemClock(),
            topics,
            upstream,
            facts_prefix=config.facts.prefix,
            connect_topics=[topic for one in config.connect.values() for topic in one.own_topics],
        )
        return tables, topics

    def _open_replays(self, tables: "EstateTables", audit: AuditWriter, logins: LoginRate) -> "ReplayService":
        from headgate.web.replay_runs.service import ReplayService  # noqa: PLC0415 - optional libraries

        return ReplayService.of(self._config, self._clients, tables, audit.write, SystemClock(), logins)


def _settings(config: Config, application: object, limits: ClientLimits) -> uvicorn.Config:
    web = config.web
    settings = uvicorn.Config(
        application,  # type: ignore[arg-type]  # uvicorn's own type of an ASGI application is narrower than Starlette's
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        proxy_headers=False,  # the address of the client is never taken from a header
        server_header=False,
        limit_concurrency=limits.connections + 1,  # it counts the connection that asks
        timeout_graceful_shutdown=_SHUTDOWN_S,
        ssl_certfile=web.tls_cert,
        ssl_keyfile=web.tls_key,
    )
    try:
        settings.load()
    except OSError as failure:  # ssl.SSLError is one
        raise UsageError(f"web.tls_cert and web.tls_key are not valid: {failure}") from None
    return settings


async def _wait_started(server: uvicorn.Server, serving: "asyncio.Task[None]") -> None:
    while not server.started:
        if serving.done():
            serving.result()
            raise PlatformError("the web server ended before it started to serve")
        await asyncio.sleep(0.01)
