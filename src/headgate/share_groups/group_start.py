"""Finds what keeps a share group from starting (KIP-1316): another group's dead-letter topic, or a missing pause.

A group starts when a member joins. Members that have joined stay.

Strict isolation: a group with `share.group.dlq.strict.isolation=true` is refused when a group that had its dead-letter
topic before it exists. A group that has only configs does not exist, and neither does one that was deleted. The first
group of a topic is never refused. The cluster is asked with the service account, because the client may not be allowed
to see the other group; while it does not answer, members are told to try again.

The pause (KIP-1249) is a dependency of the breaker: where `[share_groups] pause_enable` is false, a group whose breaker
is enabled is refused.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.share_groups.broker_configs import GroupConfigClient
from headgate.share_groups.fact_outbox import FactOutbox
from headgate.share_groups.model.group_configs import BREAKER_ENABLE, STRICT_ISOLATION
from headgate.share_groups.model.group_state import ShareStates
from headgate.wire.errors import ErrorCode

log = structlog.get_logger()

_KEPT_S: Final = 5.0
_MAX_KEPT: Final = 1_000
_MAX_EARLIER: Final = 200  # groups of one topic that are looked up; one request has room for them
_LOOKUP_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRefusal:
    """The error for the members of a group.

    `text` names `owner`, another group, and is only for clients with DESCRIBE on it; `anonymous_text` is for all.
    """

    code: ErrorCode
    text: str
    owner: str | None = None
    anonymous_text: str = ""


TRY_AGAIN: Final = StartRefusal(code=ErrorCode.COORDINATOR_NOT_AVAILABLE, text="The coordinator is not available.")


class GroupStart:
    """Decides whether the members of a group may join."""

    def __init__(
        self,
        client: GroupConfigClient,
        *,
        states: ShareStates,
        outbox: FactOutbox,
        clock: Clock,
        throttle: LogThrottle,
        pause_enable: bool,
    ) -> None:
        self._existing = ExistingGroups(client, clock)
        self._states = states
        self._outbox = outbox
        self._throttle = throttle
        self._pause_enable = pause_enable

    def may_be_refused(self, group: str) -> bool:
        """Whether `refusal` has to be asked; for most groups it has not."""
        return self._lacks_pause(group) or bool(self._earlier(group))

    async def refusal(self, group: str) -> StartRefusal | None:
        """Why the group may not start now; None when it may."""
        if self._lacks_pause(group):
            return self._missing_pause(group)
        earlier = self._earlier(group)
        if not earlier:
            return None
        try:
            existing = await self._existing.among(earlier)
        except ClusterError as problem:
            if self._throttle.allows("existing", group):
                log.warning("share groups could not be described, members try again", group=group, problem=str(problem))
            return TRY_AGAIN
        return self._conflict(group, existing[0]) if existing else None

    def _lacks_pause(self, group: str) -> bool:
        return not self._pause_enable and self._states.of(group).settings.breaker_enable

    def _earlier(self, group: str) -> Sequence[str]:
        if not self._states.of(group).settings.strict_isolation:
            return ()
        return self._states.earlier_groups(group)[:_MAX_EARLIER]

    def _missing_pause(self, group: str) -> StartRefusal:
        if self._throttle.allows("pause", group):
            log.warning("share group refused for its circuit breaker", group=group)
        text = (
            f"Share group {group} has {BREAKER_ENABLE}=true, and the circuit breaker needs pausing of share "
            "groups (KIP-1249), which this gateway has switched off. Set share_groups.pause_enable=true in the gateway "
            "or disable the breaker, then restart this application: a member that was refused does not try again."
        )
        return StartRefusal(code=ErrorCode.INVALID_CONFIG, text=text)

    def _conflict(self, group: str, owner: str) -> StartRefusal:
        topic = self._states.of(group).settings.dlq_topic or ""
        if self._throttle.allows("conflict", group):
            log.warning("share group refused for its dead-letter topic", group=group, dlq_topic=topic, first=owner)
            self._outbox.put_event("isolation_conflict", group, {"dlq_topic": topic, "registered_by": owner})
        return StartRefusal(
            code=ErrorCode.INVALID_REQUEST,
            text=_conflict_text(group, topic, f"share group {owner}"),
            owner=owner,
            anonymous_text=_conflict_text(group, topic, "another share group"),
        )


def _conflict_text(group: str, topic: str, owner: str) -> str:
    return (
        f"Share group {group} has {STRICT_ISOLATION}=true, and its dead-letter topic {topic} is already registered by "
        f"{owner}. Give one of them another topic, then restart this application: a member that was refused does not "
        "try again."
    )


class ExistingGroups:
    """Looks up which share groups exist, at most once in five seconds for each group, one request at a time."""

    def __init__(self, client: GroupConfigClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, bool]] = OrderedDict()
        self._turn = asyncio.Lock()

    async def among(self, groups: Sequence[str]) -> tuple[str, ...]:
        """The groups that exist, in this order; `ClusterError` when the cluster does not describe all of them."""
        try:
            async with asyncio.timeout(_LOOKUP_S), self._turn:
                now = self._clock.monotonic()
                asked = [one for one in groups if one not in self._kept or now - self._kept[one][0] >= _KEPT_S]
                existing = await self._client.existing(asked) if asked else frozenset()
                for one in asked:
                    self._kept[one] = (now, one in existing)
                    self._kept.move_to_end(one)
                found = tuple(one for one in groups if self._kept[one][1])
                while len(self._kept) > _MAX_KEPT:
                    self._kept.popitem(last=False)
                return found
        except TimeoutError:
            raise ClusterError(f"no response within {_LOOKUP_S:g} s") from None
