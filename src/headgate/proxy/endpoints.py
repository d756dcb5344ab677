"""The two sockets of a connection before they are linked: an accepted client, a dialled broker.

A client sends the PROXY protocol's header, if one is expected, does the TLS handshake, and sends its first byte; then a
broker is dialled at its address, with its handshake. Each step has a deadline, and an endpoint that fails leaves no
socket behind.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from struct import Struct
from typing import Final

import structlog

from headgate.base.errors import HeadgateError, WireError
from headgate.config.addresses import Address
from headgate.config.model import Config
from headgate.proxy.interceptor import CloseCause
from headgate.proxy.link import Link, LinkMeter, LinkOwner
from headgate.proxy.names import AddressInfo, HostAddresses, LookUp
from headgate.proxy.tls import Certificates, TlsLink, TlsSession

log = structlog.get_logger()

_MOST_COMPLAINTS = 1000


class RefusalError(HeadgateError):
    """A client gets no connection; its socket is closed."""

    def __init__(self, cause: CloseCause) -> None:
        super().__init__(cause.value)
        self.cause = cause


@dataclass(slots=True)
class PeerSocket:
    """A connected socket, encrypted when it has a TLS session."""

    sock: socket.socket
    host: str  # who is at the other side
    tls: TlsSession | None = None
    received: bytes = b""  # the first of what the peer has sent

    def link(self, loop: asyncio.AbstractEventLoop, owner: LinkOwner, meter: LinkMeter) -> Link:
        if self.tls is None:
            link = Link(loop, self.sock, owner, meter)
        else:
            link = TlsLink(loop, self.sock, owner, meter, self.tls)
        link.unread(self.received)
        return link


class PeerSockets:
    """Accepts clients and dials brokers, with the certificates of both sides."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, *, look_up: LookUp | None = None) -> None:
        """`look_up` finds the addresses of a name; without it, the resolver of the system does."""
        self._loop = loop
        self._names = HostAddresses(look_up or partial(_look_up, loop), loop.time)
        self.connect_s = config.gateway.connect_timeout_ms / 1000
        self.first_byte_s = min(config.gateway.first_request_ms, config.gateway.idle_ms) / 1000
        self.patience_ms = config.gateway.idle_ms
        self._proxy_protocol = config.gateway.proxy_protocol
        self._complaints: dict[Address, str] = {}  # what was last said of brokers that cannot be reached
        gateway, upstream = config.gateway, config.upstream
        self.listener_tls: Certificates | None = None
        if gateway.tls_cert is not None and gateway.tls_key is not None:
            files = (gateway.tls_cert, gateway.tls_key)
            self.listener_tls = Certificates("gateway.tls_cert", files, server=True, ca=gateway.tls_client_ca)
        self.upstream_tls: Certificates | None = None
        if upstream.tls:
            self.upstream_tls = Certificates("upstream.tls_ca", (), server=False, ca=upstream.tls_ca)

    def refresh(self) -> None:
        """Read certificates that have changed."""
        for certificates in (self.listener_tls, self.upstream_tls):
            if certificates is not None:
                certificates.refresh()

    def look_up(self, addresses: Iterable[Address]) -> None:
        """Look up the names of these brokers, so that no client has to wait for it."""
        self._names.refresh(addresses)

    def close(self) -> None:
        self._names.close()

    @property
    def has_plain_clients(self) -> bool:
        """Clients have nothing to do before their first request."""
        return not self._proxy_protocol and self.listener_tls is None

    def known(self, address: Address) -> Sequence[AddressInfo]:
        """Where a plaintext broker may be dialled at once; empty if it takes a look-up or a handshake."""
        return self._names.known(address) if self.upstream_tls is None else ()

    async def arrive(self, client: socket.socket, host: str) -> PeerSocket:
        """What a client must do before it is one; `OSError`, `TimeoutError` or `WireError` when it does not."""
        if self.has_plain_clients:
            return PeerSocket(client, host)
        async with asyncio.timeout(self.connect_s):
            if self._proxy_protocol:
                host = await read_source(client, self._loop) or host
            if self.listener_tls is None:
                return PeerSocket(client, host)
            tls = TlsSession(self.listener_tls.context, server_hostname=None)
            await tls.handshake(client, self._loop)
            return PeerSocket(client, host, tls)

    async def first_byte(self, client: PeerSocket) -> PeerSocket:
        """Wait for the first byte of a client that has arrived; `RefusalError` when none comes in time."""
        try:
            async with asyncio.timeout(self.first_byte_s):
                if client.tls is None:
                    first = await self._loop.sock_recv(client.sock, 1)
                else:
                    first = await client.tls.first_byte(client.sock, self._loop)
        except TimeoutError:
            raise RefusalError(CloseCause.NO_REQUEST) from None
        except OSError:
            raise RefusalError(CloseCause.CLIENT_RESET) from None
        if not first:
            raise RefusalError(CloseCause.CLIENT_CLOSED)
        return replace(client, received=first)

    async def dial(
        self, addresses: Sequence[Address], on_failure: Callable[[], None], *, unreachable: Address | None = None
    ) -> PeerSocket | None:
        """The first of these brokers that can be reached; `unreachable` has just not answered in time."""
        for address in addresses:
            try:
                if address == unreachable:
                    raise TimeoutError
                async with asyncio.timeout(self.connect_s):
                    end = await self._dial_one(address)
            except UNREACHABLE as failure:
                self._complain(address, str(failure) or "no answer")
                on_failure()
            else:
                self._complaints.pop(address, None)
                return end
        return None

    def _complain(self, address: Address, problem: str) -> None:
        """Say it once: clients of a broker that is away dial again and again."""
        if self._complaints.get(address) != problem:
            if len(self._complaints) >= _MOST_COMPLAINTS:
                self._complaints.clear()
            self._complaints[address] = problem
            log.warning("broker cannot be reached", address=str(address), problem=problem)

    async def _dial_one(self, address: Address) -> PeerSocket:
        upstream = await self._connect(address)
        try:
            if self.upstream_tls is None:
                return PeerSocket(upstream, address.host)
            tls = TlsSession(self.upstream_tls.context, server_hostname=address.host)
            await tls.handshake(upstream, self._loop)
        except BaseException:
            upstream.close()
            raise
        return PeerSocket(upstream, address.host, tls)

    async def _connect(self, address: Address) -> socket.socket:
        """A connected socket; known addresses that cannot be reached are looked up again, once."""
        found = await self._names.find(address)
        try:
            return await self._connect_one_of(address, found)
        except OSError:
            self._names.forget(address)
            again = await self._names.find(address)
            if again == found:
                raise
            return await self._connect_one_of(address, again)

    async def _connect_one_of(self, address: Address, found: Sequence[AddressInfo]) -> socket.socket:
        """A name may have several addresses, and the broker listen on one of them."""
        problem: OSError | None = None
        for family, kind, protocol, _, target in found:
            upstream = socket.socket(family, kind, protocol)
            try:
                prepare(upstream, patience_ms=self.patience_ms)
                await self._loop.sock_connect(upstream, target)
            except OSError as failure:
                upstream.close()
                problem = problem or failure
            except BaseException:
                upstream.close()
                raise
            else:
                return upstream
        raise problem or OSError(f"{address.host} has no address")


