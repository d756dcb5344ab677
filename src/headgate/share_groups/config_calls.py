"""AlterConfigs and IncrementalAlterConfigs as one call: read into one form, asked of the broker, answered.

One rule: the old call differs only in that it sets everything that it names and unsets what it does not; here that is
`replaces`, and nobody else needs to know which call it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.interceptor import RequestFrame, Session
from headgate.wire.codec import decode, encode
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
from headgate.wire.primitives import Buffer, read_uvarint

ALTER_CONFIGS: Final = ApiKey(33)
INCREMENTAL_ALTER_CONFIGS: Final = ApiKey(44)
GROUP: Final = 32  # the type of the resource
_LARGE_BYTES: Final = 8 * 1024
_CALL_S: Final = 25.0  # two of them, and what is ours, must fit into what an answer may take

Resource = IncrementalAlterConfigsResource
Result = AlterConfigsResourceResponse
Place = tuple[int, str]  # a resource's type and name


@dataclass(frozen=True, slots=True)
class Refused:
    """What a resource is answered with; code 0 for one that is not refused at all."""

    code: int
    text: str | None = None


FINE: Final = Refused(0)


def may_have_groups(view: Buffer, pos: int, end: int) -> bool:
    """A glance: False for what is large and begins with another resource than a group, as thousands of topics do.

    Those pass unopened: they could be longer than may be gathered. If a group stands behind them all the same, it is
    the broker's, which refuses our names.
    """
    if end - pos < _LARGE_BYTES:
        return True
    # Up to 16 million resources the old form of their number begins with a zero, and the compact one never does.
    at = pos + 4 if view[pos] == 0 else read_uvarint(view, pos)[1]
    return view[at] == GROUP


def place_of(resource: Resource) -> Place:
    return resource.resource_type, resource.resource_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigCall:
    """A client's request."""

    api_key: ApiKey
    api_version: ApiVersion
    resources: tuple[Resource, ...]
    validate_only: bool

    @property
    def replaces(self) -> bool:
        return self.api_key == ALTER_CONFIGS

    def merged(self, answers: Mapping[Place, Result], refused: Mapping[Place, Refused], throttle_ms: int) -> bytes:
        """One answer for each resource, in the order in which they were asked for."""
        results = tuple(
            _result(place, refused.get(place, FINE)) if place in refused or place not in answers else answers[place]
            for place in map(place_of, self.resources)
        )
        answer = AlterConfigsResponse if self.replaces else IncrementalAlterConfigsResponse
        return encode(answer(throttle_time_ms=throttle_ms, responses=results), self.api_version)


def read_call(request: RequestFrame) -> ConfigCall:
    if request.api_key == INCREMENTAL_ALTER_CONFIGS:
        message = decode(IncrementalAlterConfigsRequest, request.api_version, request.body)
        resources, validate_only = message.resources, message.validate_only
    else:
        old = decode(AlterConfigsRequest, request.api_version, request.body)
        resources, validate_only = tuple(map(_as_new, old.resources)), old.validate_only
    return ConfigCall(
        api_key=request.api_key,
        api_version=request.api_version,
        resources=resources,
        validate_only=validate_only,
    )


class Asking:
    """The client's own broker, asked in the client's own version; the longest throttle counts."""

    def __init__(self, call: ConfigCall, session: Session) -> None:
        self._call = call
        self._session = session
        self.throttle_ms = 0

    async def ask(self, resources: Sequence[Resource], *, validate_only: bool) -> dict[Place, Result]:
        """What the broker says of each; `ClusterError` when it does not."""
        version = self._call.api_version
        answer: AlterConfigsResponse | IncrementalAlterConfigsResponse
        if self._call.replaces:
            old = AlterConfigsRequest(resources=tuple(map(_as_old, resources)), validate_only=validate_only)
            answer = await self._session.call(old, version, deadline=_CALL_S)
        else:
            new = IncrementalAlterConfigsRequest(resources=tuple(resources), validate_only=validate_only)
            answer = await self._session.call(new, version, deadline=_CALL_S)
        self.throttle_ms = max(self.throttle_ms, answer.throttle_time_ms)
        return {(one.resource_type, one.resource_name): one for one in answer.responses}


def _as_new(old: AlterConfigsResource) -> Resource:
    configs = tuple(IncrementalConfig(name=one.name, value=one.value) for one in old.configs)
    return Resource(resource_type=old.resource_type, resource_name=old.resource_name, configs=configs)


def _as_old(new: Resource) -> AlterConfigsResource:
    configs = tuple(AlterableConfig(name=one.name, value=one.value) for one in new.configs)
    return AlterConfigsResource(resource_type=new.resource_type, resource_name=new.resource_name, configs=configs)


def _result(place: Place, said: Refused) -> Result:
    kind, name = place
    return Result(error_code=said.code, error_message=said.text, resource_type=kind, resource_name=name)
