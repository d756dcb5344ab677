"""The operator's client of topology descriptions: the status that the gateway adds to a described group.

It is a StreamsGroupDescribe, so the ACLs of the cluster apply: DESCRIBE on the group. A server that is not Headgate, or
does not store descriptions itself, responds without the status, and then the error says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.base.errors import ClusterError
from headgate.kafka.connections import BrokerConnection, Connections
from headgate.kafka.group_admin import (
    NO_TOPOLOGIES,
    GroupError,
    TopologyStatus,
    describe_with_request,
    on_coordinators,
)
from headgate.topologies.model.group_status import STATUS_TAG, DescriptionStatus, decode_description_status
from headgate.wire.messages.streams import DescribedStreamsGroup, StreamsGroupDescribeRequest

NO_STATUS = (
    "the server does not store topology descriptions itself: connect to the gateway, and check topologies.owner there"
)


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
