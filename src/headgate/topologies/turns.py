"""One at a time for each name: calls of a store about one group never overlap."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headgate.base.errors import ClusterError


class Turns:
    """Locks by name; a name that nobody holds or waits for takes no memory."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def of(self, name: str, seconds: float) -> AsyncIterator[None]:
        """`ClusterError` when the turn did not come in so many seconds."""
        lock, users = self._locks.get(name) or (asyncio.Lock(), 0)
        self._locks[name] = (lock, users + 1)
        try:
            try:
                async with asyncio.timeout(seconds):
                    await lock.acquire()
            except TimeoutError:
                raise ClusterError(f"other calls about this group took longer than {seconds:g} s") from None
            try:
                yield
            finally:
                lock.release()
        finally:
            lock, users = self._locks[name]
            if users == 1:
                del self._locks[name]
            else:
                self._locks[name] = (lock, users - 1)
