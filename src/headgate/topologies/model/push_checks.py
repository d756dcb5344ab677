"""Why a push is refused before any store sees it: the broker's checks, in its order and its words (KIP-1331).

One rule: a refusal is a value, an error code with its text. READ on the group is checked before all of these, by the
broker itself; the node types are checked after them (`topology.from_wire`). None of these arms the back-off.
"""

from dataclasses import dataclass

UNKNOWN_MEMBER_ID = 25
UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
GROUP_ID_NOT_FOUND = 69
GROUP_DELETION_FAILED = 134
STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135


@dataclass(frozen=True, slots=True)
class Refused:
    error_code: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    group: str
    member: str
    topology_epoch: int


def before_the_group(push: Push, *, store: bool) -> Refused | None:
    """What can be told from the request alone."""
    if not store:
        text = "The broker has no streams group topology description plugin configured."
        return Refused(UNSUPPORTED_VERSION, text)
    if not push.member:
        return Refused(INVALID_REQUEST, "MemberId can't be empty.")
    if not push.group:
        return Refused(INVALID_REQUEST, "GroupId can't be empty.")
    return None


def against_the_group(push: Push, *, found: bool, is_member: bool, current_epoch: int) -> Refused | None:
    """What needs the group as the coordinator has it."""
    if not found:
        return Refused(GROUP_ID_NOT_FOUND, f"Group {push.group} not found.")
    if not is_member:
        return Refused(UNKNOWN_MEMBER_ID, f"Member {push.member} is not a member of group {push.group}.")
    if push.topology_epoch != current_epoch:
        text = (
            f"Topology epoch {push.topology_epoch} does not match the group's current topology epoch {current_epoch}."
        )
        return Refused(INVALID_REQUEST, text)
    return None
