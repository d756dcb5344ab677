"""How a group's life changes: `handle(life, event)` gives the next state and effects, `plan_*` begin a store call.

One rule: pure. Time, liveness and what the store answered come in with the event.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import assert_never

from headgate.topologies.model.group_events import (
    AlreadyHeld,
    DeletionRead,
    DeletionSettled,
    Described,
    DescribeGroup,
    DescriptionRead,
    EpochsRead,
    Event,
    HeartbeatSeen,
    Joined,
    Outcome,
    PushConfirmed,
    PushSettled,
    Step,
    StoreDeletion,
    StoreLost,
    StorePush,
    VoucherLeft,
    WriteEpochs,
    WriteFailed,
)
from headgate.topologies.model.group_life import (
    NONE,
    UNCERTAIN,
    Deleted,
    Epochs,
    GroupLife,
    Held,
    Keeper,
    next_incarnation,
)
from headgate.topologies.model.push_checks import GROUP_ID_NOT_FOUND

DESCRIBE_EVERY_S = 30.0
RETRY_EVERY_S = 5.0
# Further names push out the oldest; that costs a request too many, or NOT_STORED until the next push.
MOST_NAMES = 64


def handle(life: GroupLife, event: Event) -> Step:
    match event:
        case Joined():
            return _joined(life, event)
        case HeartbeatSeen():
            return _heartbeat(replace(life, cycles_gone=0) if life.cycles_gone else life, event)
        case VoucherLeft(others_alive=others_alive):
            return Step(replace(life, orphaned=not others_alive))
        case Described():
            return Step(_described(life, event))
        case PushConfirmed():
            return _confirmed(life, event)
        case PushSettled():
            return _settled(life, event)
        case DeletionSettled():
            return _deleted(life)
        case EpochsRead():
            return Step(_epochs_read(life, event))
        case DescriptionRead(held=held):
            return Step(_description_read(life, held))
        case DeletionRead(incarnation=incarnation):
            return Step(replace(life, kept=Deleted(incarnation), vouchers=(), newcomers=(), doubted=False))
        case WriteFailed():
            return Step(_write_failed(life))
        case StoreLost():
            return _lost(life)
    assert_never(event)


def _described(life: GroupLife, event: Described) -> GroupLife:
    if event.error_code != 0:
        # What cannot tell (14, 15, 16, 29, 30) is not "not found", and neither is it found: the run ends.
        gone = life.cycles_gone + 1 if event.error_code == GROUP_ID_NOT_FOUND else 0
        return replace(life, cycles_gone=gone) if event.in_cycle else life
    epoch = life.current_epoch if event.topology_epoch is None else event.topology_epoch
    # Who vouched before a restart may be forgotten; then nobody can tell.
    orphaned = bool(event.members and life.vouchers) and not any(one in event.members for one in life.vouchers)
    return replace(life, current_epoch=epoch, orphaned=orphaned, cycles_gone=0)


def _epochs_read(life: GroupLife, event: EpochsRead) -> GroupLife:
    """The topics' word is what counts, whoever wrote it; if we have more to say, our own fact comes behind this one."""
    written = None if life.written == event.epochs else life.written
    life = replace(life, epochs=event.epochs, written=written)
    if life.keeper is Keeper.EPOCHS and not event.own:
        # Another gateway may have had its hands on the store: what we put there, and who vouched for it, says nothing.
        life = replace(life, put=None, vouchers=())
    if written is not None:
        return life
    return replace(life, doubted=False, newcomers=life.newcomers if life.marks(event.epochs) else ())


def _description_read(life: GroupLife, held: Held) -> GroupLife:
    same = isinstance(life.kept, Held) and life.kept.same_version(held)
    vouchers = _named(life.vouchers if same else (), held.member)
    return replace(life, kept=held, vouchers=vouchers, orphaned=False)


def _joined(life: GroupLife, event: Joined) -> Step:
    epoch = life.current_epoch if event.topology_epoch is None else event.topology_epoch
    life = replace(life, current_epoch=epoch, cycles_gone=0)
    known = event.known or event.member in life.vouchers
    if known or not (life.must_delete or _failed_before(life, life.incarnation) != NONE):
        return Step(life)
    newcomers = _named(life.newcomers, event.member) if event.can_push else life.newcomers
    return _marked(replace(life, newcomers=newcomers))


