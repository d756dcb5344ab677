"""sqlite:PATH, descriptions in one file: for one gateway with one worker, which has the file to itself.

A stored description survives a kill of the gateway and a loss of power. When the disk is full or not available, calls
fail with `TransientFailure` and are retried.

`SqliteFile` is one connection on one thread, with a bounded number of waiting calls. Work is a function of the
connection that runs in its own transaction, so that a kill leaves all of it or nothing. Group names are kept as bytes,
because names that are not UTF-8 are no SQLite text.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from headgate.base.errors import UsageError
from headgate.plugin import (
    Description,
    PushedTopology,
    StoreSettings,
    TransientFailure,
    check_hash,
    from_bytes,
    to_bytes,
)

MAX_WAITING = 64
_TOPOLOGIES = """
CREATE TABLE topologies (
    group_id BLOB PRIMARY KEY, epoch INTEGER NOT NULL, incarnation TEXT NOT NULL, hash TEXT NOT NULL,
    description BLOB NOT NULL
)
"""
_APPLICATION_ID = 0x48475431  # "HGT1"
_VERSION = 1
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


class NotOursError(Exception):
    """The file is no SQLite database, or belongs to another program or another release."""


class InUseError(Exception):
    """Another process has the file open."""


class SqliteFile:
    """`application_id` and `version` identify the file; `durable` False is for one that can be rebuilt."""

    def __init__(
        self,
        path: Path,
        *,
        schema: Sequence[str],
        application_id: int,
        version: int,
        durable: bool,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._max_waiting = max_waiting
        self._path = path
        self._schema = schema
        self._identity = (application_id, version)
        self._durable = durable
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"headgate-{path.name}")
        self._connection: sqlite3.Connection | None = None
        self._waiting = 0

    async def open(self) -> None:
        """Open or create it; `NotOursError`, `InUseError`, or `OSError` when the folder is missing or not writable."""
        await asyncio.wrap_future(self._thread.submit(self._open))

    async def run(self, work: Work[T]) -> T:
        """The result of the work; `TransientFailure` when too many calls wait. Work that has begun is not cancelled."""
        if self._waiting >= self._max_waiting:
            raise TransientFailure(f"{self._max_waiting} calls are waiting for {self._path.name} already")
        self._waiting += 1
        submitted = self._thread.submit(self._transaction, work)
        try:
            return await asyncio.wrap_future(submitted)
        finally:
            self._waiting -= 1

    def run_from_thread(self, work: Work[T]) -> T:
        """`run` for another thread, which waits for the result."""
        submitted: Future[T] = self._thread.submit(self._transaction, work)
        return submitted.result()

    def replace_from_thread(self, remove: Callable[[], None]) -> None:
        """Close the file, remove it, and open a new one: for a file that can be rebuilt."""

        def work() -> None:
            self._close()
            remove()
            self._open()

        self._thread.submit(work).result()

    async def close(self) -> None:
        if self._connection is not None:
            await asyncio.wrap_future(self._thread.submit(self._close))
        self._thread.shutdown(wait=False)

    # --- on its thread

    def _transaction(self, work: Work[T]) -> T:
        connection = self._connection
        if connection is None:
            raise TransientFailure(f"{self._path.name} is not open")
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            # On a full or missing disk SQLite may have ended the transaction already, or left it open at its commit.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _open(self) -> None:
        if not self._path.parent.is_dir():
            raise FileNotFoundError(f"the folder {self._path.parent} does not exist")
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=0, check_same_thread=False)
        try:
            self._prepare(connection)
        except sqlite3.Error as failure:
            connection.close()
            raise _translated(failure) from None
        except NotOursError:
            connection.close()
            raise
        self._connection = connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # With an exclusive lock a second process fails at once, and the log needs no shared memory.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'OFF'}")
        connection.execute("BEGIN IMMEDIATE")
        application_id, version = self._identity
        found = (
            connection.execute("PRAGMA application_id").fetchone()[0],
            connection.execute("PRAGMA user_version").fetchone()[0],
        )
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables == 0 and found == (0, 0):
            connection.execute(f"PRAGMA application_id = {application_id}")
            connection.execute(f"PRAGMA user_version = {version}")
            for statement in self._schema:
                connection.execute(statement)
        elif found != self._identity:
            raise NotOursError("it belongs to another program, or to another release of this one")
        connection.execute("COMMIT")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _translated(failure: sqlite3.Error) -> Exception:
    if not isinstance(failure, sqlite3.OperationalError):
        return NotOursError(str(failure))
    if failure.sqlite_errorcode in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return InUseError("another process has it open")
    return OSError(str(failure))


def _remedy(failure: Exception) -> str:
    match failure:
        case InUseError():
            return (
                "is in use by another process. sqlite: serves one gateway with one worker: stop the other, or use "
                "kafka: for several"
            )
        case NotOursError():
            return (
                f"is not a store of this release ({failure}). Move it away and start again: descriptions are "
                "solicited again, group by group"
            )
        case _:
            return f"cannot be opened ({failure}): name a file that this user may write"


def name_bytes(name: str) -> bytes:
    """A name as a key: defined for every `str`, and different for different names."""
    return name.encode("utf-8", "surrogatepass")


def name_text(name: bytes) -> str:
    return name.decode("utf-8", "surrogatepass")


async def is_in_use(path: Path) -> bool:
    """Whether another process has this store open; a file that is not there is not created."""
    if not await asyncio.to_thread(path.exists):
        return False
    file = SqliteFile(path, schema=(_TOPOLOGIES,), application_id=_APPLICATION_ID, version=_VERSION, durable=True)
    try:
        await file.open()
    except InUseError:
        return True
    except (NotOursError, OSError):
        return False
    finally:
        await file.close()
    return False


class SqliteStore:
    """One description for each group: the last that was set."""

    def __init__(self) -> None:
        self._file: SqliteFile | None = None

    async def configure(self, settings: StoreSettings) -> None:
        path = Path(settings.target)
        file = SqliteFile(path, schema=(_TOPOLOGIES,), application_id=_APPLICATION_ID, version=_VERSION, durable=True)
        try:
            await file.open()
        except (InUseError, NotOursError, OSError) as failure:
            await file.close()
            raise UsageError(f"topologies.store: {path} {_remedy(failure)}") from None
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
            return None if found is None else check_hash(from_bytes(found[0]), found[1])

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
