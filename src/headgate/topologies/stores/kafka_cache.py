"""What `headgate.topologies` holds now, in a local SQLite file: every group's last record, and how far it was read.

One rule: it can be thrown away at any moment, and is rebuilt from the topic. It is thrown away when it is not ours, is
damaged, or was made from another topic. A batch of records and the position behind it are one transaction, so that a
kill leaves a cache that is behind and never one that is wrong.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from headgate.kafka.topics import TopicIdentity
from headgate.topologies.stores.sqlite_file import NotOursError, SqliteFile, name_bytes, name_text

log = structlog.get_logger()

_CURRENT = """
CREATE TABLE current (
    group_id BLOB PRIMARY KEY, offset INTEGER NOT NULL, incarnation BLOB NOT NULL,
    epoch INTEGER, hash BLOB, member BLOB, record BLOB
)
"""
_ORIGIN = "CREATE TABLE origin (cluster TEXT NOT NULL, topic_id TEXT NOT NULL, next_offset INTEGER NOT NULL)"
_APPLICATION_ID = 0x48474331  # "HGC1"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """A group's last record. `epoch`, `hash`, `member` and `record` are None when it says that it was deleted."""

    group: str
    offset: int
    incarnation: str
    epoch: int | None = None
    hash: str | None = None
    member: str | None = None
    record: bytes | None = None


class TopologyCache:
    """`record` is whatever its owner keeps of a record: bytes that nobody here looks into."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._new_file()
        self._identity: TopicIdentity | None = None

    async def open(self, identity: TopicIdentity) -> int:
        """The offset to go on from: 0 for a cache that had to be made anew."""
        self._identity = identity
        try:
            await self._file.open()
            found = await self._file.run(_origin)
        except (NotOursError, sqlite3.DatabaseError) as failure:
            log.warning("the cache of topologies is made anew", path=str(self._path), reason=str(failure))
            return await self._anew(identity)
        if found is None or found[:2] != (identity.cluster, identity.topic_id):
            return await self._anew(identity)
        return found[2]

    async def _anew(self, identity: TopicIdentity) -> int:
        await self._file.close()
        self._remove()
        self._file = self._new_file()
        await self._file.open()
        await self._file.run(lambda connection: _begin(connection, identity))
        return 0

    async def all(self) -> Sequence[Current]:
        """Every group, without its record, in the topic's order."""
        return await self._file.run(_all)

    async def get(self, group: str) -> Current | None:
        return await self._file.run(lambda connection: _get(connection, group))

    def put(self, batch: Sequence[Current], next_offset: int) -> None:
        """For the reader's thread: what it read, and how far it is."""
        self._file.run_from_thread(lambda connection: _put(connection, batch, next_offset))

    def wipe(self) -> Sequence[Current]:
        """For the reader's thread: empty, from offset 0; gives what it had, as far as that can be read."""
        identity = self._identity
        assert identity is not None
        try:
            before = self._file.run_from_thread(_all)
            self._file.run_from_thread(lambda connection: _begin(connection, identity))
        except sqlite3.DatabaseError as failure:
            log.warning("the cache of topologies is damaged", path=str(self._path), reason=str(failure))
            self._file.replace_from_thread(self._remove)
            self._file.run_from_thread(lambda connection: _begin(connection, identity))
            return ()
        return before

    async def close(self) -> None:
        await self._file.close()

    def _new_file(self) -> SqliteFile:
        return SqliteFile(
            self._path,
            schema=(_CURRENT, _ORIGIN),
            application_id=_APPLICATION_ID,
            version=_VERSION,
            durable=False,
        )

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


def _origin(connection: sqlite3.Connection) -> tuple[str, str, int] | None:
    found = connection.execute("SELECT cluster, topic_id, next_offset FROM origin").fetchone()
    return None if found is None else (str(found[0]), str(found[1]), int(found[2]))


def _begin(connection: sqlite3.Connection, identity: TopicIdentity) -> None:
    connection.execute("DELETE FROM current")
    connection.execute("DELETE FROM origin")
    connection.execute("INSERT INTO origin VALUES (?, ?, 0)", (identity.cluster, identity.topic_id))


def _all(connection: sqlite3.Connection) -> Sequence[Current]:
    query = "SELECT group_id, offset, incarnation, epoch, hash, member, NULL FROM current ORDER BY offset"
    return [_current(row) for row in connection.execute(query)]


def _get(connection: sqlite3.Connection, group: str) -> Current | None:
    query = "SELECT group_id, offset, incarnation, epoch, hash, member, record FROM current WHERE group_id = ?"
    found = connection.execute(query, (name_bytes(group),)).fetchone()
    return None if found is None else _current(found)


def _put(connection: sqlite3.Connection, batch: Sequence[Current], next_offset: int) -> None:
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
    connection.execute("UPDATE origin SET next_offset = ?", (next_offset,))


def _current(row: tuple[bytes, int, bytes, int | None, bytes | None, bytes | None, bytes | None]) -> Current:
    group, offset, incarnation, epoch, content_hash, member, record = row
    return Current(
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
