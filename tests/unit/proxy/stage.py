"""A real gateway in this process, between clients that a test plays and the fake upstream."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from headgate.base.ids import NodeId
from headgate.config.addresses import Address
from headgate.config.model import Config, GatewayConfig, MetricsConfig, UpstreamConfig
from headgate.proxy.connection import Connection
from headgate.proxy.interceptor import CloseCause, Interceptor
from headgate.proxy.link import Link
from headgate.proxy.listeners import ConnectionLimits, Ports
from headgate.proxy.server import Gateway
from headgate.wire.messages.cluster import ApiVersionsRequest
from headgate.wire.messages.groups import ListGroupsRequest
from tests.support.fake_upstream import DEADLINE_SECONDS, HOST, Broker, Client, End, FakeUpstream, request
from tests.support.ports import port_block

GATEWAY_HOST = "127.0.0.1"
API_VERSIONS = request(18, 3, ApiVersionsRequest(client_software_name="x", client_software_version="1"))
LIST_GROUPS = request(16, 4, ListGroupsRequest())  # no interceptor of a test opens it


@cache
def base_port() -> int:
    """Of the block that all tests of this process use, one after the other: 0 to 14 the gateway's, 15 for its pages."""
    return port_block()


def config(upstream_port: int, **settings: Any) -> Config:
    chosen: dict[str, Any] = {"listen": Address(GATEWAY_HOST, base_port()), "nodes": (NodeId(0), NodeId(1))}
    return Config(
        gateway=GatewayConfig(**{**chosen, **settings}),
        upstream=UpstreamConfig(bootstrap=(Address(HOST, upstream_port),), service_mechanism="none"),
        metrics=MetricsConfig(listen=Address(GATEWAY_HOST, base_port() + 15)),
    )


@dataclass
class Stage:
    """What a test holds: the gateway, the upstream, and the ends that it opened."""

    gateway: Gateway
    upstream: FakeUpstream
    running: AbstractAsyncContextManager[None]
    ends: list[End] = field(default_factory=list)
    stopping: "asyncio.Task[bool | None] | None" = None

    def stop(self) -> "asyncio.Task[bool | None]":
        """Let the gateway end, as a signal does: it drains first."""
        if self.stopping is None:
            self.stopping = asyncio.create_task(self.running.__aexit__(None, None, None))
        return self.stopping

    async def client(self, node: int | None = None, *, receive_buffer: int | None = None, first: bytes = b"") -> Client:
        """A client of the bootstrap port, or of a node's, that has sent its `first` bytes."""
        port = base_port() if node is None else base_port() + 1 + node
        client = await Client.connect(GATEWAY_HOST, port, receive_buffer=receive_buffer)
        self.ends.append(client)
        await client.send(first)
        return client

    async def pair(
        self, node: int | None = None, *, receive_buffer: int | None = None, proved: bool = True
    ) -> tuple[Client, Broker]:
        """A client that has had an answer, and the broker's side of its connection."""
        client = await self.client(node, receive_buffer=receive_buffer)
        return client, await self.greet(client, node or 0, proved=proved)

    async def greet(self, client: Client, node: int = 0, *, proved: bool = True) -> Broker:
        """Let a client send its first request, at which its broker is dialled; ApiVersions proves nothing."""
        await client.send(LIST_GROUPS if proved else API_VERSIONS)
        broker = await self.upstream.accept(node)
        await broker.reply(None if proved else self.upstream.api_versions())
        await client.frame()
        return broker

    async def connection(self) -> Connection:
        """The gateway's only connection, as soon as it is there."""
        await until(lambda: len(self.gateway.connections) == 1)
        [connection] = self.gateway.connections
        return connection

    @property
    def ended(self) -> Mapping[str, int]:
        """How many connections ended, by cause; only causes that occurred."""
        return {cause.value: count for cause, count in self.gateway.metrics.ended.items() if count}

    async def ends_with(self, cause: CloseCause) -> None:
        """Wait until a connection has ended, and assert that it is the only one and why."""
        await until(lambda: bool(self.ended))
        assert self.ended == {cause.value: 1}
        await until(lambda: not self.gateway.connections)

    async def page(self, path: str) -> tuple[int, bytes]:
        """Status and body of a status page."""
        visitor = await Client.connect(GATEWAY_HOST, base_port() + 15)
        try:
            await visitor.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            head, _, body = (await visitor.rest()).partition(b"\r\n\r\n")
        finally:
            visitor.close()
        return int(head.split()[1]), body


async def until(condition: Callable[[], bool], seconds: float = DEADLINE_SECONDS) -> None:
    """Wait for a condition that other tasks of this loop bring about."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


async def turns(count: int = 10) -> None:
    """Let the event loop go round: everything that is there is handled."""
    for _ in range(count):
        await asyncio.sleep(0)


@contextmanager
def socket_of(link: Link) -> Iterator[socket.socket]:
    """The socket of a link, by a descriptor of the test's own: for its options."""
    with socket.socket(fileno=os.dup(link.fileno())) as sock:
        yield sock


@asynccontextmanager
async def stage(
    *interceptors: Interceptor[Any],
    upstream: FakeUpstream | None = None,
    seen: bool = True,
    abandoned_s: float = 5.0,
    clock: Callable[[], float] | None = None,
    caps: ConnectionLimits | None = None,
    ports: Ports | None = None,
    **settings: Any,
) -> AsyncIterator[Stage]:
    """Start both; with `seen` the gateway has seen the cluster before the test goes on."""
    async with upstream or FakeUpstream() as fake:
        chosen = config(fake.port, **{"drain_ms": 300, **settings})
        gateway = Gateway(chosen, interceptors, abandoned_s=abandoned_s, clock=clock, caps=caps, ports=ports)
        one = Stage(gateway, fake, gateway.running())
        await one.running.__aenter__()
        try:
            if seen:
                await until(gateway.cluster.seen.is_set)
            yield one
        finally:
            for end in one.ends:
                end.close()
            with suppress(TimeoutError):  # so that draining has nothing to wait for
                await until(lambda: not gateway.connections, 0.1)
            await one.stop()
            assert not gateway.connections
            assert not gateway.task_count
