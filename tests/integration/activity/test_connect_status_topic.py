"""Reading and writing a status topic on a real broker: all partitions, read back, deletions reset."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from headgate.activity.connect_status_topic import ConnectStatusTopic
from headgate.activity.model.connect_records import status_key
from headgate.base.errors import ClusterError
from tests.support.cluster import Cluster
from tests.support.status_topics import TopicTools, status_record, status_records, used

_DEADLINE_S = 60.0
Raw = tuple[bytes, bytes | None]


class Place:
    """A status topic of five partitions and a config topic, as Connect creates them."""

    def __init__(self, tools: TopicTools) -> None:
        self.tools = tools
        self.settings, self.write = tools.settings, tools.write
        name = uuid.uuid4().hex[:8]
        self.status, self.configs = f"{name}.status", f"{name}.configs"

    def create(self, topic: str, partitions: int) -> None:
        self.tools.create(topic, partitions, cleanup_policy="compact")

    def status_topic(self, *, clears: bool = False) -> ConnectStatusTopic:
        return ConnectStatusTopic(
            self.settings, status_topic=self.status, config_topic=self.configs if clears else None
        )

    @asynccontextmanager
    async def following(self, *, clears: bool = False) -> AsyncIterator[ConnectStatusTopic]:
        status = self.status_topic(clears=clears)
        async with status.running():
            await asyncio.wait_for(status.ready(), _DEADLINE_S)
            yield status

    def raw(self) -> list[tuple[int, bytes, bytes | None]]:
        return status_records(self.settings, self.status)


@pytest.fixture(scope="module")
def tools(cluster: Cluster) -> TopicTools:
    return TopicTools(cluster)


@pytest.fixture
def place(tools: TopicTools) -> Place:
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
    place.write(place.status, *(status_record(name, "src") for name in names))
    assert len({partition for partition, _, _ in place.raw()}) == 5
    async with place.following() as status:
        assert status.topics.of("src") == tuple(sorted(names))
        assert status.problem is None
        place.write(place.status, status_record("later", "src"), (status_key("t0", "src"), None))
        await until(lambda: status.topics.has("later", "src") and not status.topics.has("t0", "src"))
        assert status.topics.of("unknown") == ()


async def test_invalid_records_are_skipped_and_logged_ten_times_a_minute(place: Place) -> None:
    bad: list[Raw] = [(f"nonsense-{number}".encode(), b"{}") for number in range(50)]
    place.write(place.status, *bad, (b"status-connector-src", b"{}"), status_record("t", "src"))
    with capture_logs() as logs:
        async with place.following() as status:
            await until(lambda: status.topics.has("t", "src"))
    skipped = [line for line in logs if line["event"] == "status record skipped"]
    assert len(skipped) == 10
    assert all(line["log_level"] == "warning" and line["key"].startswith(b"nonsense") for line in skipped)


async def test_a_use_is_recorded_once_where_a_java_producer_would_put_it(place: Place) -> None:
    place.write(place.status, (status_key("t", "src"), None))
    async with place.following() as status:
        one = used("t", "src")
        assert await status.record(one)
        assert status.topics.of("src") == ("t",)
        assert not await status.record(one)
        assert not await status.record(used("t", "a\nb"))
    written = place.raw()
    assert [(key, value) for _, key, value in written] == [(status_key("t", "src"), None), status_record("t", "src")]
    assert len({partition for partition, _, _ in written}) == 1


async def test_a_reset_is_a_tombstone_for_each_topic_and_is_read_back(place: Place) -> None:
    names = [f"t{number}" for number in range(12)]
    place.write(place.status, *(status_record(name, "src") for name in names), status_record("t0", "other"))
    before = place.raw()
    async with place.following() as status:
        assert await status.reset("src") == tuple(sorted(names))
        assert status.topics.of("src") == ()
        assert status.topics.of("other") == ("t0",)
        assert await status.reset("src") == ()
    where = {key: partition for partition, key, _ in before}
    tombstones = {key: partition for partition, key, value in place.raw() if value is None}
    assert tombstones == {key: where[key] for key in (status_key(name, "src") for name in names)}


async def test_the_next_reset_completes_a_partial_one(place: Place) -> None:
    place.write(place.status, status_record("t", "src"), status_record("u", "src"), (status_key("t", "src"), None))
    async with place.following() as status:
        assert await status.reset("src") == ("u",)
        assert status.topics.of("src") == ()


async def test_a_missing_topic_is_awaited_and_never_created(tools: TopicTools) -> None:
    place = Place(tools)
    status = place.status_topic()
    async with status.running():
        await until(lambda: "UNKNOWN_TOPIC_OR_PART" in (status.problem or ""))
        with pytest.raises(ClusterError, match="not known yet"):
            await status.record(used("t", "src"))
        with pytest.raises(ClusterError, match="not known yet"):
            await status.reset("src")
        assert not place.tools.exists(place.status)
        place.create(place.status, 5)
        await asyncio.wait_for(status.ready(), _DEADLINE_S)
        assert await status.record(used("t", "src"))


async def test_a_recreated_topic_is_read_from_its_start(place: Place) -> None:
    place.write(place.status, *(status_record(f"t{number}", "src") for number in range(30)))
    async with place.following() as status:
        assert len(status.topics) == 30
        place.tools.delete(place.status)
        await until(lambda: not place.tools.exists(place.status))
        place.create(place.status, 5)
        place.write(place.status, status_record("new", "src"))
        await until(lambda: status.topics.of("src") == ("new",))


async def test_a_deleted_connector_is_reset(place: Place) -> None:
    place.write(place.configs, (b"connector-gone", b"{}"), (b"connector-gone", None), (b"connector-here", b"{}"))
    place.write(place.status, status_record("t", "gone"), status_record("u", "gone"), status_record("t", "here"))
    async with place.following(clears=True) as status:
        await until(lambda: not status.topics.of("gone"))
        assert status.topics.of("here") == ("t",)
        assert status.is_deleted("gone")
        # Its last task may still write a record after the deletion.
        place.write(place.status, status_record("v", "gone"))
        await until(lambda: status_key("v", "gone") in {key for _, key, value in place.raw() if value is None})
        await until(lambda: not status.topics.of("gone"))
        assert not await status.record(used("t", "gone"))
        # A new connector with the same name is another connector.
        place.write(place.configs, (b"connector-gone", b"{}"))
        await until(lambda: not status.is_deleted("gone"))
        assert await status.record(used("t", "gone"))
        assert not await status.record(used("t", "of-another-cluster"))
        place.write(place.configs, (b"connector-here", None))
        await until(lambda: not status.topics.of("here"))
        assert status.topics.of("gone") == ("t",)


async def test_without_a_config_topic_deletions_are_left_to_connect(place: Place) -> None:
    place.write(place.configs, (b"connector-gone", None))
    place.write(place.status, status_record("t", "gone"))
    async with place.following() as status:
        place.write(place.status, status_record("u", "other"))
        await until(lambda: status.topics.has("u", "other"))
        assert status.topics.of("gone") == ("t",)
        assert not status.is_deleted("gone")
