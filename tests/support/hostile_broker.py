"""A broker that lies, stalls, chatters and dies, and the clients that call it through the gateway.

Run as a child of the campaign. A fake is right here and only here: no real broker can be made to send these bytes.
The cluster that it announces has two nodes: node 0 is the campaign's real broker, whose clients must notice nothing,
and node 1 is this one. Each client says in its client id what the broker shall do to it, so that it knows what it may
get: a right answer, or an end. One rule: no address of a broker ever reaches a client, whatever the broker does.
"""

import argparse
import asyncio
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from struct import pack
from typing import Any, Final

import uvloop

from headgate.base.errors import WireError
from headgate.wire.apis import APIS
from headgate.wire.codec import decode, encode
from headgate.wire.messages.cluster import ApiVersionRange, ApiVersionsResponse, MetadataBroker, MetadataResponse
from headgate.wire.schema import Struct
from tests.support import hostile_answers as answers
from tests.support.fake_upstream import BROKER_VERSIONS, HOST, Broker, Client, Request, body_of
from tests.support.hostile_attacks import Pace
from tests.support.hostile_child import Answers, allow_many_files, serve
from tests.support.hostile_frames import INT32_MAX, OPENED, WALKED, request
from tests.support.messages import REQUESTS, random_message

_GATEWAY: Final = "127.0.0.1"
_OURS: Final = b"headgate"  # the client id of the gateway's own questions
_PATIENCE_SECONDS: Final = 5.0
# For an answer that must come. Broker and clients are this one process, at a low priority: a busy machine lets it wait,
# and an answer that it has not sent, or not read, is not one that the gateway has lost.
_LAWFUL_SECONDS: Final = 45.0
_HEARTBEAT: Final = 12
_API_VERSIONS: Final = 18
_CALLS: Final = (*(key for key in OPENED if key in BROKER_VERSIONS), *WALKED, _HEARTBEAT)
_MADE_UP_NODES: Final = 70_000  # no port can be opened for them: those of lower ones may be another test's
Play = Callable[[Broker, Request, random.Random], Awaitable[None]]


# What the broker does with a request.


async def _answers(broker: Broker, asked: Request, rng: random.Random) -> None:
    await broker.send(answers.lawful(asked, rng))


async def _single_bytes(broker: Broker, asked: Request, rng: random.Random) -> None:
    for byte in answers.lawful(asked, rng):
        await broker.send(bytes((byte,)))
        await asyncio.sleep(0)


async def _garbage(broker: Broker, _asked: Request, rng: random.Random) -> None:
    await broker.send(rng.randbytes(rng.choice((1, 7, 8, 100, 5000))))


async def _huge_size(broker: Broker, asked: Request, rng: random.Random) -> None:
    await broker.send(pack(">ii", INT32_MAX, asked.header.correlation_id))
    for _ in range(8):
        await broker.send(rng.randbytes(128 * 1024))


async def _small_size(broker: Broker, asked: Request, rng: random.Random) -> None:
    await broker.send(pack(">ii", rng.choice((-1, 0, 3, -(2**31))), asked.header.correlation_id))


async def _wrong_correlation_id(broker: Broker, asked: Request, rng: random.Random) -> None:
    answer = bytearray(answers.lawful(asked, rng))
    answer[4:8] = rng.randbytes(4)
    await broker.send(bytes(answer))


async def _mutated(broker: Broker, asked: Request, rng: random.Random) -> None:
    await broker.send(answers.damaged(asked, rng))


async def _says_more(broker: Broker, asked: Request, rng: random.Random) -> None:
    await broker.send(answers.lawful(asked, rng) * 2)


async def _says_half(broker: Broker, asked: Request, rng: random.Random) -> None:
    answer = answers.lawful(asked, rng)
    await broker.send(answer[: rng.randrange(len(answer))])
    if rng.random() < 0.5:
        broker.reset()
    raise EOFError("the broker has died")


async def _nothing(_broker: Broker, _asked: Request, _rng: random.Random) -> None:
    await asyncio.sleep(2 * _PATIENCE_SECONDS)


async def _bomb(broker: Broker, asked: Request, rng: random.Random) -> None:
    await broker.send(answers.bomb(asked, rng))


