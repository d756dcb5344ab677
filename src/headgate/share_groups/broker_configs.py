"""The broker's configs of groups, and the delivery count limit that Headgate raises there.

For a group with a dead-letter topic the broker's `share.delivery.count.limit` is set to its maximum, and Headgate
applies the user's limit: so a record that reaches the user's limit is still delivered, and can be dead-lettered. The
broker's value is the only config that the service account changes, and it is restored when the group has no dead-letter
topic any more. A value that could not be changed is shown in the group's status (`limit_unprotected`).
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.config.addresses import Address
from headgate.config.model import UpstreamConfig
from headgate.kafka.connections import BrokerConnection, Connections, Dialler, dialler_of
from headgate.kafka.group_admin import DEAD, batches, describe_share_groups, group_error, on_coordinators
from headgate.share_groups.model.group_configs import LIMIT
from headgate.share_groups.model.group_state import ShareGroupState
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.cluster import MetadataRequest
from headgate.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
)
from headgate.wire.messages.share import DescribedShareGroup

log = structlog.get_logger()

BROKER, GROUP = 4, 32  # types of config resources
SET, DELETE = 0, 1
GROUP_CONFIG = 8  # the source of a value that was set for the group
NO_SUCH_GROUP = "headgate-no-such-group"  # described to learn the default values of groups
_MAX_LIMIT = "group.share.max.delivery.count.limit"

# The coordinator says something about itself and nothing about the group.
_NO_VERDICT = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass(frozen=True, slots=True)
class BrokerValue:
    """A config of a group; `is_set`: it was set for the group and is not the broker's default."""

    value: str | None
    is_set: bool


