"""Topics of a test, created past the gateway by a super user.

One rule: when a call returns, the leaders of all partitions serve the topics. The controller answers before they do.
"""

import time
from collections.abc import Iterable

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from tests.support.cluster import Cluster

_DEADLINE_S = 60.0


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
