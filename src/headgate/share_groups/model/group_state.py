"""What is decided about share groups: the fold of `state` and `trips`, which every worker has.

One rule: in log order, the last record of a key wins, and no two values are ever compared to decide which counts; so
compaction, and the order in which the two topics are read, cannot change what comes out. Nothing here decides anything:
a decision is written first, and is true when it has been read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import assert_never

from headgate.facts import (
    BreakerResumed,
    BreakerTripped,
    DlqRegistered,
    DlqUnregistered,
    GroupConfigSet,
    GroupConfigUnset,
    GroupPaused,
    GroupPauseEnded,
)
from headgate.share_groups.model.breaker_status import PauseReason
from headgate.share_groups.model.group_configs import GroupSettings, settings_of

BREAKER_TRIPPED = "DLQ_CIRCUIT_BREAKER_TRIPPED"
OPERATOR = "OPERATOR"
BREAKER = "headgate"

_NO_VALUES: Mapping[str, str] = MappingProxyType({})
_DEFAULTS = settings_of(_NO_VALUES)


ShareGroupFact = (
    GroupConfigSet
    | GroupConfigUnset
    | GroupPaused
    | GroupPauseEnded
    | BreakerResumed
    | BreakerTripped
    | DlqRegistered
    | DlqUnregistered
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """`values` are configs as they were set, `settings` what they mean."""

    values: Mapping[str, str] = field(default_factory=lambda: _NO_VALUES)
    settings: GroupSettings = _DEFAULTS
    pause: GroupPaused | None = None
    trip: BreakerTripped | None = None
    resumed_generation: int = 0

    @property
    def generation(self) -> int:
        """The number of the last trip, 0 before the first: records are acquired, and counted, under it."""
        return 0 if self.trip is None else self.trip.generation

    @property
    def next_generation(self) -> int:
        """Of the next trip. Not at or below what is resumed, or that trip would not pause anything."""
        return max(self.generation, self.resumed_generation) + 1

    @property
    def is_tripped(self) -> bool:
        """Whatever the configs say now: switching the breaker off does not resume."""
        return self.trip is not None and self.trip.generation > self.resumed_generation

    @property
    def is_paused(self) -> bool:
        return self.pause is not None or self.is_tripped

    @property
    def is_minded(self) -> bool:
        """Whether anything of ours is to be done for the group; if not, it passes byte for byte."""
        return bool(self.values) or self.is_paused

    @property
    def reasons(self) -> tuple[PauseReason, ...]:
        reasons = []
        if self.trip is not None and self.is_tripped:
            reasons.append(_breakers_reason(self.trip))
        if self.pause is not None:
            pause = self.pause
            reasons.append(PauseReason(code=OPERATOR, text=pause.reason, by=pause.by, since=pause.at))
        return tuple(reasons)


NOTHING = GroupState()


def _breakers_reason(trip: BreakerTripped) -> PauseReason:
    text = (
        f"{trip.dlq_written} of {trip.delivered + trip.dlq_written} records became dead letters within "
        f"{trip.window_ms} ms, and {trip.threshold_percent} % is the threshold"
    )
    return PauseReason(code=BREAKER_TRIPPED, text=text, by=BREAKER, since=trip.at)


@dataclass(slots=True)
class _Folded:
    """The last record of each key of one group."""

    values: dict[str, str] = field(default_factory=dict)
    pause: GroupPaused | None = None
    trip: BreakerTripped | None = None
    resumed: BreakerResumed | None = None

    def frozen(self) -> GroupState:
        return GroupState(
            values=MappingProxyType(dict(self.values)),
            settings=settings_of(self.values),
            pause=self.pause,
            trip=self.trip,
            resumed_generation=0 if self.resumed is None else self.resumed.generation,
        )

    @property
    def is_empty(self) -> bool:
        return not self.values and self.pause is None and self.trip is None and self.resumed is None


class ShareStates:
    """Asked at every fetch, changed by people: so a group's state is made when it changes."""

    __slots__ = ("_folded", "_states", "_topics", "_tripped")

    def __init__(self) -> None:
        self._folded: dict[str, _Folded] = {}
        self._states: dict[str, GroupState] = {}
        self._tripped: set[str] = set()
        # In order of registration: the place of a name is that of its last record, as in a compacted log.
        self._topics: dict[str, dict[str, None]] = {}

    def apply(self, fact: ShareGroupFact) -> str:
        """The group that this is about."""
        match fact:
            case DlqRegistered(topic=topic, group=group):
                groups = self._topics.setdefault(topic, {})
                groups.pop(group, None)
                groups[group] = None
            case DlqUnregistered(topic=topic, group=group):
                groups = self._topics.get(topic, {})
                groups.pop(group, None)
                if not groups:
                    self._topics.pop(topic, None)
            case _:
                self._fold(fact)
        return fact.group

    def of(self, group: str) -> GroupState:
        return self._states.get(group, NOTHING)

    def groups(self) -> Iterable[str]:
        """Those with a config, a pause, a trip or a resumed generation."""
        return tuple(self._states)

    def registered(self, topic: str) -> tuple[str, ...]:
        """The groups that have this dead-letter topic, the first one first."""
        return tuple(self._topics.get(topic, ()))

    def topics(self) -> Mapping[str, tuple[str, ...]]:
        return {topic: tuple(groups) for topic, groups in self._topics.items()}

    def due_resumes(self, now_ms: int) -> tuple[BreakerResumed, ...]:
        """What is to be written now: the breaker's pauses whose time has come, and no other reason of a pause."""
        return tuple(
            BreakerResumed(group=group, generation=trip.generation, at=now_ms)
            for group in sorted(self._tripped)
            if (trip := self._states[group].trip) is not None
            and trip.resume_at is not None
            and trip.resume_at <= now_ms
        )

    def forget(self) -> None:
        """Everything: the topics are read from their beginning again."""
        self._folded.clear()
        self._states.clear()
        self._tripped.clear()
        self._topics.clear()

    def _fold(
        self,
        fact: GroupConfigSet | GroupConfigUnset | GroupPaused | GroupPauseEnded | BreakerResumed | BreakerTripped,
    ) -> None:
        group = fact.group
        folded = self._folded.get(group)
        if folded is None:
            folded = self._folded[group] = _Folded()
        match fact:
            case GroupConfigSet(name=name, value=value):
                folded.values[name] = value
            case GroupConfigUnset(name=name):
                folded.values.pop(name, None)
            case GroupPaused():
                folded.pause = fact
            case GroupPauseEnded():
                folded.pause = None
            case BreakerResumed():
                folded.resumed = fact
            case BreakerTripped():
                folded.trip = fact
            case _:
                assert_never(fact)
        if folded.is_empty:
            del self._folded[group]
            self._states.pop(group, None)
            return
        state = self._states[group] = folded.frozen()
        if state.is_tripped:
            self._tripped.add(group)
        else:
            self._tripped.discard(group)
