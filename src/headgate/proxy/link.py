"""One non-blocking socket on the event loop: bytes in through a buffer that all links share, bytes out at once.

A link hands what it received to its owner, who says how many bytes it has used; the rest is kept and shown again in
front of the next bytes. What the socket does not take at once is kept too, and `backlog` tells the owner to stop
reading the other side until `on_drained`. An owner that collects many bytes has them received where it wants them
(`fill`); bytes that it does not have to see go through a pipe (`splice`, `write_pipe`).

Invariant: the received view is valid only during the call; a link never parses what it carries.
"""

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

from headgate.proxy.hangups import HangupWatcher
from headgate.proxy.pipes import Pipe, PipePool
from headgate.proxy.shared_buffer import BRIEF_BYTES, BUFFER_BYTES, SHARED, kept_view
from headgate.wire.primitives import Buffer

# Of every link that keeps no output: an empty deque has 760 bytes, and most links never need one.
_NO_OUTPUT: Final[deque[memoryview | Pipe]] = deque(maxlen=0)
_ENOUGH_ROOM: Final = BUFFER_BYTES // 2  # what is kept is copied with each read: many small ones would cost too much
_SMALL_BYTES: Final = 1024  # of a wake-up; see `LinkMeter`
SMALL_TIMED_EVERY: Final = 16


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
    """What links count, summed for the process; read by the metrics page.

    Reading the clock twice costs as much as the walk of a small request, so that of the wake-ups with few bytes one in
    `SMALL_TIMED_EVERY` is timed and stands for all of them. What takes long has many bytes, and is always timed.
    """

    __slots__ = ("received_bytes", "record_seconds", "sent_bytes", "times_paused", "untimed")

    def __init__(self, record_seconds: Callable[[float, int], None]) -> None:
        """`record_seconds` gets a duration, and for how many wake-ups it stands."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.times_paused = 0
        self.untimed = 1  # wake-ups with few bytes until one is timed
        self.record_seconds = record_seconds


class Link:
    """A connected socket; see the module."""

    is_plain = True  # the socket carries what the owner sees, so that bytes may be spliced

    __slots__ = (
        "_failure",
        "_fd",
        "_hangups",
        "_is_brief",
        "_is_special",
        "_kept",
        "_loop",
        "_on_pipe",
        "_out",
        "_owner",
        "_pipes",
        "_sock",
        "_target",
        "_unseen",
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
        self._unseen = 0  # of the next bytes so many go through pipes
        self._pipes: PipePool | None = None
        self._on_pipe: Callable[[Pipe], None] | None = None
        self._is_brief = False  # little is read at once
        self._is_special = False  # one of the three above, or held: one test for nearly all wake-ups
        self.held = False  # what is received is kept and not shown
        self.is_reading = False
        self._out = _NO_OUTPUT
        self._failure: OSError | None = None  # of a send: nothing goes out any more
        self.backlog = 0  # bytes that the socket has not taken yet
        self.ended = False  # the peer has said all that it will say, and it has been read
        self.peer_has_left = False  # the same, though some of it may still be to be read
        self._hangups: HangupWatcher | None = None
        self.closed = False

    def fileno(self) -> int:
        """The descriptor of its socket."""
        return self._fd

    @property
    def unused_bytes(self) -> int:
        """Received, and not used by the owner yet."""
        return len(self._kept)

    @property
    def has_queue(self) -> bool:
        """It has a queue for output, which costs memory; an idle link has none."""
        return self._out is not _NO_OUTPUT

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
        self._keep_output(kept_view(memoryview(data)[sent:]))
        self.backlog += size - sent

    def write_pipe(self, pipe: Pipe) -> None:
        """Send what is in a pipe; the pipe goes back to its pool."""
        if self.closed or self._failure is not None:
            pipe.pool.discard(pipe)
            return
        self.meter.sent_bytes += pipe.size
        if not self.backlog:
            try:
                pipe.send(self._fd)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as failure:
                pipe.pool.discard(pipe)
                self._fail(failure)
                return
            if not pipe.size:
                pipe.pool.give_back(pipe)
                return
            self._loop.add_writer(self._fd, self._on_writable)
        self._keep_output(pipe)
        self.backlog += pipe.size
        pipe.pool.stall(pipe, self._read_out)

    def _keep_output(self, piece: memoryview | Pipe) -> None:
        if self._out is _NO_OUTPUT:
            self._out = deque()
        self._out.append(piece)

    def _read_out(self, pipe: Pipe) -> None:
        """Another link needs the pipe: its bytes are kept in memory."""
        self._out[self._out.index(pipe)] = memoryview(pipe.read_out())
        pipe.pool.give_back(pipe)

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
        self.held = self._is_special = True

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
        self._is_special = True

    def splice(self, size: int, pipes: PipePool, on_pipe: Callable[[Pipe], None]) -> None:
        """Give the next `size` bytes to `on_pipe`, in pipes; for an owner that has used all before them.

        When no pipe is free, or few bytes are left, they are shown to the owner, and this call is forgotten.
        """
        self._unseen = size
        self._is_special = True
        self._pipes = pipes
        self._on_pipe = on_pipe

    @property
    def is_splicing(self) -> bool:
        """The next bytes go through a pipe, if there is one."""
        return self._unseen > 0

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._target = self._on_pipe = None
        self._unseen = 0
        if self._hangups is not None:
            self._hangups.forget(self._fd)
        if self.is_reading:
            self._loop.remove_reader(self._fd)
        if self.has_queue:
            self._loop.remove_writer(self._fd)
        self._sock.close()
        self._drop_output()
        self._kept = b""
        self.backlog = 0
        del self._owner  # it has this link: two that have each other are freed by the garbage collector, much later

    def _drop_output(self) -> None:
        for piece in self._out:
            if isinstance(piece, Pipe):
                piece.pool.discard(piece)
        self._out = _NO_OUTPUT

    def _on_readable(self) -> None:
        shared = SHARED.view
        is_special = self._is_special or len(self._kept) > 0
        room = self._room() if is_special else shared
        if room is None:
            return
        try:
            received = self._sock.recv_into(room) if self.is_plain else self._receive(room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as failure:
            self._end(failure)
            return
        if not received:
            self._end(self._failure)
            return
        meter = self.meter
        meter.received_bytes += received
        if is_special:
            self._received(received)
        elif received > _SMALL_BYTES or meter.untimed == 1:
            self._show(shared, received)
        else:  # what `_show` does with few bytes that are not timed, without its call
            meter.untimed -= 1
            used = self._owner.on_bytes(shared, received)
            if used != received and not self.closed:
                self._kept = bytes(shared[used:received])
        if self._unseen and self.is_reading:
            self._splice_on()
        if self.peer_has_left:
            self._loop.call_soon(self._read_on)

    def _room(self) -> memoryview | None:
        """Where the next bytes are received, behind those that are kept; None when they are not received now."""
        if self._unseen and self._splice_on() and (self._unseen or not self.is_reading or self.closed):
            return None  # else what is behind the spliced bytes may be here already
        kept = len(self._kept)
        if kept >= BUFFER_BYTES:  # only while held or draining: what the owner keeps by itself is small
            self.pause()
            return None
        if self._target is not None:
            return self._target
        if self._is_brief and kept < BRIEF_BYTES:
            return SHARED.start[kept:]
        return SHARED.view[kept:] if kept else SHARED.view

    def _received(self, received: int) -> None:
        """Bytes came while some are kept, or `fill`, `splice` or `hold_input` was called."""
        view = shared = SHARED.view
        kept = len(self._kept)
        if self._target is not None:
            self._target = self._target[received:] or None
            received = 0
        if kept > received:
            # Few bytes behind many: they are added to those, because a peer that sends single bytes would have all that
            # is kept copied for each of them.
            own = self._kept if isinstance(self._kept, bytearray) else bytearray(self._kept)
            own += shared[kept : kept + received]
            self._kept = own
            view = memoryview(own)
        elif kept:
            shared[:kept] = self._kept
        if self.held:
            if view is shared:
                self._kept = bytes(shared[: kept + received])
        elif self._target is None:
            self._show(view, kept + received)
            if not self._unseen and self._is_brief and kept + received >= BRIEF_BYTES:
                self._is_brief = False  # no large frame begins here
        self._is_special = self.held or self._is_brief or self._target is not None or self._unseen > 0

    def _splice_on(self) -> bool:
        """Have the kernel move what has been received into a pipe; False: it has to be received and shown."""
        assert self._pipes is not None
        assert self._on_pipe is not None
        pipe = self._pipes.take()
        if pipe is None:
            self._unseen = 0
            self._is_brief = False
            return False
        try:
            received = pipe.receive(self._fd, self._unseen)
        except (BlockingIOError, InterruptedError):
            self._pipes.give_back(pipe)
            return True
        except OSError as failure:
            self._pipes.give_back(pipe)
            if failure.errno == errno.EINVAL:  # of a kind of socket that cannot be spliced
                self._pipes.switch_off(failure)
                self._unseen = 0
                return False
            self._end(failure)
            return True
        if not received:
            self._pipes.give_back(pipe)
            self._end(self._failure)
            return True
        self.meter.received_bytes += received
        self._pipes.spliced_bytes += received
        self._unseen -= received
        if self._unseen < BRIEF_BYTES:
            self._unseen = 0  # the rest is received with what is behind it
        self._is_brief = self._is_special = True
        started = perf_counter()
        self._on_pipe(pipe)
        self.meter.record_seconds(perf_counter() - started, 1)
        if self.peer_has_left:
            self._loop.call_soon(self._read_on)
        return True

    def _receive(self, into: memoryview) -> int:
        """What `recv_into` does, of a link that is not plain."""
        raise NotImplementedError

    def _show(self, view: memoryview, size: int) -> None:
        meter = self.meter
        stands_for = 1
        if size <= _SMALL_BYTES:
            meter.untimed -= 1
            if meter.untimed:
                stands_for = 0
            else:
                meter.untimed = stands_for = SMALL_TIMED_EVERY
        if stands_for:
            started = perf_counter()
            used = self._owner.on_bytes(view, size)
            meter.record_seconds(perf_counter() - started, stands_for)
        else:
            used = self._owner.on_bytes(view, size)
        if used == size:
            self._kept = b""
        elif not self.closed and (used or view.obj is not self._kept):
            self._kept = bytes(view[used:size])

    def _on_writable(self) -> None:
        try:
            while self._out or self._refill():
                if not self._send_first(self._out[0]):
                    return
                self._out.popleft()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as failure:
            self._fail(failure)
            return
        self._out = _NO_OUTPUT
        self._loop.remove_writer(self._fd)
        self._owner.on_drained()

    def _send_first(self, piece: memoryview | Pipe) -> bool:
        """Send the first of what is kept; whether the socket took all of it."""
        if isinstance(piece, Pipe):
            self.backlog -= piece.send(self._fd)
            if piece.size:
                return False
            piece.pool.give_back(piece)
            return True
        sent = self._sock.send(piece)
        self.backlog -= sent
        if sent < len(piece):
            self._out[0] = piece[sent:]
            return False
        return True

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
        self._drop_output()
        self.backlog = 0
        self._loop.remove_writer(self._fd)
        # From a fresh stack: a write fails deep inside the walk of the other side's bytes.
        self._loop.call_soon(self._report, failure)

    def _report(self, failure: OSError) -> None:
        if not self.closed and not self.ended:
            self._owner.on_unwritable(failure)
