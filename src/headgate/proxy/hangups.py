"""Whose peer has hung up: watched beside the event loop, which forgets a socket at its first error.

uvloop stops watching a socket for which the kernel reports an error, after one last call of its reader. What the peer
had sent before it reset the connection may be all that this call sees; the reset itself would then never come, and
the connection would stay for ever. So the links' sockets are in an epoll of our own too, which asks for nothing but
that: it also tells of a peer whose link is not read at the moment.
"""

import asyncio
import select
from collections.abc import Callable

_EVENTS_A_WAKE_UP = 256


class Hangups:
    """Calls back, once, when the peer of a watched socket has closed or reset its side."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._on_events)

    def watch(self, fd: int, on_hangup: Callable[[], None]) -> None:
        self._callbacks[fd] = on_hangup
        # Errors are always told; edge-triggered, because nothing that is done about it takes the state away.
        self._epoll.register(fd, select.EPOLLRDHUP | select.EPOLLET)

    def forget(self, fd: int) -> None:
        """Before the socket is closed: its number may be another's at once."""
        del self._callbacks[fd]
        self._epoll.unregister(fd)

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _on_events(self) -> None:
        for fd, _ in self._epoll.poll(0, _EVENTS_A_WAKE_UP):
            if (on_hangup := self._callbacks.get(fd)) is not None:
                on_hangup()
