"""One Streams group as its coordinator has it, asked on a client's own connection: with the client's rights."""

from dataclasses import dataclass
from typing import Final

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiVersion
from headgate.proxy.interceptor import Session
from headgate.topologies.model.push_checks import GROUP_ID_NOT_FOUND
from headgate.wire.messages.streams import DescribedStreamsGroup, StreamsGroupDescribeRequest

EMPTY: Final = "Empty"
_VERSION: Final = ApiVersion(0)
_SECONDS: Final = 10.0  # behind a long poll of the same connection it waits


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """What a describe says; `topology_epoch` is None when the group has no topology yet."""

    error_code: int
    error_message: str | None
    state: str
    topology_epoch: int | None
    members: tuple[str, ...]

    @property
    def is_gone(self) -> bool:
        return self.error_code == GROUP_ID_NOT_FOUND

    @property
    def is_empty(self) -> bool:
        return self.error_code == 0 and self.state == EMPTY


def seen(group: DescribedStreamsGroup) -> GroupSeen:
    return GroupSeen(
        error_code=group.error_code,
        error_message=group.error_message,
        state=group.group_state,
        topology_epoch=None if group.topology is None else group.topology.epoch,
        members=tuple(member.member_id for member in group.members),
    )


async def ask(session: Session, group: str) -> GroupSeen:
    """`ClusterError` when there is no answer."""
    answer = await session.call(StreamsGroupDescribeRequest(group_ids=(group,)), _VERSION, deadline=_SECONDS)
    for described in answer.groups:
        if described.group_id == group:
            return seen(described)
    raise ClusterError(f"the broker did not describe the group {group!r}")
