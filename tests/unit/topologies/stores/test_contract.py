"""The stores that keep things here are held to the contract that plugin authors run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headgate.plugin.conformance import TopologyStoreContract, settings_in
from headgate.plugin.topology_store import TopologyStore
from headgate.topologies.stores.memory_store import MemoryStore
from headgate.topologies.stores.sqlite_store import SqliteStore


class TestMemory(TopologyStoreContract):
    keeps = False

    @asynccontextmanager
    async def open_store(self, folder: Path) -> AsyncIterator[TopologyStore]:
        store = MemoryStore()
        await store.configure(settings_in(folder))
        yield store
        await store.close()


class TestSqlite(TopologyStoreContract):
    @asynccontextmanager
    async def open_store(self, folder: Path) -> AsyncIterator[TopologyStore]:
        store = SqliteStore()
        await store.configure(settings_in(folder, target=str(folder / "topologies.db")))
        yield store
        await store.close()
