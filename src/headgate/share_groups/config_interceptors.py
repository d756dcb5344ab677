"""Config requests about groups: Headgate's configs are taken out of changes and added to descriptions and lists."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.decoding import (
    A_STEP,
    DECODE_SECONDS,
    SMALL_BYTES,
    DecodingInterceptor,
    map_in_steps,
    run_off_loop,
)
from headgate.proxy.interceptor import (
    Answer,
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    Outcome,
    Oversize,
    RequestFrame,
    Session,
)
from headgate.proxy.rights import TopicRight, topic_rights
from headgate.share_groups.config_changes import (
    GROUP,
    OWN_NAMES,
    AlterConfigsCall,
    BrokerRequests,
    GroupAction,
    GroupConfigChange,
    ResourceError,
    ResourceKey,
    failed_change,
    partial_change,
    read_call,
    read_change,
    resource_key,
)
from headgate.share_groups.model.group_configs import DLQ_TOPIC, LIMIT, OWN, PARKED, ConfigDef
from headgate.share_groups.model.group_state import ShareGroupState
from headgate.share_groups.service import ShareGroupService
from headgate.wire.apis import has_flexible_request
from headgate.wire.codec import decode
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.configs import (
    AlterConfigsResourceResponse,
    ConfigResource,
    ConfigSynonym,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from headgate.wire.primitives import read_uvarint

DEFAULT_CONFIG, GROUP_CONFIG = 5, 8  # sources of a value
_LISTS_GROUPS_FROM: Final = 1  # version 0 lists client metrics only
# Each of them may need writes to a topic and a request to the broker, within the deadline of one response.
_MAX_GROUPS: Final = 256
# Resources and configs of a request with configs of Headgate: the broker's are encoded again, on the event loop.
_MOST_PARTS: Final = 50_000
_MOST_DESCRIBED: Final = 100_000  # resources; every result of the response is looked at on the event loop, in steps
_MAX_PARKED_CHARACTERS: Final = 30_000  # a string of a response has at most 32,767 bytes
_MISSING_TOPIC_RETRIES: Final = 3
_MISSING_TOPIC_PAUSE_S: Final = 0.25
_OWN_NAME: Final = re.compile(b"|".join(re.escape(name.encode()) for name in sorted((*OWN_NAMES, LIMIT))))

_TOO_MANY: Final = ResourceError(
    ErrorCode.INVALID_REQUEST, f"At most {_MAX_GROUPS} groups with configs of Headgate in one request."
)
_TOO_LARGE: Final = ResourceError(
    ErrorCode.INVALID_REQUEST,
    f"At most {_MOST_PARTS} resources and configs in one request with configs of Headgate.",
)
_NOT_READY: Final = ResourceError(
    ErrorCode.NOT_CONTROLLER, "Headgate has not read the state of its share groups yet: try again."
)
_NO_ANSWER: Final = ResourceError(ErrorCode.UNKNOWN_SERVER_ERROR, "The broker did not validate its part of the change.")
_MALFORMED: Final = ResourceError(
    ErrorCode.INVALID_REQUEST, "A config has no value, is named twice, or has an operation of lists."
)


_Changes = tuple[AlterConfigsCall, Mapping[ResourceKey, GroupConfigChange]]


class AlterConfigsInterceptor(Interceptor[None]):
    """Takes Headgate's configs of groups out of a request, and merges the results with the broker's.

    A resource is changed as a whole or not at all, as at a broker. So the broker first validates its part, on the
    client's own connection, which also checks ALTER_CONFIGS on the group. Then Headgate validates its part, the broker
    applies its own, and only then Headgate's is written. If that fails, the error names the configs that were applied,
    those that may have been, and those that were not; the same request can be sent again.

    Requests without a config of Headgate pass byte for byte. Until the state of the groups is known, the response is
    NOT_CONTROLLER, the only code after which Java's Admin client sends the request again.
    """

    api_keys = frozenset((ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS))
    # Once the broker has applied its part, the original request must not reach it.
    fail_closed = True
    max_bytes = 16 * 1024 * 1024  # the configs of some ten thousand topics

    def __init__(
        self, service: ShareGroupService, principal_of: Callable[[Session], str | None], *, dlq_auto_create: bool
    ) -> None:
        self._service = service
        self._principal_of = principal_of
        self._dlq_auto_create = dlq_auto_create

    def oversize(self, api_version: ApiVersion) -> Oversize:  # noqa: ARG002
        return Oversize.PASS_UNPROVED

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[None]:
        if request.api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS and _OWN_NAME.search(request.body) is None:
            return Forward()
        if len(request.body) <= SMALL_BYTES:
            return self._decide(self._read(request), session)
        return Hold(self._decide_off_loop(request, session), DECODE_SECONDS)

    async def _decide_off_loop(self, request: RequestFrame, session: Session) -> Outcome[None]:
        return self._decide(await run_off_loop(lambda: self._read(request)), session)

    def _decide(self, found: _Changes | Forward[None] | Answer, session: Session) -> Outcome[None]:
        return Answer(self._change(*found, session)) if isinstance(found, tuple) else found

    def _read(self, request: RequestFrame) -> _Changes | Forward[None] | Answer:
        """The changes of groups with configs of Headgate; an outcome if the request passes or is refused."""
        call = read_call(request)
        keys = [resource_key(one) for one in call.resources]
        if len(set(keys)) != len(keys):
            return Forward()  # the broker refuses duplicate resources
        if not self._service.is_ready:
            if not any(self._may_be_own(one, call) for one in call.resources):
                return Forward()
            return Answer(call.response({}, dict.fromkeys(keys, _NOT_READY), 0))
        changes = {
            resource_key(one): change for one in call.resources if (change := self._read_change(one, call)) is not None
        }
        if not changes:
            return Forward()
        if len(changes) > _MAX_GROUPS:
            return Answer(call.response({}, dict.fromkeys(keys, _TOO_MANY), 0))
        if len(keys) + sum(len(one.configs) for one in call.resources) > _MOST_PARTS:
            return Answer(call.response({}, dict.fromkeys(keys, _TOO_LARGE), 0))
        return call, changes

    def _may_be_own(self, resource: IncrementalAlterConfigsResource, call: AlterConfigsCall) -> bool:
        """Whether the change may concern Headgate, as far as that is known without the state of the group."""
        if resource.resource_type != GROUP or not self._service.selects(resource.resource_name):
            return False
        return call.replaces or any(one.name in OWN_NAMES or one.name == LIMIT for one in resource.configs)

    def _read_change(
        self, resource: IncrementalAlterConfigsResource, call: AlterConfigsCall
    ) -> GroupConfigChange | None:
        service, group = self._service, resource.resource_name
        if resource.resource_type != GROUP or not service.selects(group):
            return None
        return read_change(group, resource.configs, service.state(group), service.rules, replaces=call.replaces)

    async def _change(
        self, call: AlterConfigsCall, changes: Mapping[ResourceKey, GroupConfigChange], session: Session
    ) -> bytes:
        broker = BrokerRequests(call, session)
        others = [one for one in call.resources if resource_key(one) not in changes]
        own = [(resource_key(one), one) for one in call.resources if resource_key(one) in changes]
        validated = [replace(one, configs=changes[key].validated) for key, one in own]
        if call.validate_only:
            answers = await broker.send((*validated, *others), validate_only=True)
            return call.response(answers, await self._errors(changes, answers, session), broker.throttle_ms)
        errors = await self._errors(changes, await broker.send(validated, validate_only=True), session)
        forwarded = [
            replace(one, configs=changes[key].forwarded)
            for key, one in own
            # AlterConfigs without configs is a change too.
            if key not in errors and (changes[key].forwarded or call.replaces)
        ]
        answers, problem = await _apply_at_broker(broker, (*others, *forwarded))
        for one in (*others, *forwarded):
            if (key := resource_key(one)) not in answers:
                uncertain = [each.name for each in one.configs]
                own_names = changes[key].own_names if key in changes else ()
                errors[key] = partial_change(problem, uncertain=uncertain, unapplied=own_names)
        accepted = [
            (key, change)
            for key, change in changes.items()
            if key not in errors and (key not in answers or answers[key].error_code == 0)
        ]
        by = self._principal_of(session) or "unknown"
        # The broker has applied its part, so this runs to its end even if the client disconnects; each step has a
        # deadline.
        errors |= await asyncio.shield(self._service.spawn(self._apply_all(accepted, by)))
        return call.response(answers, errors, broker.throttle_ms)

    async def _errors(
        self,
        changes: Mapping[ResourceKey, GroupConfigChange],
        answers: Mapping[ResourceKey, AlterConfigsResourceResponse],
        session: Session,
    ) -> dict[ResourceKey, ResourceError]:
        """The errors of invalid changes: the broker's come first, because it checks the caller's ACLs."""
        errors: dict[ResourceKey, ResourceError] = {}
        topics: dict[ResourceKey, str] = {}
        for key, change in changes.items():
            answer = answers.get(key)
            if answer is None:
                errors[key] = _NO_ANSWER
            elif answer.error_code:
                errors[key] = ResourceError(answer.error_code, answer.error_message)
            elif change.is_malformed:
                errors[key] = _MALFORMED
            elif change.problem is not None:
                errors[key] = ResourceError(ErrorCode.INVALID_CONFIG, change.problem)
            elif change.new_topic is not None:
                topics[key] = change.new_topic
        if topics:
            rights = await self._topic_rights(session, sorted(set(topics.values())))
            for key, topic in topics.items():
                problem = self._topic_problem(topic, rights[topic])
                if problem is not None:
                    errors[key] = problem
        return errors

    async def _topic_rights(self, session: Session, topics: Sequence[str]) -> Mapping[str, TopicRight]:
        """Ask again for a missing topic: a broker may not know one yet that was created a moment ago."""
        rights = await topic_rights(session, topics)
        for _ in range(_MISSING_TOPIC_RETRIES):
            if self._dlq_auto_create or all(right.exists or not right.may_write for right in rights.values()):
                break
            await asyncio.sleep(_MISSING_TOPIC_PAUSE_S)
            rights = await topic_rights(session, topics)
        return rights

    def _topic_problem(self, topic: str, right: TopicRight) -> ResourceError | None:
        """The caller needs WRITE on the topic itself: Headgate, which writes the dead letters, has it."""
        if not right.may_write:
            text = f"Topic authorization failed: setting {DLQ_TOPIC} requires WRITE on {topic}."
            return ResourceError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
        if not right.exists and not self._dlq_auto_create:
            text = f"Invalid value {topic} for configuration {DLQ_TOPIC}: The topic '{topic}' does not exist."
            return ResourceError(ErrorCode.INVALID_CONFIG, text)
        return None

    async def _apply_all(
        self, changes: Sequence[tuple[ResourceKey, GroupConfigChange]], by: str
    ) -> dict[ResourceKey, ResourceError]:
        results = [(key, await self._apply(change, by)) for key, change in changes]
        return {key: error for key, error in results if error is not None}

    async def _apply(self, change: GroupConfigChange, by: str) -> ResourceError | None:
        service, is_set = self._service, False
        try:
            if change.changes:
                await service.set_configs(change.group, change.changes, by)
            is_set = True
            match change.action:
                case GroupAction.PAUSE:
                    await service.pause(change.group, change.reason, by)
                case GroupAction.RESUME:
                    await service.resume(change.group, change.reason, by)
                case None:
                    pass
                case _:
                    assert_never(change.action)
        except ClusterError as problem:
            return failed_change(change, problem, failed_action=is_set)
        return None


async def _apply_at_broker(
    broker: BrokerRequests, resources: Sequence[IncrementalAlterConfigsResource]
) -> tuple[dict[ResourceKey, AlterConfigsResourceResponse], str]:
    """The broker's results, and why a resource has none: then it may have applied the change."""
    try:
        answers = await broker.send(resources, validate_only=False) if resources else {}
    except ClusterError as problem:
        return {}, str(problem)
    return answers, "the broker returned no result"


