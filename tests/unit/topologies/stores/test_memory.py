"""memory: is bounded by bytes."""

import pytest

from headgate.plugin.conformance import pushed, topology
from headgate.plugin.topology_store import TransientFailure
from headgate.topologies.stores.blobs import to_bytes
from headgate.topologies.stores.memory_store import MemoryStore

SIZE = len(to_bytes(topology()))


async def test_a_full_store_takes_no_more_until_something_is_deleted() -> None:
    store = MemoryStore(most_bytes=2 * SIZE)
    await store.set(pushed("a"))
    await store.set(pushed("b"))
    with pytest.raises(TransientFailure, match="is full"):
        await store.set(pushed("c"))
    await store.delete("a")
    await store.set(pushed("c"))
    assert await store.get("c", 0) == topology()


async def test_what_replaces_itself_needs_no_more_room() -> None:
    store = MemoryStore(most_bytes=SIZE)
    for _ in range(3):
        await store.set(pushed("a"))
    assert await store.get("a", 0) == topology()
