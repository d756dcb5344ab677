"""The attacker: everything that a client can do to a gateway by sending, by not reading, and by coming and going.

Run as a child of the campaign (`hostile_child`). One rule: every attack is bounded in count, rate and time by its
arguments, talks to the one loopback address that it was given, and leaves no socket behind.
"""

import asyncio
import random
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from struct import pack
from typing import Any, Final

import uvloop

from headgate.wire.codec import decode
from headgate.wire.messages.cluster import ApiVersionsResponse
from tests.support import hostile_frames as forged
from tests.support.fake_upstream import Client, body_of
from tests.support.hostile_child import Answers, allow_many_files, serve

HOST: Final = "127.0.0.1"
_FROM: Final = "127.0.0.2"  # the attacker is another machine: limits for each address are not the canary's
_CONNECT_SECONDS: Final = 20.0
_SENT_AT_ONCE: Final = 256 * 1024
_SMALL_WINDOW: Final = 4096
_IP_BIND_ADDRESS_NO_PORT: Final = 24  # of Linux: the port is chosen when it connects, so that there are enough


class Pace:
    """Lets at most `rate` things a second happen; 0 is as fast as can be."""

    def __init__(self, rate: float) -> None:
        self._gap = 1 / rate if rate else 0.0
        self._next = asyncio.get_running_loop().time()

    async def take(self, count: int = 1) -> None:
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - 0.05) + self._gap * count
        await asyncio.sleep(max(0.0, self._next - now))

    def give_back(self, count: int) -> None:
        """It did not happen after all."""
        self._next -= self._gap * count


