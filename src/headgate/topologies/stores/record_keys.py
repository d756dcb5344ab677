"""The keys of all records in `headgate.topologies`, kept in the cache of `kafka:`: what a tombstone can be written for.

A tombstone needs the key of its record, byte for byte, so the bytes are kept as they were read. Of each key there is
one row with the offset of its last record: the newest pushed version of a group is the one with the highest offset. The
record of a group's deletion is a row too, without a provenance.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from headgate.topologies.stores.sqlite_store import name_bytes, name_text

_DELETION: Final = ""
KEYS_SCHEMA: Final = (
    """
    CREATE TABLE record_keys (
        key BLOB PRIMARY KEY, group_id BLOB NOT NULL, provenance TEXT NOT NULL, offset INTEGER NOT NULL, at INTEGER
    )
    """,
    "CREATE INDEX keys_of_group ON record_keys (group_id, provenance, offset)",
    "CREATE INDEX keys_of_deletions ON record_keys (offset) WHERE provenance = ''",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKey:
    """The key of a description or of a deletion (`provenance` empty), its last offset and the time in that record."""

    key: bytes
    group: str
    offset: int
    provenance: str = _DELETION
    at: int | None = None


class GroupDeletion(NamedTuple):
    """A group whose last record is its deletion, and the offset of that record."""

    group: str
    offset: int


def put_keys(connection: sqlite3.Connection, keys: Iterable[RecordKey]) -> None:
    rows = ((one.key, name_bytes(one.group), one.provenance, one.offset, one.at) for one in keys)
    connection.executemany("INSERT OR REPLACE INTO record_keys VALUES (?, ?, ?, ?, ?)", rows)


def remove_key(connection: sqlite3.Connection, key: bytes) -> tuple[str, int] | None:
    """Remove a key; returns its group and the offset of its last record, None when the key is not known."""
    found = connection.execute("SELECT group_id, offset FROM record_keys WHERE key = ?", (key,)).fetchone()
    if found is None:
        return None
    connection.execute("DELETE FROM record_keys WHERE key = ?", (key,))
    return name_text(found[0]), int(found[1])


def groups_deleted_before(
    connection: sqlite3.Connection, at: int, *, after: int, limit: int
) -> Sequence[GroupDeletion]:
    """Groups without a description that were deleted at this time or earlier, in the order of their deletions.

    `after` is the offset of the last deletion that was looked at. A deletion without a valid time never is one.
    """
    query = """
        SELECT k.group_id, k.offset FROM record_keys AS k LEFT JOIN current AS c ON c.group_id = k.group_id
        WHERE k.provenance = '' AND k.offset > ? AND k.at <= ? AND c.epoch IS NULL ORDER BY k.offset LIMIT ?
    """
    return [GroupDeletion(name_text(row[0]), int(row[1])) for row in connection.execute(query, (after, at, limit))]


def is_deleted_before(connection: sqlite3.Connection, group: str, at: int) -> bool:
    query = """
        SELECT count(*) FROM record_keys AS k LEFT JOIN current AS c ON c.group_id = k.group_id
        WHERE k.group_id = ? AND k.provenance = '' AND k.at <= ? AND c.epoch IS NULL
    """
    return bool(connection.execute(query, (name_bytes(group), at)).fetchone()[0])


def keys_of(connection: sqlite3.Connection, group: str, *, pasted_before: int, limit: int) -> Sequence[bytes]:
    """The keys of a group's versions, of pasted ones only those by then, oldest first, and then of its deletion.

    Those of Spark are about a query of the same name.
    """
    query = """
        SELECT key FROM record_keys
        WHERE group_id = ? AND (provenance IN ('', 'pushed', 'assignment') OR (provenance = 'pasted' AND at <= ?))
        ORDER BY provenance = '', offset LIMIT ?
    """
    return [bytes(row[0]) for row in connection.execute(query, (name_bytes(group), pasted_before, limit))]


_ONLY_PASTED: Final = "HAVING min(provenance) = 'pasted' AND max(provenance) = 'pasted' AND max(at) <= ?"


def groups_only_pasted_before(connection: sqlite3.Connection, at: int, *, after: str, limit: int) -> Sequence[str]:
    """Groups whose records are all pasted versions of this time or earlier, by name, behind the group `after`."""
    query = f"""
        SELECT group_id FROM record_keys WHERE group_id > ? GROUP BY group_id {_ONLY_PASTED} ORDER BY group_id LIMIT ?
    """  # noqa: S608 - our own text
    return [name_text(row[0]) for row in connection.execute(query, (name_bytes(after), at, limit))]


def is_only_pasted_before(connection: sqlite3.Connection, group: str, at: int) -> bool:
    query = f"SELECT group_id FROM record_keys WHERE group_id = ? GROUP BY group_id {_ONLY_PASTED}"  # noqa: S608 - the same
    return connection.execute(query, (name_bytes(group), at)).fetchone() is not None


def newest_key(connection: sqlite3.Connection, group: str, *, provenance: str) -> bytes | None:
    """The key of a group's last version of this origin since its last deletion."""
    query = """
        SELECT key FROM record_keys WHERE group_id = ? AND provenance = ? AND offset > coalesce(
            (SELECT max(offset) FROM record_keys WHERE group_id = ? AND provenance = ''), -1
        ) ORDER BY offset DESC LIMIT 1
    """
    named = name_bytes(group)
    found = connection.execute(query, (named, provenance, named)).fetchone()
    return None if found is None else bytes(found[0])


def groups_without_push(
    connection: sqlite3.Connection, *, provenance: str, after: str | None, limit: int
) -> Sequence[str]:
    """Groups behind `after` with a version of this origin since their last deletion, and without a pushed one."""
    query = """
        SELECT k.group_id FROM record_keys AS k LEFT JOIN current AS c ON c.group_id = k.group_id
        WHERE k.provenance = ? AND k.group_id > ? AND c.epoch IS NULL AND k.offset > coalesce(c.offset, -1)
        GROUP BY k.group_id ORDER BY k.group_id LIMIT ?
    """
    behind = b"" if after is None else name_bytes(after)
    return [name_text(row[0]) for row in connection.execute(query, (provenance, behind, limit))]


def all_keys_of(connection: sqlite3.Connection, group: str, *, before_offset: int) -> Sequence[bytes]:
    """The keys of a group's versions of any origin with an offset below this one, and then of its deletion."""
    query = """
        SELECT key FROM record_keys WHERE group_id = ? AND (offset < ? OR provenance = '')
        ORDER BY provenance = '', offset
    """
    return [bytes(row[0]) for row in connection.execute(query, (name_bytes(group), before_offset))]


def groups_with_more_than(connection: sqlite3.Connection, kept: int, *, provenance: str, limit: int) -> Sequence[str]:
    """Groups with more than `kept` versions of this origin."""
    query = """
        SELECT group_id FROM record_keys WHERE provenance = ? GROUP BY group_id HAVING count(*) > ? LIMIT ?
    """
    return [name_text(row[0]) for row in connection.execute(query, (provenance, kept, limit))]


def oldest_keys(
    connection: sqlite3.Connection, group: str, *, kept: int, provenance: str, limit: int
) -> Sequence[bytes]:
    """The keys of all but the newest `kept` versions of a group, oldest first."""
    query = """
        SELECT key FROM (
            SELECT key, offset FROM record_keys WHERE group_id = ? AND provenance = ?
            ORDER BY offset DESC LIMIT -1 OFFSET ?
        ) ORDER BY offset LIMIT ?
    """
    parameters = (name_bytes(group), provenance, kept, limit)
    return [bytes(row[0]) for row in connection.execute(query, parameters)]
