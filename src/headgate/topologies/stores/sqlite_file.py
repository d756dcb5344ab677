"""A SQLite file with one connection on one thread, and a bounded number of calls that wait for it.

One rule: nobody else touches the connection. Work is a function of it; it runs in a transaction of its own, so that a
kill leaves all of it or nothing. Group names are kept as bytes, because names that are no UTF-8 are no SQLite text.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from headgate.plugin.topology_store import TransientFailure

MOST_WAITING = 64
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


class NotOursError(Exception):
    """The file is no SQLite database, or belongs to another program or another version."""


class InUseError(Exception):
    """Another process has it open."""


class SqliteFile:
    """`application_id` and `version` tell our files from others; `durable` False is for what can be rebuilt."""

    def __init__(self, path: Path, *, schema: Sequence[str], application_id: int, version: int, durable: bool) -> None:
        self._path = path
        self._schema = schema
        self._identity = (application_id, version)
        self._durable = durable
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"headgate-{path.name}")
        self._connection: sqlite3.Connection | None = None
        self._waiting = 0

    async def open(self) -> None:
        """Open or create it; `NotOursError`, `InUseError`, or `OSError` when the folder is not there or not ours."""
        await asyncio.wrap_future(self._thread.submit(self._open))

    async def run(self, work: Work[T]) -> T:
        """The work's result; `TransientFailure` when too many wait already. Cancelled work ends if it has begun."""
        if self._waiting >= MOST_WAITING:
            raise TransientFailure(f"{MOST_WAITING} calls wait for {self._path.name} already")
        self._waiting += 1
        submitted = self._thread.submit(self._transaction, work)
        try:
            return await asyncio.wrap_future(submitted)
        finally:
            self._waiting -= 1

    def run_from_thread(self, work: Work[T]) -> T:
        """The same for another thread, which waits for it."""
        submitted: Future[T] = self._thread.submit(self._transaction, work)
        return submitted.result()

    def replace_from_thread(self, remove: Callable[[], None]) -> None:
        """Close the file, have it removed, and open a new one: for what can be rebuilt."""

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
            # A disk that is full or away may have ended it already, or have left it open at its commit.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _open(self) -> None:
        if not self._path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {self._path.parent}")
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
        # With an exclusive lock a second process is refused at once, and the log needs no shared memory.
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


def name_bytes(name: str) -> bytes:
    """A name as a key: every `str` has one, and different ones have different ones."""
    return name.encode("utf-8", "surrogatepass")


def name_text(name: bytes) -> str:
    return name.decode("utf-8", "surrogatepass")
