"""The hostile-input campaign: a real gateway before a real broker, an attacker, and a healthy client beside it.

`against_clients` runs every attack that a client can make, one phase after the other, and measures each: what the
canary saw, what the event loop was kept by, what was held in memory. `Outcome.problems` says which of the promises
were broken; the figures themselves are for the record. The hostile broker is `hostile_broker`.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack
from typing import Any, Final
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headgate.wire.codec import decode, encode
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headgate.wire.messages.data import FetchPartition, FetchRequest, FetchTopic, ProducePartition, ProduceRequest
from headgate.wire.messages.data import ProduceTopic as ProduceToTopic
from headgate.wire.records import Record, write_batch
from tests.support import hostile_frames as forged
from tests.support.fake_upstream import HOST, Client, body_of
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.hostile_child import Child, allow_many_files
from tests.support.hostile_gauges import MIB, Level, MemoryPeak, await_reports, log_defects, look_at

_CAP: Final = 100 * MIB  # gateway.max_frame_bytes by default
_ALLOWANCE: Final = 32 * MIB  # the constant of "bytes held", and what memory may differ by at the end
_LONGEST_WAIT_MS: Final = 100.0
_ATTACKER_NICENESS: Final = 10  # the attacker is another machine's work: it should not win against what it attacks
_BROKER_RECOVERY_SECONDS: Final = 30.0
_BROKER_IDLE_MS: Final = 8000  # a broker that takes nothing for so long is given up
_FILL_BATCHES: Final = 16
_SEED: Final = 20261115


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of everything; rates are a second."""

    quiet_seconds: float
    frames: int
    frame_rate: float
    tag_count: int
    pipelined_bytes: int
    pipelined_rate: float
    slow_connections: int
    slow_readers: int
    slow_rate: float
    slow_seconds: float
    storm_rate: float
    storm_seconds: float
    recovery_seconds: float
    connections: int = 200
    mutating_seconds: float = 3600.0  # at most


WHOLE: Final = Size(
    quiet_seconds=30,
    frames=100_000,
    frame_rate=500,
    tag_count=20_000_000,
    pipelined_bytes=24 * MIB,
    pipelined_rate=256 * 1024,
    slow_connections=5000,
    slow_readers=250,
    slow_rate=250,
    slow_seconds=30,
    storm_rate=1000,
    storm_seconds=20,
    recovery_seconds=60,
)
TWENTIETH: Final = Size(
    quiet_seconds=4,
    frames=5_000,
    frame_rate=500,
    tag_count=1_000_000,
    pipelined_bytes=3 * MIB,
    pipelined_rate=1024 * 1024,
    slow_connections=250,
    slow_readers=12,
    slow_rate=250,
    slow_seconds=3,
    storm_rate=1000,
    storm_seconds=1,
    recovery_seconds=15,
)


@dataclass(slots=True, kw_only=True)
class Phase:
    """One attack and what it did; `seen` is the watcher's, filled in at the end."""

    name: str
    counts: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    memory_growth: int = 0
    received_bytes: int = 0
    long_wake_ups: int = 0
    seen: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """All of it: the phases in their order, the levels around them, what the gateway's log holds."""

    phases: list[Phase] = field(default_factory=list)
    before: Level | None = None
    after: Level | None = None
    recovered_after: float | None = None
    defects: list[str] = field(default_factory=list)

    def phase(self, name: str) -> Phase:
        return next(one for one in self.phases if one.name == name)

    def problems(
        self, *, p99_ratio: float, p99_floor_ms: float, longest_wait_ms: float = _LONGEST_WAIT_MS
    ) -> list[str]:
        """Which promises were broken; the canary's p99 may be the floor, however small its quiet one is."""
        assert self.before
        assert self.after
        problems = [f"log: {line}" for line in self.defects]
        if self.after.ended.get("internal", 0):
            problems.append(f"{self.after.ended['internal']} connections ended by a defect of the gateway")
        if self.recovered_after is None:
            problems.append(
                f"sockets {self.before.sockets} before, {self.after.sockets} after; "
                f"memory {self.before.memory_bytes // MIB} MiB before, {self.after.memory_bytes // MIB} MiB after"
            )
        quiet = self.phase("quiet").seen["canary"]["p99"]
        allowed = max(p99_ratio * quiet, p99_floor_ms)
        for phase in self.phases:
            seen = phase.seen
            problems += [f"{phase.name}: {error}" for error in seen["errors"]]
            if (p99 := seen["canary"]["p99"]) > allowed:
                problems.append(f"{phase.name}: canary p99 {p99} ms, {allowed:.1f} ms allowed, {quiet} ms when quiet")
            if (longest := seen["ping"]["max"]) > max(longest_wait_ms, seen["echo"]["max"] + longest_wait_ms / 2):
                problems.append(f"{phase.name}: a ping waited {longest} ms, one to an idle loop {seen['echo']['max']}")
            if phase.long_wake_ups:
                problems.append(f"{phase.name}: {phase.long_wake_ups} wake-ups of the event loop over 100 ms")
            if phase.memory_growth > phase.received_bytes + _ALLOWANCE:
                problems.append(
                    f"{phase.name}: {phase.memory_growth // MIB} MiB more memory, "
                    f"{phase.received_bytes // MIB} MiB received"
                )
            problems += [
                f"{phase.name}: {what.replace('_', ' ')}: {phase.counts[what]}"
                for what in ("certain_still_there", "still_there", "not_taken", "leaks", "lawful_answers_missed")
                if phase.counts.get(what)
            ]
        return problems


