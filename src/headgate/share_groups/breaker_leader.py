"""The leader's work: it evaluates the breakers at the end of each second and ends pauses whose time is over.

Every worker follows the counts of all workers, so that each of them can show them; only the leader decides. A new
leader fences its predecessor, reads its decisions, and starts with empty windows (KIP-1316, open question 1).

A decision is written first and holds when it was read back; a leader that cannot write decides nothing. The evaluation
does not wait for the trips to be read back: until then their groups are not evaluated, and the others are.
"""

import asyncio
import math
from collections.abc import Sequence
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
from headgate.share_groups.broker_configs import DeliveryLimits
from headgate.share_groups.fact_outbox import FactOutbox
from headgate.share_groups.model.breaker import BREAKER_TRIPPED, BreakerRules, Breakers, WindowTotals
from headgate.share_groups.model.group_configs import LIMIT
from headgate.share_groups.model.group_state import BREAKER_PRINCIPAL, ShareGroupFact, ShareStates
from headgate.share_groups.resources import FencedError, ShareGroupResources, TripWriter
from headgate.share_groups.share_metrics import ShareMeter

log = structlog.get_logger()

_CHECK_LIMITS_S: Final = 60.0
# Longer than a session of the leader's consumer group: by then a worker that has lost the lead knows it.
_FENCED_S: Final = 10.0


