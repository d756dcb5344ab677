"""The store kafka: on a list instead of a topic, with a clock that tests set: what is written is read back at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headgate.facts import Ended, Fact, encode
from headgate.facts.topics import message_limit
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_writer import FactNotWrittenError, Position
from headgate.kafka.shared_clients import SharedClients
from headgate.kafka.topics import TopicIdentity
from headgate.topologies.model.group_state import DeletedVersion, StoredVersion
from headgate.topologies.stores.kafka_cache import TopologyCache
from headgate.topologies.stores.kafka_store import KafkaStore
from tests.support.clock import FakeClock

IDENTITY = TopicIdentity(cluster="c1", topic_id="t1")
DAY_MS = 86_400_000
START_MS = 1_794_731_901_727  # a time of day that is no round number


class TopicStore(KafkaStore):
    """Without a cluster; `log` is the topic, and its own writer."""

    def __init__(self, log: "FakeTopic", clock: FakeClock, on_record: Callable[..., object]) -> None:
        writer: Any = log
        super().__init__(SharedClients(dict), prefix="headgate.", writer=writer, clock=clock, on_record=on_record)
        self.log = log

    async def open(self, folder: Path) -> int:
        """Read what the cache does not have; returns how many records that were."""
        self._max_bytes = message_limit(4 * 1024 * 1024)
        self._cache = TopologyCache(folder / "cache.db", self._clock)
        start = await self._cache.open(IDENTITY)
        self._reported_to = start
        for cached in await self._cache.all():
            self._replay.take(cached.group, cached.version)
        reader: Any = FakeReader(start)
        self._reader = reader
        self.log.followers.append(self)
        unread = self.log.records[start:]
        if unread:
            self.read(unread)
        reader.replayed.set()
        await self.replayed()
        return len(unread)

    async def close(self) -> None:
        if self in self.log.followers:
            self.log.followers.remove(self)
        await super().close()

    def read(self, records: list[ConsumedRecord]) -> None:
        reader: Any = self._reader
        self._take(self._digest(records))
        reader.position = records[-1].offset + 1


class FakeReader:
    problem = None

    def __init__(self, position: int) -> None:
        self.position = position
        self.replayed = asyncio.Event()

    async def reached(self, offset: int) -> None:
        assert self.position > offset

    async def close(self) -> None:
        """Nothing runs."""


class FakeTopic:
    """`before_append` is called with each key before its record is written, and may write another one or raise."""

    def __init__(self) -> None:
        self.records: list[ConsumedRecord] = []
        self.followers: list[TopicStore] = []
        self.before_append: Callable[[bytes], None] | None = None

    async def append(self, topic: str, key: bytes, value: bytes | None) -> Position:
        if self.before_append is not None:
            self.before_append(key)
        self.add(key, value)
        return Position(topic=topic, partition=0, offset=self.records[-1].offset)

    async def write(self, fact: Fact | Ended) -> Position:
        return await self.append("topologies", *encode(fact)[1:])

    def add(self, key: bytes, value: bytes | None) -> None:
        record = ConsumedRecord(len(self.records), key, value)
        self.records.append(record)
        for follower in self.followers:
            follower.read([record])

    def add_fact(self, fact: Fact | Ended) -> None:
        self.add(*encode(fact)[1:])

    def fail_after(self, writes: int) -> None:
        """Accept this many records and no more, as a topic does whose leader dies."""
        left = iter(range(writes))

        def check(_: bytes) -> None:
            if next(left, None) is None:
                raise FactNotWrittenError("the leader is gone")

        self.before_append = check

    def compact(self) -> "FakeTopic":
        """What a compacted topic has in the end: the last record of each key, unless it is a tombstone."""
        compacted = FakeTopic()
        last = {record.key: record for record in self.records}
        kept = [one for one in self.records if last[one.key] is one and one.value is not None]
        compacted.records = [ConsumedRecord(number, one.key, one.value) for number, one in enumerate(kept)]
        return compacted

    @property
    def kept_keys(self) -> list[bytes | None]:
        return [record.key for record in self.compact().records]


Records = dict[str, StoredVersion | DeletedVersion | None]


@asynccontextmanager
async def topic_store(
    folder: Path, log: FakeTopic, clock: FakeClock, on_record: Callable[..., object] | None = None
) -> AsyncIterator[tuple[TopicStore, Records]]:
    """The open store, and the last record of each group as it was reported."""
    reported: Records = {}
    store = TopicStore(log, clock, on_record or reported.__setitem__)
    try:
        await store.open(folder)
        yield store, reported
    finally:
        await store.close()
