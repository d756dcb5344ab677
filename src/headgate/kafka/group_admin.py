"""Requests to group coordinators, and what an operator asks of groups: list, describe, delete.

Invariants: a group's failure is a value beside the other groups' results. While a coordinator loads, moves or is away
(14, 15, 16) its groups are asked again, with growing pauses, until the timeout; then that error is the result.
DeleteGroups would delete a group of any type, so a group is described before it is deleted.

    async with Connections(dialler) as connections:
        for group in await list_streams_groups(connections):
            ...
    outlines = await describe_streams_groups(dialler, ["orders", "billing"])
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import TypeVar

from headgate.base.errors import ClusterError
from headgate.base.ids import NodeId
from headgate.config.addresses import Address
from headgate.kafka.connections import BrokerConnection, Connections, Dialler, UnsupportedError
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.cluster import Coordinator, FindCoordinatorRequest, MetadataRequest
from headgate.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    ListGroupsRequest,
    ListGroupsResponse,
)
from headgate.wire.messages.share import DescribedShareGroup, ShareGroupDescribeRequest
from headgate.wire.messages.streams import DescribedStreamsGroup, StreamsGroupDescribeRequest

_AGAIN = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
_NOT_A_STREAMS_GROUP = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
_GROUPS_A_CALL = 200

# Kafka's own texts (org.apache.kafka.common.protocol.Errors) for responses without one.
_TEXTS: dict[int, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.LEADER_NOT_AVAILABLE: (
        "There is no leader for this topic-partition as we are in the middle of a leadership election."
    ),
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.GROUP_DELETION_FAILED: "DeleteGroups could not complete.",
}

STREAMS = "Streams"  # of the types of groups, written by brokers in either case
EMPTY, DEAD, STABLE = "Empty", "Dead", "Stable"

NO_TOPOLOGIES = (
    "the server does not support topology descriptions (StreamsGroupDescribe v1): "
    "ask a broker of Kafka 4.4 or newer, or Headgate in front of an older one"
)
_NO_STREAMS_GROUPS = "the server does not support streams groups (StreamsGroupDescribe): they came with Kafka 4.1"
_NO_SHARE_GROUPS = "the server does not support share groups (ShareGroupDescribe): they came with Kafka 4.1"

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class GroupError:
    """Why there is no result for a group: Kafka's code, and the text of the server or else of Kafka."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class GroupCoordinator:
    node: NodeId
    address: Address


Call = Callable[[BrokerConnection, Sequence[str]], Awaitable[Mapping[str, R | GroupError]]]


def group_error(code: int, message: str | None = None) -> GroupError:
    return GroupError(code, message or _TEXTS.get(code, f"Error {code}."))


async def on_coordinators(
    connections: Connections, groups: Iterable[str], call: Call[R], *, repeatable: bool = True
) -> dict[str, R | GroupError]:
    """Run `call` on the coordinator of each group; unless `repeatable` it is not repeated when a response is lost.

    A `ClusterError` when no broker can be reached at all.
    """
    answers: dict[str, R | GroupError] = {}
    left = list(dict.fromkeys(groups))
    delay = connections.retry_delay()
    while left:
        try:
            found = await find_coordinators(connections, left)
        except ClusterError:
            if not answers:
                raise
        else:
            answers |= await _ask_all(connections, found, call, repeatable=repeatable)
            left = [group for group in left if _is_passing(answers[group])]
        if left and not await delay.wait():
            break
    return answers


async def find_coordinators(
    connections: Connections, groups: Iterable[str]
) -> dict[str, GroupCoordinator | GroupError]:
    """The coordinator of each group, as a bootstrap broker knows it now."""
    link = await connections.bootstrap()
    found: dict[str, GroupCoordinator | GroupError] = {}
    for some in batches(groups):
        request = FindCoordinatorRequest(coordinator_keys=some)
        answer = await link.ask(request, lowest=4, highest=6)
        by_group = {one.key: one for one in answer.coordinators}
        found |= {group: _coordinator(by_group.get(group)) for group in some}
    return found


def _coordinator(found: Coordinator | None) -> GroupCoordinator | GroupError:
    if found is None:
        return group_error(ErrorCode.UNKNOWN_SERVER_ERROR)
    if found.error_code:
        return group_error(found.error_code, found.error_message)
    return GroupCoordinator(NodeId(found.node_id), Address(found.host, found.port))