class Campaign:
    """The gateway under attack, the watcher, and the phases that have been."""

    def __init__(self, gateway: GatewayProcess, watch: Child) -> None:
        self.gateway = gateway
        self.outcome = Outcome()
        self._watch = watch

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        """A period of the watcher, and the gauges around it."""
        phase = Phase(name=name)
        begin = look_at(self.gateway)
        self._watch.ask("mark", period=name)
        began = time.monotonic()
        with MemoryPeak([self.gateway.pid, *self.gateway.workers()]) as peak:
            yield phase
        phase.seconds = round(time.monotonic() - began, 1)
        self._watch.ask("mark", period="between")
        await_reports()
        end = look_at(self.gateway)
        phase.memory_growth = peak.bytes - begin.memory_bytes
        phase.received_bytes = end.received_bytes - begin.received_bytes
        phase.long_wake_ups = end.long_wake_ups - begin.long_wake_ups
        self.outcome.phases.append(phase)

    def attack(self, attacker: Child, name: str, *, patience: float, **arguments: Any) -> None:
        port = self.gateway.setup.port
        with self.phase(name) as phase:
            phase.counts = attacker.ask(name, patience=patience, ports=[port, port + 1], **arguments)

    def recover(self, seconds: float) -> None:
        """Wait until sockets and memory are where they were."""
        before = self.outcome.before
        assert before
        began = time.monotonic()
        with self.phase("recovery"):
            while True:
                await_reports()
                self.outcome.after = after = look_at(self.gateway)
                near = abs(after.memory_bytes - before.memory_bytes) <= _ALLOWANCE
                # The canary changes its connections: two of them may be between closed and opened.
                few = after.connections <= before.connections + 2 and after.sockets <= before.sockets + 4
                if near and few:
                    self.outcome.recovered_after = round(time.monotonic() - began, 1)
                    return
                if time.monotonic() - began > seconds:
                    return

    def finish(self) -> Outcome:
        seen = self._watch.ask("end")
        for phase in self.outcome.phases:
            phase.seen = seen[phase.name]
        self.outcome.defects = log_defects(self.gateway)
        return self.outcome


@contextmanager
def campaign(gateway: GatewayProcess, broker_port: int, topic: str, *, at_node: bool = False) -> Iterator[Campaign]:
    """A watcher beside the gateway, warmed up, and the level before anything happens.

    With `at_node` it asks node 0 for everything: any node may answer at the bootstrap port.
    """
    ports = {"bootstrap": gateway.setup.port + at_node, "node": gateway.setup.port + 1}
    arguments = [f"--{name}={value}" for name, value in {**ports, "broker": broker_port, "topic": topic}.items()]
    with Child("tests.support.hostile_watch", *arguments) as watch:
        one = Campaign(gateway, watch)
        watch.ask("mark", period="warm-up")
        time.sleep(2.0)
        one.outcome.before = look_at(gateway)
        yield one


def against_clients(bootstrap: str, folder: Path, size: Size) -> Outcome:
    """Every attack of a client, on a gateway of its own before the broker at `bootstrap`."""
    allow_many_files()
    topics = Topics.make(bootstrap)
    broker_port = int(bootstrap.rpartition(":")[2])
    skip = sorted(forged.WRITES_CONFIGS)
    real = [frame.hex() for frame in topics.real]
    with (
        running_gateway(folder, bootstrap) as gateway,
        Child("tests.support.hostile_attacks", niceness=_ATTACKER_NICENESS) as attacker,
        campaign(gateway, broker_port, topics.canary) as one,
    ):
        with one.phase("quiet"):
            time.sleep(size.quiet_seconds)
        one.attack(
            attacker,
            "mutated",
            patience=size.frames / size.frame_rate * 3 + 60,
            frames=size.frames,
            connections=size.connections,
            rate=size.frame_rate,
            seconds=size.mutating_seconds,
            seed=_SEED,
            real=real,
            skip=skip,
        )
        one.attack(attacker, "bombs", patience=30, cap=_CAP)
        one.attack(attacker, "tags", patience=180, count=size.tag_count)
        one.attack(
            attacker,
            "pipelined",
            patience=size.pipelined_bytes / size.pipelined_rate * 3 + 60,
            connections=12,
            total_bytes=size.pipelined_bytes,
            rate=size.pipelined_rate,
        )
        one.attack(
            attacker,
            "slow",
            patience=size.slow_connections / size.slow_rate * 3 + size.slow_seconds + 60,
            connections=size.slow_connections,
            rate=size.slow_rate,
            hold_seconds=size.slow_seconds,
            readers=size.slow_readers,
            real=[topics.hungry.hex()],
        )
        one.attack(
            attacker, "storm", patience=60 + size.storm_seconds * 3, rate=size.storm_rate, seconds=size.storm_seconds
        )
        one.recover(size.recovery_seconds)
        return one.finish()


