"""What a topic says of each name: nothing until it was read to its end, then the last of each, then all as it comes.

One rule: catching up is done a few names at a time, so that clients are served meanwhile, and nothing overtakes it.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

_AT_ONCE: Final = 200
E = TypeVar("E")


class Replay(Generic[E]):
    """Used on the event loop."""

    def __init__(self, tell: Callable[[str, E], object]) -> None:
        self._tell = tell
        self._waiting: dict[str, E] | None = {}

    def take(self, name: str, what: E) -> None:
        """It was read: told at once, or kept as the last of its name."""
        if self._waiting is None:
            self._tell(name, what)
        else:
            self._waiting[name] = what

    def forget(self) -> None:
        """What has not been told is over."""
        if self._waiting is not None:
            self._waiting.clear()

    async def catch_up(self) -> None:
        """The end was reached: tell what was kept."""
        while self._waiting:
            for name in list(self._waiting)[:_AT_ONCE]:
                self._tell(name, self._waiting.pop(name))
            await asyncio.sleep(0)
        self._waiting = None
