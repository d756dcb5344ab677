"""Removes dead letters from the spool that are in their topics, and remembers them until the removal was read back.

A tombstone is not written for a record that is newer than the one that was moved: that record is moved too.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from headgate.base.clock import Clock
from headgate.share_groups.spool.model.index import SpoolIndex, SpoolPlace
from headgate.share_groups.spool.model.records import DeadLetterIdentity, SpooledDeadLetter
from headgate.share_groups.spool.writer import SpoolWriter

_AGAIN_S: Final = 10.0
_AT_ONCE: Final = 2_000


class _Moved(NamedTuple):
    """The sequence of a record that was moved, and when its removal was begun."""

    sequence: int
    at: float


class SpoolRemovals:
    """The length is the number of dead letters that were moved and are not read as removed yet."""

    def __init__(self, index: SpoolIndex, clock: Clock) -> None:
        self._index = index
        self._clock = clock
        self._spool: SpoolWriter | None = None
        self._moved: dict[DeadLetterIdentity, _Moved] = {}  # the one whose removal began first is first

    def open(self, spool: SpoolWriter) -> None:
        self._spool = spool

    def clear(self) -> None:
        self._moved.clear()

    def __len__(self) -> int:
        return len(self._moved)

    def covers(self, place: SpoolPlace) -> bool:
        """Whether this record, or a newer one of its dead letter, was moved."""
        moved = self._moved.get(place.identity)
        return moved is not None and place.sequence <= moved.sequence

    def add(self, dead_letters: Iterable[SpooledDeadLetter]) -> None:
        """Note dead letters that are in their topics, so that they can be removed from the spool."""
        for one in dead_letters:
            self._moved.pop(one.identity, None)
            self._moved[one.identity] = _Moved(one.sequence, self._clock.monotonic())

    async def remove(self, identities: Sequence[DeadLetterIdentity]) -> None:
        """Write tombstones; those that fail are repeated by `repeat`."""
        partitions: dict[int, list[DeadLetterIdentity]] = {}
        for identity in identities:
            for place in self._index.places(identity):
                if self.covers(place):
                    partitions.setdefault(place.spool_partition, []).append(identity)
        spool = self._spool
        if spool is not None:
            await asyncio.gather(*(spool.remove(some, partition=one) for one, some in partitions.items()))

    async def repeat(self) -> None:
        """Forget those that were read as removed, and remove those again that were not within ten seconds."""
        now = self._clock.monotonic()
        again: list[DeadLetterIdentity] = []
        for identity, moved in list(islice(self._moved.items(), _AT_ONCE)):
            if not any(map(self.covers, self._index.places(identity))):
                del self._moved[identity]
            elif now >= moved.at + _AGAIN_S:
                del self._moved[identity]
                self._moved[identity] = moved._replace(at=now)
                again.append(identity)
            else:
                break
        await self.remove(again)
