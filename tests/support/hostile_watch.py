"""The watcher: a healthy client beside the attack, and two pings that say what the waiting was for.

Run as a child of the campaign. It has

- the *canary*: Metadata, Produce, Fetch through the gateway on connections of its own, every answer checked, and
  every few rounds on new connections; a twin does the same past the gateway, at the broker itself. What the twin
  suffers too is the broker's and the machine's doing, not the gateway's;
- the *ping*: ApiVersions in a version that nobody knows, which the gateway answers by itself. Its round trip is one
  wait for the gateway's event loop, so the longest one bounds how long that loop was kept; a second one goes to an
  echo in a process of its own, which has nothing to do: what that one waits is the machine's scheduler.

One rule: nothing is retried. An answer that does not come, or is not the right one, is an error.
"""

import argparse
import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from struct import pack
from typing import Final, TypeVar

import uvloop

from headgate.base.errors import HeadgateError
from headgate.wire.codec import decode
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headgate.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from headgate.wire.records import WireRecord, batches
from headgate.wire.schema import Message
from tests.support.fake_upstream import Client, body_of
from tests.support.hostile_child import Answers, allow_many_files, serve
from tests.support.hostile_frames import API_VERSIONS, FETCH, METADATA, PRODUCE, log_in, request
from tests.support.record_batches import write_batch

HOST: Final = "127.0.0.1"
_METADATA_VERSION, _PRODUCE_VERSION, _FETCH_VERSION = 12, 12, 17
_ROUND_SECONDS: Final = 0.02
_ROUNDS_A_CONNECTION: Final = 25
_PING_SECONDS: Final = 0.005
_PING_PATIENCE: Final = 20.0
_VALUE: Final = b"x" * 1024
_MOST_ERRORS: Final = 20

M = TypeVar("M", bound=Message)


