"""Topics that a test writes as Connect or an operator does, and the records of a status topic."""

import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.activity.model.connect_records import TopicUsed, status_key, status_value
from tests.support.cluster import Cluster


class TopicTools:
    """Connected when it is created: a coroutine test may leave no socket that it did not find."""

    def __init__(self, cluster: Cluster) -> None:
        self.settings = dict(cluster.client_config())
        self._admin = AdminClient(self.settings)
        self._producer = Producer({**self.settings, "partitioner": "murmur2_random"})
        self.write(self.create(f"warm-{uuid.uuid4().hex}"), (None, b""))

    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        wanted = NewTopic(topic, partitions, 1, config={key.replace("_", "."): to for key, to in config.items()})
        self._admin.create_topics([wanted])[topic].result(30)
        return topic

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(30)

    def exists(self, topic: str) -> bool:
        return topic in self._admin.list_topics(timeout=30).topics

    def write(self, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
        for key, value in records:
            self._producer.produce(topic, key=key, value=value)
        assert self._producer.flush(30) == 0


def used(topic: str, connector: str) -> TopicUsed:
    return TopicUsed(topic=topic, connector=connector, task=0, discover_timestamp_ms=1)


def status_record(topic: str, connector: str) -> tuple[bytes, bytes]:
    return status_key(topic, connector), status_value(used(topic, connector))


def status_records(settings: Mapping[str, Any], topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """All records of a status topic of five partitions: partition, key and value."""
    consumer = Consumer({**settings, "group.id": "raw", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(5)])
    found, ends = [], 0
    while ends < 5:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            ends += 1
            continue
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        found.append((message.partition() or 0, key, None if value is None else bytes(value)))
    consumer.close()
    return found
