"""kafka: against a real broker: the contract, two gateways, and caches that are lost, stale or damaged."""

import asyncio
import contextlib
import dataclasses
import sqlite3
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headgate.base.errors import UsageError
from headgate.facts import decode
from headgate.facts.topics import TOPICS, message_limit
from headgate.kafka.topics import ensure_topics
from headgate.plugin import PermanentFailure, TopologyStore, TransientFailure
from headgate.plugin.conformance import TopologyStoreContract, pushed, topology
from headgate.topologies.model.group_state import DeletedVersion, StoredVersion
from headgate.topologies.stores.kafka_store import KafkaStore
from headgate.wire.compression import Compression, compress, decompress
from tests.integration.topologies.conftest import MAX_BYTES, Place
from tests.support.cluster import Cluster


class TestContract(TopologyStoreContract):
    """One prefix for all of them: creating topics takes longer than the tests."""

    prefix = f"headgate-{uuid.uuid4().hex[:8]}."

    @pytest.fixture(autouse=True)
    def _on_the_cluster(self, cluster: Cluster) -> None:
        self.settings = dict(cluster.client_config())
        self.tag = uuid.uuid4().hex

    def group(self, name: str = "g") -> str:
        return f"{self.tag}{name}"

    @asynccontextmanager
    async def open_store(self, folder: Path) -> AsyncIterator[TopologyStore]:
        async with Place(self.settings, self.prefix, folder).open() as store:
            yield store


def records(place: Place) -> list[tuple[bytes, bytes | None]]:
    """Everything in the topic, read by another client."""
    consumer = Consumer(place.settings | {"group.id": "test", "enable.auto.commit": False})
    partition = TopicPartition(f"{place.prefix}topologies", 0, 0)
    try:
        consumer.assign([partition])
        _, end = consumer.get_watermark_offsets(partition, timeout=30)
        found: list[tuple[bytes, bytes | None]] = []
        while end and len(found) < end:
            found += [(bytes(one.key() or b""), one.value()) for one in consumer.consume(100, timeout=1)]
        return found
    finally:
        consumer.close()


async def test_a_description_is_one_record_with_all_that_belongs_to_it(place: Place) -> None:
    one = pushed("g", epoch=3)
    async with place.open() as store:
        await store.set(one)
    [(key, value)] = await asyncio.to_thread(records, place)
    fact = decode("topologies", key, value)
    assert (fact.group, fact.epoch, fact.incarnation, fact.hash) == ("g", 3, "9f2c", one.hash)  # type: ignore[union-attr]
    assert fact.description == one.description  # type: ignore[union-attr]
    assert fact.writer == "gw/0"  # type: ignore[union-attr]


async def test_a_deletion_is_a_record_too_and_versions_stay(place: Place) -> None:
    async with place.open() as store:
        await store.set(pushed("g"))
        await store.delete("g")
    found = await asyncio.to_thread(records, place)
    assert [type(decode("topologies", *record)).__name__ for record in found] == [
        "TopologyDescribed",
        "TopologyDeleted",
    ]


