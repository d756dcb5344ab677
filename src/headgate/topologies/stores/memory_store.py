"""memory: descriptions in this process and nowhere else; for trying things out, and for tests.

A restart loses them, and then they are asked for again. Bounded by bytes: when it is full it takes no more until
something is deleted.
"""

import asyncio

from headgate.facts.topology import Description
from headgate.plugin.topology_store import PushedTopology, StoreSettings, TransientFailure
from headgate.topologies.stores.blobs import from_bytes, to_bytes

MOST_BYTES = 256 * 1024 * 1024


class MemoryStore:
    """One description for each group: the last that was set."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: dict[str, tuple[int, bytes]] = {}
        self._bytes = 0

    async def configure(self, settings: StoreSettings) -> None:
        """Nothing to open."""

    async def set(self, pushed: PushedTopology) -> None:
        data = await asyncio.to_thread(to_bytes, pushed.description)
        before = len(self._kept.get(pushed.group, (0, b""))[1])
        if self._bytes - before + len(data) > self._most_bytes:
            raise TransientFailure(
                f"the store memory: is full ({self._most_bytes} bytes): delete groups, or use another store"
            )
        self._kept[pushed.group] = (pushed.epoch, data)
        self._bytes += len(data) - before

    async def get(self, group: str, epoch: int) -> Description | None:
        kept_epoch, data = self._kept.get(group, (-1, b""))
        return await asyncio.to_thread(from_bytes, data) if kept_epoch == epoch and data else None

    async def delete(self, group: str) -> None:
        self._bytes -= len(self._kept.pop(group, (0, b""))[1])

    async def close(self) -> None:
        self._kept.clear()
        self._bytes = 0
