"""The state of share groups: the fold of the facts in `state` and `trips`, which every worker has.

In log order the last record of a key wins, and values are never compared: so neither compaction nor the order in which
the two topics are read can change the result. Nothing here decides: a decision is written first, and holds when it has
been read back.
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
from headgate.share_groups.model.breaker import BREAKER_TRIPPED, PauseReason
from headgate.share_groups.model.group_configs import DLQ_TOPIC, GroupSettings, settings_of

OPERATOR = "OPERATOR"
BREAKER_PRINCIPAL = "headgate"

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
class ShareGroupState:
    """One group: `values` are its configs as they were set, `settings` their meaning.

    `dlq_topic_at` is when the config of its dead-letter topic was set.
    """

    values: Mapping[str, str] = field(default_factory=lambda: _NO_VALUES)
    settings: GroupSettings = _DEFAULTS
    dlq_topic_at: int = 0
    pause: GroupPaused | None = None
    trip: BreakerTripped | None = None
    resumed_generation: int = 0

    @property
    def generation(self) -> int:
        """The number of the last trip, 0 before the first; records are acquired and counted under it."""
        return 0 if self.trip is None else self.trip.generation

    @property
    def next_generation(self) -> int:
        """The number of the next trip: above every resumed generation, or the trip would not pause the group."""
        return max(self.generation, self.resumed_generation) + 1

    @property
    def is_tripped(self) -> bool:
        """Whether the breaker's pause is in force; switching the breaker off does not resume."""
        return self.trip is not None and self.trip.generation > self.resumed_generation

    @property
    def is_paused(self) -> bool:
        return self.pause is not None or self.is_tripped

    @property
    def is_managed(self) -> bool:
        """Whether Headgate acts on the group; requests of other groups pass byte for byte."""
        return bool(self.values) or self.is_paused

    @property
    def pause_reasons(self) -> tuple[PauseReason, ...]:
        reasons = []
        if self.trip is not None and self.is_tripped:
            reasons.append(_breaker_reason(self.trip))
        if self.pause is not None:
            pause = self.pause
            reasons.append(PauseReason(code=OPERATOR, text=pause.reason, by=pause.by, since=pause.at))
        return tuple(reasons)


NO_STATE = ShareGroupState()


def _breaker_reason(trip: BreakerTripped) -> PauseReason:
    text = (
        f"{trip.dlq_written} of {trip.delivered + trip.dlq_written} records became dead letters within "
        f"{trip.window_ms / 1000:g} s, and {trip.threshold_percent} % is the threshold"
    )
    return PauseReason(code=BREAKER_TRIPPED, text=text, by=BREAKER_PRINCIPAL, since=trip.at)


@dataclass(slots=True)
class _GroupFold:
    """The last fact of each key of one group."""

    values: dict[str, str] = field(default_factory=dict)
    dlq_topic_at: int = 0
    pause: GroupPaused | None = None
    trip: BreakerTripped | None = None
    resumed: BreakerResumed | None = None

    def frozen(self) -> ShareGroupState:
        return ShareGroupState(
            values=MappingProxyType(dict(self.values)),
            settings=settings_of(self.values),
            dlq_topic_at=self.dlq_topic_at,
            pause=self.pause,
            trip=self.trip,
            resumed_generation=0 if self.resumed is None else self.resumed.generation,
        )

    @property
    def is_empty(self) -> bool:
        return not self.values and self.pause is None and self.trip is None and self.resumed is None


class ShareStates:
    """The states of all groups. They are read at every fetch and change rarely, so they are made when they change."""

    __slots__ = ("_folded", "_states", "_topics", "_tripped")

    def __init__(self) -> None:
        self._folded: dict[str, _GroupFold] = {}
        self._states: dict[str, ShareGroupState] = {}
        self._tripped: set[str] = set()
        # In order of registration: a name's position is that of its last record, as in a compacted log.
        self._topics: dict[str, dict[str, None]] = {}

    def apply(self, fact: ShareGroupFact) -> str:
        """Fold a fact; returns its group."""
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

    def of(self, group: str) -> ShareGroupState:
        return self._states.get(group, NO_STATE)

    def groups(self) -> Iterable[str]:
        """The groups with a config, a pause, a trip or a resumed generation."""
        return tuple(self._states)

    def registered_groups(self, topic: str) -> tuple[str, ...]:
        """The groups with this dead-letter topic, in the order of registration."""
        return tuple(self._topics.get(topic, ()))

    def earlier_groups(self, group: str) -> tuple[str, ...]:
        """The groups that had the group's dead-letter topic before it, the first of them first.

        While this group's own registration has not been read, all that are registered are earlier.
        """
        topic = self.of(group).settings.dlq_topic
        earlier = []
        for one in self._topics.get(topic or "", ()):
            if one == group:
                break
            if self.of(one).settings.dlq_topic == topic:
                earlier.append(one)
        return tuple(earlier)

    def registered_topics(self) -> Mapping[str, tuple[str, ...]]:
        return {topic: tuple(groups) for topic, groups in self._topics.items()}

    def due_resumes(self, now_ms: int) -> tuple[BreakerResumed, ...]:
        """The breaker's pauses that end now, as the facts to write; pauses by operators do not end by themselves."""
        return tuple(
            BreakerResumed(group=group, generation=trip.generation, at=now_ms)
            for group in sorted(self._tripped)
            if (trip := self._states[group].trip) is not None
            and trip.resume_at is not None
            and trip.resume_at <= now_ms
        )

    def clear(self) -> None:
        """Forget everything: the topics are read from their beginnings again."""
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
            folded = self._folded[group] = _GroupFold()
        match fact:
            case GroupConfigSet(name=name, value=value, at=at):
                folded.values[name] = value
                if name == DLQ_TOPIC:
                    folded.dlq_topic_at = at
            case GroupConfigUnset(name=name):
                folded.values.pop(name, None)
                if name == DLQ_TOPIC:
                    folded.dlq_topic_at = 0
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
