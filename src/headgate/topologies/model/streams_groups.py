"""All Streams groups of one worker: heartbeats, describes, pushes, deletions and records go in, decisions come out.

Synchronous and without I/O: the caller writes the returned facts, makes the store calls, and reports back. Calls of a
store are one at a time for each group: begin, then the barrier, then the store, then settle, and only then the next.

Bounded: a group without a stored or failed description is dropped when `max_groups` others were heard of since; that
costs a describe and perhaps one solicitation too many, and the incarnations of a deleted group are named from the first
one again. Every other group stays until its description is deleted or the group is gone.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from headgate.facts import TopologyEpochsSet
from headgate.topologies.model import push_gate
from headgate.topologies.model.group_members import SESSION_S, GroupMembers
from headgate.topologies.model.group_state import (
    NONE,
    UNCERTAIN,
    Bookkeeping,
    DeletedVersion,
    GroupState,
    PushOutcome,
    StoreDeletion,
    StoredVersion,
    StorePush,
    Transition,
)
from headgate.topologies.model.push_gate import (
    CLASSIC_JOIN_EPOCH,
    MAX_GROUPS,
    GateInputs,
    HeartbeatResult,
    MemberHeartbeat,
    PushBackoff,
    Solicitation,
)
from headgate.wire.errors import ErrorCode

_NOT_IN_THE_GROUP = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})


@dataclass(frozen=True, slots=True)
class HeartbeatDecision:
    """SOLICIT sets TopologyDescriptionRequired, and the window is armed; `write` and `describe` are to be done."""

    solicitation: Solicitation
    write: TopologyEpochsSet | None = None
    describe: bool = False


class ClassicJoin(StrEnum):
    """What to do with a JoinGroup for a group whose topology description is stored."""

    FORWARD = "forward"
    REJECT = "reject"
    DELETE_FIRST = "delete_first"


class GroupCounts(NamedTuple):
    """How many groups are known, have an unconfirmed or uncertain description, and failed permanently."""

    known: int
    unconfirmed: int
    failed: int


class StreamsGroups:
    """The state machine of `[topologies]`, with its own `backoff` and `members`."""

    def __init__(self, bookkeeping: Bookkeeping, *, session_s: float = SESSION_S, max_groups: int = MAX_GROUPS) -> None:
        self.backoff = PushBackoff(max_groups=max_groups)
        self.members = GroupMembers(session_s=session_s)
        self._bookkeeping = bookkeeping
        self._max_groups = max_groups
        self._kept: dict[str, GroupState] = {}
        self._droppable: OrderedDict[str, GroupState] = OrderedDict()  # oldest first
        self._unconfirmed = 0
        self._failed = 0

    def __len__(self) -> int:
        return len(self._kept) + len(self._droppable)

    def counts(self) -> GroupCounts:
        return GroupCounts(known=len(self), unconfirmed=self._unconfirmed, failed=self._failed)

    def state(self, group: str) -> GroupState:
        """The state of a group; an unknown one has the initial state."""
        state = self._kept.get(group) or self._droppable.get(group)
        return state if state is not None else GroupState(group=group, bookkeeping=self._bookkeeping)

    # --- records that were read

    def on_epochs_read(self, epochs: TopologyEpochsSet, *, is_own: bool) -> None:
        self._keep(self.state(epochs.group).on_epochs_read(epochs, is_own=is_own))

    def on_epochs_removed(self, group: str) -> None:
        self._keep(self.state(group).on_epochs_removed())
        self._drop_if_nothing_is_left(group)

    def on_record_read(self, group: str, record: StoredVersion | DeletedVersion | None) -> None:
        self._keep(self.state(group).on_record_read(record))
        if record is None:
            self._drop_if_nothing_is_left(group)

    def on_state_topic_replaced(self) -> None:
        """The state topic is a new, empty one: no epochs are stored in it."""
        for group in self.groups_to_clean_up():
            if (epochs := self.state(group).epochs) is not None:
                self.on_epochs_read(replace(epochs, stored_epoch=NONE, failed_epoch=NONE), is_own=False)

    def on_write_failed(self, group: str) -> None:
        self._keep(self.state(group).on_write_failed())

    # --- heartbeats

    def on_heartbeat(
        self,
        connection: int,
        heartbeat: MemberHeartbeat,
        result: HeartbeatResult,
        *,
        now: float,
        jitter: float,
        is_selected: bool = True,
        has_store: bool = True,
    ) -> HeartbeatDecision:
        """The broker responded to a heartbeat: record it, and decide whether its member is solicited.

        `is_selected` and `has_store` are the configuration's. A v0 heartbeat is recorded too, and never solicited.
        """
        can_push = heartbeat.api_version >= push_gate.FIRST_VERSION
        write, describe = self._record(
            connection, heartbeat, result, now, can_push=can_push, may_solicit=can_push and is_selected and has_store
        )
        if not can_push:
            return HeartbeatDecision(Solicitation.OLD_VERSION, write, describe)
        state = self.state(heartbeat.group)
        inputs = self._gate_inputs(state, heartbeat.member, now, is_selected=is_selected, has_store=has_store)
        decision = push_gate.solicitation(heartbeat, result, inputs, now)
        if decision is Solicitation.SOLICIT and not self.backoff.arm_if_not_active(
            heartbeat.group, state.current_epoch, now, jitter
        ):
            decision = Solicitation.BACKING_OFF
        return HeartbeatDecision(decision, write, describe)

    def _record(
        self,
        connection: int,
        heartbeat: MemberHeartbeat,
        result: HeartbeatResult,
        now: float,
        *,
        can_push: bool,
        may_solicit: bool,
    ) -> tuple[TopologyEpochsSet | None, bool]:
        """The fact to write, and whether to describe the group."""
        group, member = heartbeat.group, heartbeat.member
        if result.error_code != 0 or heartbeat.is_leave:
            self._record_end(connection, group, member, result.error_code, now)
            return None, False
        is_known = (
            not heartbeat.is_join
            or result.is_stale
            or self.members.has_other_of_process(group, member, heartbeat.process, now)
        )
        self.members.record_heartbeat(group, member, connection, now, heartbeat.process)
        write = None
        if heartbeat.is_join or heartbeat.topology_epoch is not None:
            epoch = None if result.is_stale else heartbeat.topology_epoch
            state = self.state(group)
            write = self._apply(state.on_join(member, is_known=is_known, can_push=can_push, topology_epoch=epoch))
        beat = self.state(group).on_heartbeat(now=now, may_solicit=may_solicit)
        retried = self._apply(beat)
        return write or retried, beat.describe

    def _record_end(self, connection: int, group: str, member: str, error_code: int, now: float) -> None:
        """A heartbeat that left the group (error code 0) or was rejected."""
        if error_code == ErrorCode.FENCED_MEMBER_EPOCH:
            self.members.fence(group, member)
        elif error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self.members.revoke(connection, group, member)
        if error_code not in _NOT_IN_THE_GROUP:
            return
        self.members.remove(group, member)
        state = self.state(group)
        if member in state.confirmed_by:
            alive = self.members.is_any_alive(group, state.confirmed_by, now)
            self._keep(state.on_confirmer_left(others_alive=alive))

    def _gate_inputs(
        self, state: GroupState, member: str, now: float, *, is_selected: bool, has_store: bool
    ) -> GateInputs:
        window = self.backoff.window(state.group)
        stored_epoch, has_confirmed, waits = state.stored_epoch, False, False
        if state.is_unconfirmed and ((stored := state.stored) is None or stored.epoch == state.current_epoch):
            has_confirmed = stored is not None and member in state.confirmed_by
            # A new member goes first; once it let a window pass, any member may be solicited.
            is_first = window is None or window.epoch != state.current_epoch
            waits = (
                is_first
                and member not in state.new_members
                and self.members.is_any_alive(state.group, state.new_members, now)
            )
        elif stored_epoch >= 0 and member not in state.confirmed_by and self._have_confirmers_left(state, now):
            stored_epoch = UNCERTAIN
        return GateInputs(
            has_store=has_store,
            is_selected=is_selected,
            current_epoch=state.current_epoch,
            stored_epoch=stored_epoch,
            failed_epoch=state.failed_epoch,
            has_confirmed=has_confirmed,
            waits_for_new_member=waits,
            window=window,
        )

    def _have_confirmers_left(self, state: GroupState, now: float) -> bool:
        return state.confirmers_left or self.members.are_all_expired(state.group, state.confirmed_by, now)

    # --- pushes

    def is_stored(self, group: str, epoch: int, content_hash: str) -> bool:
        """Whether exactly this description is stored."""
        stored = self.state(group).stored
        return stored is not None and (stored.epoch, stored.hash) == (epoch, content_hash)

    def begin_push(self, group: str, member: str, epoch: int, content_hash: str, *, now: float) -> StorePush | None:
        """Begin a push that passed every check; end it with `settle_push`, or if it is None with `confirm_push`."""
        state = self.state(group)
        alive = self.members.is_any_alive(group, state.confirmed_by, now)
        state, plan = state.plan_push(member, epoch, content_hash, confirmer_alive=alive)
        self._keep(state)
        return plan

    def confirm_push(self, group: str, member: str, epoch: int, *, now: float) -> TopologyEpochsSet | None:
        """The member pushed the stored description; the returned fact is written before the response is sent."""
        self.backoff.clear(group, epoch)
        alive = self._are_new_members_alive(group, now)
        return self._apply(self.state(group).on_push_confirmed(member, new_members_alive=alive))

    def settle_push(
        self, push: StorePush, outcome: PushOutcome, *, now: float, jitter: float
    ) -> TopologyEpochsSet | None:
        """The store responded; the returned fact is written and read back before the response is sent."""
        if outcome is PushOutcome.TRANSIENT:
            self.backoff.arm_or_extend(push.group, push.epoch, now, jitter)
        else:
            self.backoff.clear(push.group, push.epoch)
        alive = self._are_new_members_alive(push.group, now)
        return self._apply(self.state(push.group).on_push_settled(push, outcome, new_members_alive=alive))

    def refuse_push(self, group: str, member: str, epoch: int, *, now: float) -> TopologyEpochsSet | None:
        """A push that no store would accept; the returned fact is written before the response is sent."""
        self.backoff.clear(group, epoch)
        alive = self._are_new_members_alive(group, now)
        return self._apply(self.state(group).on_push_refused(member, epoch, new_members_alive=alive))

    def _are_new_members_alive(self, group: str, now: float) -> bool:
        return self.members.is_any_alive(group, self.state(group).new_members, now)

    # --- describes

    def on_described(
        self, group: str, *, error_code: int, topology_epoch: int | None, members: Collection[str]
    ) -> StoredVersion | None:
        """The broker described the group: the version that the response shows, None for NOT_STORED.

        With an error code the status is 0 whatever this returns.
        """
        state = self.state(group).on_described(error_code=error_code, topology_epoch=topology_epoch, members=members)
        self._keep(state)
        return None if error_code else state.version_to_show(topology_epoch=topology_epoch, members=members)

    def on_missing(self, group: str) -> TopologyEpochsSet | None:
        """The store returned nothing for a stored epoch."""
        return self._apply(self.state(group).on_missing())

    def disown(self, group: str) -> TopologyEpochsSet | None:
        """The stored description shall not be shown any more, and another process has the store open."""
        return self._apply(self.state(group).on_missing(keep_failure=False))

    # --- the end of a group

    def begin_deletion(self, group: str) -> StoreDeletion | None:
        """DeleteGroups, cleanup, classic join and `topology forget`: first the store (unless None), then the group."""
        state, plan = self.state(group).plan_deletion()
        self._keep(state)
        return plan

    def settle_deletion(self, group: str) -> TopologyEpochsSet | None:
        """The store has deleted the description."""
        self.backoff.clear_group(group)
        self.members.remove_group(group)
        return self._apply(self.state(group).on_deletion_settled())

    def is_known(self, group: str) -> bool:
        return group in self._kept or group in self._droppable or self.backoff.window(group) is not None

    def groups_to_clean_up(self) -> list[str]:
        """The groups that the periodic cleanup describes: those with a stored or permanently failed description."""
        return [group for group, state in self._kept.items() if state.is_stored_or_failed]

    def groups_ended_before(self, at: int) -> list[str]:
        """Groups of which nothing is stored, and whose epochs in the state topic say so since this time or earlier."""
        return [
            group
            for group, state in self._droppable.items()
            if state.epochs is not None
            and state.epochs.at <= at
            and (state.epochs.stored_epoch, state.epochs.failed_epoch) == (NONE, NONE)
        ]

    def on_cleanup_described(
        self, group: str, *, error_code: int, topology_epoch: int | None = None, members: Collection[str] = ()
    ) -> bool:
        """The cleanup described the group; True: the group is gone, delete its description."""
        state = self.state(group).on_described(
            error_code=error_code, topology_epoch=topology_epoch, members=members, in_cleanup=True
        )
        self._keep(state)
        return state.is_gone

    def classic_join(self, group: str, *, now: float) -> ClassicJoin:
        """Before a JoinGroup goes to an empty Streams group; REJECT is answered with REBALANCE_IN_PROGRESS."""
        if not self.state(group).must_delete:
            return ClassicJoin.FORWARD
        if self.backoff.is_active(group, CLASSIC_JOIN_EPOCH, now):
            return ClassicJoin.REJECT
        return ClassicJoin.DELETE_FIRST

    def on_classic_join_failed(self, group: str, *, now: float, jitter: float) -> None:
        """The deletion failed. Classic clients retry at once, so the store is left alone for a window."""
        self.backoff.arm_if_not_active(group, CLASSIC_JOIN_EPOCH, now, jitter)

    # --- keeping states

    def _count(self, state: GroupState, by: int) -> None:
        self._unconfirmed += by * (state.stored_epoch == UNCERTAIN)
        self._failed += by * (state.failed_epoch != NONE)

    def _apply(self, transition: Transition) -> TopologyEpochsSet | None:
        self._keep(transition.state)
        return transition.write

    def _drop_if_nothing_is_left(self, group: str) -> None:
        """Drop a group whose records were removed, unless it has been heard of since it was deleted."""
        state = self._droppable.get(group)
        if state is not None and (state.record, state.epochs, state.current_epoch) == (None, None, NONE):
            del self._droppable[group]

    def _keep(self, state: GroupState) -> None:
        before = self._kept.get(state.group)
        if state is before:
            return
        if before is not None:
            self._count(before, -1)
        if state.must_be_kept:
            self._count(state, 1)
            self._droppable.pop(state.group, None)
            self._kept[state.group] = state
            return
        self._kept.pop(state.group, None)
        self._droppable[state.group] = state
        self._droppable.move_to_end(state.group)
        if len(self._droppable) > self._max_groups:
            self._droppable.popitem(last=False)
