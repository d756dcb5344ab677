"""What is decided: the facts of `state` and `trips`, compacted topics where the last record of a key wins.

One rule: a fold over these never compares values, so compaction cannot change its answer (DESIGN, principle 3).
"""

from dataclasses import dataclass
from typing import Literal, get_args

from headgate.facts.forms import AT, BY, COMMON, GROUP, Ended, Fact, Form
from headgate.facts.shapes import INT32_MAX, Member, Nullable, OneOf, Text, Whole

ReplayState = Literal["PLANNED", "RUNNING", "PAUSED", "DONE", "FAILED", "ABORTED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigSet(Fact):
    """A group config that the broker does not know has a value."""

    group: str
    name: str
    value: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigUnset(Ended):
    """It has its default again."""

    group: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPaused(Fact):
    """An operator paused the group."""

    group: str
    reason: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPauseEnded(Ended):
    """The operator's pause is over; the breaker's own is another fact."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerResumed(Fact):
    """The breaker's pause is over up to and with this generation of its trips."""

    group: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqRegistered(Fact):
    """The group writes its dead letters to this topic."""

    topic: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqUnregistered(Ended):
    """It does so no more."""

    topic: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyEpochsSet(Fact):
    """What a store other than kafka: holds for a group, and which epoch failed for good (KIP-1331).

    `stored_epoch` -1 is none and -2 uncertain; `failed_epoch` -1 is none.
    """

    group: str
    incarnation: str
    stored_epoch: int
    failed_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStateChanged(Fact):
    """A replay plan is now in this state."""

    plan: str
    state: ReplayState
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTripped(Fact):
    """The leader's breaker paused the group; `resume_at` is when it lets go by itself, None is never."""

    group: str
    generation: int
    resume_at: int | None
    dlq_written: int
    delivered: int
    threshold_percent: int
    window_ms: int


_NAME = Member("name", Text())
_DLQ_TOPIC = Member("topic", Text())
_GENERATION = Member("generation", Whole())

FORMS = (
    Form(
        GroupConfigSet,
        "state",
        ("group_config", GROUP, _NAME),
        (AT, Member("value", Text()), BY, *COMMON),
    ),
    Form(GroupConfigUnset, "state", ("group_config", GROUP, _NAME), None),
    Form(GroupPaused, "state", ("pause", GROUP), (AT, Member("reason", Text()), BY, *COMMON)),
    Form(GroupPauseEnded, "state", ("pause", GROUP), None),
    Form(BreakerResumed, "state", ("resumed", GROUP), (AT, _GENERATION, *COMMON)),
    Form(DlqRegistered, "state", ("dlq", _DLQ_TOPIC, GROUP), (AT, *COMMON)),
    Form(DlqUnregistered, "state", ("dlq", _DLQ_TOPIC, GROUP), None),
    Form(
        TopologyEpochsSet,
        "state",
        ("topology", GROUP),
        (
            AT,
            Member("incarnation", Text()),
            Member("stored_epoch", Whole(-2, INT32_MAX)),
            Member("failed_epoch", Whole(-1, INT32_MAX)),
            *COMMON,
        ),
    ),
    Form(
        ReplayStateChanged,
        "state",
        ("replay", Member("plan", Text())),
        (AT, Member("state", OneOf(get_args(ReplayState))), BY, *COMMON),
    ),
    Form(
        BreakerTripped,
        "trips",
        (GROUP,),
        (
            AT,
            _GENERATION,
            Member("resume_at", Nullable(Whole())),
            Member("dlq_written", Whole()),
            Member("delivered", Whole()),
            Member("threshold_percent", Whole(1, 100)),
            Member("window_ms", Whole(1)),
            *COMMON,
        ),
    ),
)
