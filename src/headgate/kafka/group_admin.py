"""What an operator asks of streams groups: list, describe, delete; and the states of many groups at once.

One rule: only streams groups. DeleteGroups would delete a group of any kind, so what is deleted is described first.

    async with Connections(dialler) as connections:
        for group in await list_streams_groups(connections):
            ...
    outlines = await describe_streams_groups(dialler, ["orders", "billing"])
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from headgate.base.errors import ClusterError
from headgate.config.addresses import Address
from headgate.kafka.connections import Connections, Dialler, Link, UnsupportedError
from headgate.kafka.coordinators import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND,
    GroupError,
    group_error,
    on_coordinators,
)
from headgate.wire.messages.cluster import MetadataRequest, MetadataResponse
from headgate.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from headgate.wire.messages.streams import (
    DescribedStreamsGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

_METADATA, _LIST_GROUPS, _DELETE_GROUPS, _STREAMS_GROUP_DESCRIBE = 3, 16, 42, 89
_NON_EMPTY_GROUP = 68
_STREAMS = "Streams"  # of the types of groups, written by brokers in either case
EMPTY, DEAD = "Empty", "Dead"

NO_TOPOLOGIES = (
    "the server does not support topology descriptions (StreamsGroupDescribe v1): "
    "ask a broker of Kafka 4.4 or newer, or Headgate in front of an older one"
)
_NO_STREAMS_GROUPS = "the server does not support streams groups (StreamsGroupDescribe): they came with Kafka 4.1"


class TopologyStatus(IntEnum):
    """`TopologyDescriptionStatus` of StreamsGroupDescribe v1."""

    NOT_REQUESTED = 0
    NOT_STORED = 1
    ERROR = 2
    AVAILABLE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    group: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutline:
    """What one describe says of a group; `error_code` 69 is a group that is not there, or is no streams group."""

    group: str
    error_code: int = 0
    error_text: str | None = None
    state: str = ""
    topology_epoch: int | None = None
    member_ids: tuple[str, ...] = ()


async def describe_streams_groups(dialler: Dialler, groups: Iterable[str]) -> dict[str, GroupOutline]:
    """One outline for each group, whatever became of the others; a `ClusterError` when no broker answers."""
    async with Connections(dialler) as connections:
        answers = await on_coordinators(connections, groups, _describe)
    return {group: _outline(group, answer) for group, answer in answers.items()}


def _outline(group: str, answer: DescribedStreamsGroup | GroupError) -> GroupOutline:
    if isinstance(answer, GroupError):
        return GroupOutline(group=group, error_code=answer.code, error_text=answer.text)
    return GroupOutline(
        group=group,
        state=answer.group_state,
        topology_epoch=None if answer.topology is None else answer.topology.epoch,
        member_ids=tuple(member.member_id for member in answer.members),
    )


async def describe_group(
    connections: Connections, group: str, *, with_topology: bool = False
) -> DescribedStreamsGroup | GroupError:
    """The group as its coordinator describes it; with its topology's description only from servers that have them."""
    answers = await on_coordinators(connections, [group], _describe_with_topology if with_topology else _describe)
    return answers[group]


async def _describe(link: Link, groups: Sequence[str]) -> Mapping[str, DescribedStreamsGroup | GroupError]:
    request = StreamsGroupDescribeRequest(group_ids=tuple(groups))
    return await _described(link, request, lowest=0, otherwise=_NO_STREAMS_GROUPS)


async def _describe_with_topology(
    link: Link, groups: Sequence[str]
) -> Mapping[str, DescribedStreamsGroup | GroupError]:
    request = StreamsGroupDescribeRequest(group_ids=tuple(groups), include_topology_description=True)
    return await _described(link, request, lowest=1, otherwise=NO_TOPOLOGIES)


async def _described(
    link: Link, request: StreamsGroupDescribeRequest, *, lowest: int, otherwise: str
) -> Mapping[str, DescribedStreamsGroup | GroupError]:
    try:
        answer = await link.ask(
            _STREAMS_GROUP_DESCRIBE, request, StreamsGroupDescribeResponse, lowest=lowest, highest=1
        )
    except UnsupportedError:
        raise UnsupportedError(otherwise) from None
    return {
        one.group_id: group_error(one.error_code, one.error_message) if one.error_code else one for one in answer.groups
    }


async def delete_group(connections: Connections, group: str) -> GroupError | None:
    """Delete an empty streams group; why it was not deleted, or None."""
    described = await describe_group(connections, group)
    if isinstance(described, GroupError):
        if described.code == GROUP_ID_NOT_FOUND:
            return GroupError(GROUP_ID_NOT_FOUND, f"Group '{group}' does not exist or is not a streams group.")
        return described
    if described.group_state == DEAD:
        return GroupError(GROUP_ID_NOT_FOUND, f"Streams group '{group}' group state is DEAD.")
    if described.group_state != EMPTY:
        return GroupError(_NON_EMPTY_GROUP, f"Streams group '{group}' is not EMPTY.")
    # When the answer is lost nobody knows whether it is deleted: asked again, the broker would say that it never was.
    answers = await on_coordinators(connections, [group], _delete, repeatable=False)
    return answers[group]


async def _delete(link: Link, groups: Sequence[str]) -> Mapping[str, GroupError | None]:
    request = DeleteGroupsRequest(groups_names=tuple(groups))
    answer = await link.ask(_DELETE_GROUPS, request, DeleteGroupsResponse, lowest=0, highest=3)
    return {
        one.group_id: group_error(one.error_code, one.error_message) if one.error_code else None
        for one in answer.results
    }


async def list_streams_groups(connections: Connections, states: Iterable[str] = ()) -> tuple[GroupListing, ...]:
    """The streams groups of every broker, by name; with `states` only those in one of them."""
    return await list_groups(connections, _STREAMS, states)


async def list_groups(connections: Connections, kind: str, states: Iterable[str] = ()) -> tuple[GroupListing, ...]:
    """The groups of one type, of every broker, by name."""
    request = ListGroupsRequest(states_filter=tuple(states), types_filter=(kind,))
    link = await connections.bootstrap()
    asked = MetadataRequest(topics=(), allow_auto_topic_creation=False)
    cluster = await link.ask(_METADATA, asked, MetadataResponse, lowest=4, highest=12)
    found: dict[str, GroupListing] = {}
    for broker in cluster.brokers:
        answer = await _list_one(connections, Address(broker.host, broker.port), request)
        for one in answer.groups:
            if one.group_type.lower() == kind.lower():
                found[one.group_id] = GroupListing(group=one.group_id, state=one.group_state)
    return tuple(found[group] for group in sorted(found))


async def _list_one(connections: Connections, address: Address, request: ListGroupsRequest) -> ListGroupsResponse:
    """A list without one broker's groups would be wrong: try until the time is over, then fail."""
    patience = connections.patience()
    while True:
        try:
            link = await connections.to(address)
            answer = await link.ask(_LIST_GROUPS, request, ListGroupsResponse, lowest=5, highest=5)
        except UnsupportedError:
            raise
        except ClusterError:
            if not await patience.lasts():
                raise
            continue
        if not answer.error_code:
            return answer
        passing = answer.error_code in {COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE}
        if not passing or not await patience.lasts():
            raise ClusterError(f"{address} does not list its groups: {group_error(answer.error_code).text}")
