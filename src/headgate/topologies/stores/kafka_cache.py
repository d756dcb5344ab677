"""The last record of every group in `headgate.topologies`, read quickly and cached in a local SQLite file.

The cache may be deleted at any moment and is then rebuilt from the topic; so it is when it is damaged, belongs to
another release, or was made from another topic. A batch of records and the position behind it are one transaction, so
that a kill leaves a cache that is behind and never one that is wrong.

A description is decoded only when it is needed. While the topic is replayed only the key and the fields before the
description are read, and the record is kept compressed, which is quicker than writing all of it.

The cache also has the keys of all records (`record_keys.py`). A tombstone removes its key; if the record under that key
was the group's last one, the group has none any more. Compaction removes tombstones after `delete.retention.ms`, which
is a day, so a cache that was not up to date within the last half day may miss some, and is rebuilt.
"""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import WireError
from headgate.facts import Rejected, TopologyDescribed, decode
from headgate.facts.codec import VERSION
from headgate.facts.json_form import INT32_MAX, INT64_MAX
from headgate.facts.topics import HOUR_MS
from headgate.facts.topology import Description, Provenance
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.topics import TopicIdentity
from headgate.plugin import TransientFailure, check_hash
from headgate.topologies.model.group_state import DeletedVersion, StoredVersion
from headgate.topologies.stores.record_keys import KEYS_SCHEMA, RecordKey, put_keys, remove_key
from headgate.topologies.stores.sqlite_store import NotOursError, SqliteFile, name_bytes, name_text
from headgate.wire.compression import Compression, compress, decompress

log = structlog.get_logger()

