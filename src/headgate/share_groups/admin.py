"""The operator's client of share groups: the breaker's status, pause, resume, dead-letter topics.

All of it uses requests that brokers know too, so the ACLs of the cluster apply. A broker without Headgate answers them
without these values, and then the error says so.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from headgate.base.errors import ClusterError
from headgate.kafka.connections import BrokerConnection, Connections, Dialler
from headgate.kafka.group_admin import (
    GroupError,
    batches,
    describe_share_groups,
    group_error,
    list_groups,
    on_coordinators,
)
from headgate.share_groups.broker_configs import (
    GROUP,
    GROUP_CONFIG,
    SET,
    ConfigRefusedError,
    alter_group,
    describe_configs,
    describe_results,
)
from headgate.share_groups.model.breaker import STATUS_TAG, BreakerStatus, decode_status
from headgate.share_groups.model.group_configs import (
    BREAKER_ENABLE,
    DLQ_TOPIC,
    LIMIT,
    OWN,
    PARKED,
    STRICT_ISOLATION,
    settings_of,
)
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.configs import (
    DescribeConfigsResult,
    IncrementalConfig,
    ListConfigResourcesRequest,
)

_SHARE = "Share"

NO_HEADGATE = (
    "the server is a broker without Headgate, which provides dead letters and circuit breakers: connect to the gateway "
    "instead. If it is the gateway, [share_groups] does not select the group, or its topics have not been read yet"
)


class ActionRefusedError(ClusterError):
    """The server refused to pause or resume a group, with Kafka's error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class StatusSource(Enum):
    """The source of a breaker's status: only the gateway knows all of it."""

    GATEWAY = "gateway"
    CONFIGS = "configs"  # the group has no members yet
    NO_CONFIGS = "no configs"  # the group has members, and none of Headgate's configs


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedBreaker:
    status: BreakerStatus
    source: StatusSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedDeadLetters:
    """Dead letters of a group that are parked in the spool for the same reason."""

    group: str
    reason: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqTopic:
    """A dead-letter topic and its groups, sorted; `has_strict`: one of them has strict isolation.

    A topic without groups is one that has parked dead letters and is not configured any more.
    """

    topic: str
    groups: tuple[str, ...]
    has_strict: bool
    parked: tuple[ParkedDeadLetters, ...] = ()

    @property
    def is_shared(self) -> bool:
        return len(self.groups) > 1

    @property
    def has_conflict(self) -> bool:
        return self.is_shared and self.has_strict


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqTopology:
    """The dead-letter topics that the caller may see; `gaps` describes what is missing."""

    topics: tuple[DlqTopic, ...]
    gaps: tuple[str, ...] = ()


async def breaker_status(connections: Connections, group: str) -> DescribedBreaker:
    """Describes a group's breaker; `ClusterError` when the group does not exist or the server is not Headgate."""
    described_group = (await on_coordinators(connections, [group], describe_share_groups))[group]
    if isinstance(described_group, GroupError):
        values = await _own_values(connections, group) if described_group.code == ErrorCode.GROUP_ID_NOT_FOUND else None
        if not values:
            raise ClusterError(f"share group '{group}' cannot be described: {described_group.text}")
        return DescribedBreaker(status=_from_configs(group, values), source=StatusSource.CONFIGS)
    field = dict(described_group.unknown_tags).get(STATUS_TAG)
    if field is not None:
        status = decode_status(group, field)
        if status is None:
            raise ClusterError(f"the status of the circuit breaker of share group '{group}' is not a JSON object")
        return DescribedBreaker(status=status, source=StatusSource.GATEWAY)
    values = await _own_values(connections, group)
    if values is None:
        raise ClusterError(f"the status of the circuit breaker of share group '{group}' is missing: {NO_HEADGATE}")
    # The gateway adds its tag to every group with one of its configs, and to every paused one: so this group is not.
    status = replace(_from_configs(group, values), paused=False, pause_reasons=())
    return DescribedBreaker(status=status, source=StatusSource.NO_CONFIGS)


class WatchedBreaker:
    """The breaker of one group, described again and again over the same connections while they work; `close` it."""

    def __init__(self, dialler: Dialler, group: str) -> None:
        self._dialler = dialler
        self._group = group
        self._connections: Connections | None = None

    async def generation(self) -> tuple[int, bool]:
        """The generation of the breaker, 0 before its first trip, and whether the group is paused."""
        if self._connections is None:
            self._connections = Connections(self._dialler)
        try:
            status = (await breaker_status(self._connections, self._group)).status
        except BaseException:
            await self.close()
            raise
        return status.generation or 0, bool(status.paused)

    async def close(self) -> None:
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.__aexit__(None, None, None)