@dataclass(frozen=True, slots=True)
class RequestedConfigs:
    """The requested config names by group; None is all."""

    names: Mapping[str, frozenset[str] | None]
    synonyms: bool
    documentation: bool


class DescribeConfigsInterceptor(
    DecodingInterceptor[DescribeConfigsRequest, DescribeConfigsResponse, RequestedConfigs]
):
    """Adds Headgate's configs to described groups; other requests and their responses pass byte for byte.

    They are added only to a result without error, after the broker has checked DESCRIBE_CONFIGS.
    """

    request_class = DescribeConfigsRequest
    max_bytes = 16 * 1024 * 1024
    max_response_bytes = 64 * 1024 * 1024

    def __init__(self, service: ShareGroupService) -> None:
        self._service = service

    def oversize(self, api_version: ApiVersion) -> Oversize:  # noqa: ARG002
        return Oversize.PASS_UNPROVED

    def is_relevant(self, request: RequestFrame) -> bool:
        """Also False for a request of too many resources, whose number it begins with."""
        if has_flexible_request(request.api_key, request.api_version):
            number = read_uvarint(request.body, 0)[0] - 1
        else:
            number = int.from_bytes(request.body[:4], "big", signed=True)
        return number <= _MOST_DESCRIBED and self._service.is_ready

    async def _decode_request(self, request: RequestFrame, session: Session) -> Outcome[RequestedConfigs]:
        """All of it off the event loop: it depends on nothing that changes."""

        def read() -> Forward[RequestedConfigs]:
            message = decode(DescribeConfigsRequest, request.api_version, request.body)
            return self.on_decoded_request(message, request, session)

        return await run_off_loop(read)

    def on_decoded_request(
        self,
        message: DescribeConfigsRequest,
        request: RequestFrame,  # noqa: ARG002
        session: Session,  # noqa: ARG002
    ) -> Forward[RequestedConfigs]:
        names: dict[str, frozenset[str] | None] = {}
        for one in message.resources:
            if one.resource_type == GROUP and self._service.selects(one.resource_name):
                # An empty list requests all names too, as at a broker.
                names[one.resource_name] = frozenset(one.configuration_keys or ()) or None
        if not names:
            return Forward()
        return Forward(RequestedConfigs(names, message.include_synonyms, message.include_documentation))

    def on_decoded_response(
        self,
        message: DescribeConfigsResponse,
        context: RequestedConfigs,
        session: Session,  # noqa: ARG002
    ) -> DescribeConfigsResponse | Coroutine[Any, Any, DescribeConfigsResponse]:
        # A small response may have many groups: the broker leaves out configs that it does not know.
        if len(message.results) > A_STEP:
            return self._add_in_steps(message, context)
        return replace(message, results=tuple(self._shown(one, context) for one in message.results))

    async def _add_in_steps(
        self, message: DescribeConfigsResponse, context: RequestedConfigs
    ) -> DescribeConfigsResponse:
        return replace(message, results=await map_in_steps(lambda one: self._shown(one, context), message.results))

    def _shown(self, one: DescribeConfigsResult, context: RequestedConfigs) -> DescribeConfigsResult:
        if one.resource_type == GROUP and one.error_code == 0 and one.resource_name in context.names:
            return self._with_own(one, context)
        return one

    def _with_own(self, result: DescribeConfigsResult, asked: RequestedConfigs) -> DescribeConfigsResult:
        group = result.resource_name
        names, state = asked.names[group], self._service.state(group)
        configs = result.configs
        if state.settings.dlq_topic is not None:
            configs = tuple(self._limit(group, state, one) if one.name == LIMIT else one for one in configs)
        own = [_described(one, state, asked) for one in OWN.values() if names is None or one.name in names]
        if names is not None and PARKED in names:
            own.append(_parked(self._service.parked_counts(group)))
        return replace(result, configs=(*configs, *own))

    def _limit(self, group: str, state: ShareGroupState, brokers: DescribedConfig) -> DescribedConfig:
        """The user's limit instead of the broker's, which is at its maximum because Headgate applies the limit."""
        below = tuple(one for one in brokers.synonyms if one.source != GROUP_CONFIG)
        limit = state.values.get(LIMIT)
        if limit is None:
            shown = below[0].value if below else self._service.status(group).limit
            source = below[0].source if below else DEFAULT_CONFIG
            value = brokers.value if shown is None else str(shown)
            return replace(brokers, value=value, config_source=source, synonyms=below)
        synonyms = (ConfigSynonym(name=LIMIT, value=limit, source=GROUP_CONFIG), *below) if brokers.synonyms else ()
        return replace(brokers, value=limit, config_source=GROUP_CONFIG, synonyms=synonyms)


