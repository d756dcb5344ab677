"""Calling a topology store: every result, exception and timeout of a store becomes a value (KIP-1331 as shipped).

Invariant: neither an exception of a store nor a call that never ends gets past this module. A call that times out is
cancelled; if it does not end even then, it is kept until it does, and when too many such calls hang the store is not
called until some have ended.

| a store's `set` | outcome | text for the client |
|---|---|---|
| returns | stored | |
| raises before it is awaited, or returns nothing that can be awaited | permanent | "... plugin failed." |
| raises PermanentFailure | permanent | its own |
| raises anything else | transient | its own |
| does not end in time | transient | says so |

`delete` and `get` have one kind of failure each.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog

from headgate.base.errors import ClusterError
from headgate.facts.topology import Description
from headgate.plugin import PermanentFailure, PushedTopology, TopologyStore
from headgate.topologies.model.group_state import PushOutcome

log = structlog.get_logger()

SET_FAILED = "Topology description plugin failed."
DELETE_FAILED = "Topology description plugin failed to delete the topology."
# Kafka's strings hold 32 KiB; this is more than anyone reads.
MAX_TEXT = 1000
MAX_HANGING = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SetResult:
    """`text` is for the client's ErrorMessage, None when it was stored."""

    outcome: PushOutcome
    text: str | None = None


@dataclass(frozen=True, slots=True)
class StoreFailure:
    """A failed call, or a failed push; `text` is for the log or the client's ErrorMessage."""

    text: str


@dataclass(frozen=True, slots=True)
class _Returned(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class _Failed:
    """`breaks_contract`: it raised before it was awaited, or returned nothing that can be awaited."""

    text: str
    is_permanent: bool = False
    breaks_contract: bool = False


_BROKEN = _Failed("the store breaks the contract of topology stores", is_permanent=True, breaks_contract=True)


class StoreCalls:
    """A store behind timeouts; one for each worker."""

    def __init__(self, store: TopologyStore, *, timeout_s: float, max_hanging: int = MAX_HANGING) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._max_hanging = max_hanging
        self._hanging: set[asyncio.Future[Any]] = set()
        self.failures_in_a_row = 0  # a PermanentFailure is none: it is about one description

    @property
    def hanging(self) -> int:
        """Calls that were cancelled and have not ended."""
        return len(self._hanging)

    @property
    def is_called(self) -> bool:
        """Whether the store is called: not while too many calls hang."""
        return len(self._hanging) < self._max_hanging

    async def set(self, pushed: PushedTopology) -> SetResult:
        match await self._call(lambda: self._store.set(pushed)):
            case _Failed(breaks_contract=True):
                return SetResult(PushOutcome.PERMANENT, SET_FAILED)
            case _Failed(text=text, is_permanent=is_permanent):
                return SetResult(PushOutcome.PERMANENT if is_permanent else PushOutcome.TRANSIENT, text)
            case _:
                return SetResult(PushOutcome.STORED)

    async def get(self, group: str, epoch: int) -> Description | StoreFailure | None:
        """The stored description; None when the store does not have it."""
        result: _Returned[Any] | _Failed = await self._call(lambda: self._store.get(group, epoch))
        if isinstance(result, _Failed):
            return StoreFailure(result.text)
        if isinstance(result.value, Description | None):
            return result.value
        return StoreFailure(f"the store returned a {type(result.value).__name__} instead of a Description")

    async def delete(self, group: str) -> StoreFailure | None:
        """Delete what the store has of the group; None when that succeeded."""
        match await self._call(lambda: self._store.delete(group)):
            case _Failed(text=text, breaks_contract=breaks_contract):
                return StoreFailure(DELETE_FAILED if breaks_contract else text)
            case _:
                return None

    async def _call(self, call: Callable[[], Awaitable[T]]) -> _Returned[T] | _Failed:
        result = await self._outcome(call)
        has_failed = isinstance(result, _Failed) and (result.breaks_contract or not result.is_permanent)
        self.failures_in_a_row = self.failures_in_a_row + 1 if has_failed else 0
        return result

    async def _outcome(self, call: Callable[[], Awaitable[T]]) -> _Returned[T] | _Failed:
        timed_out = _Failed(f"The topology store did not answer within {self._timeout_s * 1000:.0f} ms.")
        if not self.is_called:
            return timed_out
        try:
            awaitable: object = call()
        except Exception:  # noqa: BLE001 - a store may raise anything
            return _BROKEN
        if not inspect.isawaitable(awaitable):
            return _BROKEN
        running: asyncio.Future[T] = asyncio.ensure_future(awaitable)
        try:
            await asyncio.wait((running,), timeout=self._timeout_s)
        finally:
            # Also when the caller is cancelled, because its client has disconnected.
            if not running.done():
                self._give_up(running)
        if not running.done():
            return timed_out
        if running.cancelled():
            return _Failed("the store cancelled its own call")
        error = running.exception()
        if error is None:
            return _Returned(running.result())
        return _Failed(_text(error), is_permanent=isinstance(error, PermanentFailure))

    def _give_up(self, running: asyncio.Future[Any]) -> None:
        self._hanging.add(running)
        if len(self._hanging) == self._max_hanging:
            log.warning("topology store is not called: too many calls hang", hanging=len(self._hanging))
        running.add_done_callback(self._on_ended)
        running.cancel()

    def _on_ended(self, running: asyncio.Future[Any]) -> None:
        if len(self._hanging) == self._max_hanging:
            log.info("topology store is called again")
        self._hanging.discard(running)
        if not running.cancelled():
            running.exception()  # retrieved, so that asyncio does not report it


def _text(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return (str(error) or name)[:MAX_TEXT]
    except Exception:  # noqa: BLE001 - even the text comes from a store
        return name


class GroupLocks:
    """One lock for each group, so that calls of a store about one group never overlap. A free lock takes no memory."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def acquire(self, group: str, timeout_s: float) -> AsyncIterator[None]:
        """`ClusterError` when the lock was not free within the timeout."""
        lock, users = self._locks.get(group) or (asyncio.Lock(), 0)
        self._locks[group] = (lock, users + 1)
        try:
            try:
                async with asyncio.timeout(timeout_s):
                    await lock.acquire()
            except TimeoutError:
                raise ClusterError(f"other calls about this group took longer than {timeout_s:g} s") from None
            try:
                yield
            finally:
                lock.release()
        finally:
            lock, users = self._locks[group]
            if users == 1:
                del self._locks[group]
            else:
                self._locks[group] = (lock, users - 1)
