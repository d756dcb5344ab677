"""The addresses behind the host names of brokers, looked up beside the connections that need them.

A look-up may take as long as a resolver likes. So each name is looked up once for all who wait for it, and known names
are used at once, also when their time is over: they are looked up again in the background. A name that cannot be looked
up any more keeps its last addresses until they cannot be reached (`forget`).

Invariant: only a connection to a broker whose name has never been found waits for a look-up.
"""

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from headgate.config.addresses import Address

_FRESH_SECONDS: Final = 30.0
_MOST_NAMES: Final = 16_384

# What `getaddrinfo` returns: family, type, protocol, canonical name, socket address.
AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
LookUp = Callable[[str, int], Awaitable[Sequence[AddressInfo]]]


class HostAddresses:
    """Remembers what the resolver said of each broker."""

    def __init__(self, look_up: LookUp, now: Callable[[], float]) -> None:
        self._look_up = look_up
        self._now = now
        self._found: OrderedDict[Address, tuple[float, Sequence[AddressInfo]]] = OrderedDict()  # with their times
        self._running: dict[Address, asyncio.Task[Sequence[AddressInfo]]] = {}

    async def find(self, address: Address) -> Sequence[AddressInfo]:
        """Where a broker may be reached; `OSError` or `ValueError` if its name cannot be looked up."""
        return self.known(address) or await asyncio.shield(self._start(address))

    def known(self, address: Address) -> Sequence[AddressInfo]:
        """The same without waiting: empty for a name that has never been found."""
        numeric = _numeric(address)
        if numeric is not None:
            return numeric
        found = self._found.get(address)
        if found is None:
            return ()
        if self._now() - found[0] > _FRESH_SECONDS:
            self._start(address)
        return found[1]

    def refresh(self, addresses: Iterable[Address]) -> None:
        """Start to look up what is not known, or not for certain any more."""
        for address in addresses:
            found = self._found.get(address)
            if (found is None or self._now() - found[0] > _FRESH_SECONDS) and _numeric(address) is None:
                self._start(address)

    def forget(self, address: Address) -> None:
        """Drop the addresses of a name, none of which could be reached: the next connection looks it up again."""
        self._found.pop(address, None)

    def close(self) -> None:
        for task in self._running.values():
            task.cancel()

    def _start(self, address: Address) -> "asyncio.Task[Sequence[AddressInfo]]":
        task = self._running.get(address)
        if task is None:
            task = self._running[address] = asyncio.ensure_future(self._run(address))
            task.add_done_callback(_retrieve)
        return task

    async def _run(self, address: Address) -> Sequence[AddressInfo]:
        try:
            found = await self._look_up(address.host, address.port)
        finally:
            del self._running[address]
        self._found[address] = (self._now(), found)
        self._found.move_to_end(address)
        if len(self._found) > _MOST_NAMES:
            self._found.popitem(last=False)
        return found


def _retrieve(task: "asyncio.Task[Sequence[AddressInfo]]") -> None:
    """A look-up that fails in the background is no problem yet: who needs the name will see it."""
    if not task.cancelled():
        task.exception()


@lru_cache(_MOST_NAMES)
def _numeric(address: Address) -> Sequence[AddressInfo] | None:
    """What an IP address stands for, without a resolver; None for a name."""
    try:
        return socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, ValueError, OverflowError):
        return None
