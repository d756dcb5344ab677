"""A link loses no byte, stops when it is told to, and says once that its peer is gone, whatever state it is in."""

import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from math import inf
from struct import pack
from time import thread_time
from typing import Any, cast

import pytest

from headgate.proxy.link import SMALL_TIMED_EVERY, Link, LinkMeter
from headgate.proxy.metrics import Histogram
from headgate.proxy.pipes import Pipe, PipePool
from headgate.proxy.shared_buffer import BUFFER_BYTES, SHARED
from tests.unit.proxy.stage import turns, until


@dataclass
class Owner:
    """Uses what it gets, `most` bytes at a time, and writes down what happens."""

    most: int = BUFFER_BYTES
    received: bytearray = field(default_factory=bytearray)
    events: list[str] = field(default_factory=list)
    close_after: int | None = None
    link: Link | None = None

    def on_bytes(self, view: memoryview, size: int) -> int:
        used = min(self.most, size)
        self.received += view[:used]
        if self.close_after is not None and len(self.received) >= self.close_after:
            assert self.link is not None
            self.link.close()
        return used

    def on_end(self) -> None:
        self.events.append("end")

    def on_error(self, error: OSError) -> None:
        self.events.append(f"error {type(error).__name__}")

    def on_unwritable(self, error: OSError) -> None:
        self.events.append(f"unwritable {type(error).__name__}")

    def on_drained(self) -> None:
        self.events.append("drained")


class BreakingSocket(socket.socket):
    """A socket whose sends fail from a time on, though its peer can still be read."""

    is_broken = False

    def send(self, *arguments: Any) -> int:
        if self.is_broken:
            raise ConnectionResetError
        return super().send(*arguments)


