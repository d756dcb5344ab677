"""What an operator asks of share groups through Headgate: the breaker's state, pause, resume, dead-letter topics.

One rule: everything goes by calls that brokers have too, so the rights are the cluster's own. A broker without Headgate
answers them as well, but without what is asked for here: then the error says that, and nothing is made up.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.base.errors import ClusterError
from headgate.kafka.connections import Connections, Link, UnsupportedError
from headgate.kafka.coordinators import GROUP_ID_NOT_FOUND, GroupError, batches, group_error, on_coordinators
from headgate.kafka.group_admin import list_groups
from headgate.share_groups.config_client import GROUP, OF_THE_GROUP, SET, ConfigRefusedError, altered, described, told
from headgate.share_groups.model.group_configs import (
    BREAKER_ENABLE,
    DLQ_TOPIC,
    LIMIT,
    OWN,
    STRICT_ISOLATION,
    settings_of,
)
from headgate.wire.messages.configs import (
    DescribeConfigsResult,
    IncrementalConfig,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from headgate.wire.messages.share import DescribedShareGroup, ShareGroupDescribeRequest, ShareGroupDescribeResponse

STATUS_TAG: Final = 10001
_SHARE_GROUP_DESCRIBE, _LIST_CONFIG_RESOURCES = 77, 74
_SHARE = "Share"

NO_SHARE_GROUPS = "the server does not support share groups (ShareGroupDescribe): they came with Kafka 4.1"
NO_HEADGATE = (
    "the server does not tell it: dead letters and circuit breakers are Headgate's, so ask the gateway instead of a "
    "broker. If this is the gateway, [share_groups] does not select the group, or it has not read its topics yet"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerStatus:
    """`document` is the object of `--circuit-breaker`; `is_whole` False: made from configs alone, the rest is null."""

    document: Mapping[str, Any]
    is_whole: bool
    is_known: bool  # to its coordinator: a group that never had members is not


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqTopic:
    """`groups` by name. `has_strict`: one of them wants the topic for itself."""

    topic: str
    groups: tuple[str, ...]
    has_strict: bool

    @property
    def is_shared(self) -> bool:
        return len(self.groups) > 1

    @property
    def has_conflict(self) -> bool:
        return self.is_shared and self.has_strict


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqTopology:
    """`gaps` says in words what could not be seen."""

    topics: tuple[DlqTopic, ...]
    gaps: tuple[str, ...] = ()


async def breaker_status(connections: Connections, group: str) -> BreakerStatus:
    """What Headgate says of the group; `ClusterError` when it is not there, or nobody says anything of it."""
    answers = await on_coordinators(connections, [group], _describe)
    said = answers[group]
    if isinstance(said, GroupError):
        if said.code != GROUP_ID_NOT_FOUND:
            raise ClusterError(f"share group '{group}' cannot be described: {said.text}")
    elif (field := dict(said.unknown_tags).get(STATUS_TAG)) is not None:
        return BreakerStatus(document=_document(group, field), is_whole=True, is_known=True)
    values = await _own_values(connections, group)
    if isinstance(said, GroupError):
        if not values:
            raise ClusterError(f"share group '{group}' cannot be described: {said.text}")
        return BreakerStatus(document=_from_configs(group, values), is_whole=False, is_known=False)
    if values is None:
        raise ClusterError(f"the state of the circuit breaker of share group '{group}' is missing: {NO_HEADGATE}")
    # A group with nothing of ours is described as the broker does; so it is not paused either.
    document = _from_configs(group, values) | {"paused": False, "pause_reasons": []}
    return BreakerStatus(document=document, is_whole=False, is_known=True)


async def _describe(link: Link, groups: Sequence[str]) -> Mapping[str, DescribedShareGroup | GroupError]:
    request = ShareGroupDescribeRequest(group_ids=tuple(groups))
    try:
        answer = await link.ask(_SHARE_GROUP_DESCRIBE, request, ShareGroupDescribeResponse, lowest=0, highest=1)
    except UnsupportedError:
        raise UnsupportedError(NO_SHARE_GROUPS) from None
    return {
        one.group_id: group_error(one.error_code, one.error_message) if one.error_code else one for one in answer.groups
    }


def _document(group: str, field: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(field)
    except (ValueError, RecursionError):
        document = None
    if type(document) is not dict:
        raise ClusterError(f"the state of the circuit breaker of share group '{group}' is not understood")
    return document


async def _own_values(connections: Connections, group: str) -> Mapping[str, str] | None:
    """Those of Headgate's configs that are set for the group; None where the server does not know them."""
    try:
        [result] = await described(await connections.bootstrap(), GROUP, [group])
    except (ConfigRefusedError, ValueError):
        return None
    if BREAKER_ENABLE not in {one.name for one in result.configs}:
        return None
    return _set_values(result)


