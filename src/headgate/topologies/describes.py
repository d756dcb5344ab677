"""StreamsGroupDescribe: version 1 is carried to a broker of version 0, and descriptions are added on its way back.

One rule: what the broker said of a group stays as it is, its errors too; a description is added only when it was asked
for and the group has no error. The broker has checked DESCRIBE, on the client's own connection.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.facts.topology import Description, to_wire
from headgate.proxy.decoding import SMALL_BYTES, run_off_loop
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
from headgate.topologies import asking
from headgate.topologies.service import TopologyService
from headgate.topologies.store_calls import Found, Missing
from headgate.topologies.versions import DESCRIBE, sent
from headgate.wire.codec import decode, encode
from headgate.wire.messages.streams import (
    DescribedStreamsGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)

NOT_REQUESTED, NOT_STORED, ERROR, AVAILABLE = range(4)
_LONGEST_S: Final = 20.0  # then the groups that are left are an error each; clients wait for half a minute
_MARGIN_S: Final = 60.0
_AT_ONCE: Final = 16
# Of all descriptions in one answer: whoever wants more asks for fewer groups at a time.
_MOST_CHARACTERS: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Asked:
    version: int
    descriptions: bool


@dataclass(frozen=True, slots=True)
class _Shown:
    """What is added to a group's answer; `characters` is about what it takes."""

    status: int
    description: TopologyDescription | None = None
    characters: int = 0


class DescribeInterceptor(Interceptor[_Asked]):
    """Version 0 passes byte for byte."""

    api_keys = frozenset((DESCRIBE,))
    fail_closed = True
    max_bytes = 256 * 1024  # of group names
    max_response_bytes = 64 * 1024 * 1024  # of the broker's own

    def __init__(self, service: TopologyService) -> None:
        self._service = service

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[_Asked]:
        version = request.api_version
        if version == 0:
            return Forward()
        message = decode(StreamsGroupDescribeRequest, version, request.body)
        context = _Asked(version, message.include_topology_description)
        to_broker = sent(session.broker_versions(), DESCRIBE, version)
        body = encode(replace(message, include_topology_description=False), to_broker)
        return Rewritten(body, context=context, api_version=to_broker)

    def on_response(self, response: ResponseFrame, context: _Asked, session: Session) -> OnResponse:  # noqa: ARG002
        if not context.descriptions and len(response.body) <= SMALL_BYTES:
            message = decode(StreamsGroupDescribeResponse, response.api_version, response.body)
            return Rewritten(encode(message, context.version))
        return Hold(self._answered(response, context), _LONGEST_S + _MARGIN_S)

    async def _answered(self, response: ResponseFrame, asked: _Asked) -> ResponseOutcome:
        message = await run_off_loop(lambda: decode(StreamsGroupDescribeResponse, response.api_version, response.body))
        if asked.descriptions:
            message = replace(message, groups=await self._described(message.groups))
        return Rewritten(await run_off_loop(lambda: encode(message, asked.version)))

    async def _described(self, groups: Sequence[DescribedStreamsGroup]) -> tuple[DescribedStreamsGroup, ...]:
        """The groups with their descriptions: each looked up once, some at a time, and not more than fits an answer."""
        turns = asyncio.Semaphore(_AT_ONCE)
        loop = asyncio.get_running_loop()
        until = loop.time() + _LONGEST_S

        async def look_up(group: DescribedStreamsGroup) -> _Shown:
            async with turns:
                return _Shown(ERROR) if loop.time() > until else await self._look_up(group)

        distinct = {group.group_id: group for group in groups if group.error_code == 0}
        shown = dict(zip(distinct, await asyncio.gather(*map(look_up, distinct.values())), strict=True))
        left = _MOST_CHARACTERS
        described = []
        for group in groups:
            one = shown.get(group.group_id, _Shown(NOT_REQUESTED)) if group.error_code == 0 else _Shown(NOT_REQUESTED)
            left -= one.characters
            if left < 0 and one.status == AVAILABLE:
                one = _Shown(ERROR)
            described.append(
                replace(group, topology_description=one.description, topology_description_status=one.status)
            )
        return tuple(described)

    async def _look_up(self, group: DescribedStreamsGroup) -> _Shown:
        service = self._service
        if not service.has_store or not service.selects(group.group_id):
            return _Shown(NOT_STORED)
        if not service.is_ready:
            return _Shown(ERROR)
        seen = asking.seen(group)
        held = service.groups.on_described(
            group.group_id, error_code=0, topology_epoch=seen.topology_epoch, members=seen.members
        )
        if held is None:
            return _Shown(NOT_STORED)
        found = await service.get(group.group_id, held)
        if isinstance(found, Missing):
            return _Shown(NOT_STORED)
        if not isinstance(found, Found):
            return _Shown(ERROR)
        description = found.description
        return await run_off_loop(lambda: _Shown(AVAILABLE, on_the_wire(description), _characters(description)))


def _characters(description: Description) -> int:
    """About what it takes on the wire: its texts, and some bytes for each part."""
    nodes = [node for one in description.subtopologies for node in one.nodes]
    nodes += [node for one in description.global_stores for node in (one.source, one.processor)]
    fields = [to_wire(node) for node in nodes]
    texts = sum(
        len(one.name) + len(one.sink_topic or "") + sum(map(len, (*one.source_topics, *one.stores, *one.successors)))
        for one in fields
    )
    parts = sum(len(one.source_topics) + len(one.stores) + len(one.successors) for one in fields)
    return texts + sum(len(one.id) for one in description.subtopologies) + 8 * (parts + 4 * len(nodes)) + 64


def on_the_wire(description: Description) -> TopologyDescription:
    return TopologyDescription(
        subtopologies=tuple(
            TopologyDescriptionSubtopology(
                subtopology_id=one.id,
                nodes=tuple(TopologyDescriptionNode(**to_wire(node)._asdict()) for node in one.nodes),
            )
            for one in description.subtopologies
        ),
        global_stores=tuple(
            TopologyDescriptionGlobalStore(
                source=TopologyDescriptionNode(**to_wire(one.source)._asdict()),
                processor=TopologyDescriptionNode(**to_wire(one.processor)._asdict()),
            )
            for one in description.global_stores
        ),
    )
