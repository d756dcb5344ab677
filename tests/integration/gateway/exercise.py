"""What tests of this folder do with a cluster: topics of their own, and records that go there and come back."""

import os
import time
from collections.abc import Callable
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.cluster import ClientConfig, Cluster
from tests.support.topics import create_topics
from tests.support.traffic import Report, contents

_COUNT = 100
_DEADLINE_S = 60.0  # it passes as soon as it is so; a busy machine is no defect


def new_topic(cluster: Cluster, *, partitions: int = 1, replication: int = 1) -> str:
    """Made past the gateway, by a super user; the leaders of its partitions serve it when this returns."""
    topic = f"gw-{uuid4().hex[:8]}"
    create_topics(cluster, [topic], partitions=partitions, replication=replication)
    return topic


def round_trip(config: ClientConfig, topic: str, *, size: int = 100) -> None:
    """A hundred records written and read back through the address in `config`."""
    values = [os.urandom(size) for _ in range(_COUNT)]
    producer = Producer({**config, "compression.type": "lz4"})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(_DEADLINE_S) == 0
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read: list[bytes] = []
    deadline = time.monotonic() + _DEADLINE_S
    while len(read) < _COUNT and time.monotonic() < deadline:
        for message in consumer.consume(_COUNT, 0.5):
            assert message.error() is None
            read.append(message.value() or b"")
    consumer.close()
    assert read == values


def assert_whole(cluster: Cluster, topic: str, report: Report) -> None:
    """Everything was written once, in order, and read; the clients saw nothing but lost connections."""
    assert report.lasting_errors == []
    [written] = contents(cluster.client_config(), topic)
    assert written == [str(number).encode() for number in range(len(written))]
    assert report.acked == set(range(len(written)))
    assert report.acked <= report.read


def until(condition: Callable[[], bool], seconds: float = _DEADLINE_S) -> float:
    """Wait for something that happens outside of this process; how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "it did not happen in time"
        time.sleep(0.02)
    return time.monotonic() - began
