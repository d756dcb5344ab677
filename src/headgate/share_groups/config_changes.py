"""Changes of group configs: AlterConfigs and IncrementalAlterConfigs as one, split into parts.

A malformed resource, or an operation that only lists have, goes to the broker as it came: since the broker does not
know Headgate's configs, it refuses the whole resource, with its own error.

`share.delivery.count.limit` is Headgate's while the group has a dead-letter topic, and in the change that sets or
deletes the topic: the broker validates the value, and the service sets the broker's own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiKey, ApiVersion
from headgate.facts import GroupConfigSet, GroupConfigUnset
from headgate.proxy.interceptor import RequestFrame, Session
from headgate.share_groups.model.group_configs import (
    DLQ_TOPIC,
    LIMIT,
    OWN,
    PAUSE,
    RESUME,
    ConfigRules,
    check,
    settings_of,
)
from headgate.share_groups.model.group_state import ShareGroupFact, ShareGroupState
from headgate.share_groups.resources import PartialDecisionError
from headgate.wire.codec import decode, encode
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementalConfig,
)

GROUP: Final = 32  # a resource type
_CALL_S: Final = 25.0  # two of them must fit into the deadline of a response

ResourceKey = tuple[int, str]  # type and name
SET, DELETE = 0, 1
ACTION_NAMES: Final = frozenset((PAUSE, RESUME))
OWN_NAMES: Final = frozenset((*OWN, *ACTION_NAMES))


class GroupAction(Enum):
    """An action that an operator requests with a write-only config."""

    PAUSE = PAUSE
    RESUME = RESUME


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigChange:
    """The change of a group with at least one of Headgate's configs.

    The broker validates `validated` and is then asked to apply `forwarded`; `changes` are Headgate's. `problem` is an
    error message for INVALID_CONFIG. `is_malformed`: the broker refuses `validated`, and nothing is changed.
    """

    group: str
    validated: tuple[IncrementalConfig, ...]
    forwarded: tuple[IncrementalConfig, ...]
    changes: Mapping[str, str | None]
    action: GroupAction | None = None
    reason: str = ""
    problem: str | None = None
    is_malformed: bool = False

    @property
    def own_names(self) -> tuple[str, ...]:
        return (*self.changes, *(() if self.action is None else (self.action.value,)))

    @property
    def new_topic(self) -> str | None:
        """The dead-letter topic that the change sets."""
        value = self.changes.get(DLQ_TOPIC)
        return None if value is None else settings_of({DLQ_TOPIC: value}).dlq_topic


def read_change(
    group: str, configs: Sequence[IncrementalConfig], state: ShareGroupState, rules: ConfigRules, *, replaces: bool
) -> GroupConfigChange | None:
    """None when the broker alone is concerned. `replaces`: configs that are not named get their defaults."""
    names = [one.name for one in configs]
    own = [one for one in configs if one.name in OWN_NAMES]
    if _is_malformed(configs, names):
        everything = tuple(configs)
        return (
            GroupConfigChange(group=group, validated=everything, forwarded=(), changes={}, is_malformed=True)
            if own
            else None
        )
    changes: dict[str, str | None] = {name: None for name in state.values if name != LIMIT} if replaces else {}
    changes |= {one.name: _value(one) for one in own if one.name not in ACTION_NAMES}
    owns_limit = state.settings.dlq_topic is not None or changes.get(DLQ_TOPIC) is not None
    limits = [one for one in configs if one.name == LIMIT] if owns_limit else []
    if limits or (replaces and owns_limit):
        changes[LIMIT] = _value(limits[0]) if limits else None
    if not own and not changes:
        return None
    forwarded = tuple(one for one in configs if one.name not in OWN_NAMES and one not in limits)
    actions = [one for one in own if one.name in ACTION_NAMES]
    return GroupConfigChange(
        group=group,
        validated=(*forwarded, *limits),
        forwarded=forwarded,
        changes=changes,
        action=GroupAction(actions[0].name) if actions else None,
        reason=(actions[0].value or "").strip() if actions else "",
        problem=_problem(own, rules, replaces=replaces),
    )


def _value(config: IncrementalConfig) -> str | None:
    return None if config.config_operation == DELETE else config.value


def _is_malformed(configs: Sequence[IncrementalConfig], names: Sequence[str]) -> bool:
    if len(set(names)) != len(names):
        return True
    return any(
        (one.value is None and one.config_operation != DELETE)
        or (one.name in OWN_NAMES and one.config_operation not in (SET, DELETE))
        for one in configs
    )


def _problem(own: Sequence[IncrementalConfig], rules: ConfigRules, *, replaces: bool) -> str | None:
    """The error message of the first invalid config."""
    if sum(one.name in ACTION_NAMES for one in own) > 1:
        return f"{PAUSE} and {RESUME} cannot be set together"
    for one in own:
        value = _value(one)
        if one.name in ACTION_NAMES:
            text = _action_problem(one.name, value, rules, replaces=replaces)
        else:
            text = None if value is None else check(one.name, value, rules)
        if text is not None:
            return text
    return None


def _action_problem(name: str, value: str | None, rules: ConfigRules, *, replaces: bool) -> str | None:
    if value is None:
        return f"{name} cannot be deleted: it is an action and has no stored value"
    if replaces:
        return f"{name} can be set by IncrementalAlterConfigs only: AlterConfigs replaces all configs of the group"
    if not value.strip():
        return f"Invalid value {value} for configuration {name}: Reason must not be empty"
    if name == PAUSE and not rules.pause_enable:
        return (
            f"{name}: pausing of share groups (KIP-1249) is switched off in this gateway: "
            "set share_groups.pause_enable=true"
        )
    return check(name, value, rules)


# --- requests and responses


@dataclass(frozen=True, slots=True)
class ResourceError:
    """The error of one resource; code 0 is success."""

    code: int
    text: str | None = None


NO_ERROR: Final = ResourceError(ErrorCode.NONE)


def partial_change(
    problem: str, *, applied: Iterable[str] = (), uncertain: Iterable[str] = (), unapplied: Iterable[str] = ()
) -> ResourceError:
    """The error of a change that was validated and then not applied as a whole, with the names of its configs."""
    parts = (("Applied", applied), ("May have been applied", uncertain), ("Not applied", unapplied))
    lists = "".join(f" {what}: {', '.join(names)}." for what, given in parts if (names := tuple(given)))
    text = f"The change was not applied as a whole: {problem}.{lists} Try again."
    return ResourceError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)


def failed_change(change: GroupConfigChange, problem: ClusterError, *, failed_action: bool) -> ResourceError:
    """The error of a change of which the broker has applied its part, and Headgate could not write its own.

    `failed_action`: the action could not be written, after the configs were.
    """
    applied = [one.name for one in change.forwarded]
    action = () if change.action is None else (change.action.value,)
    if not isinstance(problem, PartialDecisionError):  # nothing was written
        if failed_action:
            return partial_change(str(problem), applied=(*applied, *change.changes), unapplied=action)
        return partial_change(str(problem), applied=applied, unapplied=change.own_names)
    if failed_action:
        return partial_change(str(problem), applied=(*applied, *change.changes), uncertain=action)
    uncertain, unwritten = _names_of(problem.uncertain), _names_of(problem.unwritten)
    applied += [name for name in change.changes if name not in uncertain and name not in unwritten]
    return partial_change(str(problem), applied=applied, uncertain=uncertain, unapplied=(*unwritten, *action))


def _names_of(facts: Iterable[ShareGroupFact]) -> tuple[str, ...]:
    return tuple(one.name for one in facts if isinstance(one, (GroupConfigSet, GroupConfigUnset)))


def resource_key(resource: IncrementalAlterConfigsResource) -> ResourceKey:
    return resource.resource_type, resource.resource_name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsCall:
    """AlterConfigs or IncrementalAlterConfigs of a client; `replaces`: AlterConfigs, which unsets unnamed configs."""

    api_key: ApiKey
    api_version: ApiVersion
    resources: tuple[IncrementalAlterConfigsResource, ...]
    validate_only: bool

    @property
    def replaces(self) -> bool:
        return self.api_key == ApiKey.ALTER_CONFIGS

    def response(
        self,
        answers: Mapping[ResourceKey, AlterConfigsResourceResponse],
        errors: Mapping[ResourceKey, ResourceError],
        throttle_ms: int,
    ) -> bytes:
        """One result for each resource, in the order of the request; `errors` replace the broker's `answers`."""
        results = tuple(
            _result(key, errors.get(key, NO_ERROR)) if key in errors or key not in answers else answers[key]
            for key in map(resource_key, self.resources)
        )
        answer = AlterConfigsResponse if self.replaces else IncrementalAlterConfigsResponse
        return encode(answer(throttle_time_ms=throttle_ms, responses=results), self.api_version)


