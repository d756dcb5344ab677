"""DescribeConfigs and ListConfigResources: our configs of groups are added to what the broker says of its own.

One rule: ours are added only behind an answer without error. The broker has then checked DESCRIBE_CONFIGS, on the
client's own connection. While nothing is known of the groups, its answers pass as they came.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.decoding import SMALL_BYTES, run_off_loop
from headgate.proxy.interceptor import (
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    OnResponse,
    Prefilter,
    RequestFrame,
    ResponseFrame,
    ResponseOutcome,
    Rewritten,
    Session,
)
from headgate.share_groups.config_calls import GROUP, may_have_groups
from headgate.share_groups.model.group_configs import LIMIT, OWN, ConfigDef
from headgate.share_groups.model.group_state import GroupState
from headgate.share_groups.steering import Steering
from headgate.wire.codec import decode, encode
from headgate.wire.messages.configs import (
    ConfigResource,
    ConfigSynonym,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

DESCRIBE_CONFIGS: Final = ApiKey(32)
LIST_CONFIG_RESOURCES: Final = ApiKey(74)
DEFAULT_CONFIG, GROUP_CONFIG = 5, 8  # sources of a value
_LONGEST_S: Final = 60.0
_LISTS_GROUPS_FROM: Final = 1  # version 0 lists client metrics only


@dataclass(frozen=True, slots=True)
class _Asked:
    """The names that were asked for, by group; None is all."""

    names: Mapping[str, frozenset[str] | None]
    synonyms: bool
    documentation: bool


class DescribeConfigsInterceptor(Interceptor[_Asked]):
    """Requests without a group of ours pass byte for byte, and so do their answers."""

    api_keys = frozenset((DESCRIBE_CONFIGS,))
    max_bytes = 16 * 1024 * 1024
    max_response_bytes = 64 * 1024 * 1024  # of a mixed one

    def __init__(self, service: Steering) -> None:
        self._service = service

    def prefilter(self, api_version: ApiVersion) -> Prefilter:  # noqa: ARG002
        return may_have_groups

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[_Asked]:  # noqa: ARG002
        if not self._service.is_ready:
            return Forward()
        if len(request.body) <= SMALL_BYTES:
            return self._opened(decode(DescribeConfigsRequest, request.api_version, request.body))
        return Hold(self._opened_aside(request), _LONGEST_S)

    async def _opened_aside(self, request: RequestFrame) -> Forward[_Asked]:
        return self._opened(
            await run_off_loop(lambda: decode(DescribeConfigsRequest, request.api_version, request.body))
        )

    def _opened(self, message: DescribeConfigsRequest) -> Forward[_Asked]:
        names: dict[str, frozenset[str] | None] = {}
        for one in message.resources:
            if one.resource_type == GROUP and self._service.selects(one.resource_name):
                # No name at all is all names too, as brokers have it.
                names[one.resource_name] = frozenset(one.configuration_keys or ()) or None
        if not names:
            return Forward()
        return Forward(_Asked(names, message.include_synonyms, message.include_documentation))

    def on_response(self, response: ResponseFrame, context: _Asked, session: Session) -> OnResponse:  # noqa: ARG002
        if len(response.body) <= SMALL_BYTES:
            message = decode(DescribeConfigsResponse, response.api_version, response.body)
            return Rewritten(encode(self._added(message, context), response.api_version))
        return Hold(self._added_aside(response, context), _LONGEST_S)

    async def _added_aside(self, response: ResponseFrame, asked: _Asked) -> ResponseOutcome:
        message = await run_off_loop(lambda: decode(DescribeConfigsResponse, response.api_version, response.body))
        added = self._added(message, asked)
        return Rewritten(await run_off_loop(lambda: encode(added, response.api_version)))

    def _added(self, message: DescribeConfigsResponse, asked: _Asked) -> DescribeConfigsResponse:
        results = tuple(
            self._with_ours(one, asked)
            if one.resource_type == GROUP and one.error_code == 0 and one.resource_name in asked.names
            else one
            for one in message.results
        )
        return replace(message, results=results)

    def _with_ours(self, result: DescribeConfigsResult, asked: _Asked) -> DescribeConfigsResult:
        group = result.resource_name
        names, state = asked.names[group], self._service.states.of(group)
        configs = result.configs
        if state.settings.dlq_topic is not None:
            configs = tuple(self._limit(group, state, one) if one.name == LIMIT else one for one in configs)
        ours = (_described(one, state, asked) for one in OWN.values() if names is None or one.name in names)
        return replace(result, configs=(*configs, *ours))

    def _limit(self, group: str, state: GroupState, brokers: DescribedConfig) -> DescribedConfig:
        """The user's limit: the broker's own is at its maximum, because Headgate counts."""
        below = tuple(one for one in brokers.synonyms if one.source != GROUP_CONFIG)
        limit = state.values.get(LIMIT)
        if limit is None:
            shown = below[0].value if below else self._service.status(group).limit
            source = below[0].source if below else DEFAULT_CONFIG
            value = brokers.value if shown is None else str(shown)
            return replace(brokers, value=value, config_source=source, synonyms=below)
        synonyms = (ConfigSynonym(name=LIMIT, value=limit, source=GROUP_CONFIG), *below) if brokers.synonyms else ()
        return replace(brokers, value=limit, config_source=GROUP_CONFIG, synonyms=synonyms)


def _described(one: ConfigDef, state: GroupState, asked: _Asked) -> DescribedConfig:
    value = state.values.get(one.name)
    synonyms = [ConfigSynonym(name=one.name, value=one.default, source=DEFAULT_CONFIG)]
    if value is not None:
        synonyms.insert(0, ConfigSynonym(name=one.name, value=value, source=GROUP_CONFIG))
    return DescribedConfig(
        name=one.name,
        value=one.default if value is None else value,
        config_source=DEFAULT_CONFIG if value is None else GROUP_CONFIG,
        synonyms=tuple(synonyms) if asked.synonyms else (),
        config_type=one.kind,
        documentation=one.documentation if asked.documentation else None,
    )


class ListConfigResourcesInterceptor(Interceptor[bool]):
    """Groups whose configs are all ours are unknown to the broker, and its tools describe only what is listed."""

    api_keys = frozenset((LIST_CONFIG_RESOURCES,))
    max_bytes = 64 * 1024
    max_response_bytes = 64 * 1024 * 1024

    def __init__(self, service: Steering) -> None:
        self._service = service

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[bool]:  # noqa: ARG002
        if request.api_version < _LISTS_GROUPS_FROM or not self._service.is_ready:
            return Forward()
        types = decode(ListConfigResourcesRequest, request.api_version, request.body).resource_types
        return Forward(context=True if not types or GROUP in types else None)

    def on_response(self, response: ResponseFrame, context: bool, session: Session) -> OnResponse:  # noqa: ARG002
        if len(response.body) <= SMALL_BYTES:
            return self._added(decode(ListConfigResourcesResponse, response.api_version, response.body), response)
        return Hold(self._added_aside(response), _LONGEST_S)

    async def _added_aside(self, response: ResponseFrame) -> ResponseOutcome:
        message = await run_off_loop(lambda: decode(ListConfigResourcesResponse, response.api_version, response.body))
        return self._added(message, response)

    def _added(self, message: ListConfigResourcesResponse, response: ResponseFrame) -> ResponseOutcome:
        if message.error_code:
            return Forward()
        service = self._service
        known = {one.resource_name for one in message.config_resources if one.resource_type == GROUP}
        ours = tuple(
            ConfigResource(resource_name=group, resource_type=GROUP)
            for group in service.states.groups()
            if group not in known and service.states.of(group).values and service.selects(group)
        )
        if not ours:
            return Forward()
        all_of_them = (*message.config_resources, *ours)
        return Rewritten(encode(replace(message, config_resources=all_of_them), response.api_version))
