"""Parks dead letters that cannot be moved to their topic, and tries parked ones again once a minute.

A parked dead letter stays in the spool: its record is written again with the reason, and no other of its lane waits
for it.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Final

from headgate.base.clock import Clock
from headgate.base.tasks import TaskSet
from headgate.share_groups.dead_letter_reports import DeadLetterReports
from headgate.share_groups.dead_letter_writer import WriteFailureCause
from headgate.share_groups.spool.model.index import SpoolIndex, SpoolPlace
from headgate.share_groups.spool.model.records import SpooledDeadLetter, SpoolLane
from headgate.share_groups.spool.removals import SpoolRemovals
from headgate.share_groups.spool.transfer import BATCH_BYTES, WRITE_S, Found, SpoolTransfer

_PARKED_S: Final = 60.0
_PARKED_DEAD_LETTERS: Final = 100
_PARK_S: Final = 5.0


class SpoolParking:
    """Parks dead letters of one mover; `wake` is called for each change of the index."""

    def __init__(
        self,
        transfer: SpoolTransfer,
        *,
        index: SpoolIndex,
        removals: SpoolRemovals,
        reports: DeadLetterReports,
        clock: Clock,
        tasks: TaskSet,
    ) -> None:
        self._transfer = transfer
        self._index = index
        self._removals = removals
        self._reports = reports
        self._clock = clock
        self._tasks = tasks
        self._waiters: list[asyncio.Future[None]] = []  # for a change of the index
        self._tried_at = -math.inf
        self._is_retrying = False
        self._skipped: dict[str, int] = {}  # those that are still too large, by topic

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for one in waiters:
            if not one.done():
                one.set_result(None)

    def clear(self) -> None:
        """Called when the tasks were cancelled: one of them may not have begun."""
        self._skipped.clear()
        self._is_retrying, self._tried_at = False, -math.inf

    async def park(self, found: Found, reason: str) -> dict[SpoolLane, None]:
        """Write their records again, with the reason; returns the lanes of those that could not be written."""
        fresh = [(place, dead_letter) for place, dead_letter in found if place.parked is None]
        written: list[tuple[int, int]] = []
        failing: dict[SpoolLane, None] = {}
        parked: list[SpooledDeadLetter] = []
        for partition in {place.spool_partition for place, _ in fresh}:
            dead_letters = [replace(one, parked=reason) for place, one in fresh if place.spool_partition == partition]
            results = await self._transfer.opened.spool.write(
                dead_letters, _PARK_S, on_written=lambda _, *place: written.append(place), partition=partition
            )
            for one, failure in zip(dead_letters, results, strict=True):
                if failure is None:
                    parked.append(one)
                else:
                    failing[one.lane] = None
        if parked:
            self._reports.on_parked(parked, reason)
        await self._until(lambda: all(self._index.has_read(*place) for place in written))
        return failing

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Return when the index has what was written, or after a few seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARK_S):
                while not condition():
                    change = asyncio.get_running_loop().create_future()
                    self._waiters.append(change)
                    await change

    def on_tick(self) -> None:
        """Try the parked ones again when a minute has passed."""
        now = self._clock.monotonic()
        if now >= self._tried_at + _PARKED_S and not self._is_retrying and self._index.parked_targets():
            self._tried_at, self._is_retrying = now, True
            self._tasks.spawn(self._retry())

    async def _retry(self) -> None:
        try:
            for target in self._index.parked_targets():
                await self._retry_topic(target)
        finally:
            self._is_retrying = False

    async def _retry_topic(self, target: str) -> None:
        """Try a few of them; when one is written, try the rest at once."""
        skip = self._skipped.pop(target, 0)
        if not self._index.parked(target, skip, 1):
            skip = 0
        while places := [
            one for one in self._index.parked(target, skip, _PARKED_DEAD_LETTERS) if not self._removals.covers(one)
        ]:
            async with self._transfer.slots:
                found, _ = await self._transfer.read(_within(places))
                if not found or await self._transfer.is_gone(target):
                    return
                results = await self._transfer.write(target, found, WRITE_S)
            if any(one is not None and one.cause is not WriteFailureCause.TOO_LARGE for one in results):
                return
            skip += len(results) - results.count(None)
            if None not in results:  # all are still too large: the next ones are tried the next time
                self._skipped[target] = skip
                return
            moved = [place for (place, _), failure in zip(found, results, strict=True) if failure is None]
            await self._until(partial(self._are_removed, moved))

    def _are_removed(self, places: Sequence[SpoolPlace]) -> bool:
        return not any(self._index.places(one.identity) for one in places)


def _within(places: Sequence[SpoolPlace]) -> list[SpoolPlace]:
    """The first of them that are not too much for the memory."""
    sizes = accumulate(one.size for one in places)
    return [one for one, size in zip(places, sizes, strict=True) if one is places[0] or size <= BATCH_BYTES]
