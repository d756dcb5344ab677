"""`python -m bench.activity`: what watching costs, as markdown tables for bench/ACTIVITY.md.

Two questions. How much CPU does a Produce or a Fetch take in a worker with watching on and off? Both gateways stand
side by side before one real broker, and take turns, round by round; the loader is no part of the figure, which is the
CPU time of the one thread that carries calls, the least of all rounds. And how much
memory do 10,000 clients with 50 topics each take in a tracker, and how many facts a second do they make?
"""

import argparse
import asyncio
import gc
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from confluent_kafka import TopicCollection
from confluent_kafka.cimpl import NewTopic

from bench import machine
from bench.cluster import admin
from bench.processes import resident_mb
from headgate.activity.feature import ActivityFeature
from headgate.activity.service import fact_of
from headgate.activity.topic_resolver import TopicResolver
from headgate.activity.usage_tracker import UsageTracker
from headgate.base.clock import SystemClock
from headgate.base.ids import ApiKey, NodeId
from headgate.config.addresses import Address
from headgate.config.model import Config
from headgate.embedded import ClusterSpec, EmbeddedKafka
from headgate.facts import Fact
from headgate.facts import encode as encode_fact
from headgate.kafka.connections import Dialler
from headgate.proxy.connection import Connection
from headgate.proxy.listeners import ConnectionLimits
from headgate.proxy.principals import Principals, PrincipalsFeature
from headgate.proxy.server import Gateway
from headgate.share_groups.feature import ReservedNames
from headgate.wire import frames
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from headgate.wire.messages.data import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from headgate.wire.messages.data import ProduceTopic as ToTopic
from headgate.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from headgate.wire.records import WireRecord
from headgate.wire.schema import Message
from tests.support.gateway import running_gateway
from tests.support.ports import port_block
from tests.support.record_batches import write_batch

