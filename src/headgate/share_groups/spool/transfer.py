"""Transfers dead letters from the spool to their topics: reads them, writes them, and removes them from the spool.

A dead letter is written first and removed (a tombstone) after that, a late one after its late arrival was reported
(`late_arrivals`). A leader that is killed in between leaves duplicates, and so do two leaders for a moment; no dead
letter is lost, and a late arrival is reported by this leader or by the next while the topic of events can be written.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.base.tasks import TaskSet
from headgate.share_groups.dead_letter_writer import DeadLetterWriter, WriteFailure, WriteFailureCause
from headgate.share_groups.late_arrivals import LateArrivals
from headgate.share_groups.model.dead_letter_records import COPY_PROBLEM
from headgate.share_groups.model.group_state import ShareStates
from headgate.share_groups.share_metrics import ShareMeter
from headgate.share_groups.spool.deadlines import SpoolDeadlines
from headgate.share_groups.spool.model.index import SpoolPlace
from headgate.share_groups.spool.model.records import DeadLetterIdentity, SpooledDeadLetter, SpoolLane
from headgate.share_groups.spool.readers import SpoolReader
from headgate.share_groups.spool.removals import SpoolRemovals
from headgate.share_groups.spool.writer import SpoolWriter

_SLOTS: Final = 4  # batches in memory
_UNREAD_S: Final = 5.0  # until a partition of the spool that could not be read is tried again
BATCH_BYTES: Final = 1024 * 1024
WRITE_S: Final = 2.0

Found = Sequence[tuple[SpoolPlace, SpooledDeadLetter]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolClients:
    """`replayed` is set while the index has all of the spool: not before its end was reached, or reached again."""

    dead_letters: DeadLetterWriter
    spool: SpoolWriter
    reader: SpoolReader
    replayed: asyncio.Event


class SpoolTransfer:
    """A batch is read and written while one of the `slots` is held, which bound the memory."""

    def __init__(
        self,
        *,
        states: ShareStates,
        removals: SpoolRemovals,
        deadlines: SpoolDeadlines,
        late: LateArrivals,
        clock: Clock,
        meter: ShareMeter,
        tasks: TaskSet,
    ) -> None:
        self._states = states
        self._removals = removals
        self._deadlines = deadlines
        self._late = late
        self._clock = clock
        self._meter = meter
        self._tasks = tasks
        self._clients: SpoolClients | None = None
        self._unread: dict[int, float] = {}  # partitions of the spool, and when they are tried again
        self.slots = asyncio.Semaphore(_SLOTS)

    def open(self, clients: SpoolClients) -> None:
        self._clients = clients
        self._removals.open(clients.spool)

    @property
    def is_replayed(self) -> bool:
        """Whether the spool was read to its end."""
        return self._clients is not None and self._clients.replayed.is_set()

    @property
    def opened(self) -> SpoolClients:
        if self._clients is None:
            raise ClusterError("the spool is not open")
        return self._clients

    async def stop(self) -> None:
        self._unread.clear()
        if self._clients is not None:
            await self._clients.reader.close()

    def is_unread(self, place: SpoolPlace) -> bool:
        """Whether its partition of the spool could not be read a moment ago."""
        return self._unread.get(place.spool_partition, 0) > self._clock.monotonic()

    async def read(self, places: Sequence[SpoolPlace]) -> tuple[Found, dict[SpoolLane, None]]:
        """The dead letters, those of a lane up to the first that could not be read; and the lanes of such ones."""
        partitions = {one.spool_partition for one in places}
        again_at = self._clock.monotonic() + _UNREAD_S
        self._unread |= dict.fromkeys(self._unread.keys() & partitions, again_at)  # one read at a time tries them again
        read = await self.opened.reader.read(places)
        for one in partitions - read.unread:
            self._unread.pop(one, None)
        self._unread |= dict.fromkeys(read.unread, self._clock.monotonic() + _UNREAD_S)
        found: list[tuple[SpoolPlace, SpooledDeadLetter]] = []
        missing: dict[SpoolLane, None] = {}
        for place in places:
            dead_letter = read.dead_letters.get((place.spool_partition, place.spool_offset))
            if dead_letter is None:
                missing[place.lane] = None
            elif place.lane not in missing:
                found.append((place, dead_letter))
        return found, missing

    async def write(self, target: str, found: Found, deadline_s: float) -> list[WriteFailure | None]:
        """Write the dead letters, and those that are too large once more without the copies of their records."""
        writer = self.opened.dead_letters
        dead_letters = [dead_letter for _, dead_letter in found]
        results = await writer.write(target, dead_letters, deadline_s, self._on_late)
        shrunk = {
            number: _without_copy(dead_letters[number], failure.text)
            for number, failure in enumerate(results)
            if failure is not None and failure.cause is WriteFailureCause.TOO_LARGE and _has_copy(dead_letters[number])
        }
        if shrunk:
            again = await writer.write(target, list(shrunk.values()), deadline_s, self._on_late)
            for number, failure in zip(shrunk, again, strict=True):
                results[number] = failure
        self._finish([one for one, failure in zip(dead_letters, results, strict=True) if failure is None])
        return results

    def is_configured(self, target: str) -> bool:
        states = self._states
        return any(states.of(group).settings.dlq_topic == target for group in states.groups())

    async def is_gone(self, target: str) -> bool:
        """Whether the topic does not exist and is not configured for any group."""
        if self.is_configured(target):
            return False
        try:
            info = await self.opened.dead_letters.describe_topic(target)
        except ClusterError:
            return False
        return info.partitions == 0 and info.problem is None

    def _on_late(self, dead_letter: SpooledDeadLetter) -> None:
        """Finish a dead letter that was written after the deadline of its attempt."""
        self._finish([dead_letter])

    def _finish(self, dead_letters: Sequence[SpooledDeadLetter]) -> None:
        """Remove dead letters from the spool that are in their topic now."""
        in_time: list[DeadLetterIdentity] = []
        late: list[DeadLetterIdentity] = []
        for one in dead_letters:
            self._meter.count(self._meter.moved, one.group, 1)
            (late if self._deadlines.has_reported(one) else in_time).append(one.identity)
        self._removals.add(dead_letters)
        self._late.add(late)
        if in_time:
            self._tasks.spawn(self._removals.remove(in_time))


def _has_copy(dead_letter: SpooledDeadLetter) -> bool:
    return dead_letter.key is not None or dead_letter.value is not None


def _without_copy(dead_letter: SpooledDeadLetter, why: str) -> SpooledDeadLetter:
    return replace(dead_letter, key=None, value=None, headers=(*dead_letter.headers, (COPY_PROBLEM, why.encode())))
