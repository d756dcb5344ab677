"""The topology description of one Streams group: its state, and how each event changes that state.

Invariant: what must survive a restart (`epochs`, `record`) is what was read back from the topics, never what was only
written. Everything else may be lost at any moment; losing it costs one solicitation too many and nothing else.

A stored description belongs to one incarnation of a group, because a group can be deleted and re-created under the same
id and epoch without passing the gateway. A join by a new member therefore makes the stored description, or the stored
failure, *unconfirmed*: the new member is solicited, and until its push arrives the description is shown only while a
member that confirmed it is in the group. This is written to the state topic as stored epoch -2, so that other gateways
and the next start know it.

The name of an incarnation is derived from the group and the incarnation before, so that two gateways that store the
same description at the same time write the same version.
"""

# ruff: noqa: SLF001 - a transition goes on with the next state, which is of the same class

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from headgate.facts import TopologyEpochsSet
from headgate.wire.errors import ErrorCode

NONE = -1
UNCERTAIN = -2
CYCLES_UNTIL_GONE = 2
DESCRIBE_EVERY_S = 30.0
RETRY_EVERY_S = 5.0
# Further members push out the oldest; that costs one solicitation too many, or NOT_STORED until the next push.
MAX_MEMBERS_KEPT = 64


class Bookkeeping(Enum):
    """Where the stored epoch is kept: in the store's own record (kafka:), or in `headgate.state` as KIP-1331 has it."""

    STORE = "store"
    STATE_TOPIC = "epochs"


class PushOutcome(StrEnum):
    """The result of a store's `set`."""

    STORED = "stored"
    PERMANENT = "permanent"
    TRANSIENT = "transient"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVersion:
    """A description in a store; `hash` is None when only the epoch is known, `member` is the one that pushed it."""

    incarnation: str
    epoch: int
    hash: str | None
    member: str | None = None

    def is_same_version(self, other: "StoredVersion") -> bool:
        return (self.incarnation, self.epoch, self.hash) == (other.incarnation, other.epoch, other.hash)


@dataclass(frozen=True, slots=True)
class DeletedVersion:
    """The last record of the group in `headgate.topologies` is its deletion, which ended this incarnation."""

    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePush:
    """Call the store's `set` under this incarnation, after `barrier` was written and read back."""

    group: str
    member: str
    epoch: int
    hash: str
    incarnation: str
    barrier: TopologyEpochsSet | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDeletion:
    """Call the store's `delete` after `barrier` was written and read back.

    When the store fails the deletion is not settled: the description stays, or stays uncertain, and a retry converges.
    """

    barrier: TopologyEpochsSet | None


