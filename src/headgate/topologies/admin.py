"""The operator's client of topology descriptions: the status that the gateway adds to a described group, and `publish`.

The status is in a StreamsGroupDescribe, so the ACLs of the cluster apply: DESCRIBE on the group. A version is published
by a StreamsGroupTopologyDescriptionUpdate: READ on the group. A server that is not Headgate, or does not store
descriptions itself, responds without Headgate's tagged field, and then the error says so.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.base.errors import ClusterError
from headgate.facts.topology import Description
from headgate.kafka.connections import BrokerConnection, Connections, UnsupportedError
from headgate.kafka.group_admin import (
    NO_TOPOLOGIES,
    GroupError,
    TopologyStatus,
    describe_with_request,
    group_error,
    on_coordinators,
)
from headgate.topologies.model.group_status import STATUS_TAG, DescriptionStatus, decode_description_status
from headgate.topologies.wire_descriptions import PASTED, PASTED_TAG, to_wire
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.streams import (
    DescribedStreamsGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

NO_STATUS = (
    "the server does not store topology descriptions itself: connect to the gateway, and check topologies.owner there"
)

NOT_A_GATEWAY = (
    "the server does not keep published versions: connect to a Headgate gateway, and check topologies.owner there"
)
# A broker that has the request answers these to one without a member.
_OF_BROKERS = frozenset((ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND))


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedStatus:
    """The broker's part of the answer, the status of the description, and the gateway's part."""

    group: str
    state: str
    topology_epoch: int | None
    shown: TopologyStatus
    description: DescriptionStatus


async def description_status(connections: Connections, group: str) -> DescribedStatus:
    """`ClusterError` when the group cannot be described or the server is not Headgate."""
    described = (await on_coordinators(connections, [group], _describe))[group]
    if isinstance(described, GroupError):
        raise ClusterError(f"streams group '{group}' cannot be described: {described.text}")
    field = dict(described.unknown_tags).get(STATUS_TAG)
    if field is None:
        raise ClusterError(f"the status of the topology of streams group '{group}' is missing: {NO_STATUS}")
    status = decode_description_status(field)
    if status is None:
        raise ClusterError(f"the status of the topology of streams group '{group}' is not a JSON object")
    code = described.topology_description_status
    try:
        shown = TopologyStatus(code)
    except ValueError:
        raise ClusterError(f"the server sent an unknown TopologyDescriptionStatus: {code}") from None
    return DescribedStatus(
        group=group,
        state=described.group_state,
        topology_epoch=None if described.topology is None else described.topology.epoch,
        shown=shown,
        description=status,
    )


async def _describe(link: BrokerConnection, groups: Sequence[str]) -> Mapping[str, DescribedStreamsGroup | GroupError]:
    request = StreamsGroupDescribeRequest(
        group_ids=tuple(groups), include_topology_description=True, unknown_tags=((STATUS_TAG, b""),)
    )
    return await describe_with_request(link, request, lowest=1, otherwise=NO_TOPOLOGIES)


async def publish_topology(connections: Connections, group: str, description: Description, *, epoch: int = 0) -> str:
    """Keep a version that no member pushed; returns its name. `ClusterError` when it is not kept.

    As in a push, the pattern of a source is not carried.
    """
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=group,
        member_id="",
        topology_epoch=epoch,
        topology_description=to_wire(description),
        unknown_tags=((PASTED_TAG, PASTED),),
    )

    async def publish(link: BrokerConnection, groups: Sequence[str]) -> Mapping[str, str | GroupError]:
        try:
            response = await link.ask(request, lowest=0, highest=0)
        except UnsupportedError:
            return dict.fromkeys(groups, GroupError(ErrorCode.UNSUPPORTED_VERSION, NOT_A_GATEWAY))
        return dict.fromkeys(groups, _published(response))

    published = (await on_coordinators(connections, [group], publish))[group]
    if isinstance(published, GroupError):
        raise ClusterError(f"the topology of streams group '{group}' is not published: {published.text}")
    return published


def _published(response: StreamsGroupTopologyDescriptionUpdateResponse) -> str | GroupError:
    code, field = response.error_code, dict(response.unknown_tags).get(PASTED_TAG)
    if field is None and (code in _OF_BROKERS or not code):
        return GroupError(code or ErrorCode.INVALID_REQUEST, NOT_A_GATEWAY)
    if code:
        return group_error(code, response.error_message)
    try:
        document = json.loads(field or b"")
    except (ValueError, RecursionError):
        document = None
    version = document.get("version") if isinstance(document, dict) else None
    return version if isinstance(version, str) else GroupError(ErrorCode.INVALID_REQUEST, NOT_A_GATEWAY)