def read_call(request: RequestFrame) -> AlterConfigsCall:
    if request.api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS:
        message = decode(IncrementalAlterConfigsRequest, request.api_version, request.body)
        resources, validate_only = message.resources, message.validate_only
    else:
        old = decode(AlterConfigsRequest, request.api_version, request.body)
        resources, validate_only = tuple(map(_as_new, old.resources)), old.validate_only
    return AlterConfigsCall(
        api_key=request.api_key,
        api_version=request.api_version,
        resources=resources,
        validate_only=validate_only,
    )


class BrokerRequests:
    """Sends parts of a call to the broker, on the client's connection."""

    def __init__(self, call: AlterConfigsCall, session: Session) -> None:
        self._call = call
        self._session = session
        self._throttle_ms = 0

    @property
    def throttle_ms(self) -> int:
        """The longest throttle time, also of other requests of the gateway on this connection."""
        return max(self._throttle_ms, self._session.throttle_ms)

    async def send(
        self, resources: Sequence[IncrementalAlterConfigsResource], *, validate_only: bool
    ) -> dict[ResourceKey, AlterConfigsResourceResponse]:
        """The broker's result for each resource; `ClusterError` when it does not answer."""
        version = self._call.api_version
        answer: AlterConfigsResponse | IncrementalAlterConfigsResponse
        if self._call.replaces:
            old = AlterConfigsRequest(resources=tuple(map(_as_old, resources)), validate_only=validate_only)
            answer = await self._session.call(old, version, deadline=_CALL_S)
        else:
            new = IncrementalAlterConfigsRequest(resources=tuple(resources), validate_only=validate_only)
            answer = await self._session.call(new, version, deadline=_CALL_S)
        self._throttle_ms = max(self._throttle_ms, answer.throttle_time_ms)
        return {(one.resource_type, one.resource_name): one for one in answer.responses}


def _as_new(old: AlterConfigsResource) -> IncrementalAlterConfigsResource:
    configs = tuple(IncrementalConfig(name=one.name, value=one.value) for one in old.configs)
    return IncrementalAlterConfigsResource(
        resource_type=old.resource_type, resource_name=old.resource_name, configs=configs
    )


def _as_old(new: IncrementalAlterConfigsResource) -> AlterConfigsResource:
    configs = tuple(AlterableConfig(name=one.name, value=one.value) for one in new.configs)
    return AlterConfigsResource(resource_type=new.resource_type, resource_name=new.resource_name, configs=configs)


def _result(key: ResourceKey, error: ResourceError) -> AlterConfigsResourceResponse:
    kind, name = key
    return AlterConfigsResourceResponse(
        error_code=error.code, error_message=error.text, resource_type=kind, resource_name=name
    )
