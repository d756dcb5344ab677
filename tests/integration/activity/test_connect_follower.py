"""Following and writing a status topic on a real broker: all partitions, own writes read back, deletions cleared."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs

from headgate.activity.connect_status_topic import ConnectStatusTopic
from headgate.activity.model.connect_records import TopicUsed, status_key, status_value
from headgate.base.errors import ClusterError
from tests.support.cluster import Cluster

_DEADLINE_S = 60.0
Raw = tuple[bytes, bytes | None]


def used(topic: str, connector: str) -> TopicUsed:
    return TopicUsed(topic=topic, connector=connector, task=0, discover_timestamp_ms=1)


def record(topic: str, connector: str) -> Raw:
    return status_key(topic, connector), status_value(used(topic, connector))


class Tools:
    """Clients of the whole module: what a test opens it must have closed when it ends."""

    def __init__(self, cluster: Cluster) -> None:
        self.settings = dict(cluster.client_config())
        self.admin = AdminClient(self.settings)
        self.producer = Producer({**self.settings, "partitioner": "murmur2_random"})
        self.admin.create_topics([NewTopic("warm", 1, 1)])["warm"].result(30)
        self.producer.produce("warm", value=b"")
        assert self.producer.flush(30) == 0


class Place:
    """A status topic of five partitions and a config topic, as Connect makes them."""

    def __init__(self, tools: Tools) -> None:
        self.settings = tools.settings
        name = uuid.uuid4().hex[:8]
        self.status, self.configs = f"{name}.status", f"{name}.configs"
        self._admin = tools.admin
        self._producer = tools.producer

    def exists(self, topic: str) -> bool:
        return topic in self._admin.list_topics(timeout=30).topics

    def create(self, topic: str, partitions: int) -> None:
        wanted = NewTopic(topic, partitions, 1, config={"cleanup.policy": "compact"})
        self._admin.create_topics([wanted])[topic].result(30)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(30)

    def write(self, topic: str, *records: Raw) -> None:
        for key, value in records:
            self._producer.produce(topic, key=key, value=value)
        assert self._producer.flush(30) == 0

    def follower(self, *, clears: bool = False) -> ConnectStatusTopic:
        return ConnectStatusTopic(
            self.settings, status_topic=self.status, config_topic=self.configs if clears else None
        )

    @asynccontextmanager
    async def following(self, *, clears: bool = False) -> AsyncIterator[ConnectStatusTopic]:
        follower = self.follower(clears=clears)
        async with follower.running():
            await asyncio.wait_for(follower.ready(), _DEADLINE_S)
            yield follower

    def raw(self) -> list[tuple[int, bytes, bytes | None]]:
        """Everything that lies in the status topic, by partition."""
        consumer = Consumer({**self.settings, "group.id": "raw", "enable.partition.eof": True})
        consumer.assign([TopicPartition(self.status, partition, 0) for partition in range(5)])
        found, ends = [], 0
        while ends < 5:
            message = consumer.poll(10)
            assert message is not None
            if message.error() is not None:
                ends += 1
            else:
                key, value, partition = message.key(), message.value(), message.partition()
                assert isinstance(key, bytes)
                assert partition is not None
                found.append((partition, key, value if value is None else bytes(value)))
        consumer.close()
        return found


@pytest.fixture(scope="module")
def tools(cluster: Cluster) -> Tools:
    return Tools(cluster)


@pytest.fixture
def place(tools: Tools) -> Place:
    found = Place(tools)
    found.create(found.status, 5)
    found.create(found.configs, 1)
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - nothing comes that would say so
            await asyncio.sleep(0.02)


async def test_all_partitions_are_read_from_the_start_and_followed(place: Place) -> None:
    names = [f"t{number}" for number in range(40)]
    place.write(place.status, *(record(name, "src") for name in names))
    assert len({partition for partition, _, _ in place.raw()}) == 5
    async with place.following() as follower:
        assert follower.topics.of("src") == tuple(sorted(names))
        assert follower.problem is None
        place.write(place.status, record("later", "src"), (status_key("t0", "src"), None))
        await until(lambda: follower.topics.has("later", "src") and not follower.topics.has("t0", "src"))
        assert follower.topics.of("nobody") == ()


async def test_invalid_records_are_skipped_and_logged_ten_times_a_minute(place: Place) -> None:
    bad: list[Raw] = [(f"nonsense-{number}".encode(), b"{}") for number in range(50)]
    place.write(place.status, *bad, (b"status-connector-src", b"{}"), record("t", "src"))
    with capture_logs() as logs:
        async with place.following() as follower:
            await until(lambda: follower.topics.has("t", "src"))
    told = [line for line in logs if line["event"] == "a record of a status topic was passed over"]
    assert len(told) == 10
    assert all(line["log_level"] == "warning" and line["key"].startswith(b"nonsense") for line in told)


async def test_a_use_is_recorded_once_where_a_java_producer_would_put_it(place: Place) -> None:
    place.write(place.status, (status_key("t", "src"), None))
    async with place.following() as follower:
        one = used("t", "src")
        assert await follower.record(one)
        assert follower.topics.of("src") == ("t",)
        assert not await follower.record(one)
        assert not await follower.record(used("t", "a\nb"))
    written = place.raw()
    assert [(key, value) for _, key, value in written] == [(status_key("t", "src"), None), record("t", "src")]
    assert len({partition for partition, _, _ in written}) == 1


async def test_a_reset_is_a_tombstone_for_each_topic_and_is_read_back(place: Place) -> None:
    names = [f"t{number}" for number in range(12)]
    place.write(place.status, *(record(name, "src") for name in names), record("t0", "other"))
    before = place.raw()
    async with place.following() as follower:
        assert await follower.reset("src") == tuple(sorted(names))
        assert follower.topics.of("src") == ()
        assert follower.topics.of("other") == ("t0",)
        assert await follower.reset("src") == ()  # nothing is left to do
    where = {key: partition for partition, key, _ in before}
    tombstones = {key: partition for partition, key, value in place.raw() if value is None}
    assert tombstones == {key: where[key] for key in (status_key(name, "src") for name in names)}


async def test_the_next_reset_completes_a_partial_one(place: Place) -> None:
    place.write(place.status, record("t", "src"), record("u", "src"), (status_key("t", "src"), None))
    async with place.following() as follower:
        assert await follower.reset("src") == ("u",)
        assert follower.topics.of("src") == ()


async def test_a_missing_topic_is_awaited_and_never_created(tools: Tools) -> None:
    place = Place(tools)
    follower = place.follower()
    async with follower.running():
        await until(lambda: "UNKNOWN_TOPIC_OR_PART" in (follower.problem or ""))
        with pytest.raises(ClusterError, match="not known yet"):
            await follower.record(used("t", "src"))
        with pytest.raises(ClusterError, match="not known yet"):
            await follower.reset("src")
        assert not place.exists(place.status)
        place.create(place.status, 5)
        await asyncio.wait_for(follower.ready(), _DEADLINE_S)
        assert await follower.record(used("t", "src"))


async def test_a_recreated_topic_is_read_from_its_start(place: Place) -> None:
    place.write(place.status, *(record(f"t{number}", "src") for number in range(30)))
    async with place.following() as follower:
        assert len(follower.topics) == 30
        place.delete(place.status)
        await until(lambda: not place.exists(place.status))
        place.create(place.status, 5)
        place.write(place.status, record("new", "src"))
        await until(lambda: follower.topics.of("src") == ("new",))


async def test_a_deleted_connector_is_reset(place: Place) -> None:
    place.write(place.configs, (b"connector-gone", b"{}"), (b"connector-gone", None), (b"connector-here", b"{}"))
    place.write(place.status, record("t", "gone"), record("u", "gone"), record("t", "here"))
    async with place.following(clears=True) as follower:
        await until(lambda: not follower.topics.of("gone"))
        assert follower.topics.of("here") == ("t",)
        assert follower.is_deleted("gone")
        # Its last task may still write a record behind the deletion.
        place.write(place.status, record("v", "gone"))
        await until(lambda: status_key("v", "gone") in {key for _, key, value in place.raw() if value is None})
        await until(lambda: not follower.topics.of("gone"))
        assert not await follower.record(used("t", "gone"))
        # Another of that name is another connector.
        place.write(place.configs, (b"connector-gone", b"{}"))
        await until(lambda: not follower.is_deleted("gone"))
        assert await follower.record(used("t", "gone"))
        place.write(place.configs, (b"connector-here", None))
        await until(lambda: not follower.topics.of("here"))
        assert follower.topics.of("gone") == ("t",)


async def test_without_a_config_topic_deletions_are_left_to_connect(place: Place) -> None:
    place.write(place.configs, (b"connector-gone", None))
    place.write(place.status, record("t", "gone"))
    async with place.following() as follower:
        place.write(place.status, record("u", "other"))
        await until(lambda: follower.topics.has("u", "other"))
        assert follower.topics.of("gone") == ("t",)
        assert not follower.is_deleted("gone")
