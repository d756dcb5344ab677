"""Stores for tests: one that does the same in every call, and a memory: store whose calls can be replaced."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from headgate.plugin import Description, PushedTopology, StoreSettings
from headgate.topologies.stores.memory_store import MemoryStore

BREACH = "the password is hunter2"


class FakeStore:
    """Keeps nothing; `set`, `get` and `delete` return what `act` returns, which is None when it is awaited."""

    def __init__(self, act: Callable[[], Any] | None = None) -> None:
        self.calls = 0
        self._act = act or _return_none

    async def configure(self, settings: StoreSettings) -> None:
        pass

    def set(self, _: PushedTopology) -> Any:
        return self._call()

    def get(self, _: str, __: int) -> Any:
        return self._call()

    def delete(self, _: str) -> Any:
        return self._call()

    async def close(self) -> None:
        pass

    def _call(self) -> Any:
        self.calls += 1
        return self._act()


async def _return_none() -> None:
    return None


def raise_before_awaited() -> Any:
    raise RuntimeError(BREACH)


def return_nothing_to_await() -> Any:
    return None


async def return_nonsense() -> Any:
    return {"subtopologies": []}


async def hang() -> None:
    await asyncio.get_running_loop().create_future()


def raising(error: BaseException) -> FakeStore:
    async def act() -> None:
        raise error

    return FakeStore(act)


class ControlledStore(MemoryStore):
    """`memory:`, but `on_get` and `on_delete` are called instead if they are set; counts its deletes."""

    def __init__(self) -> None:
        super().__init__()
        self.on_get: Callable[[str], Awaitable[Description | None]] | None = None
        self.on_delete: Callable[[str], Awaitable[None]] | None = None
        self.deletes = 0

    async def get(self, group: str, epoch: int) -> Description | None:
        return await (super().get(group, epoch) if self.on_get is None else self.on_get(group))

    async def delete(self, group: str) -> None:
        self.deletes += 1
        await (super().delete(group) if self.on_delete is None else self.on_delete(group))
