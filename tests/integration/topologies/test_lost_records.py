"""Topics that lose records while they are followed: created again, or emptied by DeleteRecords, on a real broker."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs

from headgate.facts import GroupPaused, decode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.topics import Settings, ensure_topics
from headgate.plugin.conformance import pushed
from headgate.topologies.model.group_state import DeletedVersion
from tests.integration.topologies.conftest import Place
from tests.integration.topologies.test_fact_clients import ORIGIN, new_prefix, paused
from tests.support.cluster import Cluster

WAIT_S = 60.0  # a consumer that does not fetch a topic that was created a moment ago is replaced after ten


class QuickReader(FactReader[list[str]]):
    look_s = 0.2


class Followed:
    """A reader of `state`: the reasons that it read, and a None where it began again."""

    def __init__(self, settings: Settings, prefix: str) -> None:
        self.topic = f"{prefix}state"
        self.admin = AdminClient(settings)
        self.writer = FactWriter(settings, prefix=prefix, origin=ORIGIN)
        self.read: list[str | None] = []
        self.ends = 0
        self.reader = QuickReader(
            settings,
            topic=self.topic,
            detects_loss=True,
            digest=_reasons,
            forget=lambda another: [None] if another else [],  # type: ignore[list-item]
            take=self.read.extend,
            on_end=self._on_end,
        )

    def _on_end(self) -> None:
        self.ends += 1

    def since_last_loss(self) -> list[str] | None:
        """What was read since records were lost, each once: a fact may be written twice. None: nothing was lost."""
        if None not in self.read:
            return None
        last = len(self.read) - self.read[::-1].index(None)
        return list(dict.fromkeys(one for one in self.read[last:] if one is not None))

    async def write(self, *reasons: str) -> None:
        for reason in reasons:
            await self.writer.write(paused(reason))

    async def create_again(self) -> None:
        """Return when the broker serves the new topic, which has no other writer.

        The controller is ahead of the broker, which may still accept records for the old topic and lose them with it.
        """
        await create_again(self.admin, self.topic)
        await until(self._is_empty)

    def _is_empty(self) -> bool:
        place = TopicPartition(self.topic, 0)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        try:
            found = self.admin.list_offsets({place: latest})[place].result(WAIT_S)
        except KafkaException:
            return False
        return bool(found.offset == 0)

    async def delete_records(self) -> None:
        policy = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
        config = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=[policy])
        await asyncio.to_thread(self.admin.incremental_alter_configs([config])[config].result, WAIT_S)
        place = TopicPartition(self.topic, 0, -1)
        await until(lambda: self._is_deleted(place))

    def _is_deleted(self, place: TopicPartition) -> bool:
        try:
            self.admin.delete_records([place])[place].result(WAIT_S)
        except KafkaException:  # the broker does not have the new policy yet
            return False
        return True


async def create_again(admin: AdminClient, topic: str) -> None:
    await asyncio.to_thread(admin.delete_topics([topic])[topic].result, WAIT_S)

    def create() -> bool:
        try:
            admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(WAIT_S)
        except KafkaException:  # it is still being deleted
            return False
        return True

    await until(create)


def _reasons(records: Sequence[ConsumedRecord]) -> list[str]:
    facts = (decode("state", record.key, record.value) for record in records)
    return [fact.reason for fact in facts if isinstance(fact, GroupPaused)]


async def until(condition: Callable[[], Any], seen: Callable[[], object] = str) -> None:
    end = asyncio.get_running_loop().time() + WAIT_S
    while not condition():
        assert asyncio.get_running_loop().time() < end, f"it did not happen in {WAIT_S:.0f} s: {seen()!r}"
        await asyncio.sleep(0.05)


@asynccontextmanager
async def followed(cluster: Cluster) -> AsyncIterator[Followed]:
    settings, prefix = dict(cluster.client_config()), new_prefix()
    await ensure_topics(settings, prefix=prefix, max_bytes=1024 * 1024)
    one = Followed(settings, prefix)
    await one.writer.open("state")
    one.reader.start()
    try:
        await one.write("a", "b")
        await until(lambda: one.read == ["a", "b"] and one.ends == 1)
        yield one
    finally:
        await one.reader.close()
        await one.writer.close()
        del one.admin  # closes its connections


async def test_a_topic_that_was_created_again_is_read_from_its_start_although_it_has_as_many_records(
    cluster: Cluster,
) -> None:
    async with followed(cluster) as one:
        await one.create_again()
        await one.write("c", "d", "e")
        await until(lambda: one.since_last_loss() == ["c", "d", "e"], lambda: one.read)
        await until(lambda: one.ends > 1)
        await one.write("f")
        await until(lambda: one.since_last_loss() == ["c", "d", "e", "f"], lambda: one.read)


async def test_a_topic_that_was_created_again_and_is_empty_is_noticed(cluster: Cluster) -> None:
    async with followed(cluster) as one:
        await one.create_again()
        await until(lambda: one.read[-1] is None)
        await until(lambda: one.ends > 1)


async def test_records_that_were_deleted_behind_the_reader_are_noticed(cluster: Cluster) -> None:
    async with followed(cluster) as one:
        await one.delete_records()
        await until(lambda: one.read[-1] is None)
        await until(lambda: one.ends > 1)
        await one.write("c")
        await until(lambda: one.read[-2:] == [None, "c"])


async def test_descriptions_that_were_lost_are_logged_and_counted_and_can_be_pushed_again(place: Place) -> None:
    with capture_logs() as logs:
        await lose_descriptions(place)
    lost = [one["lost"] for one in logs if one["event"] == "topology descriptions were lost, members push them again"]
    assert lost == [1, 1, 1]


async def lose_descriptions(place: Place) -> None:
    admin = AdminClient(place.settings)
    async with place.open() as store:
        await store.set(pushed("g"))
        await store.set(pushed("h"))
        await store.delete("h")
        place.records.clear()
        await create_again(admin, f"{place.prefix}topologies")
        await until(lambda: store.lost_descriptions == 1)
        assert place.records == [("g", DeletedVersion("9f2c"))]
        assert await store.get("g", 0) is None
        await store.set(pushed("g"))
        assert await store.get("g", 0) is not None
        await create_again(admin, f"{place.prefix}topologies")
        await until(lambda: store.lost_descriptions == 2)
        await store.set(pushed("k"))
    await create_again(admin, f"{place.prefix}topologies")
    async with place.open() as store:
        assert store.lost_descriptions == 1, "noticed by the cache at a start"
