"""Calling a topology store: every way in which it can answer, or not, becomes a value (KIP-1331 as shipped).

One rule: nothing that a store does gets past here, neither an exception nor a call that never ends. A call that is
given up is cancelled; if it does not even end then, it is kept until it does, and when too many hang the store is not
called any more until some have ended.

| a store's `set` | is | text for the client |
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
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headgate.facts.topology import Description
from headgate.plugin.topology_store import PermanentFailure, PushedTopology, TopologyStore
from headgate.topologies.model.group_events import Outcome

SET_FAILED = "Topology description plugin failed."
DELETE_FAILED = "Topology description plugin failed to delete the topology."
# Kafka's strings hold 32 KiB; nobody reads more than this.
LONGEST_TEXT = 1000
MOST_HANGING = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SetOutcome:
    """`text` is for the client's ErrorMessage, None when it was stored."""

    outcome: Outcome
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    description: Description


@dataclass(frozen=True, slots=True)
class Missing:
    """NOT_STORED: the store does not have it."""


@dataclass(frozen=True, slots=True)
class Failed:
    """ERROR for a describe, GROUP_DELETION_FAILED for a deletion; `text` says why."""

    text: str


@dataclass(frozen=True, slots=True)
class _Returned(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException


class _AtOnce:
    """The call broke the contract before there was anything to wait for."""


class _TooLate:
    pass


class StoreCalls:
    """A store behind deadlines; one for each worker."""

    def __init__(self, store: TopologyStore, *, timeout_s: float, most_hanging: int = MOST_HANGING) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._most_hanging = most_hanging
        self._hanging: set[asyncio.Future[Any]] = set()

    @property
    def hanging(self) -> int:
        """Calls that were given up and have not ended."""
        return len(self._hanging)

    async def set(self, pushed: PushedTopology) -> SetOutcome:
        match await self._call(lambda: self._store.set(pushed)):
            case _Returned():
                return SetOutcome(Outcome.STORED)
            case _AtOnce():
                return SetOutcome(Outcome.PERMANENT, SET_FAILED)
            case _Raised(error=PermanentFailure() as error):
                return SetOutcome(Outcome.PERMANENT, _text(error))
            case _Raised(error=error):
                return SetOutcome(Outcome.TRANSIENT, _text(error))
            case _TooLate():
                return SetOutcome(Outcome.TRANSIENT, self._too_late())

    async def get(self, group: str, epoch: int) -> Found | Missing | Failed:
        match await self._call(lambda: self._store.get(group, epoch)):
            case _Returned(value=Description() as description):
                return Found(description)
            case _Returned(value=None):
                return Missing()
            case _Returned(value=other):
                return Failed(f"the store answered with a {type(other).__name__}")
            case _AtOnce():
                return Failed("the store raised before it was awaited, or returned nothing to wait for")
            case _Raised(error=error):
                return Failed(_text(error))
            case _TooLate():
                return Failed(self._too_late())

    async def delete(self, group: str) -> Failed | None:
        """None: deleted."""
        match await self._call(lambda: self._store.delete(group)):
            case _Returned():
                return None
            case _AtOnce():
                return Failed(DELETE_FAILED)
            case _Raised(error=error):
                return Failed(_text(error))
            case _TooLate():
                return Failed(self._too_late())

    def _too_late(self) -> str:
        return f"The topology store did not answer within {self._timeout_s * 1000:.0f} ms."

    async def _call(self, call: Callable[[], Awaitable[T]]) -> _Returned[T] | _Raised | _AtOnce | _TooLate:
        if len(self._hanging) >= self._most_hanging:
            return _TooLate()
        try:
            awaitable: object = call()
        except Exception:  # noqa: BLE001 - whatever a store raises is an outcome
            return _AtOnce()
        if not inspect.isawaitable(awaitable):
            return _AtOnce()
        running: asyncio.Future[T] = asyncio.ensure_future(awaitable)
        try:
            await asyncio.wait((running,), timeout=self._timeout_s)
        finally:
            # Also when the caller is cancelled: the client has gone, and nobody waits for the answer.
            if not running.done():
                self._give_up(running)
        if not running.done():
            return _TooLate()
        if running.cancelled():
            return _Raised(asyncio.CancelledError("the store cancelled its own call"))
        error = running.exception()
        return _Returned(running.result()) if error is None else _Raised(error)

    def _give_up(self, running: asyncio.Future[Any]) -> None:
        self._hanging.add(running)
        running.add_done_callback(self._ended)
        running.cancel()

    def _ended(self, running: asyncio.Future[Any]) -> None:
        self._hanging.discard(running)
        if not running.cancelled():
            running.exception()  # looked at, so that nobody complains that it was not


def _text(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return (str(error) or name)[:LONGEST_TEXT]
    except Exception:  # noqa: BLE001 - even its text is a store's
        return name
