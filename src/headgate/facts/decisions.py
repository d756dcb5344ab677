"""Decisions: the facts of `state` and `trips`, compacted topics in which the last record of a key wins.

Invariant: a fold over these never compares values, so compaction cannot change its result.
"""

from typing import Annotated, Literal

from headgate.facts.codec import Ended, Fact, fact
from headgate.facts.json_form import INT32_MAX, Time, Whole

By = Annotated[str, "the principal that did it"]
Group = Annotated[str, "the group"]
ShareGroup = Annotated[str, "the share group"]
ConfigName = Annotated[str, "the name of the config"]
DlqTopic = Annotated[str, "the dead letter topic"]
Generation = Annotated[int, "the generation of the group's breaker, counted by its trips"]
ReplayState = Literal["PLANNED", "RUNNING", "PAUSED", "DONE", "FAILED", "ABORTED"]


@fact(topic="state", key=("group_config", "group", "name"))
class GroupConfigSet(Fact):
    """A group config that the broker does not know was set."""

    group: Group
    name: ConfigName
    value: Annotated[str, "its value"]
    by: By


@fact(topic="state", key=("group_config", "group", "name"))
class GroupConfigUnset(Ended):
    """A group config has its default again."""

    group: Group
    name: ConfigName


@fact(topic="state", key=("pause", "group"))
class GroupPaused(Fact):
    """An operator paused the group."""

    group: ShareGroup
    reason: Annotated[str, "the operator's reason"]
    by: By


@fact(topic="state", key=("pause", "group"))
class GroupPauseEnded(Ended):
    """The operator's pause ended; pauses by the breaker are `BreakerTripped`."""

    group: ShareGroup


@fact(topic="state", key=("resumed", "group"))
class BreakerResumed(Fact):
    """The breaker's pause ended, for all trips up to and including this generation."""

    group: ShareGroup
    generation: Generation


@fact(topic="state", key=("dlq", "topic", "group"))
class DlqRegistered(Fact):
    """The group writes its dead letters to this topic."""

    topic: DlqTopic
    group: ShareGroup


@fact(topic="state", key=("dlq", "topic", "group"))
class DlqUnregistered(Ended):
    """The group no longer writes its dead letters to this topic."""

    topic: DlqTopic
    group: ShareGroup


@fact(topic="state", key=("topology", "group"))
class TopologyEpochsSet(Fact):
    """The epoch that a store other than kafka: holds for a group, and the one that failed permanently (KIP-1331)."""

    group: Group
    incarnation: Annotated[str, "one life of the group"]
    stored_epoch: Annotated[int, "the epoch that the store holds; -1 none, -2 uncertain", Whole(-2, INT32_MAX)]
    failed_epoch: Annotated[int, "the epoch that failed permanently; -1 none", Whole(-1, INT32_MAX)]


@fact(topic="state", key=("topology", "group"))
class TopologyEpochsRemoved(Ended):
    """No epochs are kept for the group any more: it was deleted some time ago, or its records were purged."""

    group: Group


@fact(topic="state", key=("replay", "plan"))
class ReplayStateChanged(Fact):
    """A replay plan changed its state."""

    plan: Annotated[str, "the id of the plan"]
    state: Annotated[ReplayState, "its new state"]
    by: By


@fact(topic="trips", key=("group",))
class BreakerTripped(Fact):
    """The leader's breaker paused the group."""

    group: ShareGroup
    generation: Generation
    resume_at: Annotated[int | None, "when the pause ends by itself; null is never", Time()]
    dlq_written: Annotated[int, "how many dead letters were written in the window"]
    delivered: Annotated[int, "how many records were delivered in the window"]
    threshold_percent: Annotated[int, "the configured threshold: dead letters in percent of deliveries", Whole(1, 100)]
    window_ms: Annotated[int, "the length of the window", Whole(1)]
