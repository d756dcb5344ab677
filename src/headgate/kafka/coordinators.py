"""Asking the coordinators of groups: who they are, and the same call on each, for all of its groups at once.

One rule: a group's failure is a value beside the other groups' answers. While a coordinator loads, moves or is away
(14, 15, 16) its groups are asked again, with growing pauses, until the time of the errand is over; then that error is
the answer.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from headgate.base.errors import ClusterError
from headgate.base.ids import NodeId
from headgate.config.addresses import Address
from headgate.kafka.connections import Connections, Link, UnsupportedError
from headgate.wire.messages.cluster import Coordinator as FoundCoordinator
from headgate.wire.messages.cluster import FindCoordinatorRequest, FindCoordinatorResponse

UNKNOWN_SERVER_ERROR = -1
NETWORK_EXCEPTION = 13
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
UNSUPPORTED_VERSION = 35
GROUP_ID_NOT_FOUND = 69

_FIND_COORDINATOR = 10
_AGAIN = frozenset({COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})
_GROUPS_A_CALL = 200

# Kafka's own words (org.apache.kafka.common.protocol.Errors) for answers that bring none.
_TEXTS = {
    3: "This server does not host this topic-partition.",
    5: "There is no leader for this topic-partition as we are in the middle of a leadership election.",
    UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
    COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    NOT_COORDINATOR: "This is not the correct coordinator.",
    24: "The group id is invalid.",
    29: "Topic authorization failed.",
    30: "Group authorization failed.",
    31: "Cluster authorization failed.",
    UNSUPPORTED_VERSION: "The version of API is not supported.",
    68: "The group is not empty.",
    GROUP_ID_NOT_FOUND: "The group id does not exist.",
    134: "DeleteGroups could not complete.",
}

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class GroupError:
    """Why there is no answer for a group: Kafka's code, and the server's words or else Kafka's."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class Coordinator:
    node: NodeId
    address: Address


Call = Callable[[Link, Sequence[str]], Awaitable[Mapping[str, R | GroupError]]]


def group_error(code: int, message: str | None = None) -> GroupError:
    return GroupError(code, message or _TEXTS.get(code, f"Error {code}."))


async def on_coordinators(
    connections: Connections, groups: Iterable[str], call: Call[R], *, repeatable: bool = True
) -> dict[str, R | GroupError]:
    """`call` on the coordinator of each group; one that is not `repeatable` is not made again when its answer is lost.

    A `ClusterError` when no broker can be reached at all.
    """
    answers: dict[str, R | GroupError] = {}
    left = list(dict.fromkeys(groups))
    patience = connections.patience()
    while left:
        try:
            found = await find_coordinators(connections, left)
        except ClusterError:
            if not answers:
                raise
        else:
            answers |= await _ask_all(connections, found, call, repeatable=repeatable)
            left = [group for group in left if _is_passing(answers[group])]
        if left and not await patience.lasts():
            break
    return answers


async def find_coordinators(connections: Connections, groups: Iterable[str]) -> dict[str, Coordinator | GroupError]:
    """Who coordinates each group, as the bootstrap broker says now."""
    link = await connections.bootstrap()
    found: dict[str, Coordinator | GroupError] = {}
    for some in batches(groups):
        request = FindCoordinatorRequest(coordinator_keys=some)
        answer = await link.ask(_FIND_COORDINATOR, request, FindCoordinatorResponse, lowest=4, highest=6)
        said = {one.key: one for one in answer.coordinators}
        found |= {group: _coordinator(said.get(group)) for group in some}
    return found


def _coordinator(said: FoundCoordinator | None) -> Coordinator | GroupError:
    if said is None:
        return group_error(UNKNOWN_SERVER_ERROR)
    if said.error_code:
        return group_error(said.error_code, said.error_message)
    return Coordinator(NodeId(said.node_id), Address(said.host, said.port))


def batches(groups: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """The groups in portions that one call carries."""
    rest = iter(groups)
    while some := tuple(islice(rest, _GROUPS_A_CALL)):
        yield some


async def _ask_all(
    connections: Connections, found: Mapping[str, Coordinator | GroupError], call: Call[R], *, repeatable: bool
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
    """Never raises a `ClusterError`: one coordinator that is away takes nothing from the others."""
    answers: dict[str, R | GroupError] = {}
    try:
        link = await connections.to(address)
    except ClusterError as failure:
        return dict.fromkeys(groups, GroupError(COORDINATOR_NOT_AVAILABLE, str(failure)))
    for some in batches(groups):
        said: Mapping[str, R | GroupError]
        try:
            said = await call(link, some)
        except UnsupportedError as failure:
            said = dict.fromkeys(some, GroupError(UNSUPPORTED_VERSION, str(failure)))
        except ClusterError as failure:
            lost = GroupError(COORDINATOR_NOT_AVAILABLE if repeatable else NETWORK_EXCEPTION, str(failure))
            return {**dict.fromkeys(groups, lost), **answers}
        answers |= {group: said.get(group, group_error(UNKNOWN_SERVER_ERROR)) for group in some}
    return answers


def _is_passing(answer: object) -> bool:
    return isinstance(answer, GroupError) and answer.code in _AGAIN