MANY = 50
CLIENTS, TOPICS = 10_000, 50
_CONNECTIONS, _DEPTH = 4, 5
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One frame that is sent again and again; `limit` is what watching may add."""

    title: str
    frame: bytes
    limit: float


def request(key: int, version: int, body: bytes, client_id: bytes = b"bench-client") -> bytes:
    header = frames.RequestHeader(api_key=key, api_version=version, correlation_id=7, client_id=client_id, tags=b"\x00")
    return frames.frame(header.encode(), body)


def produce(topics: Sequence[tuple[str, bytes]], size: int, version: int = 13) -> bytes:
    now = int(time.time() * 1000)
    batch = write_batch([WireRecord(offset=0, timestamp=now, key=None, value=bytes(size))])
    data = tuple(
        ToTopic(name=name, topic_id=topic_id, partition_data=(ProducePartition(index=0, records=batch),))
        for name, topic_id in topics
    )
    return request(ApiKey.PRODUCE, version, encode(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=data), version))


def fetch(topics: Sequence[tuple[str, bytes]], size: int, version: int = 17) -> bytes:
    """Without a session, always from offset 0."""
    asked = tuple(
        FetchTopic(topic=name, topic_id=topic_id, partitions=(FetchPartition(partition_max_bytes=size),))
        for name, topic_id in topics
    )
    message = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=size * len(topics), session_epoch=-1, topics=asked)
    return request(ApiKey.FETCH, version, encode(message, version))


class Driver:
    """A few connections on which one frame is sent again and again, some in flight on each."""

    def __init__(self, address: str, frame: bytes) -> None:
        host, _, port = address.partition(":")
        self._frames = frame * _DEPTH
        self._ends = [socket.create_connection((host, int(port)), _TIMEOUT_S) for _ in range(_CONNECTIONS)]
        self._readers = [end.makefile("rb", buffering=1 << 20) for end in self._ends]

    def drive(self, calls: int) -> None:
        for _ in range(calls // (_CONNECTIONS * _DEPTH)):
            for end in self._ends:
                end.sendall(self._frames)
            for reader in self._readers:
                for _ in range(_DEPTH):
                    size = int.from_bytes(reader.read(4), "big")
                    if len(reader.read(size)) != size:
                        raise RuntimeError("the gateway has closed a connection")

    def close(self) -> None:
        for reader, end in zip(self._readers, self._ends, strict=True):
            reader.close()
            end.close()


async def topic_ids(bootstrap: str, names: Sequence[str]) -> list[tuple[str, bytes]]:
    host, _, port = bootstrap.partition(":")
    where = Address(host, int(port))
    link = await Dialler(bootstrap=(where,)).connect(where)
    asked = MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in names))
    answer = await link.call(asked, 12)
    await link.shut()
    return [(one.name or "", one.topic_id) for one in answer.topics]


def loads(topics: Sequence[tuple[str, bytes]]) -> list[Load]:
    one, many = topics[:1], topics[:MANY]
    return [
        Load(title="Produce of 1 KB, one topic, by id", frame=produce(one, 1024), limit=0.05),
        Load(title="Produce of 1 KB, one topic, by name", frame=produce(one, 1024, version=12), limit=0.05),
        Load(title="Produce of 64 KB, one topic", frame=produce(one, 64 * 1024), limit=0.05),
        Load(title=f"Produce of {MANY} topics, 100 bytes each", frame=produce(many, 100), limit=0.15),
        Load(title="Fetch of 1 KB, one topic", frame=fetch(one, 1024), limit=0.05),
        Load(title="Fetch of 64 KB, one topic", frame=fetch(one, 64 * 1024), limit=0.05),
        Load(title=f"Fetch of {MANY} topics, 1 KB each", frame=fetch(many, 1024), limit=0.15),
    ]


def cost_of_calls(*, calls: int, rounds: int, only: str) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        kafka = EmbeddedKafka(ClusterSpec(data_dir=folder / "kafka", port=port_block()))
        kafka.start()
        stack.callback(kafka.stop)
        names = [f"bench-{number}" for number in range(MANY)]
        client = admin(kafka.bootstrap, None)
        for made in client.create_topics([NewTopic(one, 1, 1) for one in names]).values():
            made.result(_TIMEOUT_S)
        client.describe_topics(TopicCollection(names))[names[-1]].result(_TIMEOUT_S)
        topics = asyncio.run(topic_ids(kafka.bootstrap, names))
        ways = {
            way: stack.enter_context(running_gateway(folder / way, kafka.bootstrap, activity__enable=way == "on"))
            for way in ("off", "on")
        }
        lines = [
            "| call | CPU us, off | on | added | medians | limit |",
            "|---|---:|---:|---:|---|---:|",
        ]
        for load in [one for one in loads(topics) if only in one.title]:
            found: dict[str, list[float]] = {"off": [], "on": []}
            drivers = {way: Driver(gateway.address(0), load.frame) for way, gateway in ways.items()}
            for number in range(rounds + 1):
                for way in ("off", "on") if number % 2 else ("on", "off"):
                    [worker] = ways[way].workers()
                    before = _cpu_seconds(worker)
                    drivers[way].drive(calls)
                    if number:  # the first one warms up
                        found[way].append((_cpu_seconds(worker) - before) / calls * 1e6)
            for driver in drivers.values():
                driver.close()
            lines.append(_row(load, found))
            print(lines[-1], file=sys.stderr)
    return lines


def _row(load: Load, found: dict[str, list[float]]) -> str:
    """By the least of all rounds: whatever else the machine does can only add. The medians stand beside it."""
    off, on = (min(found[way]) for way in ("off", "on"))
    middle = [statistics.median(found[way]) for way in ("off", "on")]
    added = on / off - 1
    verdict = "met" if added <= load.limit else "**missed**"
    medians = f"{middle[0]:.1f}, {middle[1]:.1f}, {middle[1] / middle[0] - 1:+.1%}"
    return f"| {load.title} | {off:.1f} | {on:.1f} | {added:+.1%} | {medians} | {load.limit:.0%}: {verdict} |"


class _Sink:
    """A link that takes everything and sends nothing."""

    backlog = 0
    held = closed = ended = is_splicing = False
    is_reading = True

    def write(self, data: object) -> None:
        """It is gone."""

    def pause(self) -> None:
        """Nothing comes."""

    resume = pause


class _End:
    host = "10.0.0.1"

    def link(self, *_: object) -> Any:
        return _Sink()


async def alone(rounds: int = 15) -> list[str]:
    """The two walks of a call in this process, without sockets: what watching adds, whatever the machine does."""
    ids = [bytes([number]) * 16 for number in range(1, MANY + 1)]
    connections: dict[str, Connection] = {}
    for way in ("off", "on"):
        principals = Principals()
        watching = (PrincipalsFeature(principals), ActivityFeature(Config(), principals))
        limits = ConnectionLimits(Config().gateway)
        limits.admit(_End.host)
        reserved = ReservedNames(Config().facts.prefix)  # every gateway has it, and looks at these requests first
        gateway = Gateway(Config(), features=(reserved, *watching) if way == "on" else (reserved,), caps=limits)
        ends: list[Any] = [_End(), _End()]
        carried: dict[int, tuple[int, int]] = {ApiKey.PRODUCE: (3, 13), ApiKey.FETCH: (4, 17), ApiKey.HEARTBEAT: (0, 4)}
        connections[way] = Connection(gateway, *ends, node_id=NodeId(0), versions=carried)
    beat = HeartbeatRequest(group_id="bench-group", generation_id=3, member_id="bench-member")
    cases: list[tuple[str, bytes, ApiKey, int, Message]] = [
        ("Produce, one topic, by id", produce([("t", ids[0])], 1024), ApiKey.PRODUCE, 13, _took(ids[:1])),
        (
            "Produce, one topic, by name",
            produce([("a-name", ids[0])], 1024, 12),
            ApiKey.PRODUCE,
            12,
            _took([b"a-name"]),
        ),
        ("Fetch, one topic", fetch([("t", ids[0])], 1024), ApiKey.FETCH, 17, _brought(ids[:1])),
        ("Heartbeat", request(ApiKey.HEARTBEAT, 4, encode(beat, 4)), ApiKey.HEARTBEAT, 4, HeartbeatResponse()),
        (f"Produce, {MANY} topics", produce([("t", one) for one in ids], 100), ApiKey.PRODUCE, 13, _took(ids)),
        (f"Fetch, {MANY} topics", fetch([("t", one) for one in ids], 100), ApiKey.FETCH, 17, _brought(ids)),
    ]
    lines = ["| walk alone | us, off | on | added us |", "|---|---:|---:|---:|"]
    for title, asked, key, version, said in cases:
        flexible = frames.response_header((7).to_bytes(4, "big"), flexible=True)
        answered = frames.frame(flexible, encode(said, version))
        calls = 300 if key == ApiKey.FETCH and MANY > 1 and len(answered) > 10_000 else 2000
        best = dict.fromkeys(connections, float("inf"))
        for _ in range(rounds):
            for way, connection in connections.items():
                took = _timed(partial(_walk, connection, asked, answered, calls), time.process_time)
                best[way] = min(best[way], took / calls * 1e6)
        lines.append(f"| {title} | {best['off']:.1f} | {best['on']:.1f} | {best['on'] - best['off']:.1f} |")
    return lines


def _walk(connection: Connection, asked: bytes, answered: bytes, calls: int) -> None:
    there, back = memoryview(bytearray(asked)), memoryview(bytearray(answered))
    for _ in range(calls):
        connection.requests.on_bytes(there, len(asked))
        connection.responses.on_bytes(back, len(answered))


def _took(topics: Sequence[bytes]) -> ProduceResponse:
    partition = (ProducePartitionResponse(),)
    return ProduceResponse(
        responses=tuple(
            ProduceTopicResponse(name=one.decode("latin-1"), topic_id=one, partition_responses=partition)
            for one in topics
        )
    )


def _brought(topics: Sequence[bytes]) -> FetchResponse:
    batch = write_batch([WireRecord(offset=0, timestamp=1, key=None, value=bytes(1024))])
    partitions = (FetchPartitionResponse(records=batch),)
    return FetchResponse(responses=tuple(FetchTopicResponse(topic_id=one, partitions=partitions) for one in topics))


class _Connection:
    """As much of a session as the tracker asks for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.peer = f"10.0.{number // 250 % 250}.{number % 250}"