def _described(one: ConfigDef, state: ShareGroupState, asked: RequestedConfigs) -> DescribedConfig:
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


def _parked(counts: Mapping[str, Mapping[str, int]]) -> DescribedConfig:
    """The parked dead letters of a group, by topic and reason, as JSON; the rest is left out of a long one."""
    found: dict[str, dict[str, int]] = {}
    for topic, reason, number in sorted((topic, *item) for topic, some in counts.items() for item in some.items()):
        found.setdefault(topic, {})[reason] = number
        if len(json.dumps(found)) > _MAX_PARKED_CHARACTERS:
            del found[topic][reason]
            break
    return DescribedConfig(name=PARKED, value=json.dumps(found), read_only=True, config_source=DEFAULT_CONFIG)


class ListConfigResourcesInterceptor(
    DecodingInterceptor[ListConfigResourcesRequest, ListConfigResourcesResponse, bool]
):
    """Adds the groups that have only configs of Headgate, or parked dead letters.

    Kafka's tools and `--dlq-topology` describe only listed groups.
    """

    request_class = ListConfigResourcesRequest
    max_bytes = 64 * 1024
    max_response_bytes = 64 * 1024 * 1024

    def __init__(self, service: ShareGroupService) -> None:
        self._service = service

    def is_relevant(self, request: RequestFrame) -> bool:
        return request.api_version >= _LISTS_GROUPS_FROM and self._service.is_ready

    def on_decoded_request(
        self,
        message: ListConfigResourcesRequest,
        request: RequestFrame,  # noqa: ARG002
        session: Session,  # noqa: ARG002
    ) -> Forward[bool]:
        types = message.resource_types
        return Forward(True) if not types or GROUP in types else Forward()

    def on_decoded_response(
        self,
        message: ListConfigResourcesResponse,
        context: bool,  # noqa: ARG002
        session: Session,  # noqa: ARG002
    ) -> ListConfigResourcesResponse | None:
        if message.error_code:
            return None
        service = self._service
        known = {one.resource_name for one in message.config_resources if one.resource_type == GROUP}
        added = tuple(
            ConfigResource(resource_name=group, resource_type=GROUP)
            for group in service.listed_groups()
            if group not in known and service.selects(group)
        )
        return replace(message, config_resources=(*message.config_resources, *added)) if added else None
