"""StreamsGroupDescribe: version 1 is carried to a broker of version 0, and descriptions are added on its way back.

One rule: what the broker said of a group stays as it is, its errors too; a description is added only when it was asked
for and the group has no error. The broker has checked DESCRIBE, on the client's own connection.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from headgate.domain.topology import Description, to_wire
from headgate.gateway.interceptor import (
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    OnResponse,
    RequestFrame,
    ResponseFrame,
    Rewritten,
    Session,
)
from headgate.gateway.topologies import asking
from headgate.gateway.topologies.service import TopologyService
from headgate.gateway.topologies.versions import DESCRIBE
from headgate.gateway.topologies.versions import sent_version as sent
from headgate.ports.store_calls import Found, Missing
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
# A few hundred groups with ten thousand nodes each in one answer: beyond that ask for fewer groups.
_MOST_NODES: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class _Asked:
    version: int
    descriptions: bool


class DescribeInterceptor(Interceptor):
    """Version 0 passes byte for byte."""

    api_keys = frozenset((DESCRIBE,))
    fail_closed = True

    def __init__(self, service: TopologyService) -> None:
        self._service = service

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest:
        version = request.api_version
        if version == 0:
            return Forward()
        message = decode(StreamsGroupDescribeRequest, version, request.body)
        context = _Asked(version, message.include_topology_description)
        to_broker = sent(session.broker_versions(), DESCRIBE, version)
        body = encode(replace(message, include_topology_description=False), to_broker)
        return Rewritten(body, context=context, api_version=to_broker)

    def on_response(self, response: ResponseFrame, context: object, session: Session) -> OnResponse:  # noqa: ARG002
        assert isinstance(context, _Asked)
        message = decode(StreamsGroupDescribeResponse, response.api_version, response.body)
        if not context.descriptions:
            return Rewritten(encode(message, context.version))
        return Hold(self._described(message, context.version), _LONGEST_S + _MARGIN_S)

    async def _described(self, message: StreamsGroupDescribeResponse, version: int) -> Rewritten:
        """The groups of one answer, some at a time."""
        turns = asyncio.Semaphore(_AT_ONCE)
        left = [_MOST_NODES]
        loop = asyncio.get_running_loop()
        until = loop.time() + _LONGEST_S

        async def describe(group: DescribedStreamsGroup) -> DescribedStreamsGroup:
            async with turns:
                if loop.time() > until and group.error_code == 0:
                    return replace(group, topology_description_status=ERROR)
                return await self._describe(group, left)

        groups = tuple(await asyncio.gather(*map(describe, message.groups)))
        return Rewritten(await asyncio.to_thread(encode, replace(message, groups=groups), version))

    async def _describe(self, group: DescribedStreamsGroup, left: list[int]) -> DescribedStreamsGroup:
        service = self._service
        if group.error_code != 0:
            return group
        if not service.has_store or not service.selects(group.group_id):
            return replace(group, topology_description_status=NOT_STORED)
        if not service.is_ready:
            return replace(group, topology_description_status=ERROR)
        seen = asking.seen(group)
        held = service.groups.on_described(
            group.group_id, error_code=0, topology_epoch=seen.topology_epoch, members=seen.members
        )
        if held is None:
            return replace(group, topology_description_status=NOT_STORED)
        found = await service.get(group.group_id, held)
        if isinstance(found, Missing):
            return replace(group, topology_description_status=NOT_STORED)
        if not isinstance(found, Found):
            return replace(group, topology_description_status=ERROR)
        left[0] -= sum(len(one.nodes) for one in found.description.subtopologies)
        if left[0] < 0:
            return replace(group, topology_description_status=ERROR)
        wire = await asyncio.to_thread(on_the_wire, found.description)
        return replace(group, topology_description=wire, topology_description_status=AVAILABLE)


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
