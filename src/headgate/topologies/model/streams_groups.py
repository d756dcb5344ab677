"""All Streams groups of one worker: heartbeats, describes, pushes, deletions and facts go in, decisions come out.

One rule: synchronous and without I/O. Who calls it does what the effects say, and calls back. Calls of a store are one
at a time for each group: begin, then barrier, then the store, then settle, and only then the next.

Bounded: a group of which nothing is stored or failed is dropped when `most_groups` others were heard since; that costs
a describe and perhaps a request too many, and the lives of a group that was deleted are named from the first one again.
A group of which something is known stays until it is deleted or gone.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from headgate.topologies.model import group_rules, push_gate
from headgate.topologies.model.group_events import (
    AlreadyHeld,
    DeletionSettled,
    Described,
    Effect,
    Event,
    HeartbeatSeen,
    Joined,
    Outcome,
    PushConfirmed,
    PushSettled,
    StoreDeletion,
    StoreLost,
    StorePush,
    VoucherLeft,
)
from headgate.topologies.model.group_life import NONE, UNCERTAIN, GroupLife, Held, Keeper
from headgate.topologies.model.push_backoff import CLASSIC_JOIN_EPOCH, PushBackoff
from headgate.topologies.model.push_checks import GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID
from headgate.topologies.model.push_gate import GroupFacts, HeartbeatAnswer, HeartbeatRequest, Verdict
from headgate.topologies.model.roster import SESSION_S, Roster

GROUP_AUTHORIZATION_FAILED = 30
FENCED_MEMBER_EPOCH = 110
_NOT_IN_THE_GROUP = frozenset({UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND})

MOST_GROUPS = 50_000


@dataclass(frozen=True, slots=True)
class HeartbeatDecision:
    """`verdict` ASK: set TopologyDescriptionRequired; the window is armed."""

    verdict: Verdict
    effects: tuple[Effect, ...] = ()


class ClassicJoin(StrEnum):
    """What to do with a JoinGroup for a group of which a topology is stored."""

    FORWARD = "forward"
    REFUSE = "refuse"
    DELETE_FIRST = "delete_first"


class StreamsGroups:
    """The state machine of `[topologies]`; `backoff` and `roster` are its own."""

    def __init__(self, keeper: Keeper, *, session_s: float = SESSION_S, most_groups: int = MOST_GROUPS) -> None:
        self.backoff = PushBackoff(most_groups=most_groups)
        self.roster = Roster(session_s=session_s)
        self._keeper = keeper
        self._most = most_groups
        # Those of which something must be kept, and the others, which may be dropped, oldest first.
        self._kept: dict[str, GroupLife] = {}
        self._light: OrderedDict[str, GroupLife] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept) + len(self._light)

    def life(self, group: str) -> GroupLife:
        """What is known of a group; of an unknown one, nothing."""
        life = self._kept.get(group) or self._light.get(group)
        return life if life is not None else GroupLife(group=group, keeper=self._keeper)

    def handle(self, group: str, event: Event) -> tuple[Effect, ...]:
        """Any event of `group_events`; facts that are read come in this way."""
        life = self.life(group)
        step = group_rules.handle(life, event)
        if step.life is not life or group not in self._kept:
            self._keep(step.life)
        return step.effects

    # --- heartbeats

    def on_heartbeat(
        self,
        connection: int,
        request: HeartbeatRequest,
        answer: HeartbeatAnswer,
        *,
        now: float,
        jitter: float,
        selected: bool = True,
        store: bool = True,
    ) -> HeartbeatDecision:
        """A heartbeat was answered by the broker: take note, and decide whether its member is asked.

        `selected` and `store` are the configuration's; a v0 heartbeat is noted too, and never asked.
        """
        can_push = request.api_version >= push_gate.FIRST_VERSION
        effects = self._note(
            connection, request, answer, now, can_push=can_push, may_ask=can_push and selected and store
        )
        if not can_push:
            return HeartbeatDecision(Verdict.OLD_VERSION, effects)
        life = self.life(request.group)
        verdict = push_gate.decide(request, answer, self._facts(life, request.member, now, selected, store), now)
        if verdict is Verdict.ASK and not self.backoff.arm_if_not_active(
            request.group, life.current_epoch, now, jitter
        ):
            verdict = Verdict.BACKING_OFF
        return HeartbeatDecision(verdict, effects)

    def _note(
        self,
        connection: int,
        request: HeartbeatRequest,
        answer: HeartbeatAnswer,
        now: float,
        *,
        can_push: bool,
        may_ask: bool,
    ) -> tuple[Effect, ...]:
        group, member = request.group, request.member
        if answer.error_code != 0:
            if answer.error_code in _NOT_IN_THE_GROUP:
                self._left(group, member, now)
            elif answer.error_code == FENCED_MEMBER_EPOCH:
                self.roster.fenced(group, member)
            elif answer.error_code == GROUP_AUTHORIZATION_FAILED:
                self.roster.refused(connection, group, member)
            return ()
        if request.leaves:
            self._left(group, member, now)
            return ()
        known = not request.joins or answer.stale or self.roster.has_beside(group, member, request.process, now)
        self.roster.heard(group, member, connection, now, request.process)
        seen = HeartbeatSeen(now=now, can_push=may_ask)
        if not request.joins and request.topology_epoch is None:
            return self.handle(group, seen)
        epoch = None if answer.stale else request.topology_epoch
        joined = Joined(member=member, known=known, can_push=can_push, topology_epoch=epoch)
        return self.handle(group, joined) + self.handle(group, seen)

    def _left(self, group: str, member: str, now: float) -> None:
        self.roster.left(group, member)
        vouchers = self.life(group).vouchers
        if member in vouchers:
            self.handle(group, VoucherLeft(others_alive=self.roster.alive(group, vouchers, now)))

    def _facts(self, life: GroupLife, member: str, now: float, selected: bool, store: bool) -> GroupFacts:
        window = self.backoff.window(life.group)
        stored, vouches, waits = life.stored_epoch, False, False
        if life.in_doubt and ((held := life.held) is None or held.epoch == life.current_epoch):
            vouches = held is not None and member in life.vouchers
            # A newcomer goes first; once it let a window pass, anybody may be asked.
            unasked = window is None or window.epoch != life.current_epoch
            waits = unasked and member not in life.newcomers and self.roster.alive(life.group, life.newcomers, now)
        elif stored >= 0 and member not in life.vouchers and self._is_orphaned(life, now):
            stored = UNCERTAIN
        return GroupFacts(
            store=store,
            selected=selected,
            current_epoch=life.current_epoch,
            stored_epoch=stored,
            failed_epoch=life.failed_epoch,
            vouches=vouches,
            newcomer_waits=waits,
            window=window,
        )

    def _is_orphaned(self, life: GroupLife, now: float) -> bool:
        return life.orphaned or self.roster.silent(life.group, life.vouchers, now)

    # --- pushes

    def begin_push(
        self, group: str, member: str, epoch: int, content_hash: str, *, now: float
    ) -> AlreadyHeld | StorePush:
        """A push that passed every check: settle `AlreadyHeld` by `confirm_push`, `StorePush` by `settle_push`."""
        life = self.life(group)
        vouched = self.roster.alive(group, life.vouchers, now)
        life, plan = group_rules.plan_push(life, member=member, epoch=epoch, content_hash=content_hash, vouched=vouched)
        self._keep(life)
        return plan

    def confirm_push(self, group: str, member: str, epoch: int, *, now: float) -> tuple[Effect, ...]:
        """The member pushed what is held: NONE without a store call."""
        self.backoff.clear(group, epoch)
        return self.handle(group, PushConfirmed(member=member, newcomers_alive=self._newcomers_alive(group, now)))

    def settle_push(self, push: StorePush, outcome: Outcome, *, now: float, jitter: float) -> tuple[Effect, ...]:
        """The store answered. The effects are written and read back before the client is answered."""
        if outcome is Outcome.TRANSIENT:
            self.backoff.arm_or_extend(push.group, push.epoch, now, jitter)
        else:
            self.backoff.clear(push.group, push.epoch)
        alive = self._newcomers_alive(push.group, now)
        return self.handle(push.group, PushSettled(push=push, outcome=outcome, newcomers_alive=alive))

    def _newcomers_alive(self, group: str, now: float) -> bool:
        return self.roster.alive(group, self.life(group).newcomers, now)

    # --- describes

    def on_described(
        self, group: str, *, error_code: int, topology_epoch: int | None, members: Collection[str]
    ) -> Held | None:
        """A describe was answered: what its topology description may be read from, None is NOT_STORED.

        With an error code the status is 0, whatever this returns; the error is the group's.
        """
        event = Described(error_code=error_code, topology_epoch=topology_epoch, members=members)
        self.handle(group, event)
        if error_code != 0:
            return None
        return group_rules.served(self.life(group), topology_epoch=topology_epoch, members=members)

    def on_lost(self, group: str) -> tuple[Effect, ...]:
        """The store answered nothing for what it should have."""
        return self.handle(group, StoreLost())

    # --- the end of a group

    def begin_deletion(self, group: str) -> StoreDeletion:
        """DeleteGroups, cleanup, classic join, `topology forget`: the store first, the group after."""
        life, plan = group_rules.plan_deletion(self.life(group))
        self._keep(life)
        return plan

    def settle_deletion(self, group: str) -> tuple[Effect, ...]:
        """The store has deleted it."""
        self.backoff.clear_group(group)
        self.roster.forget(group)
        return self.handle(group, DeletionSettled())

    def knows(self, group: str) -> bool:
        """Whether anything is kept of the group."""
        return group in self._kept or group in self._light or self.backoff.window(group) is not None

    def stored_groups(self) -> Iterator[str]:
        """Those that the periodic cleanup describes: of which something is stored, or failed for good."""
        return iter([group for group, life in self._kept.items() if life.must_delete or life.failed_epoch != NONE])

    def on_cycle(
        self, group: str, *, error_code: int, topology_epoch: int | None = None, members: Collection[str] = ()
    ) -> bool:
        """What the cleanup's describe answered; True: the group is gone, delete its description."""
        event = Described(error_code=error_code, topology_epoch=topology_epoch, members=members, in_cycle=True)
        self.handle(group, event)
        return self.life(group).gone

    def classic_join(self, group: str, *, now: float) -> ClassicJoin:
        """Before a JoinGroup goes to an empty Streams group; REFUSE and a failed deletion: REBALANCE_IN_PROGRESS."""
        if not self.life(group).must_delete:
            return ClassicJoin.FORWARD
        if self.backoff.is_active(group, CLASSIC_JOIN_EPOCH, now):
            return ClassicJoin.REFUSE
        return ClassicJoin.DELETE_FIRST

    def classic_join_failed(self, group: str, *, now: float, jitter: float) -> None:
        """The deletion failed: classic clients retry at once, the store is left alone for a window."""
        self.backoff.arm_if_not_active(group, CLASSIC_JOIN_EPOCH, now, jitter)

    # --- bookkeeping

    def _keep(self, life: GroupLife) -> None:
        if life.matters:
            self._light.pop(life.group, None)
            self._kept[life.group] = life
            return
        self._kept.pop(life.group, None)
        self._light[life.group] = life
        self._light.move_to_end(life.group)
        if len(self._light) > self._most:
            self._light.popitem(last=False)