class Probe(asyncio.Protocol):
    """The attacker's end of a connection: counts what comes, and knows when it was thrown out."""

    def __init__(self) -> None:
        self.received = 0
        self.lost = asyncio.Event()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += len(data)

    def connection_lost(self, _failure: Exception | None) -> None:
        self.lost.set()

    def send(self, data: bytes) -> None:
        if not self.lost.is_set() and not self.transport.is_closing():
            self.transport.write(data)

    async def is_thrown_out(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.lost.wait()
        return self.lost.is_set()

    def leave(self, *, rudely: bool = False) -> None:
        """Close; rudely is with a reset."""
        if self.lost.is_set():
            return
        if rudely:
            linger = pack("ii", 1, 0)
            with suppress(OSError):
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.transport.abort()


async def dial(port: int, *, window: int | None = None) -> Probe | None:
    """A connection, or None when the gateway does not take it."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if window is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    try:
        sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        sock.bind((_FROM, 0))
        async with asyncio.timeout(_CONNECT_SECONDS):
            await loop.sock_connect(sock, (HOST, port))
            _, probe = await loop.create_connection(Probe, sock=sock)
    except (OSError, TimeoutError):
        sock.close()
        return None
    return probe


async def broker_versions(port: int) -> dict[int, tuple[int, int]]:
    """What the gateway announces."""
    client = await Client.connect(HOST, port)
    try:
        answer = decode(ApiVersionsResponse, 0, body_of(await client.call(forged.API_VERSIONS, 0), 18, 0))
    finally:
        client.close()
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


async def mutated(
    ports: Sequence[int],
    *,
    frames: int,
    connections: int,
    rate: float,
    seed: int,
    real: Sequence[str] = (),
    skip: Sequence[int] = (),
    seconds: float = 3600.0,
) -> Counter[str]:
    """Damaged frames on so many connections at a time, opened again when they are thrown out."""
    forge = forged.Forge(
        seed, await broker_versions(ports[0]), real=[bytes.fromhex(one) for one in real], skip=frozenset(skip)
    )
    pace = Pace(rate)
    counts: Counter[str] = Counter()
    end = asyncio.get_running_loop().time() + seconds

    def more() -> bool:
        return counts["frames"] < frames and asyncio.get_running_loop().time() < end

    async def one(rng: random.Random) -> None:
        while more():
            probe = await dial(rng.choice(ports))
            if probe is None:
                counts["not_taken"] += 1
                await asyncio.sleep(0.1)
                continue
            counts["connections"] += 1
            for _ in range(rng.choice((2, 4, 16))):
                burst = rng.choice((1, 1, 1, 1, 2, 8))
                await pace.take(burst)
                if probe.lost.is_set() or not more():
                    pace.give_back(burst)
                    break
                data = b"".join(forge.mutated() if rng.random() < 0.95 else forge.valid() for _ in range(burst))
                cut = rng.randrange(len(data) + 1) if rng.random() < 0.3 else len(data)
                probe.send(data[:cut])
                if cut < len(data):
                    await asyncio.sleep(0)
                    probe.send(data[cut:])
                counts["frames"] += burst
            counts["answer_bytes"] += probe.received
            counts["thrown_out" if probe.lost.is_set() else "left"] += 1
            if not probe.lost.is_set():
                probe.leave(rudely=rng.random() < 0.5)

    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(one(random.Random(seed * 1000 + number)))
    return counts


async def bombs(ports: Sequence[int], *, cap: int) -> Counter[str]:
    """Impossible sizes, impossible counts, other protocols; whoever sends a size or a protocol must be thrown out."""
    counts: Counter[str] = Counter()

    async def throw(bomb: bytes, kind: str) -> None:
        probe = await dial(ports[0])
        assert probe is not None
        probe.send(bomb)
        counts[kind] += 1
        if not await probe.is_thrown_out(5.0):
            counts[f"{kind}_still_there"] += 1
            probe.leave()

    certain = (*forged.length_bombs(cap), *forged.OTHER_PROTOCOLS)
    async with asyncio.TaskGroup() as group:
        for bomb in certain:
            group.create_task(throw(bomb, "certain"))
        for bomb in forged.count_bombs():
            group.create_task(throw(bomb, "counts"))
    return counts


async def tags(ports: Sequence[int], *, count: int) -> Counter[str]:
    """So many tagged fields: in the headers of calls that are opened and that pass, and in ApiVersions itself.

    What passes reaches the broker, which makes an object of each: it gets a million at most, or it would die.

    Before anything else each connection makes one honest call: what the broker has not heard of yet has a lower cap.
    """
    counts: Counter[str] = Counter()
    section = forged.tag_section(count)
    name_and_version = b"\x02a\x021"
    bombs = (
        forged.request(forged.METADATA, 12, b"\x01\x00\x00\x00", tags=section),
        forged.request(forged.PRODUCE, 11, b"\x00", tags=section),
        forged.request(forged.FETCH, 17, b"\x00", tags=forged.tag_section(min(count, 1_000_000))),
        forged.request(forged.API_VERSIONS, 3, name_and_version + b"\x00", tags=section),
        forged.request(forged.API_VERSIONS, 3, name_and_version + forged.ascending_tags(min(count, 1_000_000))),
    )
    for bomb in bombs:
        client = await Client.connect(HOST, ports[0])
        try:
            await client.call(forged.METADATA, 1, pack(">i", 0))
            counts["sent"] += 1
            for at in range(0, len(bomb), _SENT_AT_ONCE):
                await client.send(bomb[at : at + _SENT_AT_ONCE])
            await client.rest()
        except TimeoutError:
            counts["still_there"] += 1
        except OSError:
            pass  # thrown out while it still sent
        finally:
            client.close()
    return counts


async def pipelined(ports: Sequence[int], *, connections: int, seconds: float, rate: float) -> Counter[str]:
    """The smallest calls that the gateway opens, many in each send: work for no bytes. `rate` is of bytes."""
    calls = (
        forged.request(forged.API_VERSIONS, 0, b""),
        forged.request(forged.API_VERSIONS, 2**15 - 1, b""),
        forged.request(forged.METADATA, 1, pack(">i", 0)),
        forged.request(forged.FIND_COORDINATOR, 0, pack(">h", 1) + b"g"),
        forged.request(forged.DESCRIBE_CLUSTER, 0, b"\x00\x00"),
        forged.request(12, 0, pack(">h", 1) + b"g" + pack(">i", 0) + pack(">h", 1) + b"m"),
    )
    pace = Pace(rate)
    counts: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    size = min(_SENT_AT_ONCE, round(rate * seconds / connections))

    async def one(call: bytes) -> None:
        probe = await dial(ports[0])
        assert probe is not None
        batch = call * (size // len(call))
        while loop.time() < end and not probe.lost.is_set():
            await pace.take(len(batch))
            if not probe.transport.is_closing() and probe.transport.get_write_buffer_size():
                counts["waits"] += 1  # the gateway does not read: its answers come first
                await asyncio.sleep(0.05)
            else:
                probe.send(batch)
                counts["requests"] += size // len(call)
        await probe.is_thrown_out(1.0)
        counts["answer_bytes"] += probe.received
        probe.leave()

    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(one(calls[number % len(calls)]))
    return counts


async def slow(
    ports: Sequence[int], *, connections: int, rate: float, hold_seconds: float, readers: int, real: Sequence[str]
) -> Counter[str]:
    """Connections that hold their place: silent, half a frame, a byte now and then, and readers that never read."""
    counts: Counter[str] = Counter()
    pace = Pace(rate)
    probes: list[tuple[Probe, bytes]] = []
    starts = (b"", b"\x00\x00", forged.request(forged.METADATA, 12, b"\x00" * 60)[:20], b"\x00\x00\x10\x00\x00\x03")
    hungry = b"".join(bytes.fromhex(one) for one in real)

    async def open_one(number: int) -> None:
        probe = await dial(ports[number % len(ports)], window=_SMALL_WINDOW if number < readers else None)
        if probe is None:
            counts["not_taken"] += 1
            return
        if number < readers:
            with suppress(RuntimeError):  # it may be thrown out already
                probe.transport.pause_reading()
            probe.send(hungry * 4)
            probes.append((probe, b""))
        else:
            probe.send(starts[number % len(starts)])
            probes.append((probe, starts[number % len(starts)]))

    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            await pace.take()
            group.create_task(open_one(number))
    loop = asyncio.get_running_loop()
    end = loop.time() + hold_seconds
    while loop.time() < end:
        await asyncio.sleep(1.0)
        for probe, start in probes:
            if len(start) == 20 and not probe.lost.is_set():
                probe.send(b"\x00")
    counts["opened"] = len(probes)
    counts["alive_at_end"] = sum(not probe.lost.is_set() for probe, _ in probes)
    for number, (probe, _) in enumerate(probes):
        probe.leave(rudely=number % 2 == 0)
        if number % 64 == 0:
            await asyncio.sleep(0)
    return counts


async def storm(ports: Sequence[int], *, rate: float, seconds: float) -> Counter[str]:
    """So many connects a second: some leave at once, some by a reset, some after a byte, some after one call."""
    counts: Counter[str] = Counter()
    pace = Pace(rate)
    hello = forged.request(forged.API_VERSIONS, 0, b"")

    async def come_and_go(number: int) -> None:
        probe = await dial(ports[number % len(ports)])
        if probe is None:
            counts["not_taken"] += 1
            return
        counts["taken"] += 1
        if number % 4 == 2:
            probe.send(b"\x00")
        elif number % 4 == 3:
            probe.send(hello)
            await asyncio.sleep(0.2)
            counts["answered"] += probe.received > 0
        probe.leave(rudely=number % 4 == 1)

    async with asyncio.TaskGroup() as group:
        for number in range(round(rate * seconds)):
            await pace.take()
            group.create_task(come_and_go(number))
    return counts


async def unproved_acknowledges(
    ports: Sequence[int], *, group: str, topic_id: str, partitions: int, connections: int, waves: int
) -> Counter[str]:
    """Once a second so many clients that do not log in reject records of so many partitions; the broker closes them."""
    counts: Counter[str] = Counter()
    pace = Pace(1.0)
    frame = forged.acknowledge(group, bytes.fromhex(topic_id), partitions, 1, forged.REJECT)

    async def one() -> None:
        probe = await dial(ports[0])
        if probe is None:
            counts["not_taken"] += 1
            return
        probe.send(frame)
        counts["requests"] += 1
        counts["thrown_out" if await probe.is_thrown_out(_CONNECT_SECONDS) else "still_there"] += 1
        probe.leave()

    for _ in range(waves):
        await pace.take()
        async with asyncio.TaskGroup() as wave:
            for _ in range(connections):
                wave.create_task(one())
    return counts


async def large_acknowledges(
    ports: Sequence[int], *, group: str, topic_id: str, batches: int, login: str, seconds: float
) -> Counter[str]:
    """A client that may read the group accepts so many batches of records, again and again without a pause."""
    counts: Counter[str] = Counter()
    frame = forged.acknowledge(group, bytes.fromhex(topic_id), 1, batches, forged.ACCEPT)
    counts["bytes_of_each"] = len(frame)
    client = await Client.connect(HOST, ports[0], source=_FROM)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    try:
        for one in forged.log_in(login):
            await client.send(one)
            await client.frame()
        await client.call(forged.METADATA, 1, pack(">i", 0))  # before its answer such a large request is refused
        while loop.time() < end:
            await client.send(frame)
            await client.frame()
            counts["requests"] += 1
    finally:
        client.close()
    return counts


_ATTACKS: Final[dict[str, Callable[..., Awaitable[Counter[str]]]]] = {
    one.__name__: one
    for one in (mutated, bombs, tags, pipelined, slow, storm, unproved_acknowledges, large_acknowledges)
}


async def _attack(question: Answers) -> Answers:
    arguments = {name: value for name, value in question.items() if name not in {"ask", "ports"}}
    loop = asyncio.get_running_loop()
    began = loop.time()
    counts = await _ATTACKS[question["ask"]](question["ports"], **arguments)
    return {**counts, "seconds": round(loop.time() - began, 2)}


def in_words(counts: Iterable[tuple[str, float]]) -> str:
    """`frames 5000, connections 3120` for a report."""
    return ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in counts)


if __name__ == "__main__":
    allow_many_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(_attack))