def batches(groups: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """The groups in batches for one request."""
    rest = iter(groups)
    while some := tuple(islice(rest, _GROUPS_A_CALL)):
        yield some


async def _ask_all(
    connections: Connections, found: Mapping[str, GroupCoordinator | GroupError], call: Call[R], *, repeatable: bool
) -> dict[str, R | GroupError]:
    answers: dict[str, R | GroupError] = {}
    groups_of: dict[Address, list[str]] = defaultdict(list)
    for group, where in found.items():
        if isinstance(where, GroupError):
            answers[group] = where
        else:
            groups_of[where.address].append(group)
    async with asyncio.TaskGroup() as asking:
        tasks = [
            asking.create_task(_ask_one(connections, address, groups, call, repeatable=repeatable))
            for address, groups in groups_of.items()
        ]
    for task in tasks:
        answers |= task.result()
    return answers


async def _ask_one(
    connections: Connections, address: Address, groups: Sequence[str], call: Call[R], *, repeatable: bool
) -> dict[str, R | GroupError]:
    """The results of one coordinator; it never raises a `ClusterError`, so that the others' results are kept."""
    answers: dict[str, R | GroupError] = {}
    try:
        link = await connections.to(address)
    except ClusterError as failure:
        return dict.fromkeys(groups, GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(failure)))
    for some in batches(groups):
        results: Mapping[str, R | GroupError]
        try:
            results = await call(link, some)
        except UnsupportedError as failure:
            results = dict.fromkeys(some, GroupError(ErrorCode.UNSUPPORTED_VERSION, str(failure)))
        except ClusterError as failure:
            lost = GroupError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE if repeatable else ErrorCode.NETWORK_EXCEPTION, str(failure)
            )
            return {**dict.fromkeys(groups, lost), **answers}
        answers |= {group: results.get(group, group_error(ErrorCode.UNKNOWN_SERVER_ERROR)) for group in some}
    return answers


def _is_passing(answer: object) -> bool:
    return isinstance(answer, GroupError) and answer.code in _AGAIN


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
    """A described group; `error_code` 69 is a group that does not exist or is not a streams group."""

    group: str
    error_code: int = 0
    error_text: str | None = None
    state: str = ""
    topology_epoch: int | None = None
    member_ids: tuple[str, ...] = ()


async def describe_streams_groups(dialler: Dialler, groups: Iterable[str]) -> dict[str, GroupOutline]:
    """One outline for each group, independent of the others; a `ClusterError` when no broker responds."""
    async with Connections(dialler) as connections:
        answers = await on_coordinators(connections, groups, _describe)
    return {group: _outline(group, answer) for group, answer in answers.items()}


async def describe_groups(dialler: Dialler, groups: Iterable[str]) -> dict[str, GroupOutline]:
    """`describe_streams_groups`, and for those that are none, whether they are classic groups: not found is neither."""
    found = await describe_streams_groups(dialler, groups)
    others = [group for group, outline in found.items() if outline.error_code in _NOT_A_STREAMS_GROUP]
    if others:
        async with Connections(dialler) as connections:
            answers = await on_coordinators(connections, others, _describe_classic)
        found |= {group: _classic_outline(group, answer) for group, answer in answers.items()}
    return found


async def _describe_classic(link: BrokerConnection, groups: Sequence[str]) -> Mapping[str, DescribedGroup | GroupError]:
    answer = await link.ask(DescribeGroupsRequest(groups=tuple(groups)), lowest=0, highest=6)
    found: dict[str, DescribedGroup | GroupError] = {
        group: group_error(ErrorCode.UNKNOWN_SERVER_ERROR) for group in groups
    }
    for one in answer.groups:
        # Before version 6, a group that does not exist is dead and no error.
        code = one.error_code or (ErrorCode.GROUP_ID_NOT_FOUND if one.group_state == DEAD else 0)
        found[one.group_id] = group_error(code) if code else one
    return found


def _classic_outline(group: str, answer: DescribedGroup | GroupError) -> GroupOutline:
    if isinstance(answer, GroupError):
        return GroupOutline(group=group, error_code=answer.code, error_text=answer.text)
    members = tuple(member.member_id for member in answer.members)
    return GroupOutline(group=group, state=answer.group_state, member_ids=members)


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
    """The group as its coordinator describes it; `with_topology` only works with servers that support it."""
    answers = await on_coordinators(connections, [group], _describe_with_topology if with_topology else _describe)
    return answers[group]


