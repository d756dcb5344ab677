"""The web process's life: followers, the application, and the HTTP server on sockets that were opened first.

One rule: it answers as soon as it listens; what has not been read yet is a 503 that says so. Ends when it is left:
calls under way are answered, for a few seconds at most.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Final

import structlog
import uvicorn

from headgate.activity.connect_follower import ConnectFollower
from headgate.base.clock import SystemClock
from headgate.base.errors import PlatformError, UsageError
from headgate.config.addresses import is_loopback, is_wildcard
from headgate.config.model import Config, ConnectConfig
from headgate.kafka.topics import Settings, client_settings
from headgate.web.access import Access
from headgate.web.application import make_application
from headgate.web.connectors import ConnectCluster, problems
from headgate.web.tokens import read_tokens
from headgate.web.wire_topics import WireFollower

log = structlog.get_logger()

_MOST_CALLS: Final = 500
_END_S: Final = 5
_BACKLOG: Final = 128


class _Server(uvicorn.Server):
    """Signals are the command's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class WebServer:
    """Made on the event loop that it serves; it lives while `running`."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._listener: socket.socket | None = None
        settings = client_settings(config.upstream)
        # A worker of the gateway that records clears deleted connectors too; here only what was asked for is written.
        self._followers = {
            name: _follower(settings, connect) for name, connect in config.connect.items() if connect.tracking_enable
        }
        self._wire = WireFollower(settings, prefix=config.facts.prefix) if config.activity.enable else None
        self._clusters = {
            name: ConnectCluster(status=self._followers.get(name), allow_reset=connect.tracking_allow_reset)
            for name, connect in config.connect.items()
        }

    @property
    def url(self) -> str:
        """Where this machine reaches it."""
        host, port = self._config.web.listen
        if is_wildcard(host):
            host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104 - compared, not bound
        scheme = "http" if self._config.web.tls_cert is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def problems(self) -> dict[str, str]:
        """What cannot be read, by what it is about."""
        return problems(self._clusters, self._wire)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Hold the address: callers wait until it is `running`. `PlatformError` when it is taken."""
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
        """Serve; while `listening` only. `UsageError` when certificate or tokens cannot be used."""
        assert self._listener is not None
        web = self._config.web
        access = Access(tokens_file=web.tokens_file, reading_is_free=is_loopback(web.listen.host), clock=SystemClock())
        if web.tokens_file is not None:
            await asyncio.to_thread(read_tokens, web.tokens_file)
        application = make_application(
            clusters=self._clusters, wire=self._wire, access=access, allowed_hosts=web.allowed_hosts
        )
        server = _Server(_settings(self._config, application))
        async with contextlib.AsyncExitStack() as stack:
            for follower in self._followers.values():
                await stack.enter_async_context(follower.running())
            if self._wire is not None:
                self._wire.start()
                stack.push_async_callback(self._wire.close)
            serving = asyncio.create_task(server.serve(sockets=[self._listener]))
            try:
                await _started(server, serving)
                yield
            finally:
                server.should_exit = True
                await serving


def _follower(settings: Settings, connect: ConnectConfig) -> ConnectFollower:
    return ConnectFollower(settings, status_topic=connect.status_topic)


def _settings(config: Config, application: object) -> uvicorn.Config:
    web = config.web
    settings = uvicorn.Config(
        application,  # type: ignore[arg-type]  # uvicorn's own type of an ASGI application is narrower than Starlette's
        http="h11",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        proxy_headers=False,  # nobody in front of us is believed about who calls
        server_header=False,
        limit_concurrency=_MOST_CALLS,
        timeout_graceful_shutdown=_END_S,
        ssl_certfile=web.tls_cert,
        ssl_keyfile=web.tls_key,
    )
    try:
        settings.load()
    except OSError as failure:  # ssl.SSLError is one
        raise UsageError(f"web.tls_cert and web.tls_key cannot be used: {failure}") from None
    return settings


async def _started(server: uvicorn.Server, serving: "asyncio.Task[None]") -> None:
    while not server.started:
        if serving.done():
            serving.result()
            raise PlatformError("the web server ended before it served")
        await asyncio.sleep(0.01)
