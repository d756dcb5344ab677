"""`state` and `trips` when they lose records: what was known holds on, and is written to them again.

A topic loses records when it is deleted and created again, truncated by an unclean leader election, or emptied by
DeleteRecords. The service is then *opening*, as after its start, until the topic was read again, and no group is
resumed by it (`model/known_facts.py` says what holds). Facts that the topic does not have any more are written again:
by the leader at once, and by every other worker when they are still missing after half a minute, because a leader that
was started meanwhile does not know them. All write the same facts; a fact that is read under the same key ends it.

Such a leader also counts its trips from 1: a lost resume of higher generations would end a trip that came after it, so
it does not hold any more then.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.facts import BreakerResumed, BreakerTripped
from headgate.share_groups.model.group_state import ShareGroupFact, ShareStates
from headgate.share_groups.model.known_facts import KnownFacts

log = structlog.get_logger()

OTHERS_WRITE_AFTER_S: Final = 30.0
_RETRY_S: Final = 10.0
Write = Callable[[ShareGroupFact], Awaitable[object]]


class StateRecovery:
    """The known facts of both topics; used on the event loop."""

    def __init__(self, states: ShareStates, clock: Clock) -> None:
        self._states = states
        self._clock = clock
        self._decisions = KnownFacts()
        self._trips = KnownFacts()
        self._lost_at = -math.inf
        self._write_at = -math.inf

    @property
    def is_reading_again(self) -> bool:
        return self._decisions.is_read_again or self._trips.is_read_again

    @property
    def lost_facts(self) -> int:
        """Facts that hold, and that only the memory of this worker has as far as it knows."""
        return len(self._decisions.lost) + len(self._trips.lost)

    def read(self, fact: ShareGroupFact) -> bool:
        """Take in a fact; whether it holds from now on."""
        return self._of(fact).read(fact)

    def begin(self, *, of_trips: bool) -> None:
        """A topic lost records and is read again."""
        (self._trips if of_trips else self._decisions).begin_again()

    def restart(self, *, of_trips: bool) -> Sequence[ShareGroupFact]:
        """A topic lost records before it was read to its end: returns the facts of the other one, which hold."""
        known, other = (self._trips, self._decisions) if of_trips else (self._decisions, self._trips)
        known.forget()
        known.begin_again()
        return other.facts

    def end(self, *, of_trips: bool) -> Sequence[ShareGroupFact]:
        """The topic was read to its end; returns the facts that hold from now on and were not known before."""
        known = self._trips if of_trips else self._decisions
        if not known.is_read_again:
            return ()
        new = known.end_again(self._is_in_force)
        if known.lost:
            self._lost_at = self._write_at = self._clock.monotonic()
            log.warning(
                "topic lost records about share groups, writing them again",
                topic="trips" if of_trips else "state",
                number=len(known.lost),
            )
        return new

    def forget(self) -> None:
        self._decisions.forget()
        self._trips.forget()

    async def run(self, write: Write, is_leading: Callable[[], bool]) -> None:
        """Write lost facts again, until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            if self.lost_facts:
                await self.write_lost(write, leading=is_leading())

    async def write_lost(self, write: Write, *, leading: bool) -> None:
        """Write the lost facts if it is time for it; they are lost until they were read back."""
        self._drop_outdated_resumes()
        now = self._clock.monotonic()
        due_at = self._write_at if leading else max(self._write_at, self._lost_at + OTHERS_WRITE_AFTER_S)
        if self.is_reading_again or now < due_at:
            return
        self._write_at = now + _RETRY_S
        written = 0
        try:
            for fact in (*self._decisions.lost, *self._trips.lost):
                if not self._is_in_force(fact):
                    self._of(fact).give_up(fact)
                elif self._of(fact).is_lost(fact):  # not decided anew meanwhile
                    await write(fact)
                    written += 1
        except ClusterError as problem:
            log.warning("lost records about share groups could not be written, still trying", problem=str(problem))
        if written:
            log.info("lost records about share groups written again", number=written)

    def _drop_outdated_resumes(self) -> None:
        for fact in self._decisions.lost:
            trip = self._states.of(fact.group).trip
            if not isinstance(fact, BreakerResumed) or trip is None:
                continue
            if trip.generation <= fact.generation and trip.at > fact.at:
                self._decisions.drop(fact)
                self._states.apply(replace(fact, generation=trip.generation - 1))

    def _of(self, fact: ShareGroupFact) -> KnownFacts:
        return self._trips if isinstance(fact, BreakerTripped) else self._decisions

    def _is_in_force(self, fact: ShareGroupFact) -> bool:
        """A trip that was resumed is not written again: it could come after a later trip and take its place."""
        return not isinstance(fact, BreakerTripped) or self._states.of(fact.group).is_tripped
