"""kafka: the default store. A description, its epoch, incarnation and hash are one record of `headgate.topologies`.

Invariant: the store holds what the topic says, the last record of each group from any writer. A call that writes
returns when its record was read back, so that later calls see it, and two gateways disagree for no longer than a record
takes. The local cache only saves reading the topic again; if it is lost, stale or damaged it is rebuilt.

`on_record` gets the last record of each group when the topic was read to its end, and from then on every record in the
order of the topic. Until then `get` fails rather than return a description that may have been replaced.

The topic keeps every version of a group, and the record of its deletion, until `remove_deleted`, `remove_oldest` or
`remove_all` writes tombstones for them. These are not calls of the contract of stores: `topologies/retention.py` makes
them.

When the topic loses records (`kafka/fact_reader.py`), it is read again. Descriptions that it does not have any more are
logged, counted in `lost_descriptions` and reported as deleted, so that members push them again.
"""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import UsageError
from headgate.facts import Fact, TopologyDeleted, TopologyDescribed
from headgate.facts.topics import message_limit
from headgate.facts.topology import Description
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import CatchUp, FactReader
from headgate.kafka.fact_writer import FactNotWrittenError, FactWriter
from headgate.kafka.shared_clients import SharedClients
from headgate.kafka.topics import identify
from headgate.plugin import PermanentFailure, PushedTopology, StoreSettings, TransientFailure
from headgate.topologies.model.group_state import DeletedVersion, StoredVersion
from headgate.topologies.older_clients.assignment_topology import ASSIGNMENT
from headgate.topologies.stores import record_keys
from headgate.topologies.stores.kafka_cache import (
    PUSHED,
    CachedRecord,
    RemovedRecord,
    TopologyCache,
    description_in,
    read_record,
    record_of,
)
from headgate.topologies.stores.record_keys import GroupDeletion
from headgate.topologies.stores.sqlite_store import InUseError

log = structlog.get_logger()

SUFFIX = "topologies"
_WRITTEN_AT_ONCE: Final = 100
T = TypeVar("T")
OnRecord = Callable[[str, StoredVersion | DeletedVersion | None], object]


@dataclass(frozen=True, slots=True)
class _RecordsLost:
    """The topic lost records and is read again: these were known before."""

    before: Sequence[CachedRecord]


_Digested = list[CachedRecord | RemovedRecord | _RecordsLost]


