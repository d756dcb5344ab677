"""One non-blocking socket on the event loop: bytes in through a buffer that all links share, bytes out at once.

A link hands what it received to its owner, who says how many bytes it has used; the rest is kept and shown again in
front of the next bytes. What the socket does not take at once is kept too, and `backlog` tells the owner to stop
reading the other side until `on_drained`. An owner that collects many bytes has them received where it wants them
(`fill`).

Invariant: the received view is valid only during the call; a link never parses what it carries.
"""

import asyncio
import select
import socket
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

from headgate.wire.primitives import Buffer

BUFFER_BYTES: Final = 256 * 1024
_ENOUGH_ROOM: Final = BUFFER_BYTES // 2  # what is kept is copied with each read: many small ones would cost too much
# One buffer for the process: a wake-up reads, walks and sends before the next one begins.
_BUFFER: Final = bytearray(BUFFER_BYTES)
_SHARED: Final = memoryview(_BUFFER)
_EVENTS_A_WAKE_UP = 256


def kept_view(view: memoryview) -> memoryview:
    """The same bytes, which stay when the shared buffer is used again."""
    return memoryview(bytes(view)) if view.obj is _BUFFER else view


class HangupWatcher:
    """Calls back, once, when the peer of a watched socket has closed or reset its side.

    uvloop stops watching a socket for which the kernel reports an error, after one last call of its reader. That call
    may see only the bytes that the peer had sent before it reset the connection; the reset would then go unnoticed, and
    the connection would stay for ever. So the links' sockets are in a second epoll too, which asks only for hang-ups
    and also reports a peer whose link is not read at the moment.
    """

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


class LinkOwner(Protocol):
    """Who gets what a link receives. One of `on_end` and `on_error` comes, once, and no bytes after it."""

    def on_bytes(self, view: memoryview, size: int) -> int:
        """Use up to `size` bytes of `view`; the result says how many were used. None come when `fill` is done."""

    def on_end(self) -> None:
        """The peer has closed its side."""

    def on_error(self, error: OSError) -> None:
        """The connection is broken, and all that had come has been shown."""

    def on_unwritable(self, error: OSError) -> None:
        """Nothing more can be sent. What the peer had sent is still shown, then `on_error` comes."""

    def on_drained(self) -> None:
        """What could not be sent at once has been sent."""


class LinkMeter:
    """What links count, summed for the process; read by the metrics page."""

    __slots__ = ("received_bytes", "record_seconds", "sent_bytes", "times_paused")

    def __init__(self, record_seconds: Callable[[float], None]) -> None:
        self.received_bytes = 0
        self.sent_bytes = 0
        self.times_paused = 0
        self.record_seconds = record_seconds


