"""StreamsGroupDescribe: version 1 is converted for a broker of version 0, and descriptions are added to its response.

Invariant: the broker's own fields of a group stay as they are, its errors too. A description is added only when the
client requested it and the group has no error. The broker has checked DESCRIBE, on the client's own connection. The
same holds for the status of the description, which only a request with the tag of `headgate topology status` gets.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.base.clock import Clock
from headgate.base.ids import ApiKey, ApiVersion
from headgate.facts.topology import Description
from headgate.kafka.group_admin import TopologyStatus
from headgate.proxy.decoding import SMALL_BYTES, map_in_steps, run_off_loop
from headgate.proxy.interceptor import (
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    OnResponse,
    RequestFrame,
    ResponseFrame,
    ResponseOutcome,
    Rewritten,
    Session,
)
from headgate.topologies.group_statuses import GroupStatuses
from headgate.topologies.model.group_status import STATUS_TAG
from headgate.topologies.service import TopologyService
from headgate.topologies.streams_api import broker_version, outline, with_throttle
from headgate.topologies.wire_descriptions import to_wire
from headgate.wire.codec import decode, encode
from headgate.wire.messages.streams import (
    DescribedStreamsGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    TopologyDescription,
)

_TIMEOUT_S: Final = 20.0  # then the groups that are left get status ERROR; clients wait for half a minute
_MARGIN_S: Final = 60.0
_AT_ONCE: Final = 16
_STEP: Final = 500  # groups that are looked at before other connections are served
# Of all descriptions in one response: a client that wants more requests fewer groups at a time.
_MAX_CHARACTERS: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _DescribeContext:
    """The client's version, and whether it requested descriptions and their status."""

    version: int
    include_descriptions: bool
    include_status: bool = False


@dataclass(frozen=True, slots=True)
class _AddedDescription:
    """What is added to a group's response; `characters` is about its size."""

    status: TopologyStatus
    description: TopologyDescription | None = None
    characters: int = 0


class DescribeInterceptor(Interceptor[_DescribeContext]):
    """Version 0 passes byte for byte."""

    api_keys = frozenset((ApiKey.STREAMS_GROUP_DESCRIBE,))
    fail_closed = True
    max_bytes = 256 * 1024  # of group names
    max_response_bytes = 64 * 1024 * 1024  # of the broker's own

    def __init__(self, service: TopologyService, clock: Clock, statuses: GroupStatuses) -> None:
        self._service = service
        self._clock = clock
        self._statuses = statuses

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[_DescribeContext]:
        version = request.api_version
        if version == 0:
            return Forward()
        to_broker = broker_version(session.broker_versions(), ApiKey.STREAMS_GROUP_DESCRIBE, version)
        if len(request.body) > SMALL_BYTES:
            return Hold(run_off_loop(lambda: _converted(request, to_broker)), _MARGIN_S)
        return _converted(request, to_broker)

    def on_response(self, response: ResponseFrame, context: _DescribeContext, session: Session) -> OnResponse:
        is_plain = not context.include_descriptions and not context.include_status
        if is_plain and len(response.body) <= SMALL_BYTES:
            message = decode(StreamsGroupDescribeResponse, response.api_version, response.body)
            return Rewritten(with_throttle(encode(message, context.version), session.throttle_ms))
        return Hold(self._respond(response, context, session), _TIMEOUT_S + _MARGIN_S)

    async def _respond(self, response: ResponseFrame, context: _DescribeContext, session: Session) -> ResponseOutcome:
        message = await run_off_loop(lambda: decode(StreamsGroupDescribeResponse, response.api_version, response.body))
        if context.include_descriptions:
            message = replace(message, groups=await self._with_descriptions(message.groups))
        if context.include_status:
            message = replace(message, groups=await map_in_steps(self._with_status, message.groups))
        body = await run_off_loop(lambda: encode(message, context.version))
        return Rewritten(with_throttle(body, session.throttle_ms))

    def _with_status(self, group: DescribedStreamsGroup) -> DescribedStreamsGroup:
        """A group with an error gets none: the broker has not found that the client may describe it."""
        if group.error_code:
            return group
        status = self._statuses.status(group.group_id).encode()
        return replace(group, unknown_tags=(*_without_status(group.unknown_tags), (STATUS_TAG, status)))

    async def _with_descriptions(self, groups: Sequence[DescribedStreamsGroup]) -> tuple[DescribedStreamsGroup, ...]:
        """The groups with their descriptions: each looked up once, some at a time, up to the size of a response."""
        slots = asyncio.Semaphore(_AT_ONCE)
        until = self._clock.monotonic() + _TIMEOUT_S

        async def look_up(group: DescribedStreamsGroup) -> _AddedDescription:
            async with slots:
                is_late = self._clock.monotonic() > until
                return _AddedDescription(TopologyStatus.ERROR) if is_late else await self._look_up(group)

        distinct = {group.group_id: group for group in groups if group.error_code == 0}
        found = dict(zip(distinct, await asyncio.gather(*map(look_up, distinct.values())), strict=True))
        left = _MAX_CHARACTERS
        described = []
        for number, group in enumerate(groups):
            if number % _STEP == 0:
                await asyncio.sleep(0)  # any client may name tens of thousands of groups
            added = _AddedDescription(TopologyStatus.NOT_REQUESTED)
            if group.error_code == 0:
                added = found[group.group_id]
            left -= added.characters
            if left < 0 and added.status is TopologyStatus.AVAILABLE:
                added = _AddedDescription(TopologyStatus.ERROR)
            described.append(
                replace(group, topology_description=added.description, topology_description_status=added.status)
            )
        return tuple(described)

    async def _look_up(self, group: DescribedStreamsGroup) -> _AddedDescription:
        match await self._service.get(outline(group)):
            case Description() as found:
                return await run_off_loop(lambda: _available(found))
            case None:
                return _AddedDescription(TopologyStatus.NOT_STORED)
            case _:
                return _AddedDescription(TopologyStatus.ERROR)


def _converted(request: RequestFrame, to_broker: ApiVersion) -> Rewritten[_DescribeContext]:
    version = request.api_version
    message = decode(StreamsGroupDescribeRequest, version, request.body)
    others = _without_status(message.unknown_tags)
    include_status = len(others) != len(message.unknown_tags)
    context = _DescribeContext(version, message.include_topology_description, include_status)
    body = encode(replace(message, include_topology_description=False, unknown_tags=others), to_broker)
    return Rewritten(body, context=context, api_version=to_broker)


def _without_status(tags: tuple[tuple[int, bytes], ...]) -> tuple[tuple[int, bytes], ...]:
    return tuple(tag for tag in tags if tag[0] != STATUS_TAG)


def _available(description: Description) -> _AddedDescription:
    wire = to_wire(description)
    return _AddedDescription(TopologyStatus.AVAILABLE, wire, _characters(wire))


def _characters(wire: TopologyDescription) -> int:
    """About its size on the wire: its texts, and some bytes for each element."""
    nodes = [node for one in wire.subtopologies for node in one.nodes]
    nodes += [node for one in wire.global_stores for node in (one.source, one.processor)]
    texts = sum(
        len(one.name) + len(one.sink_topic or "") + sum(map(len, (*one.source_topics, *one.stores, *one.successors)))
        for one in nodes
    )
    elements = sum(len(one.source_topics) + len(one.stores) + len(one.successors) for one in nodes)
    ids = sum(len(one.subtopology_id) for one in wire.subtopologies)
    return texts + ids + 8 * (elements + 4 * len(nodes)) + 64
