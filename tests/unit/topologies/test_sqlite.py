"""sqlite: one file, one process; what an operator reads when it cannot be opened, and what a kill leaves."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.base.errors import UsageError
from headgate.plugin import TransientFailure
from headgate.plugin.conformance import pushed, settings_in, topology
from headgate.topologies.stores.sqlite_store import SqliteFile, SqliteStore


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore()
    await store.configure(settings_in(path.parent, target=str(path)))
    return store


async def test_a_second_process_gets_an_error_that_names_kafka(tmp_path: Path) -> None:
    first = await opened(tmp_path / "t.db")
    with pytest.raises(UsageError, match=r"in use by another process.*kafka:"):
        await opened(tmp_path / "t.db")
    await first.close()


async def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE precious (x)")
    other.close()
    with pytest.raises(UsageError, match="not a store of this release"):
        await opened(path)
    assert b"precious" in path.read_bytes()


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(UsageError, match="not a store of this release"):
        await opened(path)
    assert path.read_bytes().startswith(b"not a database")


async def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        await opened(tmp_path / "nowhere" / "t.db")


async def test_calls_before_it_is_open_fail_for_now() -> None:
    with pytest.raises(TransientFailure):
        await SqliteStore().set(pushed("g"))


async def test_calls_that_wait_are_bounded(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "t.db", schema=(), application_id=1, version=1, durable=False, max_waiting=3)
    await file.open()
    asked = (file.run(lambda connection: connection.execute("SELECT 1").fetchone()) for _ in range(10))
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(outcome, TransientFailure) for outcome in outcomes) == 7
    assert outcomes.count((1,)) == 3
    await file.close()


async def test_a_row_that_is_not_what_was_pushed_is_an_error(tmp_path: Path) -> None:
    store = await opened(tmp_path / "t.db")
    await store.set(pushed("g"))
    await store.close()
    with sqlite3.connect(tmp_path / "t.db") as file:
        file.execute("UPDATE topologies SET description = CAST(replace(description, 'rates', 'RATES') AS BLOB)")
    file.close()
    store = await opened(tmp_path / "t.db")
    with pytest.raises(TransientFailure, match="its content hash differs"):
        await store.get("g", 0)
    await store.close()


async def test_a_disk_that_was_full_is_written_again_when_there_is_room(tmp_path: Path) -> None:
    store = await opened(tmp_path / "t.db")
    await store.set(pushed("g"))

    async def allow(pages: int) -> None:
        await store._open_file().run(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}"))

    await allow(1)  # as many as it has: no more
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError, match="full"):
            await store.set(pushed("h", topology(nodes=2_000)))
    assert await store.get("g", 0) == topology()
    await allow(1_000_000)
    await store.set(pushed("h", topology(nodes=2_000)))
    assert await store.get("h", 0) == topology(nodes=2_000)
    await store.close()


CHILD = """
import asyncio, sys
from pathlib import Path
from headgate.topologies.stores.sqlite_store import SqliteStore
from headgate.plugin.conformance import pushed, settings_in, topology

async def main():
    store = SqliteStore()
    await store.configure(settings_in(Path(sys.argv[1]).parent, target=sys.argv[1]))
    number = 0
    while True:
        await store.set(pushed("g", topology(str(number))))
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


async def test_a_kill_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(path), stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": "src"}
    )
    assert child.stdout is not None
    answered = [int(await child.stdout.readline()) for _ in range(5)][-1]
    child.send_signal(signal.SIGKILL)
    answered = max([answered, *(int(line) for line in (await child.stdout.read()).split())])
    await child.wait()
    store = await opened(path)
    assert await store.get("g", 0) in {topology(str(answered)), topology(str(answered + 1))}
    await store.close()