async def test_two_gateways_serve_what_either_was_given(place: Place, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with place.open() as one, place.open(folder=tmp_path / "other") as other:
        await one.set(pushed("g", topology("one")))
        await _until(lambda: other.get("g", 0), topology("one"))
        await other.set(pushed("g", topology("two")))
        await _until(lambda: one.get("g", 0), topology("two"))
        await one.delete("g")
        await _until(lambda: other.get("g", 0), None)


async def _until(get: Callable[[], Awaitable[object]], expected: object) -> None:
    async with asyncio.timeout(60):
        while await get() != expected:  # noqa: ASYNC110 - the other gateway tells nobody
            await asyncio.sleep(0.02)


async def test_records_are_reported_once_and_in_order(place: Place) -> None:
    async with place.open() as store:
        await store.set(pushed("g", topology("one")))
        await store.set(pushed("g", topology("two")))
        await store.delete("g")
    assert [type(record) for _, record in place.records] == [StoredVersion, StoredVersion, DeletedVersion]


async def test_a_start_tells_the_last_of_each_group_and_nothing_older(place: Place) -> None:
    async with place.open() as store:
        for name in ("one", "two", "three"):
            await store.set(pushed("g", topology(name)))
        await store.set(pushed("h"))
        await store.delete("h")
    place.records.clear()
    async with place.open():
        pass
    told = {group: type(record) for group, record in place.records}
    assert told == {"g": StoredVersion, "h": DeletedVersion}
    assert len(place.records) == 2


async def test_a_cache_that_another_process_has_is_told(place: Place) -> None:
    async with place.open():
        with pytest.raises(UsageError, match="in use by another process"):
            async with place.open():
                pass


async def test_a_cache_that_is_lost_is_rebuilt(place: Place, tmp_path: Path) -> None:
    async with place.open() as store:
        await store.set(pushed("g"))
    (tmp_path / "topologies.db").unlink()
    async with place.open() as store:
        assert await store.get("g", 0) == topology()


async def test_a_cache_that_is_no_database_is_rebuilt(place: Place, tmp_path: Path) -> None:
    async with place.open() as store:
        await store.set(pushed("g"))
    (tmp_path / "topologies.db").write_bytes(b"garbage" * 10_000)
    async with place.open() as store:
        assert await store.get("g", 0) == topology()


async def test_a_cache_that_is_behind_catches_up(place: Place, tmp_path: Path) -> None:
    async with place.open() as store:
        await store.set(pushed("g", topology("one")))
    old = (tmp_path / "topologies.db").read_bytes()
    async with place.open() as store:
        await store.set(pushed("g", topology("two")))
        await store.set(pushed("h"))
    (tmp_path / "topologies.db").write_bytes(old)
    async with place.open() as store:
        assert await store.get("g", 0) == topology("two")
        assert await store.get("h", 0) == topology()


async def test_a_cache_that_is_ahead_of_the_topic_is_rebuilt(place: Place, tmp_path: Path) -> None:
    async with place.open() as store:
        await store.set(pushed("g"))
    with contextlib.closing(sqlite3.connect(tmp_path / "topologies.db")) as file, file:
        file.execute("UPDATE origin SET next_offset = 1000")
        file.execute(
            "INSERT INTO current SELECT x'676f6e65', 900, incarnation, epoch, hash, member, record FROM current"
        )
    async with place.open() as store:
        await _until(lambda: store.get("g", 0), topology())
        assert await store.get("gone", 0) is None
    assert {group: type(record) for group, record in place.records} == {"g": StoredVersion, "gone": DeletedVersion}


async def test_a_cache_of_a_topic_that_was_made_anew_is_rebuilt(place: Place) -> None:
    async with place.open() as store:
        await store.set(pushed("g"))
    admin = AdminClient(place.settings)
    for future in admin.delete_topics([f"{place.prefix}topologies"]).values():
        await asyncio.to_thread(future.result, 60)
    await _until(lambda: _made(place), expected=True)
    async with place.open() as store:
        assert await store.get("g", 0) is None


async def _made(place: Place) -> bool:
    return bool(await ensure_topics(place.settings, prefix=place.prefix, max_bytes=MAX_BYTES))


async def test_a_row_that_changed_on_the_disk_is_never_shown_and_is_mended(place: Place, tmp_path: Path) -> None:
    async with place.open() as store:
        await store.set(pushed("g", topology("one")))
    with contextlib.closing(sqlite3.connect(tmp_path / "topologies.db")) as file, file:
        [(record,)] = file.execute("SELECT record FROM current")
        changed = decompress(Compression.ZSTD, record, message_limit(MAX_BYTES)).replace(b'["one"]', b'["two"]')
        file.execute("UPDATE current SET record = ?", (compress(Compression.ZSTD, changed),))
    place.records.clear()
    async with place.open() as store:
        with pytest.raises(TransientFailure):
            await store.get("g", 0)
        await _until(lambda: _or_none(store), topology("one"))
    assert len(place.records) == 1, "what was told is not told again"


async def test_a_record_that_lies_about_its_content_is_never_shown_and_read_again_only_once(place: Place) -> None:
    one = pushed("g")
    async with place.open() as store:
        await store.set(dataclasses.replace(one, hash="sha256:another"))
        for _ in range(3):
            with pytest.raises(TransientFailure):
                await store.get("g", 0)
            await asyncio.sleep(0.3)
        await store.set(one)
        assert await store.get("g", 0) == topology()


async def _or_none(store: KafkaStore) -> object:
    try:
        return await store.get("g", 0)
    except TransientFailure:
        return None


async def test_until_the_topic_was_read_nothing_is_shown(place: Place) -> None:
    async with place.open() as store:
        await store.set(pushed("g"))
    async with place.open(replay=False) as store:
        if store.problem is not None:
            with pytest.raises(TransientFailure):
                await store.get("g", 0)
        await asyncio.wait_for(store.replayed(), 60)
        assert await store.get("g", 0) == topology()


async def test_records_that_are_no_facts_are_passed_over(place: Place) -> None:
    async with place.open() as store:
        await store.set(pushed("g"))
        producer = Producer(place.settings)
        for key, value in ((b"x", b"y"), (b'["g","9f2c",0,"h","pushed"]', None), (b"", b""), (None, b"{}")):
            producer.produce(f"{place.prefix}topologies", key=key or b"k", value=value)
        await asyncio.to_thread(producer.flush, 60)
        await store.set(pushed("h"))
        assert await store.get("g", 0) == topology()
        assert await store.get("h", 0) == topology()


async def test_a_description_that_the_topic_will_never_take_fails_for_good(place: Place) -> None:
    async with place.open() as store:
        huge = topology("x" * message_limit(MAX_BYTES), nodes=1)
        with pytest.raises(PermanentFailure):
            await store.set(pushed("g", huge))
        await store.set(pushed("g"))
        assert await store.get("g", 0) == topology()


async def test_topics_are_made_once_and_left_alone_after(place: Place) -> None:
    made = await ensure_topics(place.settings, prefix=place.prefix, max_bytes=MAX_BYTES)
    assert f"{place.prefix}topologies" in made
    assert len(made) == len(TOPICS)
    assert await ensure_topics(place.settings, prefix=place.prefix, max_bytes=MAX_BYTES) == ()
