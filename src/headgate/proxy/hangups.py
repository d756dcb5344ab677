"""Notices that the peer of a socket has left, also while the socket is not being read."""

import asyncio
import select
from collections.abc import Callable
from itertools import islice
from typing import Final

_EVENTS_A_WAKE_UP = 256
MOST_AT_ONCE: Final = 4096  # registered: some milliseconds


class HangupWatcher:
    """Calls back, once, when the peer of a watched socket has closed or reset its side.

    uvloop stops watching a socket for which the kernel reports an error, after one last call of its reader. That call
    may see only the bytes that the peer had sent before it reset the connection; the reset would then go unnoticed, and
    the connection would stay for ever. So the links' sockets are in a second epoll too, which asks only for hang-ups
    and also reports a peer whose link is not read at the moment.

    Sockets get there at the next `register`, which the gateway calls every second: many connections end before it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        most_at_once: int = MOST_AT_ONCE,
        epoll: Callable[[], select.epoll] = select.epoll,
    ) -> None:
        self._loop = loop
        self._most_at_once = most_at_once
        self._epoll = epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._unregistered: dict[int, None] = {}  # in the order of `watch`
        loop.add_reader(self._epoll.fileno(), self.report)

    def watch(self, fd: int, on_hangup: Callable[[], None]) -> None:
        self._callbacks[fd] = on_hangup
        self._unregistered[fd] = None

    def register(self) -> None:
        """Let the kernel watch the sockets that are new; it reports at once what has happened before."""
        for fd in list(islice(self._unregistered, self._most_at_once)):
            del self._unregistered[fd]
            try:
                # Errors are always told; edge-triggered, because nothing that is done about it takes the state away.
                self._epoll.register(fd, select.EPOLLRDHUP | select.EPOLLET)
            except OSError:  # the kernel has no room: the next time, behind the others
                self._unregistered[fd] = None

    def forget(self, fd: int) -> None:
        """Before the socket is closed, which takes it out of the epoll: its number may be another's at once."""
        del self._callbacks[fd]
        self._unregistered.pop(fd, None)

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def report(self) -> None:
        """Call back for the peers that have left; the event loop calls it when there are any."""
        for fd, _ in self._epoll.poll(0, _EVENTS_A_WAKE_UP):
            if (on_hangup := self._callbacks.get(fd)) is not None:
                on_hangup()