_MUST_BE_RIGHT: Final = frozenset(("answers", "single_bytes"))
_PLAYS: Final[dict[str, Play]] = {
    play.__name__.lstrip("_"): play
    for play in (
        _answers,
        _single_bytes,
        _garbage,
        _huge_size,
        _small_size,
        _wrong_correlation_id,
        _mutated,
        _says_more,
        _says_half,
        _nothing,
        _bomb,
    )
}


class HostileCluster:
    """The two listeners: bootstrap, where the gateway asks for the cluster, and the hostile node."""

    def __init__(self, real_port: int, cluster_id: str) -> None:
        self._real_port = real_port
        self._cluster_id = cluster_id  # the real broker's: the gateway may ask that one too
        self._bootstrap, self._node = (_listener() for _ in range(2))
        self._rng = random.Random(7)
        self.lies_to_monitor = False
        self.failures: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ports(self) -> Answers:
        return {"bootstrap": self._bootstrap.getsockname()[1], "node": self._node.getsockname()[1]}

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        self._spawn(self._accept(self._bootstrap, self._serve_monitor))
        self._spawn(self._accept(self._node, self._serve_client))
        try:
            yield
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for listener in (self._bootstrap, self._node):
                listener.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket, serve_one: Callable[[Broker], Awaitable[None]]) -> None:
        while True:
            sock, _ = await asyncio.get_running_loop().sock_accept(listener)
            self._spawn(self._play_safely(Broker(sock), serve_one))

    async def _play_safely(self, broker: Broker, serve_one: Callable[[Broker], Awaitable[None]]) -> None:
        try:
            await serve_one(broker)
        except (EOFError, OSError):
            pass  # the gateway has had enough
        except Exception as failure:  # noqa: BLE001 - the parent says it where the test is read
            self.failures.append(repr(failure))
        finally:
            broker.close()

    async def _serve_monitor(self, broker: Broker) -> None:
        """The gateway's question for the cluster; it gets the truth unless lying has begun."""
        while True:
            asked = await broker.request()
            if not self.lies_to_monitor or self._rng.random() < 0.7:
                await broker.send(asked.answer(self._metadata(made_up=0)))
            else:
                # Not a damaged truth: another cluster id, or another address of node 0, would rightly be believed.
                play = self._rng.choice((self._made_up, _garbage, _huge_size, _small_size, _says_half))
                await play(broker, asked, self._rng)
                return

    async def _made_up(self, broker: Broker, asked: Request, rng: random.Random) -> None:
        await broker.send(asked.answer(self._metadata(made_up=rng.choice((1, 16, 500)))))

    def _metadata(self, *, made_up: int) -> MetadataResponse:
        brokers = (
            MetadataBroker(node_id=0, host=_GATEWAY, port=self._real_port),
            MetadataBroker(node_id=1, host=HOST, port=self._node.getsockname()[1]),
            *(
                MetadataBroker(node_id=_MADE_UP_NODES + number, host=answers.FOREIGN, port=1)
                for number in range(made_up)
            ),
        )
        return MetadataResponse(brokers=brokers, cluster_id=self._cluster_id, controller_id=0)

    async def _serve_client(self, broker: Broker) -> None:
        while True:
            asked = await broker.request()
            if asked.header.client_id == _OURS:
                truth = _versions() if asked.key == _API_VERSIONS else self._metadata(made_up=0)
                await broker.send(asked.answer(truth))
                continue
            name, _, seed = (asked.header.client_id or b"").decode().partition(":")
            if name == "reads_nothing":
                await asyncio.Event().wait()  # to the end of the campaign
            await _PLAYS[name](broker, asked, random.Random(int(seed)))


def _versions() -> ApiVersionsResponse:
    ranges = (
        ApiVersionRange(api_key=key, min_version=low, max_version=high) for key, (low, high) in BROKER_VERSIONS.items()
    )
    return ApiVersionsResponse(api_keys=tuple(ranges))


def _listener() -> socket.socket:
    listener = socket.socket()
    listener.bind((HOST, 0))
    listener.listen(1024)
    listener.setblocking(False)
    return listener


# The clients.


@dataclass(frozen=True, slots=True)
class _Call:
    key: int
    version: int
    play: str
    frame: bytes


def _call(rng: random.Random, *, play: str | None = None) -> _Call:
    key = rng.choice(_CALLS)
    low, high = BROKER_VERSIONS[key]
    version = rng.randint(max(low, APIS[key].min_version), high)
    play = play or rng.choice(list(_PLAYS))
    body = encode(random_message(rng, REQUESTS[key], version), version)
    frame = request(key, version, body, client_id=f"{play}:{rng.randrange(1 << 30)}".encode())
    return _Call(key, version, play, frame)