class ConfigRefusedError(ClusterError):
    """The broker refused a config request, with its error code and message."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class GroupConfigClient:
    """Reads and changes configs of groups with the service account; `ClusterError` when the cluster does not answer."""

    def __init__(self, upstream: UpstreamConfig) -> None:
        self._upstream = upstream

    async def values(self, groups: Iterable[str]) -> dict[str, Mapping[str, BrokerValue]]:
        """Every config of each group."""
        found: dict[str, Mapping[str, BrokerValue]] = {}
        async with Connections(await self._dialler()) as connections:
            link = await connections.bootstrap()
            for some in batches(dict.fromkeys(groups)):
                for result in await describe_configs(link, GROUP, some):
                    found[result.resource_name] = {
                        one.name: BrokerValue(one.value, one.config_source == GROUP_CONFIG) for one in result.configs
                    }
        return found

    async def max_limit(self) -> int | None:
        """The highest `share.delivery.count.limit` that every broker accepts; None when no broker tells it.

        A change may be validated by any broker, so it is the lowest of all.
        """
        async with Connections(await self._dialler()) as connections:
            link = await connections.bootstrap()
            request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
            cluster = await link.ask(request, lowest=4, highest=12)
            limits = []
            for broker in cluster.brokers:
                # Each broker answers for its own configs alone.
                at = await connections.to(Address(broker.host, broker.port))
                for result in await describe_configs(at, BROKER, [str(broker.node_id)], keys=(_MAX_LIMIT,)):
                    limits += [
                        int(one.value) for one in result.configs if one.value is not None and one.value.isdigit()
                    ]
        return min(limits, default=None)

    async def set_limit(self, group: str, limit: int | None) -> None:
        """Set the group's delivery count limit, or with None restore the broker's default."""
        value = None if limit is None else str(limit)
        change = IncrementalConfig(name=LIMIT, config_operation=DELETE if limit is None else SET, value=value)
        async with Connections(await self._dialler()) as connections:
            await alter_group(await connections.bootstrap(), group, (change,))

    async def existing(self, groups: Sequence[str]) -> frozenset[str]:
        """The share groups that exist; without DESCRIBE on a group it counts as one that does."""
        async with Connections(await self._dialler()) as connections:
            answers = await on_coordinators(connections, groups, describe_share_groups)
        existing = set()
        for group, answer in answers.items():
            if isinstance(answer, DescribedShareGroup):
                exists = answer.group_state != DEAD
            elif answer.code in _NO_VERDICT:
                raise ClusterError(answer.text)
            else:
                exists = answer.code != ErrorCode.GROUP_ID_NOT_FOUND
            if exists:
                existing.add(group)
        return frozenset(existing)

    async def _dialler(self) -> Dialler:
        return await asyncio.to_thread(dialler_of, self._upstream)


async def alter_group(link: BrokerConnection, group: str, changes: tuple[IncrementalConfig, ...]) -> None:
    """Change configs of the group; `ConfigRefusedError` when the server refuses."""
    resource = IncrementalAlterConfigsResource(resource_type=GROUP, resource_name=group, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=(resource,))
    answer = await link.ask(request, lowest=0, highest=1)
    for one in answer.responses:
        if one.error_code:
            raise refusal(one.error_code, one.error_message)


async def describe_configs(
    link: BrokerConnection, kind: int, names: Iterable[str], *, keys: tuple[str, ...] | None = None
) -> tuple[DescribeConfigsResult, ...]:
    """The configs of resources of one kind; `ConfigRefusedError` for the first result with an error."""
    results = await describe_results(link, kind, names, keys=keys)
    for result in results:
        if result.error_code:
            raise refusal(result.error_code, result.error_message)
    return results


async def describe_results(
    link: BrokerConnection, kind: int, names: Iterable[str], *, keys: tuple[str, ...] | None = None
) -> tuple[DescribeConfigsResult, ...]:
    """The results of DescribeConfigs, including those with an error."""
    resources = tuple(
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names
    )
    answer = await link.ask(DescribeConfigsRequest(resources=resources), lowest=1, highest=4)
    return answer.results


def refusal(code: int, text: str | None) -> ConfigRefusedError:
    return ConfigRefusedError(code, group_error(code, text).text)


class DeliveryLimits:
    """The brokers' delivery count limits, as far as this worker knows them."""

    def __init__(self, client: GroupConfigClient, throttle: LogThrottle) -> None:
        self._client = client
        self._throttle = throttle
        self._unprotected: set[str] = set()  # groups whose broker value could not be set
        self.default: int | None = None
        self.maximum: int | None = None

    async def load(self) -> None:
        """Read the default and the maximum; without the ACLs for them the broker alone applies limits."""
        try:
            values = await self._client.values((NO_SUCH_GROUP,))
            found = values.get(NO_SUCH_GROUP, {}).get(LIMIT)
            self.default = int(found.value) if found is not None and found.value is not None else None
            self.maximum = await self._client.max_limit()
        except (ClusterError, ValueError) as problem:
            if self._throttle.allows("limits", ""):
                log.warning("delivery count limits of the brokers are not known", problem=str(problem))

    async def keep_loading(self, pause_s: float) -> None:
        """Load until the default is known; before that deliveries over it are not recognised."""
        while True:
            await asyncio.sleep(pause_s)
            if self.default is None:
                await self.load()

    def effective(self, state: ShareGroupState) -> int | None:
        """The limit that Headgate applies; None where the broker applies its own."""
        if state.settings.dlq_topic is None:
            return None
        return state.settings.limit or self.default

    def is_unprotected(self, group: str, state: ShareGroupState) -> bool:
        """Whether the broker may archive a record before its dead letter can be written."""
        limit = self.effective(state)
        if state.settings.dlq_topic is None:
            return False
        return limit is None or self.maximum is None or limit >= self.maximum or group in self._unprotected

    async def user_limit(self, group: str) -> str | None:
        """The value that is set for the group at the broker; `ClusterError` when it cannot be read."""
        found = (await self._client.values((group,))).get(group, {}).get(LIMIT)
        return found.value if found is not None and found.is_set else None

    async def raise_limit(self, group: str) -> None:
        """Set the broker's value to the maximum without reading it: for a moment after a change it is out of date."""
        if self.maximum is None:
            await self.load()
        if self.maximum is None:
            self._unprotected.add(group)
        else:
            await self._set(group, self.maximum)

    async def raise_limits(self, groups: Sequence[str]) -> None:
        """Set the brokers' values to the maximum where they differ."""
        if self.maximum is None or self.default is None:
            await self.load()
        if self.maximum is None:
            self._unprotected.update(groups)
            return
        try:
            found = await self._client.values(groups) if groups else {}
        except ClusterError as problem:
            self._warn(groups[0], problem)
            self._unprotected.update(groups)
            return
        for group in groups:
            value = found.get(group, {}).get(LIMIT)
            if value is None or not value.is_set or value.value != str(self.maximum):
                await self._set(group, self.maximum)
            else:
                self._unprotected.discard(group)

    async def restore(self, group: str, value: int | None) -> bool:
        """Set the broker's value to the user's; returns whether that succeeded."""
        await self._set(group, value)
        return group not in self._unprotected

    async def restore_all(self, user_limits: Mapping[str, int | None]) -> int:
        """Restore the user's value of each group that is still at the maximum; returns their number.

        Raises `ClusterError` when the values cannot be read or set.
        """
        if not user_limits:
            return 0
        await self.load()
        found = await self._client.values(user_limits)
        restored = 0
        for group, value in user_limits.items():
            present = found.get(group, {}).get(LIMIT)
            if present is not None and present.is_set and present.value == str(self.maximum):
                await self._client.set_limit(group, value)
                restored += 1
        return restored

    async def _set(self, group: str, value: int | None) -> None:
        try:
            await self._client.set_limit(group, value)
        except ClusterError as problem:
            self._unprotected.add(group)
            self._warn(group, problem)
        else:
            self._unprotected.discard(group)

    def _warn(self, group: str, problem: ClusterError) -> None:
        if self._throttle.allows("limit", group):
            log.warning("delivery count limit of the broker was not set", group=group, problem=str(problem))
