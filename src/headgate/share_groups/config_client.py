"""The broker's own configs of groups, as the service account reads and changes them.

One rule: only what Headgate owns for a group is changed, `share.delivery.count.limit`; all else is read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.base.errors import ClusterError
from headgate.config.addresses import Address
from headgate.kafka.connections import BrokerConnection, Connections, Dialler
from headgate.kafka.group_admin import batches, group_error
from headgate.share_groups.model.group_configs import LIMIT
from headgate.wire.messages.cluster import MetadataRequest
from headgate.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
)

METADATA, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 3, 32, 44
BROKER, GROUP = 4, 32  # types of config resources
SET, DELETE = 0, 1
OF_THE_GROUP = 8  # the source of a value that was set for this very group
NOBODYS_GROUP = "headgate-no-such-group"  # asked for to learn what brokers give a group that nobody configured
_MOST_LIMIT = "group.share.max.delivery.count.limit"


@dataclass(frozen=True, slots=True)
class BrokerValue:
    """`is_set`: for this very group; else it is the broker's default."""

    value: str | None
    is_set: bool


class ConfigRefusedError(ClusterError):
    """The broker said no, in its own words; `code` is Kafka's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


async def broker_values(dialler: Dialler, groups: Iterable[str]) -> dict[str, Mapping[str, BrokerValue]]:
    """Every config of each group as the broker has it; `ClusterError` when it does not say."""
    found: dict[str, Mapping[str, BrokerValue]] = {}
    async with Connections(dialler) as connections:
        link = await connections.bootstrap()
        for some in batches(dict.fromkeys(groups)):
            for result in await described(link, GROUP, some):
                found[result.resource_name] = {
                    one.name: BrokerValue(one.value, one.config_source == OF_THE_GROUP) for one in result.configs
                }
    return found


async def most_limit(dialler: Dialler) -> int | None:
    """The highest `share.delivery.count.limit` that every broker takes; None where they do not tell it.

    A change may be checked by any of them, so it is the least of all.
    """
    async with Connections(dialler) as connections:
        link = await connections.bootstrap()
        request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
        cluster = await link.ask(request, lowest=4, highest=12)
        limits = []
        for broker in cluster.brokers:
            # Each broker answers for its own configs alone.
            at = await connections.to(Address(broker.host, broker.port))
            for result in await described(at, BROKER, [str(broker.node_id)], keys=(_MOST_LIMIT,)):
                limits += [int(one.value) for one in result.configs if one.value is not None and one.value.isdigit()]
    return min(limits, default=None)


async def set_limit(dialler: Dialler, group: str, limit: int | None) -> None:
    """Give the group's delivery count limit a value, or with None the broker's default again.

    `ConfigRefusedError` when the broker says no, another `ClusterError` when nobody knows.
    """
    operation = DELETE if limit is None else SET
    change = IncrementalConfig(name=LIMIT, config_operation=operation, value=None if limit is None else str(limit))
    async with Connections(dialler) as connections:
        await altered(await connections.bootstrap(), group, (change,))


async def altered(
    link: BrokerConnection, group: str, changes: tuple[IncrementalConfig, ...], *, validate_only: bool = False
) -> None:
    """Change configs of the group; `ConfigRefusedError` when the server says no."""
    resource = IncrementalAlterConfigsResource(resource_type=GROUP, resource_name=group, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    answer = await link.ask(request, lowest=0, highest=1)
    for one in answer.responses:
        if one.error_code:
            raise refusal(one.error_code, one.error_message)


async def described(
    link: BrokerConnection, kind: int, names: Iterable[str], *, keys: tuple[str, ...] | None = None
) -> tuple[DescribeConfigsResult, ...]:
    """The configs of resources of one kind; `ConfigRefusedError` for the first that the server does not tell."""
    results = await told(link, kind, names, keys=keys)
    for result in results:
        if result.error_code:
            raise refusal(result.error_code, result.error_message)
    return results


async def told(
    link: BrokerConnection, kind: int, names: Iterable[str], *, keys: tuple[str, ...] | None = None
) -> tuple[DescribeConfigsResult, ...]:
    """The same with the errors among the results."""
    resources = tuple(
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names
    )
    answer = await link.ask(DescribeConfigsRequest(resources=resources), lowest=1, highest=4)
    return answer.results


def refusal(code: int, text: str | None) -> ConfigRefusedError:
    return ConfigRefusedError(code, group_error(code, text).text)
