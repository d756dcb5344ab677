"""Topics of a test, created and read past the gateway by a super user.

One rule: when a call returns, the leaders of all partitions serve the topics. The controller answers before they do.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.cluster import Cluster

_DEADLINE_S = 60.0
_SEGMENT_MS = 100


def create_topics(cluster: Cluster, topics: Iterable[str], *, partitions: int = 1, replication: int = 1) -> None:
    """Create all of these with one call."""
    names = list(topics)
    admin = AdminClient(cluster.client_config())  # its calls end when it does
    for created in admin.create_topics([NewTopic(name, partitions, replication) for name in names]).values():
        created.result(_DEADLINE_S)
    ends = {
        TopicPartition(name, number): OffsetSpec.latest()  # type: ignore[no-untyped-call]
        for name in names
        for number in range(partitions)
    }
    until = time.monotonic() + _DEADLINE_S
    while not _are_served(admin, ends):
        assert time.monotonic() < until, f"leaders do not serve {names}"
        time.sleep(0.02)


def _are_served(admin: AdminClient, ends: dict[TopicPartition, OffsetSpec]) -> bool:
    try:
        return all(listed.result(_DEADLINE_S).offset >= 0 for listed in admin.list_offsets(ends).values())
    except KafkaException:  # a broker may not know yet what the controller has created
        return False


def committed_records(settings: Mapping[str, Any], topic: str) -> list[Message]:
    """All records that readers of committed records see, by partition and offset."""
    consumer = Consumer(
        {
            **settings,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    partitions = [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic).topics[topic].partitions]
    ends = {one.partition: consumer.get_watermark_offsets(one, _DEADLINE_S)[1] for one in partitions}
    waiting = {number for number, end in ends.items() if end}
    consumer.assign([one for one in partitions if one.partition in waiting])
    found: list[Message] = []
    while waiting:
        message = consumer.poll(_DEADLINE_S)
        assert message is not None, f"{topic} could not be read to its end"
        error = message.error()
        partition = message.partition()
        assert partition is not None
        if error is None:
            found.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            if (message.offset() or 0) >= ends[partition]:
                waiting.discard(partition)
        else:
            raise AssertionError(error)
    consumer.close()
    return sorted(found, key=lambda one: (one.partition() or 0, one.offset() or 0))


def make_compacted_topic(settings: Mapping[str, Any], topic: str) -> None:
    """A topic from which compaction has really removed the record at offset 0: the one at 1 has its key.

    Brokers look for work every 15 s; here it is ten times a second, from now on. A segment that is written is never
    compacted, so a third record begins the next one.
    """
    admin = AdminClient(dict(settings))
    brokers = [ConfigResource(ResourceType.BROKER, str(node)) for node in admin.list_topics().brokers]
    for broker in brokers:
        broker.add_incremental_config(
            ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
        )
    configs = {"cleanup.policy": "compact", "segment.ms": str(_SEGMENT_MS), "min.cleanable.dirty.ratio": "0.001"}
    made = NewTopic(topic, 1, 1, config=configs)
    for done in (*admin.incremental_alter_configs(brokers).values(), *admin.create_topics([made]).values()):
        done.result(_DEADLINE_S)
    now_ms = time.time_ns() // 1_000_000
    producer = Producer({**settings, "acks": "all"})
    for number, key in enumerate((b"k", b"k", b"other")):
        # The broker compares timestamps of records, so the test need not wait for the segment to become old.
        producer.produce(
            topic, key=key, value=b"%d" % number, partition=0, timestamp=now_ms + number * 10 * _SEGMENT_MS
        )
        assert producer.flush(_DEADLINE_S) == 0
    until = time.monotonic() + _DEADLINE_S
    while [one.offset() for one in committed_records(settings, topic)][:1] != [1]:
        assert time.monotonic() < until, f"{topic} is not compacted"
        time.sleep(0.1)
