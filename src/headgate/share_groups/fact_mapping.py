"""Between the words of the share groups' state and the facts of `state` and `trips`, both ways.

One rule: nothing is decided here. A fact that is nothing to share groups is None.
"""

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
from headgate.share_groups.model.group_state import (
    ConfigSet,
    ConfigUnset,
    Event,
    Paused,
    PauseEnded,
    Registered,
    Resumed,
    Tripped,
    Unregistered,
)

ShareFact = (
    GroupConfigSet
    | GroupConfigUnset
    | GroupPaused
    | GroupPauseEnded
    | BreakerResumed
    | BreakerTripped
    | DlqRegistered
    | DlqUnregistered
)


def fact_of(event: Event) -> ShareFact:
    """The fact that makes this so once it has been read; the writer adds where it comes from."""
    match event:
        case ConfigSet():
            return GroupConfigSet(at=event.at, group=event.group, name=event.name, value=event.value, by=event.by)
        case ConfigUnset():
            return GroupConfigUnset(group=event.group, name=event.name)
        case Paused():
            return GroupPaused(at=event.at, group=event.group, reason=event.reason, by=event.by)
        case PauseEnded():
            return GroupPauseEnded(group=event.group)
        case Resumed():
            return BreakerResumed(at=event.at, group=event.group, generation=event.generation)
        case Tripped():
            return BreakerTripped(
                at=event.at,
                group=event.group,
                generation=event.generation,
                resume_at=event.resume_at,
                dlq_written=event.dlq_written,
                delivered=event.delivered,
                threshold_percent=event.threshold_percent,
                window_ms=event.window_ms,
            )
        case Registered():
            return DlqRegistered(at=event.at, topic=event.topic, group=event.group)
        case Unregistered():
            return DlqUnregistered(topic=event.topic, group=event.group)
        case _:
            assert_never(event)


def event_of(fact: object) -> Event | None:
    """What reading this fact means for the fold; None for what is not about share groups, or is no fact."""
    match fact:
        case GroupConfigSet():
            return ConfigSet(group=fact.group, name=fact.name, value=fact.value, by=fact.by, at=fact.at)
        case GroupConfigUnset():
            return ConfigUnset(group=fact.group, name=fact.name)
        case GroupPaused():
            return Paused(group=fact.group, reason=fact.reason, by=fact.by, at=fact.at)
        case GroupPauseEnded():
            return PauseEnded(group=fact.group)
        case BreakerResumed():
            return Resumed(group=fact.group, generation=fact.generation, at=fact.at)
        case BreakerTripped():
            return Tripped(
                group=fact.group,
                generation=fact.generation,
                resume_at=fact.resume_at,
                dlq_written=fact.dlq_written,
                delivered=fact.delivered,
                threshold_percent=fact.threshold_percent,
                window_ms=fact.window_ms,
                at=fact.at,
            )
        case DlqRegistered():
            return Registered(topic=fact.topic, group=fact.group, at=fact.at)
        case DlqUnregistered():
            return Unregistered(topic=fact.topic, group=fact.group)
        case _:
            return None
