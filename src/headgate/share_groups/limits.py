"""`share.delivery.count.limit` of groups with a dead-letter topic: the user's is kept, the broker's at its maximum.

So a record reaches the user's limit while the broker would still deliver it: it can be dead-lettered before it is gone.

One rule: the broker's value is changed by the service account, and given back when the group has no dead-letter topic
any more. What cannot be changed is said in the group's status (`limit_unprotected`), and records flow all the same.
"""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.config.model import UpstreamConfig
from headgate.kafka.connections import Dialler, dialler_of
from headgate.share_groups.config_client import NOBODYS_GROUP, broker_values, most_limit, set_limit
from headgate.share_groups.model.group_configs import LIMIT
from headgate.share_groups.model.group_state import GroupState

log = structlog.get_logger()


class Limits:
    """What this worker knows of the brokers' limits."""

    def __init__(self, upstream: UpstreamConfig, said: LogThrottle) -> None:
        self._upstream = upstream
        self._said = said
        self._unowned: set[str] = set()  # groups whose value could not be set
        self.default: int | None = None
        self.most: int | None = None

    async def learn(self) -> None:
        """The default and the maximum; without the rights for them limits are the broker's alone."""
        try:
            dialler = await self._dialler()
            values = await broker_values(dialler, (NOBODYS_GROUP,))
            found = values.get(NOBODYS_GROUP, {}).get(LIMIT)
            self.default = int(found.value) if found is not None and found.value is not None else None
            self.most = await most_limit(dialler)
        except (ClusterError, ValueError) as problem:
            if self._said.allows("limits", ""):
                log.warning("the brokers' delivery count limits are not known", problem=str(problem))

    def of(self, state: GroupState) -> int | None:
        """The limit that the user means; None where it is the broker's to keep."""
        if state.settings.dlq_topic is None:
            return None
        return state.settings.limit or self.default

    def is_unprotected(self, group: str, state: GroupState) -> bool:
        """Whether the broker may archive a record before its dead letter can be written."""
        limit = self.of(state)
        if state.settings.dlq_topic is None:
            return False
        return limit is None or self.most is None or limit >= self.most or group in self._unowned

    async def users_value(self, group: str) -> str | None:
        """What is set for this very group at the broker; None: its default. `ClusterError` when that is not known."""
        values = await broker_values(await self._dialler(), (group,))
        found = values.get(group, {}).get(LIMIT)
        return found.value if found is not None and found.is_set else None

    async def own(self, group: str) -> None:
        """Set the broker's value to its maximum, whatever it shows: for a moment after a change it shows what was."""
        if self.most is None:
            await self.learn()
        if self.most is None:
            self._unowned.add(group)
        else:
            await self._set(group, self.most)

    async def own_all(self, groups: Sequence[str]) -> None:
        """Set the brokers' values to their maximum, where they are not."""
        if self.most is None or self.default is None:
            await self.learn()
        if self.most is None:
            self._unowned.update(groups)
            return
        try:
            found = await broker_values(await self._dialler(), groups) if groups else {}
        except ClusterError as problem:
            self._say(groups[0], problem)
            self._unowned.update(groups)
            return
        for group in groups:
            value = found.get(group, {}).get(LIMIT)
            if value is None or not value.is_set or value.value != str(self.most):
                await self._set(group, self.most)
            else:
                self._unowned.discard(group)

    async def give_back(self, group: str, value: int | None) -> bool:
        """Set the broker's to the user's value; whether that succeeded."""
        await self._set(group, value)
        return group not in self._unowned

    async def give_all_back(self, owned: Mapping[str, int | None]) -> int:
        """Those that are still at the maximum get the user's value; how many. `ClusterError` when it is not known."""
        if not owned:
            return 0
        await self.learn()
        dialler = await self._dialler()
        found = await broker_values(dialler, owned)
        given = 0
        for group, value in owned.items():
            present = found.get(group, {}).get(LIMIT)
            if present is not None and present.is_set and present.value == str(self.most):
                await set_limit(dialler, group, value)
                given += 1
        return given

    async def _set(self, group: str, value: int | None) -> None:
        try:
            await set_limit(await self._dialler(), group, value)
        except ClusterError as problem:
            self._unowned.add(group)
            self._say(group, problem)
        else:
            self._unowned.discard(group)

    def _say(self, group: str, problem: ClusterError) -> None:
        if self._said.allows("limit", group):
            log.warning("the broker's delivery count limit was not set", group=group, problem=str(problem))

    async def _dialler(self) -> Dialler:
        return await asyncio.to_thread(dialler_of, self._upstream)