def _set_values(result: DescribeConfigsResult) -> Mapping[str, str]:
    return {
        one.name: one.value
        for one in result.configs
        if one.config_source == OF_THE_GROUP and one.value is not None and (one.name in OWN or one.name == LIMIT)
    }


def _from_configs(group: str, values: Mapping[str, str]) -> dict[str, Any]:
    """The same object, with null for everything that only the gateway's own state tells."""
    settings = settings_of(values)
    return {
        "group": group,
        "enabled": settings.breaker_enable,
        "paused": None,
        "pause_reasons": None,
        "phase": None,
        "generation": None,
        "window_ms": settings.window_ms,
        "delivered": None,
        "dlq_written": None,
        "dlq_rate": None,
        "threshold_percent": settings.threshold_percent,
        "min_messages": settings.min_messages,
        "auto_resume_at": None,
        "last_resume": None,
        "dlq_topic": settings.dlq_topic,
        "limit": settings.limit,
        "limit_unprotected": None,
    }


async def steer(connections: Connections, group: str, key: str, reason: str) -> None:
    """Pause or resume: `key` is one of the write-only configs. `ClusterError` says why not."""
    change = IncrementalConfig(name=key, config_operation=SET, value=reason)
    try:
        await altered(await connections.bootstrap(), group, (change,))
    except ConfigRefusedError as refused:
        text = str(refused)
        if f"Unknown group config name: {key}" in text:  # a broker's words
            text = f"{text}: {NO_HEADGATE}"
        raise ClusterError(f"share group '{group}': {text}") from None


async def dlq_topology(connections: Connections) -> DlqTopology:
    """Which groups write their dead letters where: every share group, and every group that has configs."""
    groups = {one.group for one in await list_groups(connections, _SHARE)}
    link = await connections.bootstrap()
    gaps = []
    try:
        groups |= await _configured(link)
    except ClusterError as problem:
        gaps.append(f"groups without members are left out: {problem}")
    names: dict[str, list[str]] = {}
    strict: set[str] = set()
    hidden = 0
    has_headgate = not groups
    for some in batches(sorted(groups)):
        for result in await told(link, GROUP, some, keys=(DLQ_TOPIC, STRICT_ISOLATION)):
            hidden += result.error_code != 0
            has_headgate |= any(one.name == DLQ_TOPIC for one in result.configs)
            settings = settings_of(_set_values(result))
            if settings.dlq_topic is not None:
                names.setdefault(settings.dlq_topic, []).append(result.resource_name)
                strict |= {settings.dlq_topic} if settings.strict_isolation else set()
    if hidden:
        gaps.append(f"{hidden} groups may not be described (DESCRIBE_CONFIGS on the group)")
    if not has_headgate and hidden < len(groups):
        raise ClusterError(f"no group's dead-letter topic is known: {NO_HEADGATE}")
    topics = (
        DlqTopic(topic=topic, groups=tuple(sorted(names[topic])), has_strict=topic in strict) for topic in sorted(names)
    )
    return DlqTopology(topics=tuple(topics), gaps=tuple(gaps))


async def _configured(link: Link) -> set[str]:
    request = ListConfigResourcesRequest(resource_types=(GROUP,))
    answer = await link.ask(_LIST_CONFIG_RESOURCES, request, ListConfigResourcesResponse, lowest=1, highest=1)
    if answer.error_code:
        raise ClusterError(group_error(answer.error_code).text)
    return {one.resource_name for one in answer.config_resources if one.resource_type == GROUP}
