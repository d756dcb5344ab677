"""Topics of a campaign's own, and frames about them that a broker answers well: what is damaged is better real."""

import asyncio
from dataclasses import dataclass
from struct import pack
from typing import Final
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headgate.wire.codec import decode, encode
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headgate.wire.messages.data import FetchPartition, FetchRequest, FetchTopic, ProducePartition, ProduceRequest
from headgate.wire.messages.data import ProduceTopic as ProduceToTopic
from headgate.wire.records import WireRecord, write_batch
from tests.support import hostile_frames as forged
from tests.support.fake_upstream import Client, body_of

MIB: Final = 1024 * 1024
_FILL_BATCHES: Final = 16


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
    batch = write_batch([WireRecord(offset=0, timestamp=0, value=b"y" * size)])
    partition = ProducePartition(index=0, records=batch)
    return ProduceRequest(
        acks=1, timeout_ms=10_000, topic_data=(ProduceToTopic(name=topic, partition_data=(partition,)),)
    )