@dataclass(frozen=True, slots=True)
class Transition:
    """The next state, the fact to write (it counts once it is read back), and whether to describe the group."""

    state: "GroupState"
    write: TopologyEpochsSet | None = None
    describe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """The state of one group; every method that changes something returns the next state.

    `epochs` is the last fact of the state topic and `record` the last one of `headgate.topologies`. `last_set` is what
    this worker itself gave a store that keeps no hash. `pending` is the last fact that was written and not yet read
    back. `confirmed_by` are members that pushed the stored description, `new_members` those that made it unconfirmed
    and can be solicited, oldest first. `has_unconfirmed_join` holds from such a join until the topic says the same.
    `confirmers_left`: no member that confirmed is left, so another one is solicited. `describe_at` and `retry_at` are
    the earliest times of the next describe and of the next attempt to write that the description is unconfirmed.
    """

    group: str
    bookkeeping: Bookkeeping
    epochs: TopologyEpochsSet | None = None
    record: StoredVersion | DeletedVersion | None = None
    last_set: StoredVersion | None = None
    pending: TopologyEpochsSet | None = None
    current_epoch: int = NONE
    has_unconfirmed_join: bool = False
    confirmers_left: bool = False
    confirmed_by: tuple[str, ...] = ()
    new_members: tuple[str, ...] = ()
    cycles_not_found: int = 0
    describe_at: float | None = None
    retry_at: float | None = None

    # --- what follows from it

    @property
    def stored(self) -> StoredVersion | None:
        """The version in the store as far as it is known, confirmed or not."""
        if self.bookkeeping is Bookkeeping.STORE:
            return self.record if isinstance(self.record, StoredVersion) else None
        if self.epochs is None or self.epochs.stored_epoch == NONE:
            return None
        incarnation, epoch, last = self.epochs.incarnation, self.epochs.stored_epoch, self.last_set
        # -2 says that a gateway may have changed the store; if it was this worker, the content is known.
        if last is not None and last.incarnation == incarnation and epoch in {last.epoch, UNCERTAIN}:
            return last
        return None if epoch == UNCERTAIN else StoredVersion(incarnation=incarnation, epoch=epoch, hash=None)

    @property
    def is_unconfirmed(self) -> bool:
        """Whether the stored description may belong to an earlier incarnation, or be half written."""
        return self.has_unconfirmed_join or self._says_unconfirmed(self.epochs)

    def _says_unconfirmed(self, epochs: TopologyEpochsSet | None) -> bool:
        """Whether this fact makes the stored description unconfirmed; one of another incarnation does not."""
        if epochs is None or epochs.stored_epoch != UNCERTAIN:
            return False
        return self.bookkeeping is Bookkeeping.STATE_TOPIC or epochs.incarnation == self.incarnation

    @property
    def stored_epoch(self) -> int:
        """StoredDescriptionTopologyEpoch: -1 for none, -2 for uncertain or unconfirmed."""
        stored = self.stored
        if stored is not None and not self.is_unconfirmed:
            return stored.epoch
        return UNCERTAIN if self.must_delete else NONE

    @property
    def failed_epoch(self) -> int:
        """FailedDescriptionTopologyEpoch of this incarnation; -1 also while a new member may push something else."""
        if self.epochs is None or self.has_unconfirmed_join or self.epochs.incarnation != self.incarnation:
            return NONE
        return self.epochs.failed_epoch

    @property
    def must_delete(self) -> bool:
        """Whether the store must delete the description before the group may be deleted: stored is not -1."""
        if self.bookkeeping is Bookkeeping.STORE:
            return isinstance(self.record, StoredVersion)
        return self.epochs is not None and self.epochs.stored_epoch != NONE

    @property
    def is_stored_or_failed(self) -> bool:
        """Whether there is something to forget: a stored description, or one that failed permanently."""
        return self.must_delete or self.failed_epoch != NONE

    @property
    def incarnation(self) -> str:
        """The incarnation of the stored description, or else the one after the last that ended."""
        if self.bookkeeping is Bookkeeping.STORE:
            match self.record:
                case StoredVersion(incarnation=incarnation):
                    return incarnation
                case DeletedVersion(incarnation=ended):
                    return next_incarnation(self.group, ended)
                case None:
                    return next_incarnation(self.group, "")
        if self.epochs is None:
            return next_incarnation(self.group, "")
        if self.epochs.stored_epoch == NONE and self.epochs.failed_epoch == NONE:
            return next_incarnation(self.group, self.epochs.incarnation)
        return self.epochs.incarnation

    @property
    def is_gone(self) -> bool:
        return self.cycles_not_found >= CYCLES_UNTIL_GONE

    @property
    def must_be_kept(self) -> bool:
        """Whether losing this state would cost more than one solicitation too many."""
        return self.is_stored_or_failed or self.has_unconfirmed_join or self.pending is not None

    def version_to_show(self, *, topology_epoch: int | None, members: Collection[str]) -> StoredVersion | None:
        """The version that a describe of a group with these members shows, None for NOT_STORED."""
        stored = self.stored
        if stored is None or topology_epoch is None or stored.epoch != topology_epoch:
            return None
        if self.is_unconfirmed and not any(member in members for member in self.confirmed_by):
            return None
        return stored

    # --- heartbeats and describes

    def on_join(self, member: str, *, is_known: bool, can_push: bool, topology_epoch: int | None) -> Transition:
        """A join succeeded, at this epoch of the group if the join says one.

        `is_known`: no new member (see `group_members`); a stale member is always known, since it cannot be the first
        of an incarnation. `can_push`: it speaks the version that can be solicited.
        """
        epoch = self.current_epoch if topology_epoch is None else topology_epoch
        state = replace(self, current_epoch=epoch, cycles_not_found=0)
        if is_known or member in state.confirmed_by:
            return Transition(state)
        if not state.must_delete and state._last_failed_epoch(state.incarnation) == NONE:
            return Transition(state)
        if can_push:
            state = replace(state, new_members=_appended(state.new_members, member))
        return state._mark_unconfirmed()

    def on_heartbeat(self, *, now: float, may_solicit: bool) -> Transition:
        """A heartbeat succeeded: retry a failed write, or describe the group if its epoch is unknown and needed."""
        state = replace(self, cycles_not_found=0) if self.cycles_not_found else self
        if self.has_unconfirmed_join and self.pending is None and (self.retry_at is None or now >= self.retry_at):
            return replace(state, retry_at=now + RETRY_EVERY_S)._mark_unconfirmed()
        if not may_solicit or self.current_epoch != NONE or (self.stored is not None and not self.is_unconfirmed):
            return Transition(state)
        if self.describe_at is not None and now < self.describe_at:
            return Transition(state)
        return Transition(replace(state, describe_at=now + DESCRIBE_EVERY_S), describe=True)

    def on_confirmer_left(self, *, others_alive: bool) -> "GroupState":
        """A member that confirmed left or was removed. If it comes back it still runs the same topology."""
        return replace(self, confirmers_left=not others_alive)

    def on_described(
        self, *, error_code: int, topology_epoch: int | None, members: Collection[str], in_cleanup: bool = False
    ) -> "GroupState":
        """The broker described the group; `topology_epoch` None: it has no topology yet."""
        if error_code != 0:
            # A code that leaves open whether the group exists (14, 15, 16, 29, 30) ends the run of "not found".
            not_found = self.cycles_not_found + 1 if error_code == ErrorCode.GROUP_ID_NOT_FOUND else 0
            return replace(self, cycles_not_found=not_found) if in_cleanup else self
        epoch = self.current_epoch if topology_epoch is None else topology_epoch
        # After a restart the members that confirmed may be unknown; then this cannot be decided.
        left = bool(members and self.confirmed_by) and not any(one in members for one in self.confirmed_by)
        return replace(self, current_epoch=epoch, confirmers_left=left, cycles_not_found=0)

    # --- records that were read

    def on_epochs_read(self, epochs: TopologyEpochsSet, *, is_own: bool) -> "GroupState":
        """A fact of the state topic, from any gateway; `is_own`: this process wrote it."""
        pending = None if _same_epochs(self.pending, epochs) else self.pending
        state = replace(self, epochs=epochs, pending=pending)
        if state.bookkeeping is Bookkeeping.STATE_TOPIC and not is_own:
            # Another gateway may have changed the store, so the content and its confirmations are unknown.
            state = replace(state, last_set=None, confirmed_by=())
        if pending is not None:
            return state
        still_new = state.new_members if state._says_unconfirmed(epochs) else ()
        return replace(state, has_unconfirmed_join=False, new_members=still_new)

    def on_epochs_removed(self) -> "GroupState":
        """The state topic keeps no epochs of the group any more, which it does only when nothing is stored."""
        return replace(self, epochs=None, last_set=None)

    def on_record_read(self, record: StoredVersion | DeletedVersion | None) -> "GroupState":
        """The last record of the group in `headgate.topologies`; None: its records were removed."""
        if not isinstance(record, StoredVersion):
            return replace(self, record=record, confirmed_by=(), new_members=(), has_unconfirmed_join=False)
        same = isinstance(self.record, StoredVersion) and self.record.is_same_version(record)
        confirmed_by = _appended(self.confirmed_by if same else (), record.member)
        return replace(self, record=record, confirmed_by=confirmed_by, confirmers_left=False)

    def on_write_failed(self) -> "GroupState":
        """The pending fact will not be read back.

        "Unconfirmed" is written again later. A fact that was to end that is not, because another member may have joined
        meanwhile.
        """
        if (
            self.bookkeeping is Bookkeeping.STATE_TOPIC
            and not self.has_unconfirmed_join
            and self._says_unconfirmed(self.epochs)
        ):
            # Stored, but not recorded: solicited again, and the same push closes the gap (KIP-1331).
            return replace(self, pending=None, last_set=None, confirmed_by=())
        return replace(self, pending=None)

    # --- pushes

    def plan_push(
        self, member: str, epoch: int, content_hash: str, *, confirmer_alive: bool
    ) -> "tuple[GroupState, StorePush | None]":
        """Begin a push that passed every check; None: exactly this description is stored.

        `confirmer_alive`: a member that confirmed the stored one is alive.
        """
        stored = self.stored
        if stored is not None and stored.epoch == epoch and stored.hash == content_hash:
            return self, None
        incarnation = self.incarnation
        if stored is not None and stored.hash is not None and self.is_unconfirmed and not confirmer_alive:
            # Another content, and no member left that ran the stored one: it counts as another incarnation.
            incarnation = next_incarnation(self.group, stored.incarnation)
        state, barrier = self._with_barrier(incarnation)
        push = StorePush(
            group=self.group, member=member, epoch=epoch, hash=content_hash, incarnation=incarnation, barrier=barrier
        )
        return state, push

    def on_push_confirmed(self, member: str, *, new_members_alive: bool) -> Transition:
        """A member pushed exactly the stored description."""
        stored = self.stored
        state = replace(self, confirmed_by=_appended(self.confirmed_by, member), confirmers_left=False)
        # A push by another member does not speak for a new member whose own push failed permanently.
        failed = member not in self.new_members and self.failed_epoch != NONE
        if stored is None or failed or not self._settles(member, new_members_alive=new_members_alive):
            return Transition(state)
        state = replace(state, new_members=(), has_unconfirmed_join=False)
        if not self._says_unconfirmed(self.pending or self.epochs):
            return Transition(state)
        stored_epoch = NONE if self.bookkeeping is Bookkeeping.STORE else stored.epoch
        return state._write(stored.incarnation, stored_epoch)

    def on_push_settled(self, push: StorePush, outcome: PushOutcome, *, new_members_alive: bool) -> Transition:
        """The store has responded, and the records that it wrote were read back."""
        if outcome is PushOutcome.TRANSIENT:
            return Transition(self)
        settles = self._settles(push.member, new_members_alive=new_members_alive)
        state = replace(self, new_members=(), has_unconfirmed_join=False) if settles else self
        if outcome is PushOutcome.PERMANENT:
            return state._on_permanent_failure(push) if settles else Transition(state)
        if self.bookkeeping is Bookkeeping.STATE_TOPIC:
            return state._on_stored(push, settles=settles)
        # The store's own record was read already; the state topic is brought up to it.
        if not settles:
            return state._write(state.incarnation, UNCERTAIN if state.must_delete else NONE)
        latest = state.pending or state.epochs
        if latest is None or latest.incarnation != state.incarnation:
            return Transition(state)
        return state._write(state.incarnation, NONE)

    def on_push_refused(self, member: str, epoch: int, *, new_members_alive: bool) -> Transition:
        """A push failed permanently without a call of the store: what is stored stays known, and needs no barrier."""
        if not self._settles(member, new_members_alive=new_members_alive):
            return Transition(self)
        state = replace(self, new_members=(), has_unconfirmed_join=False)
        failed_epoch = max(self._last_failed_epoch(self.incarnation), epoch)
        return state._write(self.incarnation, UNCERTAIN if self.must_delete else NONE, failed_epoch)

    def _settles(self, member: str, *, new_members_alive: bool) -> bool:
        """Whether this member's push confirms the description: not while a new member is alive and has not pushed."""
        return member in self.new_members or not new_members_alive

    def _on_stored(self, push: StorePush, *, settles: bool) -> Transition:
        if self.current_epoch not in {NONE, push.epoch}:
            # The group has another epoch by now, and the store has the old one: it stays uncertain.
            return Transition(self)
        version = StoredVersion(incarnation=push.incarnation, epoch=push.epoch, hash=push.hash, member=push.member)
        state = replace(self, last_set=version, confirmed_by=(push.member,), confirmers_left=False)
        return state._write(push.incarnation, push.epoch if settles else UNCERTAIN)

    def _on_permanent_failure(self, push: StorePush) -> Transition:
        in_state = self.bookkeeping is Bookkeeping.STATE_TOPIC
        incarnation = push.incarnation if in_state else self.incarnation
        failed_epoch = max(self._last_failed_epoch(incarnation), push.epoch)  # epochs only advance
        return self._write(incarnation, UNCERTAIN if in_state or self.must_delete else NONE, failed_epoch)

    # --- the end of a description

    def plan_deletion(self) -> "tuple[GroupState, StoreDeletion | None]":
        """Plan the deletion of the stored description; None when nothing is stored, so that the store is not called."""
        if not self.must_delete:
            return self, None
        state, barrier = self._with_barrier(self.incarnation)
        return state, StoreDeletion(barrier=barrier)

    def on_deletion_settled(self) -> Transition:
        """The store has deleted the group's description, or there was none."""
        state = replace(
            self,
            confirmed_by=(),
            new_members=(),
            has_unconfirmed_join=False,
            confirmers_left=False,
            last_set=None,
            current_epoch=NONE,
            cycles_not_found=0,
        )
        latest = self.pending or self.epochs
        if latest is None or (self.bookkeeping is Bookkeeping.STORE and latest.incarnation != self.incarnation):
            return Transition(state)
        return state._write(latest.incarnation, NONE)

    def on_missing(self, *, keep_failure: bool = True) -> Transition:
        """The store returned nothing for a stored epoch: solicited again, which the KIP does only at a new epoch."""
        if self.bookkeeping is Bookkeeping.STORE or not self.must_delete:
            return Transition(self)
        latest = self.pending or self.epochs
        assert latest is not None
        state = replace(self, last_set=None, confirmed_by=())
        return state._write(latest.incarnation, UNCERTAIN, latest.failed_epoch if keep_failure else NONE)

    # --- facts to write

    def _mark_unconfirmed(self) -> Transition:
        """Written even if the topic says so already: the fact that ends it may be about to be read."""
        mark = self._fact(self.incarnation, UNCERTAIN if self.must_delete else NONE)
        return Transition(replace(self, pending=mark, has_unconfirmed_join=True), mark)

    def _write(self, incarnation: str, stored_epoch: int, failed_epoch: int = NONE) -> Transition:
        """Write this fact, unless it equals the last one."""
        fact = self._fact(incarnation, stored_epoch, failed_epoch)
        if _same_epochs(self.pending or self.epochs, fact):
            return Transition(self)
        return Transition(replace(self, pending=fact), fact)

    def _with_barrier(self, incarnation: str) -> "tuple[GroupState, TopologyEpochsSet | None]":
        """KIP-1331 as shipped: -2 is durable before the store is called, unless the store does its own bookkeeping."""
        if self.bookkeeping is Bookkeeping.STORE:
            return self, None
        # Even if the topic says so already: other gateways must see that this one is about to change the store.
        barrier = self._fact(incarnation, UNCERTAIN, self._last_failed_epoch(incarnation))
        return replace(self, last_set=None, pending=barrier), barrier

    def _last_failed_epoch(self, incarnation: str) -> int:
        latest = self.pending or self.epochs
        return latest.failed_epoch if latest is not None and latest.incarnation == incarnation else NONE

    def _fact(self, incarnation: str, stored_epoch: int, failed_epoch: int = NONE) -> TopologyEpochsSet:
        """Without a time: the writer sets it."""
        return TopologyEpochsSet(
            at=0, group=self.group, incarnation=incarnation, stored_epoch=stored_epoch, failed_epoch=failed_epoch
        )


def next_incarnation(group: str, before: str) -> str:
    """The name of the incarnation that follows `before`; the first one follows ""."""
    return hashlib.sha256(f"{before}\0{group}".encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _same_epochs(one: TopologyEpochsSet | None, other: TopologyEpochsSet) -> bool:
    """Facts that were read also have a time and a writer, which do not count here."""
    return one is not None and (one.incarnation, one.stored_epoch, one.failed_epoch) == (
        other.incarnation,
        other.stored_epoch,
        other.failed_epoch,
    )


def _appended(members: tuple[str, ...], member: str | None) -> tuple[str, ...]:
    if member is None or member in members:
        return members
    return (*members, member)[-MAX_MEMBERS_KEPT:]