class KafkaStore:
    """`on_record` is called on the event loop, with None when the group has no record any more.

    `clients` and `writer` are the worker's and stay open when the store is closed; they take records up to
    `message_limit`.
    """

    def __init__(
        self,
        clients: SharedClients,
        *,
        prefix: str,
        writer: FactWriter,
        clock: Clock,
        on_record: OnRecord,
        cache_name: str = "topologies.db",
    ) -> None:
        self._clients = clients
        self._topic = prefix + SUFFIX
        self._writer = writer
        self._clock = clock
        self._cache_name = cache_name
        self._max_bytes = 0
        self._cache: TopologyCache | None = None
        self._reader: FactReader[_Digested] | None = None
        self._replay: CatchUp[StoredVersion | DeletedVersion | None] = CatchUp(on_record)
        self._reported_to = 0  # `on_record` got the records before this offset; reading again repeats none
        self._rebuilding_to = 0  # the cache is behind the topic until this offset
        self._rebuilt_for = -1  # the offset of the last record for which it was rebuilt
        self._missing: dict[str, DeletedVersion] = {}  # descriptions that were known, until the topic has them again
        self._was_read = False
        self.lost_descriptions = 0

    async def configure(self, settings: StoreSettings) -> None:
        """Open the cache and begin to read; the store is ready when `replayed` returns."""
        self._max_bytes = message_limit(settings.max_bytes)
        path = Path(settings.folder) / self._cache_name
        self._cache = TopologyCache(path, self._clock)
        identity = await identify(self._clients.admin, self._topic)
        try:
            start = await self._cache.open(identity)
        except InUseError:
            raise UsageError(
                f"{path} is in use by another process: stop it, or give each gateway its own folder"
            ) from None
        except OSError as failure:
            raise UsageError(f"{path} cannot be opened ({failure}): make the folder writable for this user") from None
        self._reported_to = start
        self._missing = _descriptions_in(self._cache.discarded)
        for cached in await self._cache.all():
            self._replay.take(cached.group, cached.version)
        self._reader = FactReader(
            self._clients.bulk_consumer,
            topic=self._topic,
            start=start,
            digest=self._digest,
            forget=self._forget,
            take=self._take,
            on_end=self._on_end,
            detects_loss=True,
        )
        self._reader.start()

    async def replayed(self) -> None:
        """Return when the topic was read to its end and `on_record` got its records."""
        await self._open_reader().replayed.wait()
        await self._replay.catch_up()
        await self._mark_current()

    @property
    def problem(self) -> str | None:
        """Why the store may not have every record, None when it has."""
        reader = self._reader
        if reader is None:
            return "the store kafka: is not open"
        if not reader.replayed.is_set():
            return reader.problem or f"{self._topic} has not been read to its end yet"
        return reader.problem

    @property
    def is_reading_again(self) -> bool:
        """Whether the topic lost records and has not been read to its end since."""
        return self._was_read and self._reader is not None and not self._reader.replayed.is_set()

    async def set(self, pushed: PushedTopology) -> None:
        await self._write(described_fact(pushed, at=self._clock.epoch_ms()))

    async def get(self, group: str, epoch: int) -> Description | None:
        cached = await self._cached(group)
        if cached is None or cached.epoch != epoch:
            return None
        try:
            return await asyncio.to_thread(description_in, cached, max_bytes=self._max_bytes)
        except TransientFailure as failure:
            # Either the cache or the record in the topic is damaged; reading the topic again mends only the cache.
            if cached.offset != self._rebuilt_for:
                self._rebuilt_for = cached.offset
                self._rebuild(str(failure))
            raise

    async def delete(self, group: str) -> None:
        cached = await self._cached(group)
        if cached is None or cached.epoch is None:
            return
        deleted = TopologyDeleted(at=self._clock.epoch_ms(), group=group, incarnation=cached.incarnation)
        await self._write(deleted)

    async def keep(self, version: TopologyDescribed) -> None:
        """Write a version that no member pushed: it is kept with the others, and no describe shows it."""
        await self._write(version)

    # --- partial descriptions, which no call of the contract returns

    async def newest_assignment(self, group: str) -> tuple[str, int, str] | None:
        """Incarnation, epoch and hash of the last partial description; None after a deletion of the group."""
        key = await self._select(partial(record_keys.newest_key, group=group, provenance=ASSIGNMENT))
        if key is None:
            return None
        _, incarnation, epoch, content_hash, _ = json.loads(key)
        return incarnation, epoch, content_hash

    async def end_assignment(self, group: str) -> None:
        """Write that the group was deleted, if it has a partial description; it must not have a pushed one."""
        newest = await self.newest_assignment(group)
        if newest is not None:
            await self._write(TopologyDeleted(at=self._clock.epoch_ms(), group=group, incarnation=newest[0]))

    async def groups_with_assignments(self, *, after: str | None, limit: int) -> Sequence[str]:
        """Groups of which a partial description is all there is, in the order of their names."""
        query = partial(record_keys.groups_without_push, provenance=ASSIGNMENT, after=after, limit=limit)
        return await self._select(query)

    # --- records that are not kept any more

    @property
    def next_offset(self) -> int:
        """The offset behind the last record that was read."""
        return self._open_reader().position

    async def deletions_before(self, at: int, *, after: int, limit: int) -> Sequence[GroupDeletion]:
        """Groups that were deleted by then and have no description, whose deletion has an offset above `after`."""
        return await self._select(partial(record_keys.groups_deleted_before, at=at, after=after, limit=limit))

    async def remove_deleted(self, group: str, *, before: int, limit: int) -> int:
        """Write tombstones for a group that was deleted at `before` or earlier; returns how many.

        First for its versions, last for the deletion: until then the group counts as deleted, and what is left is
        found again. A description that another gateway stores meanwhile has a key of its own and stays.
        """
        if not await self._select(partial(record_keys.is_deleted_before, group=group, at=before)):
            return 0
        return await self._remove_versions(group, before, limit)

    async def groups_only_pasted_before(self, at: int, *, after: str, limit: int) -> Sequence[str]:
        """Groups that have only pasted versions, the last from this time or earlier; by name, behind `after`."""
        return await self._select(partial(record_keys.groups_only_pasted_before, at=at, after=after, limit=limit))

    async def remove_only_pasted(self, group: str, *, before: int, limit: int) -> int:
        """Write tombstones for a group of which only pasted versions up to `before` are kept; returns how many."""
        if not await self._select(partial(record_keys.is_only_pasted_before, group=group, at=before)):
            return 0
        return await self._remove_versions(group, before, limit)

    async def _remove_versions(self, group: str, before: int, limit: int) -> int:
        keys = await self._select(partial(record_keys.keys_of, group=group, pasted_before=before, limit=limit))
        return await self._write_tombstones(keys)

    async def groups_with_more_than(self, kept: int, *, limit: int, provenance: str = PUSHED) -> Sequence[str]:
        """Groups with more versions of this origin than that."""
        query = partial(record_keys.groups_with_more_than, kept=kept, provenance=provenance, limit=limit)
        return await self._select(query)

    async def remove_oldest(self, group: str, *, kept: int, limit: int, provenance: str = PUSHED) -> int:
        """Write tombstones for all but the newest `kept` versions of a group from this origin; returns how many."""
        before = await self._cached(group)
        query = partial(record_keys.oldest_keys, group=group, kept=max(kept, 1), provenance=provenance, limit=limit)
        removed = await self._write_tombstones(await self._select(query))
        if before is not None and await self._cached(group) is None:
            # Another gateway stored one of them again just now. Compaction would make an older version the last one,
            # so the group's last record becomes a deletion, and a member pushes again.
            incarnation = before.incarnation
            await self._write(TopologyDeleted(at=self._clock.epoch_ms(), group=group, incarnation=incarnation))
        return removed

    async def remove_all(self, group: str, *, before_offset: int) -> int:
        """Write tombstones for the deletion of a group and every earlier record of any origin; returns how many."""
        keys = await self._select(partial(record_keys.all_keys_of, group=group, before_offset=before_offset))
        return await self._write_tombstones(keys)

    async def _write_tombstones(self, keys: Sequence[bytes]) -> int:
        """Write them and return when they were read back; the last one is written when all others were read back."""
        reader = self._open_reader()
        others = keys[:-1]
        parts = [others[start : start + _WRITTEN_AT_ONCE] for start in range(0, len(others), _WRITTEN_AT_ONCE)]
        for part in (*parts, keys[-1:]) if keys else ():
            try:
                written = await asyncio.gather(*(self._writer.append(self._topic, key, None) for key in part))
            except FactNotWrittenError as failure:
                raise TransientFailure(str(failure)) from None
            await reader.reached(max(one.offset for one in written))
        return len(keys)

    async def close(self) -> None:
        if self._reader is not None:
            is_current = self._reader.replayed.is_set() and self._reader.problem is None
            await self._reader.close()
            self._reader = None
            if is_current:
                await self._mark_current()
        if self._cache is not None:
            await self._cache.close()
            self._cache = None

    async def _write(self, fact: Fact) -> None:
        reader = self._open_reader()
        try:
            position = await self._writer.write(fact)
        except FactNotWrittenError as failure:
            if failure.too_large:
                raise PermanentFailure(f"the description is larger than {self._topic} takes") from None
            raise TransientFailure(str(failure)) from None
        await reader.reached(position.offset)

    async def _mark_current(self) -> None:
        if self._cache is not None:
            with contextlib.suppress(sqlite3.DatabaseError, TransientFailure):  # then it is rebuilt by the next start
                await self._cache.mark_current()

    async def _cached(self, group: str) -> CachedRecord | None:
        return await self._select(partial(record_of, group=group))

    async def _select(self, query: Callable[[sqlite3.Connection], T]) -> T:
        reader, cache = self._open_reader(), self._cache
        assert cache is not None
        if not reader.replayed.is_set() or reader.position < self._rebuilding_to:
            raise TransientFailure(f"{self._topic} has not been read to its end yet")
        try:
            return await cache.select(query)
        except sqlite3.DatabaseError as failure:
            self._rebuild(str(failure))
            raise TransientFailure("the cache of descriptions is being rebuilt") from None

    def _open_reader(self) -> FactReader[_Digested]:
        if self._reader is None:
            raise TransientFailure("the store kafka: is not open")
        return self._reader

    def _rebuild(self, reason: str) -> None:
        reader = self._open_reader()
        if reader.position >= self._rebuilding_to:
            log.warning("topology cache has an invalid description, reading the topic again", reason=reason)
            self._rebuilding_to = reader.position
            reader.read_again()

    # --- on the reader's thread

    def _digest(self, records: Sequence[ConsumedRecord]) -> _Digested:
        reader, cache = self._reader, self._cache
        assert reader is not None
        assert cache is not None
        found = [cached for record in records if (cached := read_record(record)) is not None]
        try:
            changes = cache.put(found, records[-1].offset + 1, is_current=reader.replayed.is_set())
        except sqlite3.DatabaseError:
            # The cache is behind from here on; the reader reads this batch again, into an empty cache.
            self._rebuilding_to = max(self._rebuilding_to, records[-1].offset + 1)
            reader.read_again()
            raise
        return [*changes]

    def _forget(self, lost: bool) -> _Digested:
        """Empty the cache; `lost`: the topic lost records."""
        assert self._cache is not None
        before = self._cache.wipe()
        return [_RecordsLost(before)] if lost else []

    # --- on the event loop

    def _take(self, found: _Digested) -> None:
        if self._reader is None:  # closed meanwhile
            return
        for one in found:
            if isinstance(one, _RecordsLost):
                self._reported_to = self._rebuilding_to = 0
                self._missing |= _descriptions_in(one.before)
                continue
            self._missing.pop(one.group, None)
            if one.offset >= self._reported_to:
                self._reported_to = one.offset + 1
                self._replay.take(one.group, one.version if isinstance(one, CachedRecord) else None)

    def _on_end(self) -> None:
        """The topic was read to its end, for the first time or again."""
        missing, self._missing = self._missing, {}
        if missing:
            self.lost_descriptions += len(missing)
            log.warning(
                "topology descriptions were lost, members push them again", topic=self._topic, lost=len(missing)
            )
        for group, deleted in missing.items():
            self._replay.take(group, deleted)
        self._was_read = True


def _descriptions_in(records: Sequence[CachedRecord]) -> dict[str, DeletedVersion]:
    return {one.group: DeletedVersion(one.incarnation) for one in records if one.epoch is not None}


def described_fact(pushed: PushedTopology, *, at: int) -> TopologyDescribed:
    """The record of a pushed description; the writer adds where it comes from."""
    return TopologyDescribed(
        at=at,
        group=pushed.group,
        incarnation=pushed.incarnation,
        epoch=pushed.epoch,
        hash=pushed.hash,
        provenance=PUSHED,
        member=pushed.member,
        process=pushed.process,
        description=pushed.description,
    )
