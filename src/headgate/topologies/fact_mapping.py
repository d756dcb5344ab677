"""Between the state machine's words and the facts of the topics, both ways.

One rule: nothing is decided here. A fact that is nothing to the machine (another provenance) is None.
"""

from headgate.facts import TopologyDeleted, TopologyDescribed, TopologyEpochsSet
from headgate.plugin.topology_store import PushedTopology
from headgate.topologies.model.group_events import DeletionRead, DescriptionRead, EpochsRead, Event, WriteEpochs
from headgate.topologies.model.group_life import Epochs, Held

# What members pushed is what a describe shows; pasted and derived descriptions are for the map.
SHOWN = "pushed"


def epochs_fact(effect: WriteEpochs, *, at: int) -> TopologyEpochsSet:
    """The fact that a `WriteEpochs` asks for; the writer adds where it comes from."""
    epochs = effect.epochs
    return TopologyEpochsSet(
        at=at,
        group=effect.group,
        incarnation=epochs.incarnation,
        stored_epoch=epochs.stored_epoch,
        failed_epoch=epochs.failed_epoch,
    )


def described_fact(pushed: PushedTopology, *, at: int) -> TopologyDescribed:
    return TopologyDescribed(
        at=at,
        group=pushed.group,
        incarnation=pushed.incarnation,
        epoch=pushed.epoch,
        hash=pushed.hash,
        provenance="pushed",
        member=pushed.member,
        process=pushed.process,
        description=pushed.description,
    )


def event_of(fact: TopologyEpochsSet | TopologyDescribed | TopologyDeleted, *, own: bool) -> tuple[str, Event] | None:
    """What reading this fact means for its group, for `groups.handle(*event)`; `own`: this very process wrote it."""
    match fact:
        case TopologyEpochsSet():
            epochs = Epochs(
                incarnation=fact.incarnation, stored_epoch=fact.stored_epoch, failed_epoch=fact.failed_epoch
            )
            return fact.group, EpochsRead(epochs=epochs, own=own)
        case TopologyDescribed():
            if fact.provenance != SHOWN:
                return None
            held = Held(incarnation=fact.incarnation, epoch=fact.epoch, hash=fact.hash, member=fact.member)
            return fact.group, DescriptionRead(held=held)
        case TopologyDeleted():
            return fact.group, DeletionRead(incarnation=fact.incarnation)