class Link:
    """A connected socket; see the module."""

    __slots__ = (
        "_failure",
        "_fd",
        "_hangups",
        "_kept",
        "_loop",
        "_out",
        "_owner",
        "_sock",
        "_target",
        "backlog",
        "closed",
        "ended",
        "held",
        "is_reading",
        "meter",
        "peer_has_left",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, owner: LinkOwner, meter: LinkMeter
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._owner = owner
        self.meter = meter
        self._kept: Buffer = b""
        self._target: memoryview | None = None  # where received bytes go, until it is full
        self.held = False  # what is received is kept and not shown
        self.is_reading = False
        self._out: deque[memoryview] = deque()
        self._failure: OSError | None = None  # of a send: nothing goes out any more
        self.backlog = 0  # bytes that the socket has not taken yet
        self.ended = False  # the peer has said all that it will say, and it has been read
        self.peer_has_left = False  # the same, though some of it may still be to be read
        self._hangups: HangupWatcher | None = None
        self.closed = False

    def write(self, data: Buffer) -> None:
        """Send, keeping what the socket does not take: nothing but the shared buffer may change afterwards."""
        if self.closed or self._failure is not None:
            return
        size = len(data)
        self.meter.sent_bytes += size
        sent = 0
        if not self.backlog:
            try:
                sent = self._sock.send(data)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as failure:
                self._fail(failure)
                return
            if sent == size:
                return
            self._loop.add_writer(self._fd, self._on_writable)
        self._out.append(kept_view(memoryview(data)[sent:]))
        self.backlog += size - sent

    def resume(self) -> None:
        """Read when there is something and room for it; nothing happens if it is already so."""
        if not self.is_reading and not self.ended and not self.closed and len(self._kept) <= _ENOUGH_ROOM:
            self.is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def pause(self) -> None:
        """Stop reading: the peer's kernel will stop its sender."""
        if self.is_reading and not self.closed:
            self.meter.times_paused += 1
            self._stop_reading()

    def _stop_reading(self) -> None:
        self.is_reading = False
        self._loop.remove_reader(self._fd)

    def watch_for_hangup(self, hangups: HangupWatcher) -> None:
        """Let `peer_has_left` be right at any time; without this, only reading finds out, and not always."""
        self._hangups = hangups
        hangups.watch(self._fd, self._on_hangup)

    def _on_hangup(self) -> None:
        self.peer_has_left = True
        self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        """The event loop may have stopped watching (see `hangups`): what the peer left is read to its end."""
        if self.is_reading and not self.closed:
            self._loop.remove_reader(self._fd)
            self._loop.add_reader(self._fd, self._on_readable)

    def unread(self, data: bytes) -> None:
        """Show these bytes, which were received before there was a link, in front of the next ones."""
        self.meter.received_bytes += len(data)
        self._kept = data

    def hold_input(self) -> None:
        """Go on reading, up to one buffer, but show nothing to the owner: the end of the peer is still noticed."""
        self.held = True

    def release_input(self) -> None:
        """Show what was kept; called from a fresh stack, never from inside `on_bytes`."""
        self.held = False
        if self._kept and not self.closed:
            kept = memoryview(self._kept)
            used = self._owner.on_bytes(kept, len(kept))
            self._kept = b"" if self.closed else kept[used:]

    def fill(self, target: memoryview) -> None:
        """Receive the next bytes right into this until it is full; for an owner that has used all before them."""
        self._target = target

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._target = None
        if self._hangups is not None:
            self._hangups.forget(self._fd)
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._sock.close()
        self._out.clear()
        self._kept = b""
        self.backlog = 0
        del self._owner  # it has this link: two that have each other are freed by the garbage collector, much later

    def _on_readable(self) -> None:
        kept = len(self._kept)
        if kept >= BUFFER_BYTES:  # only while held or draining: what the owner keeps by itself is small
            self.pause()
            return
        try:
            received = self._receive(self._target or (_SHARED[kept:] if kept else _SHARED))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as failure:
            self._end(failure)
            return
        if not received:
            self._end(self._failure)
            return
        self.meter.received_bytes += received
        if self._target is not None:
            self._target = self._target[received:] or None
            received = 0
        view = _SHARED
        if kept > received:
            # Few bytes behind many: they are added to those, because a peer that sends single bytes would have all that
            # is kept copied for each of them.
            own = self._kept if isinstance(self._kept, bytearray) else bytearray(self._kept)
            own += _SHARED[kept : kept + received]
            self._kept = own
            view = memoryview(own)
        elif kept:
            _SHARED[:kept] = self._kept
        if self.held:
            if view is _SHARED:
                self._kept = bytes(_SHARED[: kept + received])
        elif self._target is None:
            started = perf_counter()
            self._show(view, kept + received)
            self.meter.record_seconds(perf_counter() - started)
        if self.peer_has_left:
            self._loop.call_soon(self._read_on)

    def _receive(self, into: memoryview) -> int:
        return self._sock.recv_into(into)

    def _show(self, view: memoryview, size: int) -> None:
        used = self._owner.on_bytes(view, size)
        if self.closed or (not used and view is not _SHARED):
            return
        self._kept = bytes(view[used:size]) if used < size else b""

    def _on_writable(self) -> None:
        out = self._out
        try:
            while out or self._refill():
                sent = self._sock.send(out[0])
                self.backlog -= sent
                if sent < len(out[0]):
                    out[0] = out[0][sent:]
                    return
                out.popleft()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as failure:
            self._fail(failure)
            return
        self._loop.remove_writer(self._fd)
        self._owner.on_drained()

    def _refill(self) -> bool:
        """Whether something was put behind what has been sent; for a link that does not send what it is given."""
        return False

    def _end(self, failure: OSError | None) -> None:
        self.ended = True
        self._stop_reading()
        if failure is None:
            self._owner.on_end()
        else:
            self._owner.on_error(failure)

    def _fail(self, failure: OSError) -> None:
        """A send failed: the peer is gone or broken, but what it had said may still wait to be read."""
        self._failure = failure
        self._out.clear()
        self.backlog = 0
        self._loop.remove_writer(self._fd)
        # From a fresh stack: a write fails deep inside the walk of the other side's bytes.
        self._loop.call_soon(self._report, failure)

    def _report(self, failure: OSError) -> None:
        if not self.closed and not self.ended:
            self._owner.on_unwritable(failure)
