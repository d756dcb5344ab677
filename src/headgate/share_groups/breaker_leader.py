"""The leader's work: windows are judged at the end of each second, pauses that have had their time are ended.

Every worker follows what all have counted, so that any of them can show it; only the one that leads decides. A new
leader fences its predecessor, reads what that one decided, and begins with empty windows (KIP-1316, open question 1).

One rule: what is decided is written first and holds when it was read back; a leader that cannot write decides nothing.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.facts import (
    BreakerResumed,
    BreakerTripped,
    DispositionsCounted,
    DlqRegistered,
    DlqUnregistered,
    GroupConfigSet,
    GroupConfigUnset,
)
from headgate.share_groups.dead_letter_delivery import Tell
from headgate.share_groups.limits import Limits
from headgate.share_groups.model.breaker import BreakerRules, Breakers, Tally
from headgate.share_groups.model.group_configs import LIMIT
from headgate.share_groups.model.group_state import BREAKER, ShareGroupFact, ShareStates
from headgate.share_groups.resources import Parts
from headgate.share_groups.share_metrics import ShareMeter
from headgate.share_groups.trip_writer import FencedError, TripWriter

log = structlog.get_logger()

_TIDY_S: Final = 60.0  # how often the brokers' limits are looked after
_DOUBT_S: Final = (
    10.0  # by then a worker that does not lead any more knows it: more than a session of the leader's group
)


class Judging:
    """Of one worker; `parts` is None while the service is not open."""

    def __init__(
        self,
        *,
        states: ShareStates,
        limits: Limits,
        clock: Clock,
        meter: ShareMeter,
        tell: Tell,
        parts: Callable[[], Parts | None],
    ) -> None:
        self._states = states
        self._limits = limits
        self._clock = clock
        self._meter = meter
        self._tell = tell
        self._parts = parts
        self._writer: TripWriter | None = None
        self._has_term = False
        self._opens_at = -math.inf
        self._said = LogThrottle(clock.monotonic)
        self._tidied = -math.inf
        self._is_dirty = True  # configs changed since topics were registered
        self.breakers = Breakers()

    @property
    def is_leading(self) -> bool:
        return self._writer is not None

    # --- the lead

    async def on_gained(self) -> None:
        writer = await self._opened_writer()
        self.breakers.reset_all()
        self._tidied = -math.inf
        self._is_dirty = True
        self._has_term = True
        self._writer = writer

    async def on_lost(self) -> None:
        self._has_term = False
        await self._drop_writer()

    async def _opened_writer(self) -> TripWriter:
        """It has fenced all others, and what they wrote is read."""
        parts = self._open_parts()
        writer = TripWriter(parts.settings, prefix=parts.prefix)
        await writer.open()
        await parts.caught_up()
        return writer

    async def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()

    async def _open_again(self) -> None:
        """A writer that failed is of no use any more (see `TripWriter`), but the lead is still ours."""
        if self._has_term and self._writer is None and self._clock.monotonic() >= self._opens_at:
            writer = await self._opened_writer()
            if self._has_term:
                self._writer = writer

    def _open_parts(self) -> Parts:
        parts = self._parts()
        if parts is None:
            raise ClusterError("share groups are not open")
        return parts

    # --- what is read

    def on_event(self, event: ShareGroupFact) -> None:
        """A window says nothing about what comes after a trip or a resumption."""
        if isinstance(event, BreakerTripped | BreakerResumed):
            self.breakers.reset(event.group)
        elif isinstance(event, GroupConfigSet | GroupConfigUnset):
            self._is_dirty = True

    def on_counted(self, facts: Sequence[DispositionsCounted]) -> None:
        now, now_ms = self._clock.monotonic(), self._clock.epoch_ms()
        for fact in facts:
            state = self._states.of(fact.group)
            if not state.is_minded:
                continue
            self.breakers.count(
                fact.group,
                now,
                generation=fact.generation,
                current_generation=state.generation,
                age_ms=now_ms - 1000 * (fact.second + 1),
                window_ms=state.settings.window_ms,
                delivered=fact.accepted,
                dlq_written=fact.dead_lettered,
            )

    # --- what is decided

    async def run(self) -> None:
        """At the end of each second, until it is cancelled."""
        while True:
            now = self._clock.monotonic()
            await asyncio.sleep(math.floor(now) + 1 - now)
            await self.second()

    async def second(self) -> None:
        """One has ended."""
        try:
            await self._open_again()
            await self._judge()
        except FencedError as problem:
            log.warning("another gateway leads", problem=str(problem))
            self._opens_at = self._clock.monotonic() + _DOUBT_S
            await self._drop_writer()
        except ClusterError as problem:
            self._say(problem)
        except Exception:  # whatever it is, the next second is judged all the same
            log.exception("judging failed")

    async def tend(self) -> None:
        """What the leader looks after beside, and what may take its time, until it is cancelled."""
        while True:
            await asyncio.sleep(1.0)
            if self._writer is None:
                continue
            try:
                await self._register()
                if self._clock.monotonic() - self._tidied > _TIDY_S:
                    self._tidied = self._clock.monotonic()
                    await self._tidy_limits()
            except ClusterError as problem:
                self._say(problem)
            except Exception:  # as above
                log.exception("looking after share groups failed")

    def _say(self, problem: ClusterError) -> None:
        if self._said.allows(str(problem), ""):
            log.warning("the leader could not write what it decided, still trying", problem=str(problem))

    async def _judge(self) -> None:
        leading = self._writer is not None
        tripped = self.breakers.judge(self._clock.monotonic(), self._rules_of if leading else lambda _: None)
        if not leading:
            return
        for group, tally in tripped:
            await self._trip(group, tally)
        await self._resume()

    def _rules_of(self, group: str) -> BreakerRules | None:
        state = self._states.of(group)
        settings = state.settings
        if not settings.breaker_enable or state.is_tripped:
            return None
        return BreakerRules(
            threshold_percent=settings.threshold_percent,
            window_ms=settings.window_ms,
            min_messages=settings.min_messages,
        )

    async def _trip(self, group: str, tally: Tally) -> None:
        parts, writer = self._open_parts(), self._writer
        if writer is None:
            return
        state, now_ms = self._states.of(group), self._clock.epoch_ms()
        settings = state.settings
        trip = BreakerTripped(
            group=group,
            generation=state.next_generation,
            resume_at=now_ms + settings.auto_resume_ms if settings.auto_resume_enable else None,
            dlq_written=tally.dlq_written,
            delivered=tally.delivered,
            threshold_percent=tally.threshold_percent,
            window_ms=tally.window_ms,
            at=now_ms,
        )
        try:
            position = await writer.write(parts.writer.stamped(trip))
        except ClusterError:
            await self._drop_writer()
            raise
        self._meter.count(self._meter.trips, group, 1)
        log.warning(
            "circuit breaker tripped, share group paused",
            group=group,
            reason="DLQ_CIRCUIT_BREAKER_TRIPPED",
            dlq_written=tally.dlq_written,
            processed=tally.delivered + tally.dlq_written,
            threshold_percent=tally.threshold_percent,
            window_ms=tally.window_ms,
            generation=trip.generation,
            resume_at=trip.resume_at,
        )
        detail = {
            "generation": trip.generation,
            "dlq_written": tally.dlq_written,
            "delivered": tally.delivered,
            "threshold_percent": tally.threshold_percent,
            "window_ms": tally.window_ms,
            "resume_at": trip.resume_at,
        }
        self._tell("tripped", group, detail)
        await parts.tripped(position.offset)

    async def _resume(self) -> None:
        due = self._states.due_resumes(self._clock.epoch_ms())
        if due:
            await self._open_parts().decide(*due)
        for resumed in due:
            log.info("share group resumed by itself", group=resumed.group, generation=resumed.generation)
            detail = {"reason": "auto-resume", "generation": resumed.generation, "by": BREAKER}
            self._tell("resumed", resumed.group, detail)

    async def _register(self) -> None:
        """Which group has which dead-letter topic, and who had it first."""
        if not self._is_dirty:
            return
        self._is_dirty = False  # what changes from here on is for the next time
        wanted = {
            (topic, group)
            for group in self._states.groups()
            if (topic := self._states.of(group).settings.dlq_topic) is not None
        }
        present = {(topic, group) for topic, groups in self._states.topics().items() for group in groups}
        now_ms = self._clock.epoch_ms()
        events: list[ShareGroupFact] = [
            DlqUnregistered(topic=topic, group=group) for topic, group in sorted(present - wanted)
        ]
        events += (DlqRegistered(topic=topic, group=group, at=now_ms) for topic, group in sorted(wanted - present))
        if events:
            try:
                await self._open_parts().decide(*events)
            except Exception:
                self._is_dirty = True
                raise

    async def _tidy_limits(self) -> None:
        """What a gateway that was killed had left half done, and what somebody changed past us."""
        groups = self._states.groups()
        await self._limits.own_all([one for one in groups if self._states.of(one).settings.dlq_topic is not None])
        for group in groups:
            state = self._states.of(group)
            is_left = state.settings.dlq_topic is None and LIMIT in state.values
            if is_left and await self._limits.give_back(group, state.settings.limit):
                await self._open_parts().decide(GroupConfigUnset(group=group, name=LIMIT))
