"""Observations: the facts of `activity`, `dispositions` and `events`, appended and kept for a time.

Invariant: these are written at least once, so each of them can be told from its own copy (`identity`).
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from headgate.facts.codec import Ended, Fact, fact
from headgate.facts.json_form import INT32_MAX, Counts, Extra, JsonName, JsonText, Time, Whole

ActorKind = Literal["connector", "streams", "share_group", "consumer_group", "spark", "client", "unattributed"]
NO_DETAIL = JsonText("{}")
Confidence = Literal["certain", "likely", "guess"]
Direction = Literal["read", "write"]
EventName = Literal[
    "tripped",
    "paused",
    "resumed",
    "write_timeout",
    "late_write",
    "dead_letter_withdrawn",
    "isolation_conflict",
    "topology_mismatch",
    "config_changed",
    "operation",
]
TopicName = Annotated[str | None, "the topic; null while its id had no name yet"]
TopicId = Annotated[str | None, "its id; null where it is unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The user of a topic, the rule that identified it, and how certain that is."""

    kind: Annotated[ActorKind, "the kind of the actor"]
    name: Annotated[str, "the actor's name"]
    rule: Annotated[str, "the rule that identified the actor"]
    confidence: Annotated[Confidence, "how certain the rule is"]
    extra: Extra = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """The name and version that the client sent in ApiVersions."""

    name: Annotated[str | None, "the client's software; null when the client does not send it"]
    version: Annotated[str | None, "the version of that; null when the client does not send it"]
    extra: Extra = ()


@fact(topic="activity", key=("writer", "boot", "seq"))
class ActivityObserved(Fact):
    """An actor used a topic between `since` and `until`, which are `from` and `to` in the record."""

    actor: Actor
    topic: TopicName
    topic_id: TopicId
    direction: Annotated[Direction, "how the topic was used"]
    since: Annotated[int, "the beginning of the interval, by the gateway's clock", JsonName("from"), Time()]
    until: Annotated[int, "the end of the interval, by the gateway's clock", JsonName("to"), Time()]
    bytes: Annotated[int, "how many bytes this interval adds"]
    records: Annotated[int | None, "how many records; null when they were not counted"]
    principal: Annotated[str | None, "the authenticated principal; null when there was none"]
    client_id: Annotated[str | None, "the client id; null when the client does not send it"]
    group: Annotated[str | None, "its group; null when it has none"]
    transactional_id: Annotated[str | None, "its transactional id; null when it has none"]
    software: Software | None
    host: Annotated[str | None, "the address of the client; null when it is unknown"]


@fact(topic="dispositions", key=("group",), key_in_value=True)
class DispositionsCounted(Fact):
    """Counts of the dispositions of one second, of one member of a share group and one partition."""

    group: Annotated[str, "the share group"]
    member: Annotated[str, "its member"]
    topic: TopicName
    topic_id: TopicId
    partition: Annotated[int, "the partition", Whole(0, INT32_MAX)]
    second: Annotated[int, "the second, by the gateway's clock", Time(unit="seconds")]
    generation: Annotated[int, "the generation of the group's breaker"]
    accepted: Annotated[int, "how many records were accepted"]
    released: Annotated[int, "how many were released"]
    rejected: Annotated[int, "how many were rejected"]
    over_limit: Annotated[int, "how many had reached the delivery count limit"]
    dead_lettered: Annotated[int, "how many were written to the dead letter topic"]
    write_timeouts: Annotated[int, "how many of these writes timed out"]
    by_delivery_count: Annotated[
        tuple[tuple[int, int], ...],
        "how many records had which delivery count; 0 is unknown",
        Counts(),
    ]


@fact(topic="events", key=("subject_kind", "subject"), first="id")
class EventHappened(Fact):
    """An event of interest to operators, about a subject such as ("share_group", "sg"); one for each `id`."""

    subject_kind: Annotated[str, "the kind of the subject: application, share_group and so on"]
    subject: Annotated[str, "the name of the subject"]
    id: Annotated[str, "the event's own id"]
    event: Annotated[EventName, "the event"]
    by: Annotated[str | None, "the principal that did it; null when Headgate did"]
    detail: Annotated[JsonText, "further fields of the event"] = NO_DETAIL


def identity(fact: Fact | Ended) -> tuple[object, ...] | None:
    """A value that all copies of one fact share and no other fact has; None when its writer left it out.

    In compacted topics the last record of a key wins, and a copy changes nothing.
    """
    if isinstance(fact, EventHappened):
        return (fact.cluster, fact.id)
    if isinstance(fact, Ended) or fact.writer is None:
        return None
    return (fact.cluster, fact.writer, fact.boot, fact.seq)