async def attack(port: int, *, calls: int, rate: float, seed: int) -> Counter[str]:
    """Calls of clients, each with what the broker shall do to it; the counts say what came of them."""
    rng = random.Random(seed)
    pace = Pace(rate)
    counts: Counter[str] = Counter()
    async with asyncio.TaskGroup() as group:
        for number in range(calls):
            await pace.take()
            if number % 50 == 49:
                group.create_task(_pour(port, counts))
            group.create_task(_make(_call(rng), port, counts))
    return counts


async def _make(call: _Call, port: int, counts: Counter[str]) -> None:
    client = await Client.connect(_GATEWAY, port)
    counts[call.play] += 1
    answer: bytes | None = None
    try:
        await client.send(call.frame)
        if call.play == "nothing" or not _has_answer(call):
            await client.is_quiet(_PATIENCE_SECONDS / 2)
        else:
            async with asyncio.timeout(_LAWFUL_SECONDS if call.play in _MUST_BE_RIGHT else _PATIENCE_SECONDS):
                answer = await client.frame()
    except TimeoutError:
        counts["timed_out"] += 1
    except (OSError, EOFError):
        counts["ended"] += 1
    finally:
        client.close()
    if answer is not None:
        counts["answered"] += 1
        if any(_leaks(call, answer)):
            counts["leaks"] += 1
            counts[f"leak_{call.play}_{call.key}_v{call.version}"] += 1
    elif call.play in _MUST_BE_RIGHT and _has_answer(call):
        counts["lawful_answers_missed"] += 1
        counts[f"missed_{call.play}_{call.key}_v{call.version}"] += 1


def _has_answer(call: _Call) -> bool:
    """Random Produce requests have acks=0 at times."""
    if call.key != 0:
        return True
    asked = decode(REQUESTS[0], call.version, call.frame[_body_at(call) :])
    acks: int = getattr(asked, "acks")  # noqa: B009 - the registry's classes are Messages to a type checker
    return acks != 0


def _body_at(call: _Call) -> int:
    size = int.from_bytes(call.frame[12:14], "big")
    return 14 + size + APIS[call.key].is_flexible(call.version)


def _leaks(call: _Call, answer: bytes) -> Iterator[str]:
    """Addresses of brokers in what a client could read out of its answer."""
    try:
        message = decode(REQUESTS[call.key].response_class(), call.version, body_of(answer, call.key, call.version))
    except WireError:
        return
    yield from _broker_hosts(message)


def _broker_hosts(value: Any) -> Iterator[str]:
    if isinstance(value, tuple):
        for one in value:
            yield from _broker_hosts(one)
    elif isinstance(value, Struct):
        fields = {spec.name: getattr(value, spec.name) for spec in value.layout.fields}
        node = fields.get("node_id", fields.get("broker_id", -1))
        if node >= 0 and fields.get("host") in answers.SECRET_HOSTS:
            yield fields["host"]
        for one in fields.values():
            yield from _broker_hosts(one)


async def _pour(port: int, counts: Counter[str]) -> None:
    """Send far more than the sockets on the way hold to a broker that reads nothing, and go away."""
    client = await Client.connect(_GATEWAY, port)
    counts["reads_nothing"] += 1
    frame = request(_HEARTBEAT, 4, bytes(60_000), client_id=b"reads_nothing:0")
    try:
        with suppress(OSError):
            async with asyncio.timeout(1.0):
                for _ in range(400):
                    await client.send(frame)
    finally:
        client.close()


async def _main(given: argparse.Namespace) -> None:
    cluster = HostileCluster(given.real_port, given.cluster_id)

    async def handle(question: Answers) -> Answers:
        if question["ask"] == "ports":
            return cluster.ports
        cluster.lies_to_monitor = True
        began = asyncio.get_running_loop().time()
        counts = await attack(question["port"], calls=question["calls"], rate=question["rate"], seed=question["seed"])
        cluster.lies_to_monitor = False
        assert not cluster.failures, cluster.failures[0]
        return {**counts, "seconds": round(asyncio.get_running_loop().time() - began, 2)}

    async with cluster.serving():
        await serve(handle)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--real-port", type=int, required=True)
    arguments.add_argument("--cluster-id", required=True)
    allow_many_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(arguments.parse_args()))
