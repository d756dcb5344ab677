"""What is written to the headgate.* topics: one dataclass a fact, `encode`, `decode`, and the topics as data.

`docs/facts.md` is the same for people. Nothing here opens a socket or reads a clock.
"""

from headgate.facts.canonical import JsonText
from headgate.facts.codec import MAX_FACT_BYTES, decode, encode, identity
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
    TopologyEpochsSet,
)
from headgate.facts.descriptions import TopologyDeleted, TopologyDescribed
from headgate.facts.forms import Ended, Fact, Rejected
from headgate.facts.observations import ActivityObserved, Actor, DispositionsCounted, EventHappened, Software

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
    "GroupPauseEnded",
    "GroupPaused",
    "JsonText",
    "Rejected",
    "ReplayStateChanged",
    "Software",
    "TopologyDeleted",
    "TopologyDescribed",
    "TopologyEpochsSet",
    "decode",
    "encode",
    "identity",
]
