"""The vocabulary of `group_rules`: what happens to a group, what is to be done about it, how a store call begins.

Events are past tense, effects imperative. A member that matters is named by its member id.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from headgate.topologies.model.group_life import Epochs, GroupLife, Held

# --- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A join succeeded.

    `known`: no newcomer (see `roster`); a stale member is not the first of a life, so it is always known. `can_push`:
    it speaks the version that can be asked. `topology_epoch` is the group's as the join tells it, None if it does not.
    """

    member: str
    known: bool
    can_push: bool
    topology_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSeen:
    """A member made itself heard; `can_push`: it could be asked, so the group's epoch would make a difference."""

    now: float
    can_push: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class VoucherLeft:
    """A member that vouches left or was dropped; if it comes back it vouches still, for it runs what it ran."""

    others_alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A StreamsGroupDescribe was answered for the group; `topology_epoch` None: it has no topology yet.

    `in_cycle`: it was the periodic cleanup's.
    """

    error_code: int
    topology_epoch: int | None = None
    members: Collection[str] = ()
    in_cycle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConfirmed:
    """A member pushed what is held; `newcomers_alive` as the roster has it."""

    member: str
    newcomers_alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettled:
    """The store has answered, and what it wrote to the topics was read back."""

    push: "StorePush"
    outcome: "Outcome"
    newcomers_alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionSettled:
    """The store has deleted the group's description, or there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsRead:
    """`own`: this very process wrote it, so it does not tell of another's hand on the store."""

    epochs: Epochs
    own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptionRead:
    """`topologies` has a new last record of the group: a description that a member pushed."""

    held: Held


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionRead:
    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFailed:
    """A fact about epochs that was asked for will not be read back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLost:
    """The store does not have what it should have: it answered `get` with nothing."""


Event = (
    Joined | HeartbeatSeen | VoucherLeft | Described | PushConfirmed | PushSettled | DeletionSettled
    | EpochsRead | DescriptionRead | DeletionRead | WriteFailed | StoreLost
)  # fmt: skip

# --- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteEpochs:
    """Write this fact to `state`; it counts when it is read back."""

    group: str
    epochs: Epochs


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """Find out the group's current topology epoch by a StreamsGroupDescribe."""

    group: str


Effect = WriteEpochs | DescribeGroup


@dataclass(frozen=True, slots=True)
class Step:
    life: GroupLife
    effects: tuple[Effect, ...] = ()


# --- calls of a store -----------------------------------------------------------------------------------------------


class Outcome(StrEnum):
    """What became of a store's `set`."""

    STORED = "stored"
    PERMANENT = "permanent"
    TRANSIENT = "transient"


@dataclass(frozen=True, slots=True)
class AlreadyHeld:
    """Answer NONE without a call of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePush:
    """Call the store's `set` under this incarnation when `barrier` was written and read back; then `PushSettled`."""

    group: str
    member: str
    epoch: int
    hash: str
    incarnation: str
    barrier: WriteEpochs | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDeletion:
    """Call the store's `delete` likewise, then `DeletionSettled`; not `call_store`: settle at once.

    When the store fails nothing is settled: what is stored stays, or stays uncertain, and a retry converges.
    """

    group: str
    call_store: bool
    barrier: WriteEpochs | None
