"""What was seen: the facts of `activity`, `dispositions` and `events`, appended and kept for a time.

One rule: these are written at least once, so every one of them can be told from its own copy (`codec.identity`).
"""

from dataclasses import dataclass
from typing import Literal, get_args

from headgate.facts.canonical import JsonText
from headgate.facts.forms import AT, CLUSTER, COMMON, GROUP, ORIGIN, Fact, Form
from headgate.facts.shapes import INT32_MAX, Counts, Extra, FreeObject, Member, Nullable, OneOf, Struct, Text, Whole

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who it was, the rule that told so, and how sure that is."""

    kind: ActorKind
    name: str
    rule: str
    confidence: Confidence
    extra: Extra = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """What the client calls itself in ApiVersions."""

    name: str | None
    version: str | None
    extra: Extra = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityObserved(Fact):
    """An actor used a topic between `since` and `until` (`from` and `to` in the record); `bytes` is what it added.

    Its key is (writer, boot, seq), so these are always there.
    """

    actor: Actor
    topic: str | None
    topic_id: str | None
    direction: Direction
    since: int
    until: int
    bytes: int
    records: int | None
    principal: str | None
    client_id: str | None
    group: str | None
    transactional_id: str | None
    software: Software | None
    host: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DispositionsCounted(Fact):
    """What became of a share group's records in one second, as the broker's answers told it.

    `by_delivery_count` pairs a delivery count with how many records had it; 0 is a count that nobody knows.
    """

    group: str
    member: str
    topic: str | None
    topic_id: str | None
    partition: int
    second: int
    generation: int
    accepted: int
    released: int
    rejected: int
    over_limit: int
    dead_lettered: int
    write_timeouts: int
    by_delivery_count: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHappened(Fact):
    """Something that an operator may want to know of a subject such as ("share_group", "sg"), once for each `id`."""

    subject_kind: str
    subject: str
    id: str
    event: EventName
    by: str | None
    detail: JsonText = NO_DETAIL


_ACTOR = Struct(
    Actor,
    (
        Member("kind", OneOf(get_args(ActorKind))),
        Member("name", Text()),
        Member("rule", Text()),
        Member("confidence", OneOf(get_args(Confidence))),
    ),
)
_SOFTWARE = Struct(Software, (Member("name", Nullable(Text())), Member("version", Nullable(Text()))))
_TOPIC = Member("topic", Nullable(Text()))
_TOPIC_ID = Member("topic_id", Nullable(Text()))

FORMS = (
    Form(
        ActivityObserved,
        "activity",
        (Member("writer", Text()), Member("boot", Text()), Member("seq", Whole())),
        (
            AT,
            Member("actor", _ACTOR),
            _TOPIC,
            _TOPIC_ID,
            Member("direction", OneOf(get_args(Direction))),
            Member("from", Whole(), "since"),
            Member("to", Whole(), "until"),
            Member("bytes", Whole()),
            Member("records", Nullable(Whole())),
            Member("principal", Nullable(Text())),
            Member("client_id", Nullable(Text())),
            Member("group", Nullable(Text())),
            Member("transactional_id", Nullable(Text())),
            Member("software", Nullable(_SOFTWARE)),
            Member("host", Nullable(Text())),
            CLUSTER,
        ),
    ),
    Form(
        DispositionsCounted,
        "dispositions",
        (GROUP,),
        (
            AT,
            GROUP,
            Member("member", Text()),
            _TOPIC,
            _TOPIC_ID,
            Member("partition", Whole(0, INT32_MAX)),
            Member("second", Whole()),
            Member("generation", Whole()),
            Member("accepted", Whole()),
            Member("released", Whole()),
            Member("rejected", Whole()),
            Member("over_limit", Whole()),
            Member("dead_lettered", Whole()),
            Member("write_timeouts", Whole()),
            Member("by_delivery_count", Counts()),
            *COMMON,
        ),
    ),
    Form(
        EventHappened,
        "events",
        (Member("subject_kind", Text()), Member("subject", Text())),
        (
            Member("id", Text()),
            AT,
            Member("event", OneOf(get_args(EventName))),
            Member("by", Nullable(Text())),
            Member("detail", FreeObject()),
            CLUSTER,
            *ORIGIN,
        ),
    ),
)