class BreakerLeader:
    """The breakers of one worker, which decides only while it leads; it can lead after `open`."""

    def __init__(
        self,
        *,
        breakers: Breakers,
        states: ShareStates,
        limits: DeliveryLimits,
        clock: Clock,
        meter: ShareMeter,
        outbox: FactOutbox,
        pause_enable: bool = True,
    ) -> None:
        self._breakers = breakers
        self._states = states
        self._limits = limits
        self._clock = clock
        self._meter = meter
        self._outbox = outbox
        self._pause_enable = pause_enable
        self._resources: ShareGroupResources | None = None
        self._writer: TripWriter | None = None
        self._has_term = False
        self._reopen_at = -math.inf
        self._throttle = LogThrottle(clock.monotonic)
        self._limits_checked_at = -math.inf
        self._has_new_configs = True  # since topics were registered
        self._unread: dict[str, int] = {}  # generations of trips that were written and not read back yet, by group

    @property
    def is_leading(self) -> bool:
        return self._writer is not None

    @property
    def has_new_configs(self) -> bool:
        """Configs have changed since topics were registered."""
        return self._has_new_configs

    def open(self, resources: ShareGroupResources) -> None:
        self._resources = resources

    async def on_gained(self) -> None:
        writer = await self._opened().open_trip_writer()
        self._breakers.reset_all()
        self._unread.clear()
        self._limits_checked_at = -math.inf
        self._has_new_configs = True
        self._has_term = True
        self._writer = writer

    async def on_lost(self) -> None:
        self._has_term = False
        await self._drop_writer()

    async def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()

    async def _reopen_writer(self) -> None:
        """Replace a writer that failed (see `TripWriter`) while this worker still leads."""
        if self._has_term and self._writer is None and self._clock.monotonic() >= self._reopen_at:
            writer = await self._opened().open_trip_writer()
            if self._has_term:
                self._unread.clear()
                self._writer = writer

    def _opened(self) -> ShareGroupResources:
        if self._resources is None:
            raise ClusterError("share groups are not open")
        return self._resources

    def on_trips_read(self) -> None:
        """`trips` was read to its end, perhaps again; a trip in a topic that was replaced is never read back."""
        self._unread.clear()

    def on_fact(self, fact: ShareGroupFact) -> None:
        if isinstance(fact, BreakerTripped | BreakerResumed):
            self._breakers.reset(fact.group)
            if fact.generation >= self._unread.get(fact.group, 0):
                self._unread.pop(fact.group, None)
        elif isinstance(fact, GroupConfigSet | GroupConfigUnset):
            self._has_new_configs = True

    def on_counted(self, facts: Sequence[DispositionsCounted]) -> None:
        now, now_ms = self._clock.monotonic(), self._clock.epoch_ms()
        for fact in facts:
            state = self._states.of(fact.group)
            if not state.is_managed:
                continue
            self._breakers.count(
                fact.group,
                now,
                generation=fact.generation,
                current_generation=state.generation,
                age_ms=now_ms - 1000 * (fact.second + 1),
                window_ms=state.settings.window_ms,
                delivered=fact.accepted,
                dlq_written=fact.dead_lettered,
            )

    async def run(self) -> None:
        """Evaluate the breakers at the end of each second, until cancelled."""
        while True:
            now = self._clock.monotonic()
            await asyncio.sleep(math.floor(now) + 1 - now)
            await self.on_second()

    async def on_second(self) -> None:
        """A second has ended: trip groups over their thresholds, and resume those whose time has come."""
        try:
            await self._reopen_writer()
            await self._evaluate()
        except FencedError as problem:
            log.warning("lead was taken over by another gateway", problem=str(problem))
            self._reopen_at = self._clock.monotonic() + _FENCED_S
            await self._drop_writer()
        except ClusterError as problem:
            self._warn(problem)
        except Exception:  # any: the next second is evaluated all the same
            self._meter.failures += 1
            log.exception("evaluation of circuit breakers failed")

    async def maintain(self) -> None:
        """Register dead-letter topics and check limits, which may take long, until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            if self._writer is None:
                continue
            try:
                await self.register_topics()
                if self._clock.monotonic() - self._limits_checked_at > _CHECK_LIMITS_S:
                    self._limits_checked_at = self._clock.monotonic()
                    await self.check_limits()
            except ClusterError as problem:
                self._warn(problem)
            except Exception:  # as above
                self._meter.failures += 1
                log.exception("maintenance of share groups failed")

    def _warn(self, problem: ClusterError) -> None:
        if self._throttle.allows(str(problem), ""):
            log.warning("decision of the leader could not be written, still trying", problem=str(problem))

    async def _evaluate(self) -> None:
        leading = self._writer is not None
        tripped = self._breakers.evaluate(self._clock.monotonic(), self._rules_of if leading else lambda _: None)
        if not leading:
            return
        for group, totals in tripped:
            await self._trip(group, totals)
        await self._resume()

    def _rules_of(self, group: str) -> BreakerRules | None:
        state = self._states.of(group)
        settings = state.settings
        if not self._pause_enable or not settings.breaker_enable or state.is_tripped or group in self._unread:
            return None
        return BreakerRules(
            threshold_percent=settings.threshold_percent,
            window_ms=settings.window_ms,
            min_messages=settings.min_messages,
        )

    async def _trip(self, group: str, totals: WindowTotals) -> None:
        resources, writer = self._opened(), self._writer
        if writer is None:
            return
        state, now_ms = self._states.of(group), self._clock.epoch_ms()
        settings = state.settings
        trip = BreakerTripped(
            group=group,
            generation=state.next_generation,
            resume_at=now_ms + settings.auto_resume_ms if settings.auto_resume_enable else None,
            dlq_written=totals.dlq_written,
            delivered=totals.delivered,
            threshold_percent=totals.threshold_percent,
            window_ms=totals.window_ms,
            at=now_ms,
        )
        self._unread[group] = trip.generation  # before the write, because it may be read back before that returns
        try:
            await writer.write(resources.writer.stamped(trip))
        except Exception:
            self._unread.pop(group, None)
            await self._drop_writer()
            raise
        self._meter.count(self._meter.trips, group, 1)
        detail = {
            "dlq_written": trip.dlq_written,
            "threshold_percent": trip.threshold_percent,
            "window_ms": trip.window_ms,
            "generation": trip.generation,
            "resume_at": trip.resume_at,
        }
        log.warning(
            "circuit breaker tripped, share group paused",
            group=group,
            reason=BREAKER_TRIPPED,
            processed=trip.delivered + trip.dlq_written,
            **detail,
        )
        self._outbox.put_event("tripped", group, {"delivered": trip.delivered, **detail})

    async def _resume(self) -> None:
        due = self._states.due_resumes(self._clock.epoch_ms())
        if due:
            await self._opened().decide(*due)
        for resumed in due:
            log.info("share group resumed automatically", group=resumed.group, generation=resumed.generation)
            detail = {"reason": "auto-resume", "generation": resumed.generation}
            self._outbox.put_event("resumed", resumed.group, detail, by=BREAKER_PRINCIPAL)

    async def register_topics(self) -> None:
        """Write which groups have which dead-letter topics; the log keeps the order of their registration."""
        if not self._has_new_configs:
            return
        self._has_new_configs = False  # changes from here on are registered the next time
        wanted = {
            (topic, group)
            for group in self._states.groups()
            if (topic := self._states.of(group).settings.dlq_topic) is not None
        }
        present = {(topic, group) for topic, groups in self._states.registered_topics().items() for group in groups}
        now_ms = self._clock.epoch_ms()
        facts: list[ShareGroupFact] = [
            DlqUnregistered(topic=topic, group=group) for topic, group in sorted(present - wanted)
        ]
        # In the order in which the groups were given their topics: the first of a topic is its owner (isolation).
        new = sorted(wanted - present, key=lambda one: (self._states.of(one[1]).dlq_topic_at, one))
        facts += (DlqRegistered(topic=topic, group=group, at=now_ms) for topic, group in new)
        if facts:
            try:
                await self._opened().decide(*facts)
            except Exception:
                self._has_new_configs = True
                raise

    async def check_limits(self) -> None:
        """Finish the changes of a gateway that was killed, and undo changes that were made past Headgate."""
        groups = self._states.groups()
        await self._limits.raise_limits([one for one in groups if self._states.of(one).settings.dlq_topic is not None])
        for group in groups:
            state = self._states.of(group)
            is_left = state.settings.dlq_topic is None and LIMIT in state.values
            if is_left and await self._limits.restore(group, state.settings.limit):
                await self._opened().decide(GroupConfigUnset(group=group, name=LIMIT))