def _marked(life: GroupLife) -> Step:
    """In doubt, and written even if the topics say so already: what ends that doubt may be on its way to us."""
    mark = _mark(life)
    return Step(replace(life, written=mark, doubted=True), (WriteEpochs(life.group, mark),))


def _mark(life: GroupLife) -> Epochs:
    """The fact that what is held, or what failed, is in doubt."""
    stored = UNCERTAIN if life.must_delete else NONE
    return Epochs(incarnation=life.incarnation, stored_epoch=stored, failed_epoch=NONE)


def _failed_before(life: GroupLife, incarnation: str) -> int:
    latest = life.written or life.epochs
    return latest.failed_epoch if latest is not None and latest.incarnation == incarnation else NONE


def _heartbeat(life: GroupLife, event: HeartbeatSeen) -> Step:
    """Write a doubt again that could not be written; ask for the epoch when nobody told it and it matters."""
    now = event.now
    if life.doubted and life.written is None and (life.retry_at is None or now >= life.retry_at):
        return _marked(replace(life, retry_at=now + RETRY_EVERY_S))
    if not event.can_push or life.current_epoch != NONE or (life.held is not None and not life.in_doubt):
        return Step(life)
    if life.describe_at is not None and now < life.describe_at:
        return Step(life)
    return Step(replace(life, describe_at=now + DESCRIBE_EVERY_S), (DescribeGroup(life.group),))


def _write_failed(life: GroupLife) -> GroupLife:
    """A doubt stays, and is written again; what was to end one is not, because another may have come meanwhile."""
    if life.keeper is Keeper.EPOCHS and not life.doubted and life.marks(life.epochs):
        # Stored, but nobody will know: asked again, and the same push closes the gap (KIP-1331).
        life = replace(life, put=None, vouchers=())
    return replace(life, written=None)


def _is_heard(life: GroupLife, member: str, *, newcomers_alive: bool) -> bool:
    """Whether this member's push settles the doubt: somebody else's says nothing about a newcomer that is here."""
    return member in life.newcomers or not newcomers_alive


def _confirmed(life: GroupLife, event: PushConfirmed) -> Step:
    held = life.held
    vouching = replace(life, vouchers=_named(life.vouchers, event.member), orphaned=False)
    heard = _is_heard(life, event.member, newcomers_alive=event.newcomers_alive)
    # Nor does it say anything about one whose push failed for good.
    if held is None or not heard or (event.member not in life.newcomers and life.failed_epoch != NONE):
        return Step(vouching)
    sure = replace(vouching, newcomers=(), doubted=False)
    if not life.marks(life.written or life.epochs):
        return Step(sure)
    stored = NONE if life.keeper is Keeper.STORE else held.epoch
    return _write(sure, Epochs(incarnation=held.incarnation, stored_epoch=stored, failed_epoch=NONE))


def _settled(life: GroupLife, event: PushSettled) -> Step:
    push, heard = event.push, _is_heard(life, event.push.member, newcomers_alive=event.newcomers_alive)
    if event.outcome is Outcome.TRANSIENT:
        return Step(life)
    if heard:
        life = replace(life, newcomers=(), doubted=False)
    if event.outcome is Outcome.PERMANENT:
        return _failed_for_good(life, push) if heard else Step(life)
    return _stored_by_itself(life, heard=heard) if life.keeper is Keeper.STORE else _stored(life, push, heard=heard)


def _stored_by_itself(life: GroupLife, *, heard: bool) -> Step:
    """The store's record was read already. What `state` says about the same life is brought up to it."""
    if not heard:
        return _write(life, _mark(life))
    latest = life.written or life.epochs
    if latest is None or latest.incarnation != life.incarnation:
        return Step(life)
    return _write(life, Epochs(incarnation=life.incarnation, stored_epoch=NONE, failed_epoch=NONE))


def _stored(life: GroupLife, push: StorePush, *, heard: bool) -> Step:
    if life.current_epoch not in {NONE, push.epoch}:
        # The group went on to another epoch meanwhile, and the store has the old one: it stays uncertain.
        return Step(life)
    put = Held(incarnation=push.incarnation, epoch=push.epoch, hash=push.hash, member=push.member)
    stored = push.epoch if heard else UNCERTAIN
    life = replace(life, put=put, vouchers=(push.member,), orphaned=False)
    return _write(life, Epochs(incarnation=push.incarnation, stored_epoch=stored, failed_epoch=NONE))


