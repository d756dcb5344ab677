"""The hostile-input campaigns: a real gateway, an attacker, and a healthy client beside it that must notice nothing.

`against_clients` makes every attack that a client can make, before a real broker. `against_brokers` has a broker of
the cluster turn hostile: that one is a fake, because no real broker can be made to send such bytes, and the healthy
client's broker beside it is real.
"""

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path
from struct import pack
from typing import Any, Final
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headgate.wire.codec import decode, encode
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headgate.wire.messages.data import FetchPartition, FetchRequest, FetchTopic, ProducePartition, ProduceRequest
from headgate.wire.messages.data import ProduceTopic as ProduceToTopic
from headgate.wire.records import WireRecord
from tests.support import hostile_frames as forged
from tests.support.fake_upstream import HOST, Client, body_of
from tests.support.gateway import running_gateway
from tests.support.hostile_campaign import MIB, Campaign, Outcome, watched
from tests.support.hostile_child import Child, allow_many_files
from tests.support.record_batches import write_batch

_CAP: Final = 100 * MIB  # gateway.max_frame_bytes by default
_ATTACKER_NICENESS: Final = 10  # the attacker is another machine's work: it should not win against what it attacks
_BROKER_IDLE_MS: Final = 8000  # a broker that takes nothing for so long is given up
_SEED: Final = 20261115
_FILL_BATCHES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of everything; rates are a second."""

    quiet_seconds: float
    frames: int
    full_speed_frames: int
    tag_count: int
    pipelined_seconds: float
    slow_connections: int
    slow_readers: int
    slow_seconds: float
    storm_seconds: float
    broker_calls: int
    recovery_seconds: float
    connections: int = 200
    frame_rate: float = 500.0
    pipelined_rate: float = 32 * 1024.0  # bytes: some two thousand calls
    slow_rate: float = 250.0
    storm_rate: float = 1000.0
    broker_rate: float = 60.0

    def lasting(self, minutes: float) -> "Size":
        """The same with more frames, until the campaign takes so long; never with fewer."""
        beside = (
            self.quiet_seconds
            + self.pipelined_seconds
            + self.slow_connections / self.slow_rate
            + self.slow_seconds
            + self.storm_seconds
            + self.broker_calls / self.broker_rate
        )
        return replace(self, frames=max(self.frames, round((60 * minutes - beside) * self.frame_rate)))


WHOLE: Final = Size(
    quiet_seconds=30,
    frames=100_000,
    full_speed_frames=20_000,
    tag_count=20_000_000,
    pipelined_seconds=20,
    slow_connections=5000,
    slow_readers=100,
    slow_seconds=20,
    storm_seconds=20,
    broker_calls=4000,
    recovery_seconds=60,
    frame_rate=800.0,
    broker_rate=80.0,
)
TWENTIETH: Final = Size(
    quiet_seconds=4,
    frames=5_000,
    full_speed_frames=0,
    tag_count=1_000_000,
    pipelined_seconds=3,
    slow_connections=250,
    slow_readers=5,
    slow_seconds=3,
    storm_seconds=1,
    broker_calls=200,
    recovery_seconds=60,
)


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
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
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
    batch = write_batch([WireRecord(offset=0, timestamp=time.time_ns() // 1_000_000, value=b"y" * size)])
    partition = ProducePartition(index=0, records=batch)
    return ProduceRequest(
        acks=1, timeout_ms=10_000, topic_data=(ProduceToTopic(name=topic, partition_data=(partition,)),)
    )


def against_clients(bootstrap: str, folder: Path, size: Size) -> Outcome:
    """Every attack of a client, on a gateway of its own before the broker at `bootstrap`."""
    allow_many_files()
    topics = Topics.make(bootstrap)
    with (
        running_gateway(folder, bootstrap, topologies__owner="gateway") as gateway,
        Child("tests.support.hostile_attacks", niceness=_ATTACKER_NICENESS) as attacker,
        watched(gateway, _port(bootstrap), topics.canary) as campaign,
    ):
        campaign.warm_up(
            attacker, "slow", connections=size.slow_connections, rate=1000.0, hold_seconds=1.0, readers=0, real=[]
        )
        campaign.be_quiet(size.quiet_seconds)
        _mutate(campaign, attacker, topics, size)
        campaign.attack(attacker, "bombs", patience=30, cap=_CAP)
        campaign.attack(attacker, "tags", patience=180, count=size.tag_count)
        campaign.attack(
            attacker,
            "pipelined",
            patience=60 + 3 * size.pipelined_seconds,
            connections=12,
            seconds=size.pipelined_seconds,
            rate=size.pipelined_rate,
        )
        campaign.attack(
            attacker,
            "slow",
            patience=60 + 3 * size.slow_connections / size.slow_rate + size.slow_seconds,
            connections=size.slow_connections,
            rate=size.slow_rate,
            hold_seconds=size.slow_seconds,
            readers=size.slow_readers,
            real=[topics.hungry.hex()],
        )
        campaign.attack(
            attacker, "storm", patience=60 + 3 * size.storm_seconds, rate=size.storm_rate, seconds=size.storm_seconds
        )
        campaign.stall(attacker, topics.hungry)
        campaign.recover(size.recovery_seconds)
        return campaign.finish()


def _mutate(campaign: Campaign, attacker: Child, topics: Topics, size: Size) -> None:
    """Damaged frames at a bounded rate, and then as fast as this machine can make them."""
    common: dict[str, Any] = {
        "connections": size.connections,
        "real": [frame.hex() for frame in topics.real],
        "skip": sorted(forged.CHANGES_BROKER),
    }
    patience = 60 + 3 * size.frames / size.frame_rate
    campaign.attack(
        attacker, "mutated", patience=patience, frames=size.frames, rate=size.frame_rate, seed=_SEED, **common
    )
    if size.full_speed_frames:
        campaign.attack(
            attacker,
            "mutated",
            name="mutated, full speed",
            is_bounded=False,
            patience=600,
            frames=size.full_speed_frames,
            rate=0,
            seed=_SEED + 1,
            **common,
        )


def against_brokers(bootstrap: str, folder: Path, size: Size) -> Outcome:
    """A broker of the cluster turns hostile: the clients of the other one, at `bootstrap`, must notice nothing."""
    allow_many_files()
    topics = Topics.make(bootstrap)
    arguments = (f"--real-port={_port(bootstrap)}", f"--cluster-id={topics.cluster_id}")
    with Child("tests.support.hostile_broker", *arguments, niceness=_ATTACKER_NICENESS) as broker:
        upstream = f"{HOST}:{broker.ask('ports')['bootstrap']}"
        with (
            # Without topologies: their clients are librdkafka's, which ends the process at some nonsense of a broker
            # (docs/operate.md). What is promised here is the data plane's.
            running_gateway(folder, upstream, gateway__nodes="0-1", gateway__idle_ms=_BROKER_IDLE_MS) as gateway,
            watched(gateway, _port(bootstrap), topics.canary, at_node=True) as campaign,
        ):
            campaign.be_quiet(size.quiet_seconds)
            with campaign.phase("hostile broker") as phase:
                phase.counts = broker.ask(
                    "attack",
                    patience=60 + 3 * size.broker_calls / size.broker_rate,
                    port=gateway.setup.port + 2,
                    calls=size.broker_calls,
                    rate=size.broker_rate,
                    seed=_SEED,
                )
            campaign.recover(size.recovery_seconds)
            return campaign.finish()


def _port(bootstrap: str) -> int:
    return int(bootstrap.rpartition(":")[2])