async def _look_up(loop: asyncio.AbstractEventLoop, host: str, port: int) -> Sequence[AddressInfo]:
    return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def prepare(sock: socket.socket, *, patience_ms: int) -> None:
    """What every socket of the data plane has; a peer that takes nothing for `patience_ms` is cut off by the kernel."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience_ms)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


ARRIVAL_FAILURES = (OSError, TimeoutError, WireError)
# A broker may advertise a name that no resolver takes, or a port that is none: ValueError and OverflowError.
UNREACHABLE = (OSError, TimeoutError, ValueError, OverflowError)


_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_START: Final = Struct(">12sBBH")  # signature, version and command, family and transport, length of the rest
_LOCAL, _PROXY = 0x20, 0x21
_TCP4, _TCP6 = 0x11, 0x21
_LARGEST_REST: Final = 4096


async def read_source(client: socket.socket, loop: asyncio.AbstractEventLoop) -> str | None:
    """The client's address as the header says it; None for the balancer's own health checks (LOCAL).

    Reads exactly the header and not a byte more. Raises `WireError` for anything that is not one.
    """
    signature, command, family, length = _START.unpack(await _exactly(client, loop, _START.size))
    if signature != _SIGNATURE or command not in {_LOCAL, _PROXY}:
        raise WireError("no PROXY protocol v2 header, although gateway.proxy_protocol is on")
    if length > _LARGEST_REST:
        raise WireError(f"a PROXY protocol header of {length} bytes")
    rest = await _exactly(client, loop, length)
    if command == _LOCAL:
        return None
    if family == _TCP4 and length >= 12:
        return str(ipaddress.IPv4Address(rest[:4]))
    if family == _TCP6 and length >= 36:
        address = ipaddress.IPv6Address(rest[:16])
        return str(address.ipv4_mapped or address)
    raise WireError("a PROXY protocol header that is not about TCP over IP")


async def _exactly(client: socket.socket, loop: asyncio.AbstractEventLoop, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = await loop.sock_recv(client, size - len(received))
        if not piece:
            raise WireError("the connection ended inside the PROXY protocol header")
        received += piece
    return received