# Members' pushes are what a describe shows; pasted and derived descriptions are for the map.
PUSHED: Final = "pushed"
PASTED: Final = "pasted"
PROVENANCES: Final = frozenset(get_args(Provenance))
_DESCRIPTION = b',"description":'
_CURRENT = """
CREATE TABLE current (
    group_id BLOB PRIMARY KEY, offset INTEGER NOT NULL, incarnation BLOB NOT NULL,
    epoch INTEGER, hash BLOB, member BLOB, record BLOB
)
"""
_ORIGIN = """
CREATE TABLE origin (
    cluster TEXT NOT NULL, topic_id TEXT NOT NULL, next_offset INTEGER NOT NULL, current_at INTEGER NOT NULL
)
"""
_APPLICATION_ID = 0x48474331  # "HGC1"
_VERSION = 2
# Half of delete.retention.ms as brokers ship it: a reader that was away for longer may miss tombstones.
MAX_AGE_MS: Final = 12 * HOUR_MS
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedRecord:
    """A group's last record, its value compressed; a deletion has only the incarnation. `key` is None once cached."""

    group: str
    offset: int
    incarnation: str
    key: RecordKey | None = None
    epoch: int | None = None
    hash: str | None = None
    member: str | None = None
    record: bytes | None = None

    @property
    def version(self) -> StoredVersion | DeletedVersion:
        if self.epoch is None:
            return DeletedVersion(self.incarnation)
        return StoredVersion(incarnation=self.incarnation, epoch=self.epoch, hash=self.hash, member=self.member)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The record under this key is not kept in the topic any more."""

    key: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class RemovedRecord:
    """A tombstone removed the last record of the group: nothing is known of it any more."""

    group: str
    offset: int


ReadRecord = CachedRecord | RecordKey | Tombstone


def read_record(record: ConsumedRecord) -> ReadRecord | None:
    """The record as it is cached; of a description that was not pushed only its key. None when it is no fact."""
    if record.value is None:
        return None if record.key is None else Tombstone(record.key, record.offset)
    try:
        key = json.loads(record.key or b"")
        value = _head(record.value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(key, list) or not isinstance(value, dict) or not _is_known(value.get("v")):
        return None
    assert record.key is not None
    at = value.get("at")
    at = at if type(at) is int and 0 <= at <= INT64_MAX else None
    match key:
        case [str() as group, "deleted"] if isinstance(value.get("incarnation"), str):
            own_key = RecordKey(key=record.key, group=group, offset=record.offset, at=at)
            return CachedRecord(group=group, offset=record.offset, incarnation=value["incarnation"], key=own_key)
        case [str() as group, str() as incarnation, int() as epoch, str() as content_hash, str() as provenance]:
            if not 0 <= epoch <= INT32_MAX or isinstance(epoch, bool) or provenance not in PROVENANCES:
                return None
            own_key = RecordKey(key=record.key, group=group, offset=record.offset, provenance=provenance, at=at)
            if provenance != PUSHED:
                return own_key
            member = value.get("member")
            return CachedRecord(
                group=group,
                offset=record.offset,
                key=own_key,
                incarnation=incarnation,
                epoch=epoch,
                hash=content_hash,
                member=member if isinstance(member, str) else None,
                record=compress(Compression.ZSTD, record.value),
            )
    return None


def _is_known(version: object) -> bool:
    return isinstance(version, int) and not isinstance(version, bool) and 1 <= version <= VERSION


def _head(data: bytes) -> Any:
    """The fields of the value before the description.

    Inside a JSON text a quote is escaped, so the first such bytes are the field; if a writer put the field elsewhere,
    the bytes before it are no object, and the whole value is read.
    """
    head, found, _ = data.partition(_DESCRIPTION)
    if found:
        with contextlib.suppress(ValueError):
            return json.loads(head + b"}")
    return json.loads(data)


def description_in(cached: CachedRecord, *, max_bytes: int) -> Description:
    """The description in a record; `TransientFailure` when it is damaged or does not have its hash."""
    key = json.dumps([cached.group, cached.incarnation, cached.epoch, cached.hash, PUSHED])
    try:
        value = decompress(Compression.ZSTD, cached.record or b"", max_bytes)
    except WireError as failure:
        raise TransientFailure(f"the record at offset {cached.offset} cannot be decompressed: {failure}") from None
    fact = decode("topologies", key.encode(), value, max_bytes=max_bytes)
    if isinstance(fact, Rejected):
        raise TransientFailure(f"the record at offset {cached.offset} is no description: {fact.reason}")
    assert isinstance(fact, TopologyDescribed)
    return check_hash(fact.description, cached.hash or "")


class TopologyCache:
    """The cache file; `put` and `wipe` are for the thread that reads the topic."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._file = self._new_file()
        self._identity: TopicIdentity | None = None
        self.discarded: Sequence[CachedRecord] = ()  # what it had from another topic of this name

    async def open(self, identity: TopicIdentity) -> int:
        """The offset to read on from: 0 for a new cache."""
        self._identity = identity
        try:
            await self._file.open()
            found = await self._file.run(_origin)
        except (NotOursError, sqlite3.DatabaseError) as failure:
            log.warning("topology cache file was replaced", path=str(self._path), reason=str(failure))
            return await self._recreate(identity)
        if found is None or found[:2] != (identity.cluster, identity.topic_id):
            if found is not None and found[0] == identity.cluster:
                self.discarded = await self.all()
            return await self._recreate(identity)
        if not 0 <= self._clock.epoch_ms() - found[3] <= MAX_AGE_MS:
            log.warning("topology cache file was replaced", path=str(self._path), reason="it is older than 12 hours")
            return await self._recreate(identity)
        return found[2]

    async def _recreate(self, identity: TopicIdentity) -> int:
        await self._file.close()
        self._remove()
        self._file = self._new_file()
        await self._file.open()
        await self._file.run(lambda connection: self._reset(connection, identity))
        return 0

    async def all(self) -> Sequence[CachedRecord]:
        """Every group, without its record, in the topic's order."""
        return await self._file.run(_all)

    async def get(self, group: str) -> CachedRecord | None:
        return await self.select(lambda connection: record_of(connection, group))

    async def select(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a query, such as those of `record_keys`."""
        return await self._file.run(query)

    def put(
        self, batch: Sequence[ReadRecord], next_offset: int, *, is_current: bool = False
    ) -> list[CachedRecord | RemovedRecord]:
        """Store a batch and the offset behind it; returns what it changes for groups, in order.

        `is_current`: the topic had been read to its end before.
        """

        def work(connection: sqlite3.Connection) -> list[CachedRecord | RemovedRecord]:
            if is_current:
                self._mark_current(connection)
            return _put(connection, batch, next_offset)

        return self._file.run_from_thread(work)

    async def mark_current(self) -> None:
        """The topic has been read to its end, and its reader has no problem."""
        await self._file.run(self._mark_current)

    def wipe(self) -> Sequence[CachedRecord]:
        """Empty the cache, to be filled from offset 0; returns its records as far as they can be read."""
        identity = self._identity
        assert identity is not None
        try:
            before = self._file.run_from_thread(_all)
            self._file.run_from_thread(lambda connection: self._reset(connection, identity))
        except sqlite3.DatabaseError as failure:
            log.warning("topology cache is damaged", path=str(self._path), reason=str(failure))
            self._file.replace_from_thread(self._remove)
            self._file.run_from_thread(lambda connection: self._reset(connection, identity))
            return ()
        return before

    async def close(self) -> None:
        await self._file.close()

    def _new_file(self) -> SqliteFile:
        return SqliteFile(
            self._path,
            schema=(_CURRENT, _ORIGIN, *KEYS_SCHEMA),
            application_id=_APPLICATION_ID,
            version=_VERSION,
            durable=False,
        )

    def _mark_current(self, connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE origin SET current_at = ?", (self._clock.epoch_ms(),))

    def _reset(self, connection: sqlite3.Connection, identity: TopicIdentity) -> None:
        for table in ("current", "record_keys", "origin"):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
        origin = (identity.cluster, identity.topic_id, self._clock.epoch_ms())
        connection.execute("INSERT INTO origin VALUES (?, ?, 0, ?)", origin)

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


def _origin(connection: sqlite3.Connection) -> tuple[str, str, int, int] | None:
    found = connection.execute("SELECT cluster, topic_id, next_offset, current_at FROM origin").fetchone()
    return None if found is None else (str(found[0]), str(found[1]), int(found[2]), int(found[3]))


def _all(connection: sqlite3.Connection) -> Sequence[CachedRecord]:
    query = "SELECT group_id, offset, incarnation, epoch, hash, member, NULL FROM current ORDER BY offset"
    return [_cached(row) for row in connection.execute(query)]


def record_of(connection: sqlite3.Connection, group: str) -> CachedRecord | None:
    """The last record of a group."""
    query = "SELECT group_id, offset, incarnation, epoch, hash, member, record FROM current WHERE group_id = ?"
    found = connection.execute(query, (name_bytes(group),)).fetchone()
    return None if found is None else _cached(found)


def _put(
    connection: sqlite3.Connection, batch: Sequence[ReadRecord], next_offset: int
) -> list[CachedRecord | RemovedRecord]:
    changes: list[CachedRecord | RemovedRecord] = []
    for is_tombstone, records in groupby(batch, lambda one: isinstance(one, Tombstone)):
        if is_tombstone:
            changes += filter(None, (_remove(connection, one) for one in records if isinstance(one, Tombstone)))
            continue
        found = list(records)
        cached = [one for one in found if isinstance(one, CachedRecord)]
        _put_current(connection, cached)
        keys = (one.key if isinstance(one, CachedRecord) else one for one in found)
        put_keys(connection, (key for key in keys if isinstance(key, RecordKey)))
        changes += cached
    connection.execute("UPDATE origin SET next_offset = ?", (next_offset,))
    return changes


def _remove(connection: sqlite3.Connection, tombstone: Tombstone) -> RemovedRecord | None:
    """Remove a record; None when it was not the last one of its group."""
    found = remove_key(connection, tombstone.key)
    if found is None:
        return None
    group, offset = found
    removed = connection.execute(
        "DELETE FROM current WHERE group_id = ? AND offset = ?", (name_bytes(group), offset)
    ).rowcount
    return RemovedRecord(group, tombstone.offset) if removed else None


def _put_current(connection: sqlite3.Connection, batch: Iterable[CachedRecord]) -> None:
    rows = [
        (
            name_bytes(one.group),
            one.offset,
            name_bytes(one.incarnation),
            one.epoch,
            _maybe_bytes(one.hash),
            _maybe_bytes(one.member),
            one.record,
        )
        for one in batch
    ]
    connection.executemany("INSERT OR REPLACE INTO current VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def _cached(row: tuple[bytes, int, bytes, int | None, bytes | None, bytes | None, bytes | None]) -> CachedRecord:
    group, offset, incarnation, epoch, content_hash, member, record = row
    return CachedRecord(
        group=name_text(group),
        offset=offset,
        incarnation=name_text(incarnation),
        epoch=epoch,
        hash=None if content_hash is None else name_text(content_hash),
        member=None if member is None else name_text(member),
        record=record,
    )


def _maybe_bytes(name: str | None) -> bytes | None:
    return None if name is None else name_bytes(name)
