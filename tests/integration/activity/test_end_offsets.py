"""Growth of real topics, by any writer."""

import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer

from headgate.activity.end_offset_poller import EndOffsetPoller, read_end_offsets
from headgate.activity.model.end_offset_tracker import EndOffsets
from headgate.base.clock import SystemClock
from headgate.config.addresses import parse_address
from headgate.kafka.connections import Dialler
from tests.support.cluster import Cluster
from tests.support.topics import create_topics


async def test_writes_that_bypass_the_gateway_are_reported_from_end_offsets(cluster: Cluster) -> None:
    name = uuid.uuid4().hex[:8]
    grown, still, ours = f"cov-{name}-grown", f"cov-{name}-still", f"own{name}.facts"
    create_topics(cluster, [grown, still, ours], partitions=3)  # an end offset that cannot be read is no baseline
    dialler = Dialler(bootstrap=(parse_address(cluster.bootstrap),))
    written: list[Any] = []

    async def read() -> EndOffsets:
        return await read_end_offsets(dialler, without_prefix=f"own{name}.")

    async def write(facts: Sequence[Any]) -> None:
        written.extend(facts)

    poller = EndOffsetPoller(read, write, SystemClock())
    await poller.poll()
    producer = Producer(cluster.client_config())
    for number in range(30):
        for topic in (grown, ours):
            producer.produce(topic, b"x", partition=number % 3)
    assert producer.flush(30) == 0
    await poller.poll()
    mine = [one for one in written if name in (one.topic or "")]
    assert [(one.topic, one.records, one.bytes, one.actor.rule) for one in mine] == [(grown, 30, 0, "end-offsets")]
    assert mine[0].topic_id
    assert not any((one.topic or "").startswith("__") for one in written)
