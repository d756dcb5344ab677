"""Clients from their accept until they have proved who they are, in the order of their arrival.

When there are more of them than `gateway.max_unproved_connections`, the oldest is closed to make room, whatever it has
sent: a flood of sockets that never authenticate then keeps no newcomer out, and a client that authenticates has as long
as the flood needs to fill the limit. Entering, leaving and finding the oldest do not depend on their number. A
client leaves the queue when it is proved, so that no proved one is ever closed for this.
"""

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headgate.proxy.interceptor import CloseCause

if TYPE_CHECKING:
    from headgate.proxy.connection import Connection


class UnprovedPlace:
    """The place of one client in the queue; `close` ends it at whatever stage it has reached.

    `host` is the address for which it is counted; "" when it has a connection, which is counted until that ends, or is
    not counted any more.
    """

    __slots__ = ("close", "host", "is_displaced")

    def __init__(self, host: str) -> None:
        self.host = host
        self.is_displaced = False
        self.close: Callable[[], None] | None = None

    def on_task(self, task: "asyncio.Task[None]", client: socket.socket) -> None:
        """A task brings the client to its broker."""
        self.close = partial(_cancel, task, client)

    def on_connection(self, connection: "Connection") -> None:
        self.host = ""
        self.close = partial(connection.close, CloseCause.DISPLACED)
        connection.place = self


def _cancel(task: "asyncio.Task[None]", client: socket.socket) -> None:
    task.add_done_callback(lambda _: client.close())  # a task that has not begun closes nothing
    task.cancel()


class UnprovedQueue:
    """The unproved clients of one process."""

    def __init__(self) -> None:
        self._oldest_first: OrderedDict[UnprovedPlace, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._oldest_first)

    def enter(self, host: str) -> UnprovedPlace:
        place = UnprovedPlace(host)
        self._oldest_first[place] = None
        return place

    def leave(self, place: UnprovedPlace) -> None:
        """The client has ended without a connection."""
        self._oldest_first.pop(place, None)
        place.close = None

    def release(self, connection: "Connection") -> None:
        """The connection is proved, or has ended."""
        if (place := connection.place) is not None:
            connection.place = None  # without a cycle the connection is freed at once
            self.leave(place)

    def take_oldest(self) -> UnprovedPlace | None:
        return self._oldest_first.popitem(last=False)[0] if self._oldest_first else None
