"""The stores that keep things here are held to the contract that plugin authors run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headgate.ports.topology_store import TopologyStore
from headgate.stores.memory import MemoryStore
from headgate.stores.sqlite import SqliteStore
from headgate.testing.topology_store import TopologyStoreContract, settings_in


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