async def _no_topics(_: object, __: object) -> list[tuple[str, bytes]]:
    return []


def hold(clients: int, topics: int) -> list[str]:
    """In a process of its own: what so many clients cost a tracker, and how quickly they can be reported."""
    ids = [number.to_bytes(16, "big") for number in range(topics)]
    gc.collect()
    before = resident_mb(_own_pid())
    clock = SystemClock()
    tracker = UsageTracker(Principals(), TopicResolver(_no_topics), clock)
    began = time.perf_counter()
    for number in range(clients):
        session = _Connection(number + 1)
        usage = tracker.connection(session, f"service-{number}-client")  # type: ignore[arg-type]
        for one in ids:
            interval = tracker.use(session, usage, one, "read", by_id=True)  # type: ignore[arg-type]
            interval.bytes += 1000
            tracker.touch(interval)
    seen_s = time.perf_counter() - began
    gc.collect()
    after = resident_mb(_own_pid())
    swept_s = _timed(tracker.sweep)
    encoded = 0
    began = time.perf_counter()
    while some := tracker.intervals.take(clock.monotonic(), 50):
        at = clock.epoch_ms()
        encoded += len([encode_fact(_stamped(fact_of(one, at), encoded + place)) for place, one in enumerate(some)])
    encoded_s = time.perf_counter() - began
    uses = clients * topics
    return [
        f"| {clients:,} clients x {topics} topics | |",
        "|---|---:|",
        f"| intervals held | {len(tracker.intervals):,} |",
        f"| memory | {after - before:.0f} MB, {(after - before) * 1e6 / uses:.0f} bytes each |",
        f"| first sight of a use | {seen_s / uses * 1e6:.1f} us |",
        f"| setting the times of all of them, once a second at most | {swept_s:.2f} s |",
        f"| facts encoded | {encoded:,}, {encoded / encoded_s:,.0f} a second |",
        f"| facts a second when all are in use, at the cap of 15 minutes | {uses / 900:,.0f} |",
    ]


