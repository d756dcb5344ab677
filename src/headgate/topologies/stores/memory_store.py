"""memory: descriptions in this process only, for trying things out and for tests.

A restart loses them, and then they are solicited again. Bounded by bytes: when it is full it takes no more until a
description is deleted.
"""

import asyncio

from headgate.plugin import Description, PushedTopology, StoreSettings, TransientFailure, from_bytes, to_bytes

MAX_BYTES = 256 * 1024 * 1024


class MemoryStore:
    """One description for each group: the last that was set."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: dict[str, tuple[int, bytes]] = {}
        self._bytes = 0

    async def configure(self, settings: StoreSettings) -> None:
        """Nothing to open."""

    async def set(self, pushed: PushedTopology) -> None:
        data = await asyncio.to_thread(to_bytes, pushed.description)
        before = len(self._kept.get(pushed.group, (0, b""))[1])
        if self._bytes - before + len(data) > self._max_bytes:
            raise TransientFailure(
                f"the store memory: is full ({self._max_bytes} bytes): delete groups, or use another store"
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