class Samples:
    """Durations by period and kind of call; `mark` begins a period."""

    def __init__(self) -> None:
        self.period = "start"
        self.errors: dict[str, list[str]] = defaultdict(list)
        self._seconds: dict[tuple[str, str], list[float]] = defaultdict(list)

    def add(self, kind: str, seconds: float) -> None:
        self._seconds[self.period, kind].append(seconds)

    def fail(self, text: str) -> None:
        errors = self.errors[self.period]
        if len(errors) < _MOST_ERRORS:
            errors.append(text)

    def summary(self) -> Answers:
        """By period: what went wrong, and of each kind the count and p50, p99 and longest in milliseconds."""
        periods: Answers = {}
        for (period, kind), seconds in self._seconds.items():
            seconds.sort()
            figures = {
                "count": len(seconds),
                "p50": _ms(seconds[len(seconds) // 2]),
                "p99": _ms(seconds[min(len(seconds) - 1, len(seconds) * 99 // 100)]),
                "max": _ms(seconds[-1]),
            }
            periods.setdefault(period, {"errors": []})[kind] = figures
        for period, errors in self.errors.items():
            periods.setdefault(period, {})["errors"] = errors
        return periods


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


class Canary:
    """A client that does what clients do; `name` is how its samples are called."""

    def __init__(self, name: str, ports: tuple[int, int], topic: str, samples: Samples, *, login: str = "") -> None:
        self._name = name
        self._login = login
        self._bootstrap, self._node = ports
        self._topic = topic
        self._topic_id = b""
        self._samples = samples
        self._correlation_id = 0

    async def sing(self) -> None:
        """For ever: a few rounds on one pair of connections, then on another."""
        while True:
            clients: list[Client] = []
            try:
                began = time.perf_counter()
                clients = [await self._connect(port) for port in (self._bootstrap, self._node)]
                self._samples.add(f"{self._name}_connect", time.perf_counter() - began)
                for _ in range(_ROUNDS_A_CONNECTION):
                    began = time.perf_counter()
                    await self._round(*clients)
                    await asyncio.sleep(max(0.0, _ROUND_SECONDS - (time.perf_counter() - began)))
            except (
                OSError,
                EOFError,
                StopIteration,
                TimeoutError,
                ValueError,
                AssertionError,
                HeadgateError,
            ) as problem:
                self._samples.fail(f"{self._name}: {problem!r}")
                await asyncio.sleep(0.1)
            finally:
                for client in clients:
                    client.close()

    async def _connect(self, port: int) -> Client:
        client = await Client.connect(HOST, port)
        for one in log_in(self._login) if self._login else ():
            await client.send(one)
            await client.frame()
        return client

    async def _round(self, bootstrap: Client, node: Client) -> None:
        topic = MetadataRequestTopic(name=self._topic)
        asked = MetadataRequest(topics=(topic,), allow_auto_topic_creation=False)
        metadata = await self._call(bootstrap, METADATA, _METADATA_VERSION, asked, MetadataResponse)
        [described] = metadata.topics
        [broker] = metadata.brokers
        assert described.error_code == 0, f"topic error {described.error_code}"
        assert broker.port == self._node, f"node {broker.node_id} is at {broker.host}:{broker.port}"
        self._topic_id = described.topic_id
        offset = await self._produce(node)
        await self._fetch(node, offset)

    async def _produce(self, node: Client) -> int:
        batch = write_batch([WireRecord(offset=0, timestamp=time.time_ns() // 1_000_000, value=_VALUE)])
        partition = ProducePartition(index=0, records=batch)
        topic = ProduceTopic(name=self._topic, partition_data=(partition,))
        asked = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,))
        produced = await self._call(node, PRODUCE, _PRODUCE_VERSION, asked, ProduceResponse)
        [answer] = produced.responses[0].partition_responses
        assert answer.error_code == 0, f"produce error {answer.error_code}"
        return answer.base_offset

    async def _fetch(self, node: Client, offset: int) -> None:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic_id=self._topic_id, partitions=(partition,))
        asked = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=(topic,))
        fetched = await self._call(node, FETCH, _FETCH_VERSION, asked, FetchResponse)
        [answer] = fetched.responses[0].partitions
        assert answer.error_code == 0, f"fetch error {answer.error_code}"
        [record] = next(batches(answer.records or b"")).records(max_bytes=1 << 20)  # behind it may be the twin's
        assert record.value == _VALUE, "another record came back"

    async def _call(self, client: Client, key: int, version: int, asked: Message, answer: type[M]) -> M:
        self._correlation_id += 1
        began = time.perf_counter()
        frame = await client.call(key, version, asked, correlation_id=self._correlation_id)
        self._samples.add(self._name, time.perf_counter() - began)
        assert int.from_bytes(frame[4:8], "big") == self._correlation_id, "the answer to another call"
        return decode(answer, version, body_of(frame, key, version))


class Ping(threading.Thread):
    """One small question after the other, in a thread: the event loop of the canary must not be what is measured."""

    def __init__(self, name: str, port: int, question: bytes, samples: Samples, *, login: str = "") -> None:
        super().__init__(name=name, daemon=True)
        self._login = login
        self._port = port
        self._question = question
        self._samples = samples
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set():
            try:
                with socket.create_connection((HOST, self._port), _PING_PATIENCE) as sock:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._ask_on(sock)
            except OSError as problem:
                self._samples.fail(f"{self.name}: {problem!r}")
                time.sleep(0.1)

    def _ask_on(self, sock: socket.socket) -> None:
        for one in log_in(self._login) if self._login else ():
            sock.sendall(one)
            _exactly(sock, int.from_bytes(_exactly(sock, 4), "big"))
        while not self.stopped.is_set():
            began = time.perf_counter()
            sock.sendall(self._question)
            size = int.from_bytes(_exactly(sock, 4), "big")
            _exactly(sock, size)
            waited = time.perf_counter() - began
            self._samples.add(self.name, waited)
            time.sleep(max(0.0, _PING_SECONDS - waited))


def _exactly(sock: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = sock.recv(size - len(received))
        if not piece:
            raise ConnectionError("the other side closed")
        received += piece
    return received


# An event loop that only echoes: what a ping to it waits for is the machine.
_ECHO: Final = """
import asyncio, sys, threading, uvloop
class Echo(asyncio.Protocol):
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data): self.transport.write(data)
async def main():
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
uvloop.run(main())
"""


async def _watch(given: argparse.Namespace, echo_port: int) -> None:
    samples = Samples()
    pings = (
        Ping("ping", given.bootstrap, request(API_VERSIONS, 2**15 - 1, b""), samples, login=given.login),
        Ping("echo", echo_port, pack(">i", 20) + bytes(20), samples),
    )
    for ping in pings:
        ping.start()
    canaries = (
        Canary("canary", (given.bootstrap, given.node), given.topic, samples, login=given.login),
        Canary("twin", (given.broker, given.broker), given.topic, samples, login=given.login),
    )
    singing = [asyncio.create_task(canary.sing()) for canary in canaries]

    async def handle(question: Answers) -> Answers:
        await asyncio.sleep(0)
        if question["ask"] == "mark":
            samples.period = question["period"]
            return {}
        for task in singing:
            task.cancel()
        await asyncio.gather(*singing, return_exceptions=True)
        for ping in pings:
            ping.stopped.set()
        return samples.summary()

    await serve(handle)


def main() -> None:
    arguments = argparse.ArgumentParser()
    for name in ("--bootstrap", "--node", "--broker"):
        arguments.add_argument(name, type=int, required=True)
    arguments.add_argument("--topic", required=True)
    arguments.add_argument("--login", default="", help="user:password, for listeners with SASL PLAIN")
    given = arguments.parse_args()
    allow_many_files()
    # It ends with its standard input, and so with this process.
    with subprocess.Popen([sys.executable, "-c", _ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as echo:
        assert echo.stdout
        echo_port = int(echo.stdout.readline())
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_watch(given, echo_port))


if __name__ == "__main__":
    main()
