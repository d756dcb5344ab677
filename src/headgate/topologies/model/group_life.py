"""The life of one Streams group, as far as its topology description goes: the state, and what follows from it.

One rule: what must survive a restart (`epochs`, `kept`) is what was read back from the topics, never what was asked to
be written; the rest may be forgotten at any moment, and forgetting it costs a request too many and nothing else.

What is stored belongs to one life of a group, and a group can be re-created under its id and epoch unseen. A join by a
consumer that is not known therefore puts what is stored, or what failed, in doubt (DESIGN calls it unconfirmed): the
newcomer is asked, and until it was heard the description is shown only if a member that vouches for it is in the group.
The doubt is a fact too, stored epoch -2, for other gateways and for the next start. How it all changes: `group_rules`.

An incarnation names one life. It is worked out from the group and the life before, so that two gateways that store the
same thing at the same moment write the same version.
"""

import hashlib
from dataclasses import dataclass
from enum import Enum

NONE = -1
UNCERTAIN = -2
CYCLES_UNTIL_GONE = 2


class Keeper(Enum):
    """Who remembers what a store holds: the store itself (kafka:), or the epochs of KIP-1331 in `headgate.state`."""

    STORE = "store"
    EPOCHS = "epochs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """The last fact ["topology", group] of `state`. With `Keeper.STORE`, `stored_epoch` is -2 (in doubt) or -1."""

    incarnation: str
    stored_epoch: int
    failed_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a store has; `hash` is None when only the epoch is known, `member` is who pushed it."""

    incarnation: str
    epoch: int
    hash: str | None
    member: str | None = None

    def same_version(self, other: "Held") -> bool:
        return (self.incarnation, self.epoch, self.hash) == (other.incarnation, other.epoch, other.hash)


@dataclass(frozen=True, slots=True)
class Deleted:
    """The last thing in `topologies` is that the group's description is gone, with this life."""

    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLife:
    """`put` is what this worker itself put into a store that keeps no hash.

    `written` is the last fact about epochs that was asked for and not yet read back. `vouchers` confirmed what is held,
    `newcomers` can be asked and put it in doubt: member ids, oldest first. `doubted` is the doubt of any newcomer until
    the topics say so themselves. `orphaned`: not in doubt, but nobody who vouched is left, so somebody else is asked.
    `describe_at` and `retry_at`: not before then is the epoch asked for, or a doubt written again that was not written.
    """

    group: str
    keeper: Keeper
    epochs: Epochs | None = None
    kept: Held | Deleted | None = None
    put: Held | None = None
    written: Epochs | None = None
    current_epoch: int = NONE
    doubted: bool = False
    orphaned: bool = False
    vouchers: tuple[str, ...] = ()
    newcomers: tuple[str, ...] = ()
    cycles_gone: int = 0
    describe_at: float | None = None
    retry_at: float | None = None

    @property
    def held(self) -> Held | None:
        """What the store has, for all that is known; in doubt or not."""
        if self.keeper is Keeper.STORE:
            return self.kept if isinstance(self.kept, Held) else None
        if self.epochs is None or self.epochs.stored_epoch == NONE:
            return None
        incarnation, stored = self.epochs.incarnation, self.epochs.stored_epoch
        # -2 says that somebody may have touched the store; if it was nobody but us, we know what we left there.
        if self.put is not None and self.put.incarnation == incarnation and stored in {self.put.epoch, UNCERTAIN}:
            return self.put
        return None if stored == UNCERTAIN else Held(incarnation=incarnation, epoch=stored, hash=None)

    @property
    def in_doubt(self) -> bool:
        """Whether what is held may be a predecessor's, or half written."""
        return self.doubted or self.marks(self.epochs)

    def marks(self, epochs: Epochs | None) -> bool:
        """Whether this fact says that what is held is in doubt; one about another life says nothing."""
        if epochs is None or epochs.stored_epoch != UNCERTAIN:
            return False
        return self.keeper is Keeper.EPOCHS or epochs.incarnation == self.incarnation

    @property
    def stored_epoch(self) -> int:
        """StoredDescriptionTopologyEpoch: >= 0 held, -1 none, -2 uncertain; what is in doubt is uncertain."""
        held = self.held
        if held is not None and not self.in_doubt:
            return held.epoch
        return UNCERTAIN if self.must_delete else NONE

    @property
    def failed_epoch(self) -> int:
        """FailedDescriptionTopologyEpoch of this life, -1 for none; a newcomer may do better, so then none."""
        if self.epochs is None or self.doubted or self.epochs.incarnation != self.incarnation:
            return NONE
        return self.epochs.failed_epoch

    @property
    def must_delete(self) -> bool:
        """Whether the store must delete before the group may go: stored is anything but -1."""
        if self.keeper is Keeper.STORE:
            return isinstance(self.kept, Held)
        return self.epochs is not None and self.epochs.stored_epoch != NONE

    @property
    def incarnation(self) -> str:
        """The life that goes on: of what is held, or else the one after the last that ended."""
        if self.keeper is Keeper.STORE:
            match self.kept:
                case Held(incarnation=incarnation):
                    return incarnation
                case Deleted(incarnation=ended):
                    return next_incarnation(self.group, ended)
                case None:
                    return next_incarnation(self.group, "")
        if self.epochs is None:
            return next_incarnation(self.group, "")
        if self.epochs.stored_epoch == NONE and self.epochs.failed_epoch == NONE:
            return next_incarnation(self.group, self.epochs.incarnation)
        return self.epochs.incarnation

    @property
    def gone(self) -> bool:
        return self.cycles_gone >= CYCLES_UNTIL_GONE

    @property
    def matters(self) -> bool:
        """Whether forgetting this would lose more than a request too many."""
        return self.must_delete or self.failed_epoch != NONE or self.doubted or self.written is not None


def next_incarnation(group: str, before: str) -> str:
    """The name of the life that follows the one called `before`, or of the first one after ""."""
    return hashlib.sha256(f"{before}\0{group}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