def connected() -> tuple[socket.socket, socket.socket]:
    """The two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = socket.create_connection(listener.getsockname())
        sock, _ = listener.accept()
    for one in (sock, other):
        one.setblocking(False)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock, other


async def received_from(peer: socket.socket, size: int) -> bytearray:
    received = bytearray()
    async with asyncio.timeout(20):
        while len(received) < size:
            received += await asyncio.get_running_loop().sock_recv(peer, 1 << 20)
    return received


@asynccontextmanager
async def linked(owner: Owner | None = None) -> AsyncIterator[tuple[Link, Owner, socket.socket]]:
    """A link over TCP, and the socket at its other end."""
    sock, peer = connected()
    owner = owner or Owner()
    link = owner.link = Link(asyncio.get_running_loop(), sock, owner, LinkMeter(lambda *_: None))
    try:
        yield link, owner, peer
    finally:
        link.close()
        peer.close()


def fill(link: Link) -> int:
    """Write until the socket takes no more; how many bytes were written."""
    written = 0
    while not link.backlog:
        link.write(bytes(100_000))
        written += 100_000
    return written


async def test_bytes_that_were_not_used_come_again_in_front_of_the_next() -> None:
    async with linked(Owner(most=3)) as (link, owner, peer):
        link.resume()
        for piece in (b"abcd", b"efgh", b"ij"):
            peer.send(piece)
            await until(lambda: link.meter.received_bytes >= len(owner.received))
            await turns()
        peer.send(b"!")
        await until(lambda: len(owner.received) >= 11)
        assert owner.received == b"abcdefghij!"


async def test_a_paused_link_reads_nothing_and_goes_on_where_it_stopped() -> None:
    async with linked() as (link, owner, peer):
        link.resume()
        link.pause()
        peer.send(b"later")
        await turns()
        assert not owner.received
        link.resume()
        link.resume()
        await until(lambda: bytes(owner.received) == b"later")
        assert link.meter.times_paused == 1


async def test_what_the_socket_does_not_take_is_sent_when_it_does() -> None:
    async with linked() as (link, owner, peer):
        data = memoryview(bytearray(range(256)) * 40_000)  # more than the kernel takes
        link.write(data)
        assert link.backlog
        link.write(b"behind it")
        received = await received_from(peer, len(data) + 9)
        assert received == bytes(data) + b"behind it"
        await until(lambda: owner.events == ["drained"])
        assert not link.backlog
        assert link.meter.sent_bytes == len(received)


@pytest.mark.parametrize("size", [100, BUFFER_BYTES // 2, BUFFER_BYTES])
async def test_what_is_kept_of_the_shared_buffer_does_not_change_when_more_is_received(size: int) -> None:
    async with linked() as (link, _, peer):
        full = bytes(10_000_000)  # more than the kernel takes
        link.write(full)
        for letter in (b"x", b"y", b"z"):
            shared = SHARED.view
            shared[:] = letter * len(shared)
            link.write(shared[:size])
        shared = SHARED.view
        shared[:] = b"-" * len(shared)
        received = await received_from(peer, len(full) + 3 * size)
        assert received[len(full) :] == b"x" * size + b"y" * size + b"z" * size


async def test_only_a_link_that_keeps_output_has_a_queue_for_it() -> None:
    async with linked() as (idle, _, _), linked() as (link, owner, peer):
        assert (link.has_queue, idle.has_queue) == (False, False)
        data = bytes(10_000_000)  # more than the kernel takes
        link.write(data)
        assert (link.has_queue, idle.has_queue) == (True, False)
        await received_from(peer, len(data))
        await until(lambda: owner.events == ["drained"])
        assert not link.has_queue


async def test_many_bytes_are_kept_without_a_copy_and_few_do_not_keep_a_whole_buffer() -> None:
    async with linked() as (link, _, peer):
        written = fill(link)
        before = SHARED.content
        link.write(SHARED.view[:1_000])
        contents: list[object] = [SHARED.content]
        link.write(SHARED.view)
        contents.append(SHARED.content)
        assert [one is before for one in contents] == [True, False]
        before[-4:] = b"kept"  # these very bytes are sent
        received = await received_from(peer, written + 1_000 + BUFFER_BYTES)
        assert received.endswith(b"kept")


async def test_bytes_are_received_where_they_are_wanted_and_those_behind_them_are_shown_again() -> None:
    data = random.Random(1).randbytes(1_000_000)
    room = bytearray(700_000)
    owner = Filling(room)
    async with linked(owner) as (link, _, peer):
        owner.link = link
        link.resume()
        sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(peer, data))
        await until(lambda: len(owner.received) + len(room) == len(data))
        await sending
        assert data == owner.received[: owner.before] + room + owner.received[owner.before :]
        assert owner.filled_when_shown == [True]
        assert link.meter.received_bytes == len(data)
        peer.close()
        await until(lambda: owner.events == ["end"])


async def test_an_end_in_the_middle_of_what_is_wanted_is_told() -> None:
    owner = Filling(bytearray(700_000))
    async with linked(owner) as (link, _, peer):
        owner.link = link
        link.resume()
        peer.send(bytes(1_000))
        await until(lambda: owner.before == 1_000)
        peer.send(bytes(2_000))
        peer.close()
        await until(lambda: owner.events == ["end"])
        assert owner.filled_when_shown == []


class Filling(Owner):
    """Wants what comes behind the first bytes in its own room."""

    def __init__(self, room: bytearray) -> None:
        super().__init__()
        self.room = room
        self.before = 0
        self.filled_when_shown: list[bool] = []

    def on_bytes(self, view: memoryview, size: int) -> int:
        if not self.before:
            assert self.link is not None
            self.before = size
            self.link.fill(memoryview(self.room))
        elif not size:
            self.filled_when_shown.append(any(self.room[-100:]))
        return super().on_bytes(view, size)


async def test_held_input_is_kept_and_shown_when_it_is_released() -> None:
    async with linked() as (link, owner, peer):
        link.resume()
        link.hold_input()
        for piece in (b"one ", b"two ", b"three"):
            peer.send(piece)
            await turns()
        assert not owner.received
        link.release_input()
        assert owner.received == b"one two three"
        peer.send(b" four")
        await until(lambda: owner.received.endswith(b"four"))


async def test_held_input_is_read_up_to_one_buffer() -> None:
    async with linked() as (link, owner, peer):
        link.resume()
        link.hold_input()
        sent = 0
        for _ in range(2000):
            try:
                sent += peer.send(bytes(65536))
            except BlockingIOError:
                await asyncio.sleep(0)
        assert sent > BUFFER_BYTES
        assert link.meter.received_bytes == BUFFER_BYTES
        link.resume()  # there is no room: nothing happens
        await turns()
        assert link.meter.received_bytes == BUFFER_BYTES
        link.release_input()
        link.resume()
        await until(lambda: len(owner.received) == sent)


async def test_the_end_is_noticed_while_input_is_held() -> None:
    async with linked() as (link, owner, peer):
        link.resume()
        link.hold_input()
        peer.send(b"half a request")
        peer.close()
        await until(lambda: owner.events == ["end"])
        assert not owner.received


async def test_the_end_comes_once_however_often_reading_is_resumed() -> None:
    async with linked() as (link, owner, peer):
        link.resume()
        peer.shutdown(socket.SHUT_WR)
        await until(lambda: bool(owner.events))
        for _ in range(3):
            link.resume()
            link.pause()
            link.resume()
            await turns()
        assert owner.events == ["end"]
        assert link.ended
        assert not link.meter.times_paused  # nothing was paused for back-pressure


async def test_an_end_behind_a_pause_comes_with_the_last_bytes() -> None:
    async with linked() as (link, owner, peer):
        peer.send(b"last words")
        peer.close()
        await turns()
        assert not owner.events
        link.resume()
        await until(lambda: owner.events == ["end"])
        assert owner.received == b"last words"


async def test_a_reset_is_an_error() -> None:
    async with linked() as (link, owner, peer):
        link.resume()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        peer.close()
        await until(lambda: owner.events == ["error ConnectionResetError"])


async def test_a_failed_send_is_reported_once_and_not_from_inside_the_write() -> None:
    async with linked() as (link, owner, peer):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        peer.close()
        await turns()
        for _ in range(5):
            link.write(b"to nobody")
        assert not owner.events
        await turns()
        assert len(owner.events) == 1
        assert owner.events[0].startswith("unwritable")
        link.write(b"still nobody")
        await turns()
        assert len(owner.events) == 1


async def test_what_the_peer_had_said_is_read_although_sending_fails() -> None:
    async with linked() as (link, owner, peer):
        peer.send(b"an answer")
        await turns()
        peer.shutdown(socket.SHUT_RD)
        peer.close()
        await turns()
        link.write(b"x")  # the peer's kernel answers with a reset
        await turns()
        link.write(b"x")
        link.resume()
        await until(lambda: any(event.startswith("error") for event in owner.events))
        assert owner.received == b"an answer"
        assert not link.backlog


async def test_a_send_that_fails_later_drops_what_waits() -> None:
    async with linked() as (link, owner, peer):
        fill(link)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        peer.close()
        await until(lambda: bool(owner.events))
        assert owner.events[0].startswith("unwritable")
        assert not link.backlog
        await turns()
        assert "drained" not in owner.events


async def test_closing_inside_on_bytes_is_the_end_of_it() -> None:
    async with linked(Owner(most=2, close_after=2)) as (link, owner, peer):
        link.resume()
        peer.send(b"abcdef")
        await until(lambda: link.closed)
        await turns()
        assert owner.received == b"ab"
        link.resume()
        link.pause()
        link.write(b"ignored")
        link.release_input()
        link.close()
        await turns()
        assert not owner.events


@pytest.mark.parametrize("state", ["reading", "paused", "held", "backlog"])
async def test_a_closed_link_calls_nobody(state: str) -> None:
    async with linked() as (link, owner, peer):
        link.resume()
        if state == "paused":
            link.pause()
        if state == "held":
            link.hold_input()
            peer.send(b"kept")
            await turns()
        if state == "backlog":
            fill(link)
        peer.send(b"bytes")
        link.close()
        peer.close()
        await turns()
        assert not owner.events
        assert not owner.received
        assert not link.backlog


class OneByteSocket(socket.socket):
    """A socket from which one byte can be received whenever it is read."""

    def recv_into(self, buffer: memoryview, *_: object) -> int:  # type: ignore[override]
        buffer[0] = 7
        return 1


class CalledLoop:
    """Stands for an event loop whose reader the test calls, because a real one would take most of the measured time."""

    def __init__(self) -> None:
        self.on_readable: Callable[[], None] = lambda: None

    def add_reader(self, _: int, on_readable: Callable[[], None]) -> None:
        self.on_readable = on_readable

    def remove_reader(self, _: int) -> None:
        pass


@pytest.mark.parametrize("held", [True, False])
async def test_single_bytes_cost_the_same_however_many_came_before_them(held: bool) -> None:
    owner = Owner(most=0)
    loop = CalledLoop()
    link = Link(cast("asyncio.AbstractEventLoop", loop), OneByteSocket(), owner, LinkMeter(lambda *_: None))
    if held:
        link.hold_input()
    link.resume()

    def cpu_s() -> float:
        """Of a hundred bytes, in the best of ten attempts."""
        best = inf
        for _ in range(10):
            started = thread_time()
            for _ in range(100):
                loop.on_readable()
            best = min(best, thread_time() - started)
        return best

    first = cpu_s()
    while link.meter.received_bytes < BUFFER_BYTES - 2_000:
        loop.on_readable()
    assert cpu_s() < 4 * first
    owner.most = BUFFER_BYTES
    if held:
        link.release_input()
    else:
        loop.on_readable()
    assert owner.received == bytes([7]) * link.meter.received_bytes
    link.close()


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("reads", [False, True])
async def test_a_closed_link_is_not_watched_by_the_event_loop(reads: bool, fails: bool) -> None:
    loop = asyncio.get_running_loop()
    accepted, peer = connected()
    sock = BreakingSocket(fileno=accepted.detach())
    sock.setblocking(False)
    link = Link(loop, sock, Owner(), LinkMeter(lambda *_: None))
    fd = link.fileno()
    if reads:
        link.resume()
    fill(link)
    if fails:
        sock.is_broken = True
        while link.backlog:
            peer.recv(1 << 20)
            await asyncio.sleep(0)
    link.close()
    assert not loop.remove_reader(fd)
    assert not loop.remove_writer(fd)
    peer.close()


async def test_every_wake_up_with_many_bytes_is_timed_and_one_in_sixteen_with_few() -> None:
    async with linked() as (link, owner, peer):
        timed: list[int] = []
        link.meter.record_seconds = lambda _, stands_for: timed.append(stands_for)
        link.resume()
        sizes = [1024] * 16 + [1025, 2000] + [1] * 16
        for number, size in enumerate(sizes, 1):
            before = len(owner.received)
            peer.send(bytes(size))
            await until(lambda before=before, size=size: len(owner.received) == before + size)  # type: ignore[misc]
            expected = [SMALL_TIMED_EVERY] + [1] * min(2, max(0, number - 16)) + [SMALL_TIMED_EVERY] * (number > 18)
            assert timed == expected


def test_a_duration_that_stands_for_others_is_counted_so_often_unless_it_is_long() -> None:
    histogram = Histogram()
    histogram.record(0.00004, 16)
    histogram.record(0.2, 16)
    assert (sum(histogram.counts), histogram.counts[-2]) == (17, 1)
    assert histogram.total == pytest.approx(0.2 + 16 * 0.00004)


# Pipes.


class Spliced(Owner):
    """Also takes pipes."""

    def __init__(self, pool: PipePool) -> None:
        super().__init__()
        self.pool = pool
        self.piped = bytearray()

    def on_pipe(self, pipe: Pipe) -> None:
        self.piped += pipe.read_out()
        self.pool.give_back(pipe)


class OneWakeUp:
    """Stands for the event loop, to run one wake-up at a time."""

    def __init__(self) -> None:
        self.on_readable: Callable[[], None] = lambda: None

    def add_reader(self, _: int, on_readable: Callable[[], None]) -> None:
        self.on_readable = on_readable

    def remove_reader(self, _: int) -> None:
        self.on_readable = lambda: None


def wait_for(sock: socket.socket, size: int) -> None:
    """Wait until so many bytes can be received."""
    while len(sock.recv(size + 1, socket.MSG_PEEK)) < size:
        time.sleep(0)


@contextmanager
def spliced_link() -> Iterator[tuple[Link, Spliced, OneWakeUp, socket.socket, socket.socket]]:
    """A link with an owner for pipes, what wakes it up, its socket, and its peer."""
    sock, peer = connected()
    pool = PipePool(1, time.monotonic)
    owner, loop = Spliced(pool), OneWakeUp()
    link = owner.link = Link(cast("asyncio.AbstractEventLoop", loop), sock, owner, LinkMeter(lambda *_: None))
    link.resume()
    try:
        yield link, owner, loop, sock, peer
    finally:
        link.close()
        peer.close()
        pool.close()


def test_few_bytes_that_are_left_of_spliced_ones_are_received_with_what_is_behind_them() -> None:
    with spliced_link() as (link, owner, loop, sock, peer):
        link.splice(40_000, owner.pool, owner.on_pipe)
        peer.send(bytes(35_000))
        wait_for(sock, 35_000)
        loop.on_readable()
        assert len(owner.piped) == 35_000
        assert not link.is_splicing
        peer.send(bytes(5_000) + b"behind")
        wait_for(sock, 5_006)
        loop.on_readable()
        assert owner.received == bytes(5_000) + b"behind"
        assert len(owner.piped) == 35_000


def test_what_is_behind_spliced_bytes_is_received_in_the_same_wake_up() -> None:
    with spliced_link() as (link, owner, loop, sock, peer):
        link.splice(40_000, owner.pool, owner.on_pipe)
        peer.send(bytes(40_000) + b"behind")
        wait_for(sock, 40_006)
        loop.on_readable()
        assert len(owner.piped) == 40_000
        assert owner.received == b"behind"


@pytest.mark.parametrize("how", ["pause", "close"])
def test_a_link_that_its_owner_stops_with_a_pipe_receives_nothing_behind_it(how: str) -> None:
    with spliced_link() as (link, owner, loop, sock, peer):

        def on_pipe(pipe: Pipe) -> None:
            owner.on_pipe(pipe)
            getattr(link, how)()

        link.splice(40_000, owner.pool, on_pipe)
        peer.send(bytes(40_000) + b"behind")
        wait_for(sock, 40_006)
        loop.on_readable()
        assert len(owner.piped) == 40_000
        assert not owner.received
