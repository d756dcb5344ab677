"""Connections of the web server's clients: bounded in number, each with a deadline for what is awaited from its client.

Uvicorn starts a timeout only after a response, and counts silent connections like busy ones. Here the head of a
request must be whole within ten seconds of the time from which it is awaited, its body within thirty, and a client must
read on while an answer waits for it. Where all places are taken, the connection whose head or body has been awaited
longest is closed: silent ones never keep out those that ask. Used on the event loop.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import h11
import structlog
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from headgate.base.log_throttle import LogThrottle
from headgate.base.networks import network_of

log = structlog.get_logger()

MOST: Final = 500
MOST_OF_ONE_ADDRESS: Final = 250
HEAD_S: Final = 10.0
BODY_S: Final = 30.0
UNREAD_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """`unread_s` is for how long a client may read nothing of an answer that waits for it."""

    connections: int = MOST
    of_one_address: int = MOST_OF_ONE_ADDRESS
    head_s: float = HEAD_S
    body_s: float = BODY_S
    unread_s: float = UNREAD_S


class ClientConnections:
    """All connections of a server, by address or IPv6 network, and those whose head or body is awaited.

    Of these the one that has been awaited longest comes first.
    """

    def __init__(self, limits: ClientLimits) -> None:
        self.limits = limits
        self.waiting: dict[BoundedProtocol, None] = {}
        self._of_network: Counter[bytes] = Counter()
        self._throttle = LogThrottle(asyncio.get_running_loop().time)

    def add(self, address: str) -> bool:
        """Whether the address may have one more; where places are taken, a connection that waits makes room.

        Where all places are taken by requests, Uvicorn answers the newcomer with 503.
        """
        network = network_of(address)
        if self._of_network[network] >= self.limits.of_one_address and not self._close_one_of(network):
            if self._throttle.allows("refused", address):
                log.warning("connection refused", address=address, connections=self._of_network[network])
            return False
        if self._of_network.total() >= self.limits.connections:
            self._close_one_of(None)
        self._of_network[network] += 1
        return True

    def remove(self, address: str) -> None:
        network = network_of(address)
        self._of_network[network] -= 1
        if not self._of_network[network]:
            del self._of_network[network]

    def _close_one_of(self, network: bytes | None) -> bool:
        for connection in self.waiting:
            if (
                network is None or network == network_of(connection.address)
            ) and not connection.transport.get_write_buffer_size():
                del self.waiting[connection]
                connection.transport.abort()
                return True
        return False


class BoundedProtocol(H11Protocol):
    """One connection. What is awaited follows from the state of the client in h11."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], clients: ClientConnections
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.address = ""
        self._clients = clients
        self._is_counted = False
        self._state: object = None
        self._has_asked = False
        self._deadline: asyncio.TimerHandle | None = None
        self._reader_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._is_counted = self._clients.add(self.address)
        if self._is_counted:
            self._follow()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._clients.waiting.pop(self, None)
        if self._is_counted:
            self._clients.remove(self.address)
        for timer in (self._deadline, self._reader_deadline):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reader_deadline is not None:
            self._reader_deadline.cancel()
        if self.transport.is_closing():  # the rest of the answer waits, too
            self._await_reader()

    def _follow(self) -> None:
        """Set the deadline of what is awaited now, if it is not what was awaited before."""
        if self.transport.is_closing() and self._reader_deadline is None:
            self._await_reader()  # of an answer after which the connection ends
        state, limits = self.conn.their_state, self._clients.limits
        if state is self._state:
            return
        self._state = state
        self._has_asked |= state is not h11.IDLE
        self._clients.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        if state is h11.IDLE or state is h11.SEND_BODY:
            self._clients.waiting[self] = None
            awaited_s = limits.head_s if state is h11.IDLE else limits.body_s
            self._deadline = self.loop.call_later(awaited_s, self._expire)

    def _expire(self) -> None:
        if not self._has_asked:  # there is no answer on its way, so the end of TLS need not be waited for
            self.transport.abort()
        else:
            self.transport.close()
            self._await_reader()

    def _await_reader(self, before: int | None = None) -> None:
        """Close the connection unless its client reads on; `before` are the bytes that waited for it the last time."""
        if self._reader_deadline is not None:
            self._reader_deadline.cancel()
        left = self.transport.get_write_buffer_size()
        if before is not None and left >= before:
            self.transport.abort()
        elif left:
            self._reader_deadline = self.loop.call_later(self._clients.limits.unread_s, self._await_reader, left)
