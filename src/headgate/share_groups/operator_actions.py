"""How operators see and steer share groups: configs, pauses, the state of the breaker, and conflicts of isolation.

One rule: what changes is written as facts and holds when it was read back; what is shown is what was read back. Whether
the caller may is asked before, by who calls this (`configs`, `describes`, `isolation`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

from headgate.base.clock import Clock
from headgate.base.log_throttle import LogThrottle
from headgate.config.model import ShareGroupsConfig
from headgate.facts import BreakerResumed, EventHappened, GroupConfigSet, GroupConfigUnset, GroupPaused, GroupPauseEnded
from headgate.share_groups.model.breaker_status import BreakerStatus, LastResume
from headgate.share_groups.model.group_configs import DLQ_TOPIC, LIMIT, ConfigRules
from headgate.share_groups.model.group_state import ShareGroupFact, ShareStates

if TYPE_CHECKING:
    from headgate.share_groups.service import ShareGroupService

log = structlog.get_logger()

SHARE_GROUP: Final = "share_group"  # the kind of subject of its events
_MOST_RESUMES: Final = 10_000
T = TypeVar("T")


class Operating:
    """`steering.Steering` of one worker."""

    def __init__(
        self, service: "ShareGroupService", config: ShareGroupsConfig, *, clock: Clock, said: LogThrottle
    ) -> None:
        self._service = service
        self._config = config
        self._clock = clock
        self._said = said
        self._last_resumes: OrderedDict[str, LastResume] = OrderedDict()
        self.rules = ConfigRules(dlq_prefix=config.dlq_prefix, pause_enable=config.pause_enable)

    @property
    def states(self) -> ShareStates:
        return self._service.states

    @property
    def is_ready(self) -> bool:
        return self._service.is_ready

    def selects(self, group: str) -> bool:
        return self._service.selects(group)

    def minds(self, group: str) -> bool:
        return self.states.of(group).is_minded

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        return self._service.spawn(work)

    def on_happened(self, facts: Sequence[EventHappened]) -> None:
        """Why a group was resumed last: not in the state (KIP-1316), so it is known since this worker's start."""
        for fact in facts:
            if fact.event == "resumed" and fact.subject_kind == SHARE_GROUP:
                reason = fact.detail.value().get("reason")
                text = reason if isinstance(reason, str) else None
                self._last_resumes[fact.subject] = LastResume(reason=text, by=fact.by, at=fact.at)
                self._last_resumes.move_to_end(fact.subject)
                if len(self._last_resumes) > _MOST_RESUMES:
                    self._last_resumes.popitem(last=False)

    async def set_configs(self, group: str, changes: Mapping[str, str | None], by: str) -> None:
        parts = self._service.open_parts()
        before = self._service.states.of(group)
        wanted = dict(changes)
        had_topic = before.settings.dlq_topic is not None
        gets_topic = wanted.get(DLQ_TOPIC) is not None and not had_topic
        loses_topic = DLQ_TOPIC in wanted and wanted[DLQ_TOPIC] is None and had_topic
        if gets_topic and wanted.get(LIMIT) is None:
            kept = await self._service.limits.users_value(group)
            if kept is not None:
                wanted[LIMIT] = kept
        now_ms = self._clock.epoch_ms()
        events: list[ShareGroupFact] = []
        for name, value in wanted.items():
            if value is not None:
                events.append(GroupConfigSet(group=group, name=name, value=value, by=by, at=now_ms))
            elif name in before.values and not (loses_topic and name == LIMIT):
                events.append(GroupConfigUnset(group=group, name=name))
        if events:
            await parts.decide(*events)
            self._service.tell("config_changed", group, {"changes": dict(changes), "by": by})
        limits = self._service.limits
        if gets_topic or (had_topic and not loses_topic and LIMIT in wanted):
            await limits.own(group)  # a replacement of all configs has taken the broker's maximum away
        elif loses_topic:
            after = self._service.states.of(group)
            is_deleted = LIMIT in wanted and wanted[LIMIT] is None
            is_back = await limits.give_back(group, None if is_deleted else after.settings.limit)
            if is_back and LIMIT in after.values:
                await parts.decide(GroupConfigUnset(group=group, name=LIMIT))

    async def pause(self, group: str, reason: str, by: str) -> None:
        await self._service.open_parts().decide(
            GroupPaused(group=group, reason=reason, by=by, at=self._clock.epoch_ms())
        )
        log.info("share group paused", group=group, reason=reason, by=by)
        self._service.tell("paused", group, {"reason": reason, "by": by})

    async def resume(self, group: str, reason: str, by: str) -> None:
        """An operator ends every reason, the breaker's too."""
        state = self._service.states.of(group)
        events: list[ShareGroupFact] = []
        if state.pause is not None:
            events.append(GroupPauseEnded(group=group))
        if state.is_tripped:
            events.append(BreakerResumed(group=group, generation=state.generation, at=self._clock.epoch_ms()))
        if events:
            await self._service.open_parts().decide(*events)
        log.info("share group resumed", group=group, reason=reason, by=by)
        self._service.tell("resumed", group, {"reason": reason, "by": by, "generation": state.generation})

    def status(self, group: str) -> BreakerStatus:
        state = self._service.states.of(group)
        settings = state.settings
        delivered, dlq_written = self._service.judging.breakers.totals(group, self._clock.monotonic())
        total = delivered + dlq_written
        trip = state.trip if state.is_tripped else None
        return BreakerStatus(
            group=group,
            enabled=settings.breaker_enable,
            paused=state.is_paused,
            pause_reasons=state.reasons,
            generation=state.generation,
            window_ms=settings.window_ms,
            delivered=delivered,
            dlq_written=dlq_written,
            dlq_rate=dlq_written / total if total else 0.0,
            threshold_percent=settings.threshold_percent,
            min_messages=settings.min_messages,
            auto_resume_at=None if trip is None else trip.resume_at,
            last_resume=self._last_resumes.get(group),
            dlq_topic=settings.dlq_topic,
            limit=self._service.limits.of(state),
            limit_unprotected=self._service.limits.is_unprotected(group, state),
        )

    def conflict(self, group: str) -> str | None:
        settings = self._service.states.of(group).settings
        topic = settings.dlq_topic
        if topic is None or not settings.strict_isolation:
            return None
        first = next(iter(self._service.states.registered(topic)), None)
        if first is None or first == group:
            return None
        if self._said.allows("conflict", group):
            log.warning("share group refused for its dead-letter topic", group=group, dlq_topic=topic, first=first)
            self._service.tell("isolation_conflict", group, {"dlq_topic": topic, "registered_by": first})
        return (
            f"Share group {group} has share.group.dlq.strict.isolation=true, and its dead-letter topic {topic} is "
            f"already registered by share group {first}. Give one of them another topic, then restart this "
            "application: a member that was refused does not try again."
        )
