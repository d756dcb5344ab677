"""sqlite:PATH, descriptions in one file: for one gateway with one worker, which has the file to itself.

A description that was set survives a kill of the gateway and a loss of power. When the disk is full or away, calls fail
for now and are tried again.
"""

import sqlite3
from pathlib import Path

from headgate.base.errors import UsageError
from headgate.facts.topology import Description
from headgate.plugin.topology_store import PushedTopology, StoreSettings, TransientFailure
from headgate.topologies.stores.blobs import checked, from_bytes, to_bytes
from headgate.topologies.stores.sqlite_file import InUseError, NotOursError, SqliteFile, name_bytes

_TOPOLOGIES = """
CREATE TABLE topologies (
    group_id BLOB PRIMARY KEY, epoch INTEGER NOT NULL, incarnation TEXT NOT NULL, hash TEXT NOT NULL,
    description BLOB NOT NULL
)
"""
_APPLICATION_ID = 0x48475431  # "HGT1"
_VERSION = 1


class SqliteStore:
    """One description for each group: the last that was set."""

    def __init__(self) -> None:
        self._file: SqliteFile | None = None

    async def configure(self, settings: StoreSettings) -> None:
        path = Path(settings.target)
        file = SqliteFile(path, schema=(_TOPOLOGIES,), application_id=_APPLICATION_ID, version=_VERSION, durable=True)
        try:
            await file.open()
        except InUseError:
            await file.close()
            raise UsageError(
                f"topologies.store: {path} is in use by another process. sqlite: serves one gateway with one worker: "
                "stop the other, or use kafka: for several"
            ) from None
        except NotOursError as failure:
            await file.close()
            raise UsageError(
                f"topologies.store: {path} is not a store of this release ({failure}). Move it away and start again: "
                "descriptions are asked for again, group by group"
            ) from None
        except OSError as failure:
            await file.close()
            raise UsageError(
                f"topologies.store: {path} cannot be opened ({failure}): name a file that this user may write"
            ) from None
        self._file = file

    async def set(self, pushed: PushedTopology) -> None:
        def work(connection: sqlite3.Connection) -> None:
            row = (
                name_bytes(pushed.group),
                pushed.epoch,
                pushed.incarnation,
                pushed.hash,
                to_bytes(pushed.description),
            )
            connection.execute("INSERT OR REPLACE INTO topologies VALUES (?, ?, ?, ?, ?)", row)

        await self._open_file().run(work)

    async def get(self, group: str, epoch: int) -> Description | None:
        def work(connection: sqlite3.Connection) -> Description | None:
            query = "SELECT description, hash FROM topologies WHERE group_id = ? AND epoch = ?"
            found = connection.execute(query, (name_bytes(group), epoch)).fetchone()
            return None if found is None else checked(from_bytes(found[0]), found[1])

        return await self._open_file().run(work)

    async def delete(self, group: str) -> None:
        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM topologies WHERE group_id = ?", (name_bytes(group),))

        await self._open_file().run(work)

    async def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            await file.close()

    def _open_file(self) -> SqliteFile:
        if self._file is None:
            raise TransientFailure("the store sqlite: is not open")
        return self._file
