"""A replay plan: which records, in which order, to where; and the rules for its targets.

A plan is immutable: it is made once, and what it lists is all that its replay may write. Rules return the reason for a
refusal, or None.
"""

import fnmatch
import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from headgate.base.errors import HeadgateError
from headgate.dead_letters.model.topic_ids import NAMED
from headgate.dead_letters.model.where import AllOf, AnyOf, ColumnKind, Compare, IsLike, IsNull, Not, Where

PlanAction = Literal["replay", "park", "leave_out"]
ORIGINAL: Final = "original"
NOT_REPLAYABLE: Final = "expired"
UNIDENTIFIED: Final = "unidentified"
SUPERSEDED: Final = "superseded"
ALREADY_REPLAYED: Final = "already_replayed"
OVER_MAX_REPLAYS: Final = "over_max_replays"
MOST_REASONS: Final = 50
_INTERNAL: Final = ("__", "headgate-replay.")

# What an operator reads before a replay; printed with every plan.
ORDER_NOTES: Final = (
    "records are written in the order of their source partitions, so the order of every key is kept",
    "share groups do not process records in order, and live records interleave with replayed ones",
)

# The columns of `dead_letters` that `--where` may name.
WHERE_COLUMNS: Final[Mapping[str, ColumnKind]] = {
    "topic": "text",
    "partition": "number",
    "offset": "number",
    "dlq_topic": "text",
    "dlq_partition": "number",
    "dlq_offset": "number",
    "dead_lettered_at": "time",
    "format": "text",
    "reason": "text",
    "exception": "text",
    "member": "text",
    "delivery_count": "number",
    "copied": "flag",
    "source_state": "text",
    "source_at": "time",
    "key_hash": "text",
    "schema_id": "number",
    "producer_id": "number",
    "type_header": "text",
    "size_bytes": "number",
    "copies": "number",
    "cluster": "text",
}

_HAS_TOPIC_ID: Final = AllOf((Compare("topic_id", "!=", ""), Not(IsLike("topic_id", NAMED + "%"))))
# The dead letters that a plan can replay as long as their content is there: they were not withdrawn, and say which
# record they are of. Connect, Streams and Spring write no topic id, so their records are never read at the source,
# where another topic of that name may be now; the dead letter must have the copy.
PLANNABLE: Final[Where] = AllOf(
    (
        Compare("withdrawn", "=", False),
        Not(IsNull("topic")),
        AnyOf((_HAS_TOPIC_ID, Compare("copied", "=", True))),
    )
)


class PlanNotFoundError(HeadgateError):
    """There is no such plan, or there are no dead letters to plan for."""


class PlanMismatchError(HeadgateError):
    """The answer to a request names a plan that is not the one that was asked for."""


class ReplayRefusedError(HeadgateError):
    """A rule of `[replay]` or of the target topic forbids the replay; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """One dead letter of a plan that is to be written; the source and the dead letter are where its content may be."""

    position: int
    topic: str
    topic_id: str
    partition: int
    offset: int
    dlq_topic: str
    dlq_topic_id: str | None
    dlq_partition: int
    dlq_offset: int
    copied: bool
    action: PlanAction
    why: str | None
    target_topic: str
    target_partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """The head of a plan; `targets` are the ids of the topics that it writes to, by their names."""

    cluster_id: str
    plan: str
    at: int
    by: str
    group: str
    to: str
    targets: Mapping[str, str]
    records: int
    parked: int
    expired: int
    superseded: int
    already_replayed: int
    over_max_replays: int
    reasons: Mapping[str, int]
    readers: tuple[str, ...]
    oldest_at: int | None

    @property
    def to_write(self) -> int:
        return self.records + self.parked


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRules:
    """What `[replay]` and the cluster's dead-letter topics allow."""

    topics: tuple[str, ...]
    dlq_prefix: str
    facts_prefix: str
    dlq_topics: Collection[str] = ()
    parking_topic: str | None = None

    def target_refusal(self, topic: str) -> str | None:
        """Why no record may be replayed into this topic; None when it may."""
        refused = self._reserved(topic)
        if refused is not None:
            return refused
        if not any(fnmatch.fnmatchcase(topic, pattern.replace("[", "[[]")) for pattern in self.topics):
            return f"{topic} is not in [replay] topics: add it there to allow replays into it"
        return None

    def parking_refusal(self) -> str | None:
        """Why no record may be written to the parking topic; None when it may, or when there is none."""
        return None if self.parking_topic is None else self._reserved(self.parking_topic)

    def _reserved(self, topic: str) -> str | None:
        if topic.startswith(self.dlq_prefix) or topic in self.dlq_topics:
            return f"{topic} is a dead-letter topic: dead letters are never replayed into one"
        if topic.startswith((self.facts_prefix, *_INTERNAL)):
            return f"{topic} belongs to Kafka or Headgate: dead letters are never replayed into it"
        return None


def other_readers(edges: Iterable[Mapping[str, object]] | None, group: str) -> tuple[str, ...]:
    """Who would read replayed records beside the group, by rows of `lineage_edges` about the targets.

    Without a map the readers are not known, which is not the same as none.
    """
    if edges is None:
        return ("unknown: there is no table lineage_edges, which shows the readers of a topic",)
    readers = {(str(edge["actor_kind"]), str(edge["app_id"])) for edge in edges if edge["direction"] == "read"}
    return tuple(f"{kind} {name}" for kind, name in sorted(readers - {("share_group", group)}))


def transactional_id(prefix: str, group: str, target: str) -> str:
    """The same for all replays of a group into a topic, so that Kafka fences all but the last one.

    A hash, because names of groups have any characters and lengths.
    """
    spelled = f"{len(group)}:{group}{target}".encode("utf-8", "surrogatepass")
    return prefix + hashlib.sha256(spelled).hexdigest()[:32]


def new_plan_id(at_ms: int, chance: bytes) -> str:
    """An id that sorts by time, is short enough to type, and differs for plans of the same second."""
    return f"{at_ms // 1000:x}-{chance.hex()}"
