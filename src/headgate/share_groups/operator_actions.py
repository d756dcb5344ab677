"""The actions of operators on share groups: changes of configs, pause and resume.

Actions are written as facts and hold when they were read back. The interceptors check the caller's ACLs before.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.facts import (
    BreakerResumed,
    EventHappened,
    GroupConfigSet,
    GroupConfigUnset,
    GroupPaused,
    GroupPauseEnded,
)
from headgate.share_groups.broker_configs import DeliveryLimits
from headgate.share_groups.fact_outbox import SHARE_GROUP, FactOutbox
from headgate.share_groups.model.breaker import LastResume
from headgate.share_groups.model.group_configs import DLQ_TOPIC, LIMIT
from headgate.share_groups.model.group_state import ShareGroupFact, ShareStates
from headgate.share_groups.resources import ShareGroupResources

log = structlog.get_logger()

_MAX_RESUMES: Final = 10_000


class OperatorActions:
    """`resources` raises `ClusterError` while the share groups are not open."""

    def __init__(
        self,
        resources: Callable[[], ShareGroupResources],
        *,
        states: ShareStates,
        limits: DeliveryLimits,
        outbox: FactOutbox,
        clock: Clock,
    ) -> None:
        self._resources = resources
        self._states = states
        self._limits = limits
        self._outbox = outbox
        self._clock = clock
        self._last_resumes: OrderedDict[str, LastResume] = OrderedDict()

    async def set_configs(self, group: str, changes: Mapping[str, str | None], by: str) -> None:
        """Write the changes and return when they were read back; None restores a default.

        `ClusterError` when it is not known whether they were written.
        """
        resources = self._resources()
        before = self._states.of(group)
        wanted = dict(changes)
        had_topic = before.settings.dlq_topic is not None
        gets_topic = wanted.get(DLQ_TOPIC) is not None and not had_topic
        loses_topic = DLQ_TOPIC in wanted and wanted[DLQ_TOPIC] is None and had_topic
        if gets_topic and wanted.get(LIMIT) is None:
            kept = await self._limits.user_limit(group)
            if kept is not None:
                wanted[LIMIT] = kept
        now_ms = self._clock.epoch_ms()
        facts: list[ShareGroupFact] = []
        for name, value in wanted.items():
            if value is not None:
                facts.append(GroupConfigSet(group=group, name=name, value=value, by=by, at=now_ms))
            elif name in before.values and not (loses_topic and name == LIMIT):
                facts.append(GroupConfigUnset(group=group, name=name))
        if facts:
            await resources.decide(*facts)
            old = {name: before.values.get(name) for name in changes}
            self._outbox.put_event("config_changed", group, {"changes": dict(changes), "before": old}, by=by)
        if gets_topic or (had_topic and not loses_topic and LIMIT in wanted):
            await self._limits.raise_limit(group)  # AlterConfigs has reset the broker's value
        elif loses_topic:
            after = self._states.of(group)
            is_deleted = LIMIT in wanted and wanted[LIMIT] is None
            is_restored = await self._limits.restore(group, None if is_deleted else after.settings.limit)
            if is_restored and LIMIT in after.values:
                await resources.decide(GroupConfigUnset(group=group, name=LIMIT))

    async def pause(self, group: str, reason: str, by: str) -> None:
        at = self._clock.epoch_ms()
        await self._resources().decide(GroupPaused(group=group, reason=reason, by=by, at=at))
        log.info("share group paused", group=group, reason=reason, by=by)
        self._outbox.put_event("paused", group, {"reason": reason}, by=by)

    async def resume(self, group: str, reason: str, by: str) -> None:
        """End every pause of the group, also the breaker's."""
        state = self._states.of(group)
        facts: list[ShareGroupFact] = []
        if state.pause is not None:
            facts.append(GroupPauseEnded(group=group))
        if state.is_tripped:
            facts.append(BreakerResumed(group=group, generation=state.generation, at=self._clock.epoch_ms()))
        if facts:
            await self._resources().decide(*facts)
        log.info("share group resumed", group=group, reason=reason, by=by)
        self._outbox.put_event("resumed", group, {"reason": reason, "generation": state.generation}, by=by)
        # The event comes back a moment later; a caller may ask for the status right after the resume.
        self._remember(group, LastResume(reason=reason, by=by, at=self._clock.epoch_ms()))

    def on_happened(self, facts: Sequence[EventHappened]) -> None:
        """Why groups were resumed last: not part of the state (KIP-1316), so read from the events as far as they go."""
        for fact in facts:
            if fact.event == "resumed" and fact.subject_kind == SHARE_GROUP:
                reason = fact.detail.value().get("reason")
                text = reason if isinstance(reason, str) else None
                self._remember(fact.subject, LastResume(reason=text, by=fact.by, at=fact.at))

    def _remember(self, group: str, resume: LastResume) -> None:
        self._last_resumes[group] = resume
        self._last_resumes.move_to_end(group)
        if len(self._last_resumes) > _MAX_RESUMES:
            self._last_resumes.popitem(last=False)

    def last_resume(self, group: str) -> LastResume | None:
        return self._last_resumes.get(group)