async def _own_values(connections: Connections, group: str) -> Mapping[str, str] | None:
    """The values of Headgate's configs that are set for the group; None when the server is not Headgate."""
    try:
        [result] = await describe_configs(await connections.bootstrap(), GROUP, [group])
    except (ConfigRefusedError, ValueError):
        return None
    if BREAKER_ENABLE not in {one.name for one in result.configs}:
        return None
    return _set_values(result)


def _set_values(result: DescribeConfigsResult) -> Mapping[str, str]:
    return {
        one.name: one.value
        for one in result.configs
        if one.config_source == GROUP_CONFIG and one.value is not None and (one.name in OWN or one.name == LIMIT)
    }


def _from_configs(group: str, values: Mapping[str, str]) -> BreakerStatus:
    settings = settings_of(values)
    return BreakerStatus(
        group=group,
        enabled=settings.breaker_enable,
        window_ms=settings.window_ms,
        threshold_percent=settings.threshold_percent,
        min_messages=settings.min_messages,
        dlq_topic=settings.dlq_topic,
        limit=settings.limit,
    )


async def pause_or_resume(connections: Connections, group: str, key: str, reason: str) -> None:
    """Sets one of the write-only configs `headgate.pause` and `headgate.resume`; `ActionRefusedError` if refused."""
    change = IncrementalConfig(name=key, config_operation=SET, value=reason)
    try:
        await alter_group(await connections.bootstrap(), group, (change,))
    except ConfigRefusedError as refused:
        text = str(refused)
        if f"Unknown group config name: {key}" in text:  # the text of a broker
            text = f"{text}: {NO_HEADGATE}"
        raise ActionRefusedError(refused.code, f"share group '{group}': {text}") from None


async def dlq_topology(connections: Connections) -> DlqTopology:
    """Lists the dead-letter topics of every share group and of every group that has configs."""
    groups = {one.group for one in await list_groups(connections, _SHARE)}
    link = await connections.bootstrap()
    gaps = []
    try:
        groups |= await _configured(link)
    except ClusterError as problem:
        gaps.append(f"groups without members are missing: {problem}")
    names: dict[str, list[str]] = {}
    parked: dict[str, list[ParkedDeadLetters]] = {}
    strict: set[str] = set()
    hidden = 0
    has_headgate = not groups
    for some in batches(sorted(groups)):
        for result in await describe_results(link, GROUP, some, keys=(DLQ_TOPIC, STRICT_ISOLATION, PARKED)):
            hidden += result.error_code != 0
            has_headgate |= any(one.name == DLQ_TOPIC for one in result.configs)
            settings = settings_of(_set_values(result))
            if settings.dlq_topic is not None:
                names.setdefault(settings.dlq_topic, []).append(result.resource_name)
                strict |= {settings.dlq_topic} if settings.strict_isolation else set()
            for topic, dead_letters in _parked(result):
                parked.setdefault(topic, []).append(dead_letters)
    if hidden:
        gaps.append(f"{hidden} groups are missing: DESCRIBE_CONFIGS on them is denied")
    if not has_headgate and hidden < len(groups):
        raise ClusterError(f"dead-letter topics are unknown: {NO_HEADGATE}")
    topics = (
        DlqTopic(
            topic=topic,
            groups=tuple(sorted(names.get(topic, ()))),
            has_strict=topic in strict,
            parked=tuple(parked.get(topic, ())),
        )
        for topic in sorted({*names, *parked})
    )
    return DlqTopology(topics=tuple(topics), gaps=tuple(gaps))


async def parked_dead_letters(connections: Connections, group: str) -> tuple[tuple[str, ParkedDeadLetters], ...]:
    """The parked dead letters of a group by topic; none where the caller has no DESCRIBE_CONFIGS on the group."""
    results = await describe_results(await connections.bootstrap(), GROUP, [group], keys=(PARKED,))
    return tuple(sorted((pair for result in results for pair in _parked(result)), key=lambda pair: pair[0]))


def _parked(result: DescribeConfigsResult) -> Iterator[tuple[str, ParkedDeadLetters]]:
    """The parked dead letters of a group by topic; nothing from a gateway that does not know them."""
    value = next((one.value for one in result.configs if one.name == PARKED), None)
    try:
        found = json.loads(value or "{}")
    except (ValueError, RecursionError):
        return
    for topic, reasons in found.items() if isinstance(found, dict) else ():
        for reason, number in reasons.items() if isinstance(reasons, dict) else ():
            if type(number) is int:
                yield topic, ParkedDeadLetters(group=result.resource_name, reason=reason, number=number)


async def _configured(link: BrokerConnection) -> set[str]:
    request = ListConfigResourcesRequest(resource_types=(GROUP,))
    answer = await link.ask(request, lowest=1, highest=1)
    if answer.error_code:
        raise ClusterError(group_error(answer.error_code).text)
    return {one.resource_name for one in answer.config_resources if one.resource_type == GROUP}
