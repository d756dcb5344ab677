"""Pipes through which the kernel moves the records of large responses from the broker's socket to the client's.

`splice(2)` moves bytes between a socket and a pipe without copying them. A `PipePool` has the pipes of one worker: a
pipe is taken for one wake-up and given back empty. One whose bytes the client does not take stays with the client's
link, and when another response needs a pipe, the link that has waited longest reads its bytes out and gives it back.

The kernel counts the pages of all pipes of a user (`fs.pipe-user-pages-soft`). The workers of a gateway share half of
them; where no pipe can be had, responses are copied, and that is counted.

Invariant: a pipe that is given back is empty. One with bytes in it, whose connection has ended, is closed.
"""

import errno
import fcntl
import os
import socket
from collections.abc import Callable
from typing import Final

import structlog

from headgate.base.pipe_limits import PIPE_BYTES, pipe_limit

log = structlog.get_logger()

SPLICE_FROM: Final = 64 * 1024  # fewer bytes are copied: two calls of the kernel cost more than that
_STALLED_S: Final = 1.0
_RETRY_S: Final = 10.0
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_FLAGS: Final = getattr(os, "SPLICE_F_MOVE", 0) | getattr(os, "SPLICE_F_NONBLOCK", 0)


class Pipe:
    """One pipe; `size` is how many bytes are in it."""

    __slots__ = ("_read_fd", "_write_fd", "capacity", "pool", "size")

    def __init__(self, pool: "PipePool", capacity: int) -> None:
        """Raises `OSError` if the system has no pipe of this capacity."""
        self.pool = pool
        self.size = 0
        self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self.capacity = fcntl.fcntl(self._write_fd, fcntl.F_SETPIPE_SZ, capacity)
        except OSError:
            self.close()
            raise

    def receive(self, fd: int, most: int) -> int:
        """Move bytes from a socket into the pipe, which is empty; 0 at the peer's end."""
        self.size = os.splice(fd, self._write_fd, min(most, self.capacity), flags=_FLAGS)
        return self.size

    def send(self, fd: int) -> int:
        """Move bytes from the pipe to a socket; the result is how many it took."""
        sent = os.splice(self._read_fd, fd, self.size, flags=_FLAGS)
        self.size -= sent
        return sent

    def read_out(self) -> bytearray:
        """Copy all bytes out of the pipe."""
        content = bytearray(self.size)
        view = memoryview(content)
        while self.size:
            self.size -= os.readv(self._read_fd, [view[len(content) - self.size :]])
        return content

    def close(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)


class PipePool:
    """At most `limit` pipes; `clock` is monotonic."""

    def __init__(self, limit: int, clock: Callable[[], float], *, capacity: int = PIPE_BYTES) -> None:
        self.limit = limit
        self.capacity = capacity
        self.open = 0
        self.spliced_bytes = 0
        self.fallbacks = 0  # how often bytes were copied because no pipe could be had
        self._clock = clock
        self._free: list[Pipe] = []
        self._retry_at = 0.0
        # Pipes whose bytes a client does not take: since when, and what reads them out; the longest first.
        self._stalled: dict[Pipe, tuple[float, Callable[[Pipe], None]]] = {}

    @property
    def used(self) -> int:
        """Pipes with bytes in them."""
        return self.open - len(self._free)

    def take(self) -> Pipe | None:
        """An empty pipe; None if there is none, which is counted."""
        if not self._free and not self._add() and not self._reclaim():
            self.fallbacks += self.limit > 0
            return None
        return self._free.pop()

    def give_back(self, pipe: Pipe) -> None:
        """Let an empty pipe be used again."""
        assert not pipe.size
        self._stalled.pop(pipe, None)
        self._free.append(pipe)

    def discard(self, pipe: Pipe) -> None:
        """Close a pipe with bytes in it."""
        self._stalled.pop(pipe, None)
        pipe.close()
        self.open -= 1

    def stall(self, pipe: Pipe, read_out: Callable[[Pipe], None]) -> None:
        """The client does not take the bytes of this pipe; `read_out` empties it and gives it back."""
        self._stalled[pipe] = (self._clock(), read_out)

    def switch_off(self, problem: OSError) -> None:
        """Copy from now on: the kernel does not splice these sockets."""
        self.limit = 0
        log.warning("splice is not available, large responses are copied", problem=problem.strerror)

    def close(self) -> None:
        while self._free:
            self.discard(self._free.pop())
        self.limit = 0

    def _add(self) -> bool:
        if self.open >= self.limit or self._clock() < self._retry_at:
            return False
        try:
            self._free.append(Pipe(self, self.capacity))
        except OSError as failure:
            if not self._retry_at:
                log.warning("pipes cannot be created, large responses are copied", problem=failure.strerror)
            self._retry_at = self._clock() + _RETRY_S
            return False
        self.open += 1
        return True

    def _reclaim(self) -> bool:
        """Take back the pipe of the client that has not read for longest."""
        for pipe, (since, read_out) in self._stalled.items():
            if self._clock() - since < _STALLED_S:
                break
            read_out(pipe)
            return True
        return False


def make_pool(workers: int, clock: Callable[[], float]) -> PipePool:
    """The pipes of one of so many workers; none where the system cannot splice."""
    pool = PipePool(pipe_limit(workers), clock)
    if pool.limit and (problem := splice_problem()) is not None:
        pool.switch_off(problem)
    return pool


def splice_problem() -> OSError | None:
    """Try to splice from socket to socket: an old kernel or a sandbox may refuse it."""
    if not hasattr(os, "splice"):
        return OSError(errno.ENOSYS, "this Python has no os.splice")
    pool = PipePool(1, lambda: 0.0, capacity=_PAGE_BYTES)
    near, far = socket.socketpair()
    with near, far:
        try:
            far.send(b"x")
            pipe = Pipe(pool, _PAGE_BYTES)
            try:
                pipe.receive(near.fileno(), 1)
                pipe.send(near.fileno())
            finally:
                pipe.close()
        except OSError as problem:
            return problem
    return None
