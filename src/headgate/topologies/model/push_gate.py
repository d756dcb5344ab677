"""Whether a heartbeat's answer asks its member for the topology: KIP-1331's gate, a function of what is known.

One rule: `decide` looks and never changes anything. Who gets ASK must then arm the group's window by
`PushBackoff.arm_if_not_active` before anything else happens, and asks only when that says yes.

The order is the shipped broker's. Ours are `NOT_SELECTED` (the operator's patterns), and the two that follow from a
description that a newcomer has put in doubt: whoever vouches for it already is not asked again, and nobody is asked in
place of a newcomer who is here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from headgate.topologies.model.push_backoff import Window

FIRST_VERSION = 1
STALE_TOPOLOGY = 0


class Verdict(StrEnum):
    """ASK, or why not; the values are labels of a metric."""

    ASK = "ask"
    OLD_VERSION = "old_version"
    NO_STORE = "no_store"
    NOT_SELECTED = "not_selected"
    LEAVING = "leaving"
    HEARTBEAT_FAILED = "heartbeat_failed"
    EPOCH_UNKNOWN = "epoch_unknown"
    STORED = "stored"
    FAILED = "failed"
    STALE = "stale_topology"
    VOUCHED = "vouched"
    ANOTHER_MEMBER = "another_member"
    BACKING_OFF = "backing_off"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """What matters of a StreamsGroupHeartbeat request, at the version that the client sent.

    `topology_epoch` is None when it carries no topology; `process` likewise (clients send both when they join).
    """

    api_version: int
    group: str
    member: str
    member_epoch: int
    process: str | None = None
    topology_epoch: int | None = None

    @property
    def joins(self) -> bool:
        return self.member_epoch == 0

    @property
    def leaves(self) -> bool:
        """-1, or -2 for a static member that will be back."""
        return self.member_epoch < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """What matters of its answer; `status_codes` are those of `Status`, empty when that is null."""

    error_code: int = 0
    status_codes: Sequence[int] = ()

    @property
    def stale(self) -> bool:
        return STALE_TOPOLOGY in self.status_codes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What is known of the group and of this member in it.

    `stored_epoch` is -1 for none and -2 for uncertain; what is in doubt counts as -2. `vouches`: this member confirmed
    what is stored. `newcomer_waits`: another member that is here put it in doubt and has not been heard.
    """

    store: bool = True
    selected: bool = True
    current_epoch: int = -1
    stored_epoch: int = -1
    failed_epoch: int = -1
    vouches: bool = False
    newcomer_waits: bool = False
    window: Window | None = None


def decide(request: HeartbeatRequest, answer: HeartbeatAnswer, group: GroupFacts, now: float) -> Verdict:
    """ASK or the first reason not to, in the broker's order."""
    if request.api_version < FIRST_VERSION:
        return Verdict.OLD_VERSION
    if not group.store:
        return Verdict.NO_STORE
    if not group.selected:
        return Verdict.NOT_SELECTED
    if request.leaves:
        return Verdict.LEAVING
    if answer.error_code != 0:
        return Verdict.HEARTBEAT_FAILED
    if group.current_epoch < 0:
        return Verdict.EPOCH_UNKNOWN
    if group.stored_epoch == group.current_epoch:
        return Verdict.STORED
    if group.failed_epoch == group.current_epoch:
        return Verdict.FAILED
    if answer.stale:
        return Verdict.STALE
    if group.vouches:
        return Verdict.VOUCHED
    if group.newcomer_waits:
        return Verdict.ANOTHER_MEMBER
    if group.window is not None and group.window.epoch == group.current_epoch and now < group.window.until:
        return Verdict.BACKING_OFF
    return Verdict.ASK