async def _describe(link: BrokerConnection, groups: Sequence[str]) -> Mapping[str, DescribedStreamsGroup | GroupError]:
    request = StreamsGroupDescribeRequest(group_ids=tuple(groups))
    return await describe_with_request(link, request, lowest=0, otherwise=_NO_STREAMS_GROUPS)


async def _describe_with_topology(
    link: BrokerConnection, groups: Sequence[str]
) -> Mapping[str, DescribedStreamsGroup | GroupError]:
    request = StreamsGroupDescribeRequest(group_ids=tuple(groups), include_topology_description=True)
    return await describe_with_request(link, request, lowest=1, otherwise=NO_TOPOLOGIES)


async def describe_with_request(
    link: BrokerConnection, request: StreamsGroupDescribeRequest, *, lowest: int, otherwise: str
) -> Mapping[str, DescribedStreamsGroup | GroupError]:
    """Send the request; `UnsupportedError` with the text `otherwise` to a server without version `lowest`."""
    try:
        answer = await link.ask(request, lowest=lowest, highest=1)
    except UnsupportedError:
        raise UnsupportedError(otherwise) from None
    return {
        one.group_id: group_error(one.error_code, one.error_message) if one.error_code else one for one in answer.groups
    }


async def describe_share_groups(
    link: BrokerConnection, groups: Sequence[str]
) -> Mapping[str, DescribedShareGroup | GroupError]:
    """The groups as their coordinator describes them; for `on_coordinators`."""
    try:
        answer = await link.ask(ShareGroupDescribeRequest(group_ids=tuple(groups)), lowest=0, highest=1)
    except UnsupportedError:
        raise UnsupportedError(_NO_SHARE_GROUPS) from None
    return {
        one.group_id: group_error(one.error_code, one.error_message) if one.error_code else one for one in answer.groups
    }


async def delete_group(connections: Connections, group: str) -> GroupError | None:
    """Delete an empty streams group; None, or the reason why it was not deleted."""
    described = await describe_group(connections, group)
    if isinstance(described, GroupError):
        if described.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return GroupError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group '{group}' does not exist or is not a streams group."
            )
        return described
    if described.group_state == DEAD:
        return GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group '{group}' group state is DEAD.")
    if described.group_state != EMPTY:
        return GroupError(ErrorCode.NON_EMPTY_GROUP, f"Streams group '{group}' is not EMPTY.")
    # When the response is lost the group may be deleted: a second request would fail because the group does not exist.
    answers = await on_coordinators(connections, [group], _delete, repeatable=False)
    return answers[group]


async def _delete(link: BrokerConnection, groups: Sequence[str]) -> Mapping[str, GroupError | None]:
    request = DeleteGroupsRequest(groups_names=tuple(groups))
    answer = await link.ask(request, lowest=0, highest=3)
    return {
        one.group_id: group_error(one.error_code, one.error_message) if one.error_code else None
        for one in answer.results
    }


async def list_streams_groups(connections: Connections, states: Iterable[str] = ()) -> tuple[GroupListing, ...]:
    """The streams groups of every broker, by name; with `states` only those in one of them."""
    return await list_groups(connections, STREAMS, states)


async def list_groups(connections: Connections, kind: str, states: Iterable[str] = ()) -> tuple[GroupListing, ...]:
    """The groups of one type, of every broker, by name."""
    request = ListGroupsRequest(states_filter=tuple(states), types_filter=(kind,))
    link = await connections.bootstrap()
    asked = MetadataRequest(topics=(), allow_auto_topic_creation=False)
    cluster = await link.ask(asked, lowest=4, highest=12)
    found: dict[str, GroupListing] = {}
    for broker in cluster.brokers:
        answer = await _list_one(connections, Address(broker.host, broker.port), request)
        for one in answer.groups:
            if one.group_type.lower() == kind.lower():
                found[one.group_id] = GroupListing(group=one.group_id, state=one.group_state)
    return tuple(found[group] for group in sorted(found))


async def _list_one(connections: Connections, address: Address, request: ListGroupsRequest) -> ListGroupsResponse:
    """List one broker's groups, with retries until the timeout: a list without them would be wrong."""
    delay = connections.retry_delay()
    while True:
        try:
            link = await connections.to(address)
            answer = await link.ask(request, lowest=5, highest=5)
        except UnsupportedError:
            raise
        except ClusterError:
            if not await delay.wait():
                raise
            continue
        if not answer.error_code:
            return answer
        passing = answer.error_code in {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
        if not passing or not await delay.wait():
            raise ClusterError(f"{address} does not list its groups: {group_error(answer.error_code).text}")