def against_brokers(bootstrap: str, folder: Path, *, calls: int, rate: float, quiet_seconds: float) -> Outcome:
    """A broker of the cluster turns hostile: the clients of the other one, a real one, must notice nothing."""
    allow_many_files()
    topics = Topics.make(bootstrap)
    broker_port = int(bootstrap.rpartition(":")[2])
    arguments = (f"--real-port={broker_port}", f"--cluster-id={topics.cluster_id}")
    with Child("tests.support.hostile_broker", *arguments, niceness=_ATTACKER_NICENESS) as broker:
        ports = broker.ask("ports")
        with (
            running_gateway(
                folder, f"{HOST}:{ports['bootstrap']}", gateway__nodes="0-1", gateway__idle_ms=_BROKER_IDLE_MS
            ) as gateway,
            campaign(gateway, broker_port, topics.canary, at_node=True) as one,
        ):
            with one.phase("quiet"):
                time.sleep(quiet_seconds)
            with one.phase("hostile broker") as phase:
                phase.counts = broker.ask(
                    "attack",
                    patience=calls / rate * 3 + 60,
                    port=gateway.setup.port + 2,
                    calls=calls,
                    rate=rate,
                    seed=_SEED,
                )
            one.recover(_BROKER_RECOVERY_SECONDS)
            return one.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Topics of the campaign's own, and frames about the attacked one that the broker answers well."""

    cluster_id: str
    canary: str
    real: tuple[bytes, ...]
    hungry: bytes  # a Fetch with a large answer

    @classmethod
    def make(cls, bootstrap: str) -> "Topics":
        canary, attacked = (f"hostile-{uuid4().hex[:8]}" for _ in range(2))
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics([NewTopic(name, 1, 1) for name in (canary, attacked)]).values():
            made.result(30)
        host, _, port = bootstrap.rpartition(":")
        return asyncio.run(_filled(canary, attacked, host, int(port)))


async def _filled(canary: str, attacked: str, host: str, port: int) -> Topics:
    asked = MetadataRequest(topics=(MetadataRequestTopic(name=attacked),), allow_auto_topic_creation=False)
    client = await Client.connect(host, port)
    try:
        answer = body_of(await client.call(forged.METADATA, 12, asked), forged.METADATA, 12)
        metadata = decode(MetadataResponse, 12, answer)
        topic_id = metadata.topics[0].topic_id
        for _ in range(_FILL_BATCHES):
            await client.call(forged.PRODUCE, 12, _produce(attacked, 64 * 1024))
    finally:
        client.close()
    fetch = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=4 * MIB,
        topics=(FetchTopic(topic_id=topic_id, partitions=(FetchPartition(partition=0, partition_max_bytes=4 * MIB),)),),
    )
    hungry = forged.request(forged.FETCH, 17, encode(fetch, 17))
    real = (
        hungry,
        forged.request(forged.METADATA, 12, encode(asked, 12)),
        forged.request(forged.METADATA, 1, pack(">i", -1)),
        forged.request(forged.PRODUCE, 12, encode(_produce(attacked, 100), 12)),
        forged.request(forged.FIND_COORDINATOR, 4, b"\x00\x02\x02g\x00"),
        forged.request(forged.DESCRIBE_CLUSTER, 1, b"\x00\x01\x00"),
        forged.request(forged.API_VERSIONS, 3, b"\x02a\x021\x00"),
    )
    return Topics(cluster_id=metadata.cluster_id or "", canary=canary, real=real, hungry=hungry)


def _produce(topic: str, size: int) -> ProduceRequest:
    batch = write_batch([Record(offset=0, timestamp=0, value=b"y" * size)])
    partition = ProducePartition(index=0, records=batch)
    return ProduceRequest(
        acks=1, timeout_ms=10_000, topic_data=(ProduceToTopic(name=topic, partition_data=(partition,)),)
    )