def _timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    work()
    return clock() - began


def _stamped(fact: Fact, seq: int) -> Fact:
    return replace(fact, cluster="c", writer="gw/0", boot="b", seq=seq)


def _cpu_seconds(pid: int) -> float:
    """Of the thread that carries the calls, on the scheduler's own clock: the usual one counts in hundredths."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text("ascii").split()[0]) / 1e9


def _own_pid() -> int:
    return int(Path("/proc/self").resolve().name)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.activity", description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--only", default="", help="calls whose title has this text")
    parser.add_argument("--hold-only", action="store_true", help="only what needs no broker, in this process")
    args = parser.parse_args(given)
    if args.hold_only:
        print("\n".join(hold(args.clients, TOPICS)))
        print()
        print("\n".join(uvloop.run(alone())))
        return 0
    told = ", ".join(f"{key} {value}" for key, value in machine.facts().items())
    print(f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, `python -m bench.activity`, {args.rounds} rounds of")
    print(f"{args.calls} calls each, {_CONNECTIONS} connections with {_DEPTH} in flight. {told}\n")
    print("\n".join(cost_of_calls(calls=args.calls, rounds=args.rounds, only=args.only)), flush=True)
    print()
    command = [sys.executable, "-m", "bench.activity", "--hold-only", "--clients", str(args.clients)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
