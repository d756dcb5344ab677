"""Plaintext clients between accept and their connection, without a task or a timer for each.

A client waits for its first bytes as a reader of the event loop, and then, as a writer, for the broker that is dialled
at its known address. One sweep over all of them (`end_overdue`) enforces the deadlines. A broker that cannot be dialled
like this is left to a task of the gateway, which tries every address: its node has not been seen yet, or its name has
not been found, or its address does not accept.

Invariant: each arrival ends in exactly one of a connection, a task, or a refusal.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from headgate.base.ids import NodeId
from headgate.config.addresses import Address
from headgate.proxy.endpoints import UNREACHABLE, PeerSocket, PeerSockets, prepare
from headgate.proxy.interceptor import CloseCause
from headgate.proxy.unproved_queue import UnprovedPlace

_FIRST_BYTES: Final = (
    4096  # what is received before the broker is dialled; a client's first request has a hundred bytes
)
_DIALLING: Final = frozenset((0, errno.EINPROGRESS, errno.EAGAIN, errno.EINTR))  # what `connect` returns
_ESTABLISHED: Final = b"\x01"  # the state of a connection, with which TCP_INFO begins


class Arrival:
    """A client that has no connection yet; `upstream` is the socket that is being connected."""

    __slots__ = ("address", "client", "deadline", "node", "peer", "place", "received", "silent_s", "since", "upstream")

    def __init__(
        self,
        node: NodeId | None,
        client: socket.socket,
        peer: str,
        place: UnprovedPlace,
        *,
        since: float,
        deadline: float,
    ) -> None:
        self.node = node
        self.client = client
        self.peer = peer
        self.place = place
        self.since = since
        self.deadline = deadline
        self.received = b""
        self.silent_s = 0.0  # until the first byte
        self.upstream: socket.socket | None = None
        self.address: Address | None = None  # of the broker that is dialled

    @property
    def end(self) -> PeerSocket:
        return PeerSocket(self.client, self.peer, received=self.received)


class ArrivalOwner(Protocol):
    """What becomes of an arrival."""

    def known_addresses(self, node: NodeId | None) -> tuple[Address, ...]:
        """Where its broker may be dialled at once; empty if that takes a closer look."""

    def on_connected(self, arrival: Arrival, upstream: PeerSocket) -> None:
        """Both sides are there; the client may still have the reader of its arrival."""

    def on_unreached(self, arrival: Arrival, unreachable: Address | None) -> None:
        """The broker has to be dialled by a task; `unreachable` did not answer in time."""

    def on_refused(self, arrival: Arrival, cause: CloseCause) -> None:
        """The client gets no connection, and is closed."""


class Arrivals:
    """All arrivals of a worker."""

    def __init__(
        self, owner: ArrivalOwner, ends: PeerSockets, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]
    ) -> None:
        self._owner = owner
        self._ends = ends
        self._loop = loop
        self._clock = clock
        self._all: set[Arrival] = set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self, node: NodeId | None, client: socket.socket, peer: str, place: UnprovedPlace) -> None:
        now = self._clock()
        arrival = Arrival(node, client, peer, place, since=now, deadline=now + self._ends.first_byte_s)
        place.close = partial(self._refuse, arrival, CloseCause.DISPLACED)
        self._all.add(arrival)
        self._loop.add_reader(client.fileno(), self._on_readable, arrival)

    def end_overdue(self, now: float) -> None:
        """End clients that send nothing, and dials that take too long."""
        for arrival in [one for one in self._all if one.deadline < now]:
            if arrival.upstream is None:
                self._refuse(arrival, CloseCause.NO_REQUEST)
            else:
                self._leave_to_task(arrival, arrival.address)

    def close(self) -> None:
        """The gateway ends."""
        for arrival in list(self._all):
            self._refuse(arrival, CloseCause.DRAINED)

    def _on_readable(self, arrival: Arrival) -> None:
        try:
            arrival.received = arrival.client.recv(_FIRST_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._refuse(arrival, CloseCause.CLIENT_RESET)
            return
        if not arrival.received:
            self._refuse(arrival, CloseCause.CLIENT_CLOSED)
            return
        now = self._clock()
        arrival.silent_s = now - arrival.since
        arrival.deadline = now + self._ends.connect_s
        self._dial(arrival)

    def _dial(self, arrival: Arrival) -> None:
        addresses = self._owner.known_addresses(arrival.node)
        found = self._ends.known(addresses[0]) if addresses else ()
        if not found:
            self._leave_to_task(arrival)
            return
        family, kind, protocol, _, target = found[0]
        arrival.address = addresses[0]
        try:
            upstream = arrival.upstream = socket.socket(family, kind, protocol)
            prepare(upstream, patience_ms=self._ends.patience_ms)
            problem = upstream.connect_ex(target)
        except UNREACHABLE:
            self._leave_to_task(arrival)
            return
        if problem not in _DIALLING:
            self._leave_to_task(arrival)
        elif not problem or upstream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == _ESTABLISHED:
            # A broker on this machine, or near it, has answered already. The reader is still there, and the link's
            # takes its place: to remove it and to add another costs some microseconds.
            self._connected(arrival, upstream)
        else:
            self._loop.remove_reader(arrival.client.fileno())
            self._loop.add_writer(upstream.fileno(), self._on_writable, arrival)

    def _on_writable(self, arrival: Arrival) -> None:
        upstream = arrival.upstream
        assert upstream is not None
        if upstream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._leave_to_task(arrival)
            return
        self._loop.remove_writer(upstream.fileno())
        self._connected(arrival, upstream)

    def _connected(self, arrival: Arrival, upstream: socket.socket) -> None:
        self._all.discard(arrival)
        assert arrival.address is not None
        self._owner.on_connected(arrival, PeerSocket(upstream, arrival.address.host))

    def _leave_to_task(self, arrival: Arrival, unreachable: Address | None = None) -> None:
        self._loop.remove_reader(arrival.client.fileno())
        self._forget(arrival)
        self._owner.on_unreached(arrival, unreachable)

    def _refuse(self, arrival: Arrival, cause: CloseCause) -> None:
        self._loop.remove_reader(arrival.client.fileno())
        self._forget(arrival)
        self._owner.on_refused(arrival, cause)

    def _forget(self, arrival: Arrival) -> None:
        self._all.discard(arrival)
        if arrival.upstream is not None:
            self._loop.remove_writer(arrival.upstream.fileno())
            arrival.upstream.close()
            arrival.upstream = None
