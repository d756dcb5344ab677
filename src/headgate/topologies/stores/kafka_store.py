"""kafka: the default store. A description, its epoch, incarnation and hash are one record of `headgate.topologies`.

One rule: what the store holds is what the topic says, the last record of each group, whoever wrote it. A call that
writes returns when its record was read back, so that what follows sees it, and two gateways never disagree for longer
than a record takes. The local cache only saves reading the topic again: lost, stale or damaged, it is rebuilt.

What is read is told as events of the state machine, in the log's order, but first when the topic was replayed to its
end: then the last one of each group. Until then `get` fails rather than show something that is over.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import UsageError
from headgate.facts import Fact, TopologyDeleted
from headgate.facts.topics import message_limit
from headgate.facts.topology import Description
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import CatchUp, FactReader
from headgate.kafka.fact_writer import FactNotWrittenError, FactWriter
from headgate.kafka.topics import identify
from headgate.plugin.topology_store import PermanentFailure, PushedTopology, StoreSettings, TransientFailure
from headgate.topologies.fact_mapping import described_fact
from headgate.topologies.model.group_events import DeletionRead, DescriptionRead, Event
from headgate.topologies.model.group_life import Held
from headgate.topologies.stores.blobs import checked
from headgate.topologies.stores.kafka_cache import Current, TopologyCache
from headgate.topologies.stores.kafka_records import description_of, read
from headgate.topologies.stores.sqlite_file import InUseError

log = structlog.get_logger()

SUFFIX = "topologies"


@dataclass(frozen=True, slots=True)
class _Anew:
    """The topic is another: what was told of these is over."""

    over: Sequence[Current]


class KafkaStore:
    """`on_event` is called on the event loop with (group, event); `settings` are librdkafka's for the reader.

    `writer` is the worker's and stays open when this is closed; its records may be as large as `message_limit` says.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        prefix: str,
        writer: FactWriter,
        clock: Clock,
        on_event: Callable[[str, Event], object],
        cache_name: str = "topologies.db",
    ) -> None:
        self._settings = settings
        self._topic = prefix + SUFFIX
        self._writer = writer
        self._clock = clock
        self._cache_name = cache_name
        self._largest = 0
        self._cache: TopologyCache | None = None
        self._reader: FactReader[list[Current | _Anew]] | None = None
        self._replay: CatchUp[Event] = CatchUp(on_event)
        self._told_to = 0  # events were told up to this offset; reading again tells none twice
        self._rebuilding_to = 0  # the cache is behind the topic until this offset
        self._mended = -1  # the last record for which it was rebuilt

    async def configure(self, settings: StoreSettings) -> None:
        """Open the cache and begin to read; it is ready when `replayed` is."""
        self._largest = message_limit(settings.max_bytes)
        path = Path(settings.folder) / self._cache_name
        self._cache = TopologyCache(path)
        identity = await identify(self._settings, self._topic)
        try:
            start = await self._cache.open(identity)
        except InUseError:
            raise UsageError(
                f"{path} is in use by another process: stop that, or give each gateway a folder of its own"
            ) from None
        except OSError as failure:
            raise UsageError(f"{path} cannot be opened ({failure}): let this user write there") from None
        self._told_to = start
        for current in await self._cache.all():
            self._replay.take(current.group, _event(current))
        self._reader = FactReader(
            self._settings,
            topic=self._topic,
            start=start,
            digest=self._digest,
            forget=self._forget,
            take=self._take,
            largest=self._largest,
        )
        self._reader.start()

    async def replayed(self) -> None:
        """Return when the topic was read to its end and told."""
        await self._open_reader().replayed.wait()
        await self._replay.catch_up()

    @property
    def problem(self) -> str | None:
        """Why what is held may not be known, None when it is."""
        reader = self._reader
        if reader is None:
            return "the store kafka: is not open"
        if not reader.replayed.is_set():
            return reader.problem or f"{self._topic} has not been read to its end yet"
        return reader.problem

    async def set(self, pushed: PushedTopology) -> None:
        await self._write(described_fact(pushed, at=self._clock.epoch_ms()))

    async def get(self, group: str, epoch: int) -> Description | None:
        current = await self._current(group)
        if current is None or current.epoch != epoch:
            return None
        try:
            return await asyncio.to_thread(self._described, current)
        except TransientFailure as failure:
            # The cache is damaged, or the topic holds nonsense; reading it again helps with the first only.
            if current.offset != self._mended:
                self._mended = current.offset
                self._rebuild(str(failure))
            raise

    async def delete(self, group: str) -> None:
        current = await self._current(group)
        if current is None or current.epoch is None:
            return
        deleted = TopologyDeleted(at=self._clock.epoch_ms(), group=group, incarnation=current.incarnation)
        await self._write(deleted)

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()
            self._reader = None
        if self._cache is not None:
            await self._cache.close()
            self._cache = None

    def _described(self, current: Current) -> Description:
        return checked(description_of(current, largest=self._largest), current.hash or "")

    async def _write(self, fact: Fact) -> None:
        reader = self._open_reader()
        try:
            position = await self._writer.write(fact)
        except FactNotWrittenError as failure:
            if failure.too_large:
                raise PermanentFailure(f"the description is larger than {self._topic} takes") from None
            raise TransientFailure(str(failure)) from None
        await reader.reached(position.offset)

    async def _current(self, group: str) -> Current | None:
        reader, cache = self._open_reader(), self._cache
        assert cache is not None
        if not reader.replayed.is_set() or reader.position < self._rebuilding_to:
            raise TransientFailure(f"{self._topic} has not been read to its end yet")
        try:
            return await cache.get(group)
        except sqlite3.DatabaseError as failure:
            self._rebuild(str(failure))
            raise TransientFailure("the cache of descriptions is being rebuilt") from None

    def _open_reader(self) -> FactReader[list[Current | _Anew]]:
        if self._reader is None:
            raise TransientFailure("the store kafka: is not open")
        return self._reader

    def _rebuild(self, reason: str) -> None:
        reader = self._open_reader()
        if reader.position >= self._rebuilding_to:
            log.warning("the cache of topologies is rebuilt", reason=reason)
            self._rebuilding_to = reader.position
            reader.read_again()

    # --- on the reader's thread

    def _digest(self, records: Sequence[ConsumedRecord]) -> list[Current | _Anew]:
        reader, cache = self._reader, self._cache
        assert reader is not None
        assert cache is not None
        found = [one for record in records if (one := read(record)) is not None]
        try:
            cache.put(found, records[-1].offset + 1)
        except sqlite3.DatabaseError:
            # From then on it is behind; the supervisor reads this batch again, and by then it is empty.
            self._rebuilding_to = max(self._rebuilding_to, records[-1].offset + 1)
            reader.read_again()
            raise
        return list(found)

    def _forget(self, another: bool) -> list[Current | _Anew]:
        """Empty the cache. If the topic is another, what was told is over."""
        assert self._cache is not None
        before = self._cache.wipe()
        return [_Anew(before)] if another else []

    # --- on the event loop

    def _take(self, found: list[Current | _Anew]) -> None:
        if self._reader is None:  # closed meanwhile
            return
        for one in found:
            if isinstance(one, Current):
                if one.offset >= self._told_to:
                    self._told_to = one.offset + 1
                    self._replay.take(one.group, _event(one))
            else:
                self._told_to = self._rebuilding_to = 0
                for current in one.over:
                    self._replay.take(current.group, DeletionRead(incarnation=current.incarnation))


def _event(current: Current) -> Event:
    if current.epoch is None:
        return DeletionRead(incarnation=current.incarnation)
    held = Held(incarnation=current.incarnation, epoch=current.epoch, hash=current.hash, member=current.member)
    return DescriptionRead(held=held)
