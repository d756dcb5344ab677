"""What was appended to real topics, whoever wrote it."""

import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.activity.coverage import CoverageTask
from headgate.activity.end_offsets import end_offsets
from headgate.base.clock import SystemClock
from headgate.config.addresses import parse_address
from headgate.kafka.connections import Dialler
from tests.support.cluster import Cluster


async def test_what_is_written_past_the_gateway_is_told_by_the_ends_of_topics(cluster: Cluster) -> None:
    name = uuid.uuid4().hex[:8]
    grown, still, ours = f"cov-{name}-grown", f"cov-{name}-still", f"own{name}.facts"
    admin = AdminClient(cluster.client_config())
    for made in admin.create_topics([NewTopic(topic, 3, 1) for topic in (grown, still, ours)]).values():
        made.result(30)
    dialler = Dialler(bootstrap=(parse_address(cluster.bootstrap),))
    told: list[Any] = []

    async def look() -> Any:
        return await end_offsets(dialler, without=f"own{name}.")

    async def tell(facts: Sequence[Any]) -> None:
        told.extend(facts)

    task = CoverageTask(look, tell, SystemClock())
    await task.look_once()
    producer = Producer(cluster.client_config())
    for number in range(30):
        for topic in (grown, ours):
            producer.produce(topic, b"x", partition=number % 3)
    assert producer.flush(30) == 0
    await task.look_once()
    mine = [one for one in told if name in (one.topic or "")]
    assert [(one.topic, one.records, one.bytes, one.actor.rule) for one in mine] == [(grown, 30, 0, "end-offsets")]
    assert mine[0].topic_id
    assert not any((one.topic or "").startswith("__") for one in told)
