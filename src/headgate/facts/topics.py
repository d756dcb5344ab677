"""The headgate.* topics as data: names, partitions, policies, and the pure function that gives their configs.

One rule: this says what a topic should be when it is absent; creating it is the gateway's, and what exists is the
operator's.
"""

from dataclasses import dataclass
from typing import Literal

DAY_MS = 86_400_000
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """`retention_ms` None: kept by compaction, or as the broker's default has it."""

    suffix: str
    partitions: int
    cleanup: Literal["compact", "delete"]
    retention_ms: int | None = None
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic as CreateTopics takes it."""

    name: str
    partitions: int
    replication: int
    configs: tuple[tuple[str, str], ...]


TOPICS: tuple[Topic, ...] = (
    Topic(suffix="state", partitions=1, cleanup="compact", meaning="what is decided"),
    Topic(suffix="trips", partitions=1, cleanup="compact", meaning="what the leader decided"),
    Topic(suffix="topologies", partitions=1, cleanup="compact", meaning="topology descriptions, all versions"),
    Topic(suffix="leader", partitions=1, cleanup="delete", meaning="empty: who is assigned its partition leads"),
    Topic(
        suffix="activity",
        partitions=8,
        cleanup="delete",
        retention_ms=90 * DAY_MS,
        meaning="who used which topic, and when",
    ),
    Topic(
        suffix="dispositions",
        partitions=8,
        cleanup="delete",
        retention_ms=30 * DAY_MS,
        meaning="what became of share groups' records",
    ),
    Topic(suffix="events", partitions=8, cleanup="delete", retention_ms=90 * DAY_MS, meaning="what happened"),
)


def message_limit(max_bytes: int) -> int:
    """`max.message.bytes` of `topologies` for a `[topologies] max_bytes`, which bounds a push on the wire.

    The smallest node is 7 bytes in a StreamsGroupTopologyDescriptionUpdate and 71 characters in JSON, and a control
    character becomes six: eleven times holds whatever is pushed. The rest is for the group's name, which also stands
    in the key, and for the record itself.
    """
    return 11 * max_bytes + MIB


def replication_of(brokers: int, configured: int | None = None) -> int:
    """The configured replication factor, or the contract's min(3, brokers)."""
    return configured if configured is not None else max(1, min(3, brokers))


def topic_specs(*, prefix: str, brokers: int, max_bytes: int, replication: int | None = None) -> tuple[TopicSpec, ...]:
    """Every topic with its configs, in the order in which they are created."""
    return tuple(
        TopicSpec(
            name=prefix + topic.suffix,
            partitions=topic.partitions,
            replication=replication_of(brokers, replication),
            configs=_configs(topic, max_bytes),
        )
        for topic in TOPICS
    )


def _configs(topic: Topic, max_bytes: int) -> tuple[tuple[str, str], ...]:
    configs: list[tuple[str, str]] = [("cleanup.policy", topic.cleanup)]
    if topic.retention_ms is not None:
        configs.append(("retention.ms", str(topic.retention_ms)))
    if topic.suffix == "topologies":
        configs.append(("max.message.bytes", str(message_limit(max_bytes))))
    return tuple(configs)


def suffix_of(prefix: str, name: str) -> str | None:
    """The suffix of one of our topics by its whole name, None for any other topic."""
    suffix = name.removeprefix(prefix)
    return suffix if name.startswith(prefix) and any(suffix == topic.suffix for topic in TOPICS) else None
