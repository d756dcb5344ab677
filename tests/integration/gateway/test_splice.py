"""Large responses of a real broker that the kernel moves to real clients, also while workers are replaced."""

import random
import time
from collections.abc import Callable
from hashlib import sha256

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.integration.gateway.exercise import new_topic, until
from tests.support.cluster import ClientConfig, Cluster
from tests.support.gateway import GatewayProcess

Start = Callable[..., GatewayProcess]

RECORD_BYTES = 200_000
COUNT = 150
DEADLINE_S = 120.0


def write(cluster: Cluster, topic: str) -> list[bytes]:
    """Write records past the gateway; their digests."""
    producer = Producer({**cluster.client_config(), "message.max.bytes": 2_000_000, "linger.ms": 20})
    digests = []
    for seed in range(COUNT):
        value = random.Random(seed).randbytes(RECORD_BYTES)
        digests.append(sha256(value).digest())
        producer.produce(topic, value, partition=0)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    return digests


def read(config: ClientConfig, topic: str, on_record: Callable[[int], None] = lambda _: None) -> list[bytes]:
    """The digests of what a consumer gets."""
    consumer = Consumer(
        {**config, "group.id": topic, "auto.offset.reset": "earliest", "queued.max.messages.kbytes": 2000}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    digests: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(digests) < COUNT and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            digests.append(sha256(message.value() or b"").digest())
            on_record(len(digests))
    consumer.close()
    return digests


def spliced(gateway: GatewayProcess) -> float:
    return gateway.metric("headgate_splice_bytes_total")


def test_most_bytes_of_large_fetches_are_spliced_and_every_record_is_whole(cluster: Cluster, start: Start) -> None:
    gateway = start(cluster.bootstrap)
    topic = new_topic(cluster)
    digests = write(cluster, topic)
    assert read(cluster.client_config(bootstrap=gateway.bootstrap), topic) == digests
    until(lambda: spliced(gateway) > 0.7 * COUNT * RECORD_BYTES)
    assert gateway.metric("headgate_splice_fallbacks_total") == 0
    until(lambda: gateway.metric("headgate_splice_pipes") == 0)


def test_a_consumer_of_large_records_survives_the_replacement_of_its_worker(cluster: Cluster, start: Start) -> None:
    gateway = start(cluster.bootstrap)
    topic = new_topic(cluster)
    digests = write(cluster, topic)
    before = gateway.workers()

    def replace(count: int) -> None:
        if count == COUNT // 4:
            gateway.replace_workers()
        if count == COUNT // 2:
            until(lambda: not set(before) & set(gateway.workers()))

    assert read(cluster.client_config(bootstrap=gateway.bootstrap), topic, replace) == digests
    until(lambda: spliced(gateway) > 0.5 * COUNT * RECORD_BYTES)
