"""The records of the headgate.* topics: one dataclass for each fact, `encode`, `decode`, and the topics as data.

`docs/facts.md` describes them for people. Nothing here opens a socket or reads a clock.
"""

from headgate.facts.codec import MAX_FACT_BYTES, Ended, Fact, Rejected, decode, encode
from headgate.facts.decisions import (
    BreakerResumed,
    BreakerTripped,
    DlqRegistered,
    DlqUnregistered,
    GroupConfigSet,
    GroupConfigUnset,
    GroupPaused,
    GroupPauseEnded,
    ReplayStateChanged,
    TopologyEpochsRemoved,
    TopologyEpochsSet,
)
from headgate.facts.json_form import JsonText
from headgate.facts.lags import GroupLagsObserved
from headgate.facts.observations import ActivityObserved, Actor, DispositionsCounted, EventHappened, Software, identity
from headgate.facts.tasks import HeldTask, MemberTasksEnded, MemberTasksObserved
from headgate.facts.topology import (
    TopologyDeleted,
    TopologyDeletionRemoved,
    TopologyDescribed,
    TopologyVersionRemoved,
)

__all__ = [
    "MAX_FACT_BYTES",
    "ActivityObserved",
    "Actor",
    "BreakerResumed",
    "BreakerTripped",
    "DispositionsCounted",
    "DlqRegistered",
    "DlqUnregistered",
    "Ended",
    "EventHappened",
    "Fact",
    "GroupConfigSet",
    "GroupConfigUnset",
    "GroupLagsObserved",
    "GroupPauseEnded",
    "GroupPaused",
    "HeldTask",
    "JsonText",
    "MemberTasksEnded",
    "MemberTasksObserved",
    "Rejected",
    "ReplayStateChanged",
    "Software",
    "TopologyDeleted",
    "TopologyDeletionRemoved",
    "TopologyDescribed",
    "TopologyEpochsRemoved",
    "TopologyEpochsSet",
    "TopologyVersionRemoved",
    "decode",
    "encode",
    "identity",
]