def _failed_for_good(life: GroupLife, push: StorePush) -> Step:
    incarnation = life.incarnation if life.keeper is Keeper.STORE else push.incarnation
    failed = Epochs(
        incarnation=incarnation,
        stored_epoch=UNCERTAIN if life.keeper is Keeper.EPOCHS or life.must_delete else NONE,
        failed_epoch=max(_failed_before(life, incarnation), push.epoch),  # epochs only advance
    )
    return _write(life, failed)


def _deleted(life: GroupLife) -> Step:
    fresh = replace(
        life, vouchers=(), newcomers=(), doubted=False, orphaned=False, put=None, current_epoch=NONE, cycles_gone=0
    )
    latest = life.written or life.epochs
    if latest is None or (life.keeper is Keeper.STORE and latest.incarnation != life.incarnation):
        return Step(fresh)
    return _write(fresh, Epochs(incarnation=latest.incarnation, stored_epoch=NONE, failed_epoch=NONE))


def _lost(life: GroupLife) -> Step:
    """Not stored after all, so it is asked for again: with epochs that never change nothing else would (deviation)."""
    if life.keeper is Keeper.STORE or not life.must_delete:
        return Step(life)
    latest = life.written or life.epochs
    assert latest is not None
    return _write(replace(life, put=None, vouchers=()), replace(latest, stored_epoch=UNCERTAIN))


def _write(life: GroupLife, epochs: Epochs) -> Step:
    """Ask for this fact, unless it is what was written last."""
    if epochs == (life.written or life.epochs):
        return Step(life)
    return Step(replace(life, written=epochs), (WriteEpochs(life.group, epochs),))


def _named(names: tuple[str, ...], name: str | None) -> tuple[str, ...]:
    if name is None or name in names:
        return names
    return (*names, name)[-MOST_NAMES:]


# --- calls of a store -----------------------------------------------------------------------------------------------


def plan_push(
    life: GroupLife, *, member: str, epoch: int, content_hash: str, vouched: bool
) -> tuple[GroupLife, AlreadyHeld | StorePush]:
    """What to do with a push that all checks passed; `vouched`: a member that vouches for what is held is alive."""
    held = life.held
    if held is not None and held.epoch == epoch and held.hash == content_hash:
        return life, AlreadyHeld()
    incarnation = life.incarnation
    if held is not None and held.hash is not None and life.in_doubt and not vouched:
        # Another content, and nobody left of those who ran the old one: as far as anybody can tell, another life.
        incarnation = next_incarnation(life.group, held.incarnation)
    life, barrier = _behind_barrier(life, incarnation)
    push = StorePush(
        group=life.group, member=member, epoch=epoch, hash=content_hash, incarnation=incarnation, barrier=barrier
    )
    return life, push


def plan_deletion(life: GroupLife) -> tuple[GroupLife, StoreDeletion]:
    if not life.must_delete:
        return life, StoreDeletion(group=life.group, call_store=False, barrier=None)
    life, barrier = _behind_barrier(life, life.incarnation)
    return life, StoreDeletion(group=life.group, call_store=True, barrier=barrier)


def _behind_barrier(life: GroupLife, incarnation: str) -> tuple[GroupLife, WriteEpochs | None]:
    """KIP-1331 as shipped: before the store is touched, -2 is durable. A store that keeps its own books needs none."""
    if life.keeper is Keeper.STORE:
        return life, None
    failed = _failed_before(life, incarnation)
    barrier = Epochs(incarnation=incarnation, stored_epoch=UNCERTAIN, failed_epoch=failed)
    # Even if it says so already: other gateways must see that this one has its hands on the store.
    return replace(life, put=None, written=barrier), WriteEpochs(life.group, barrier)


def served(life: GroupLife, *, topology_epoch: int | None, members: Collection[str]) -> Held | None:
    """What a describe without an error may show; `members` are those in that very answer. None is NOT_STORED."""
    held = life.held
    if held is None or topology_epoch is None or held.epoch != topology_epoch:
        return None
    if life.in_doubt and not any(voucher in members for voucher in life.vouchers):
        return None
    return held
