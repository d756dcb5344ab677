"""The headgate.* topics: names, partitions, policies and configs that the gateway creates absent topics with."""

from dataclasses import dataclass
from typing import Literal

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
MIB = 1024 * 1024
SPOOL = "spool"
LARGEST_DEAD_LETTER = 16 * MIB
# From this replication factor on a record is confirmed when two replicas have it, and one broker may still be down.
_REPLICATION_FOR_TWO_IN_SYNC = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FactTopic:
    """One topic; `retention_ms` None leaves retention to compaction or to the broker's default."""

    suffix: str
    partitions: int
    cleanup: Literal["compact", "delete"]
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic as CreateTopics takes it."""

    name: str
    partitions: int
    replication: int
    configs: tuple[tuple[str, str], ...]


TOPICS = (
    FactTopic(suffix="state", partitions=1, cleanup="compact"),
    FactTopic(suffix="trips", partitions=1, cleanup="compact"),
    FactTopic(suffix="topologies", partitions=1, cleanup="compact"),
    FactTopic(suffix="tasks", partitions=1, cleanup="compact"),
    FactTopic(suffix="leader", partitions=1, cleanup="delete"),  # no records: its assignment elects the leader
    FactTopic(suffix="activity", partitions=8, cleanup="delete", retention_ms=90 * DAY_MS),
    FactTopic(suffix="dispositions", partitions=8, cleanup="delete", retention_ms=30 * DAY_MS),
    FactTopic(suffix="events", partitions=8, cleanup="delete", retention_ms=90 * DAY_MS),
    FactTopic(suffix="lags", partitions=8, cleanup="delete", retention_ms=2 * DAY_MS),
    FactTopic(suffix=SPOOL, partitions=8, cleanup="compact"),  # dead letters that wait for their topic
)


def message_limit(max_bytes: int) -> int:
    """`max.message.bytes` of `topologies` for a `[topologies] max_bytes`, which bounds a push on the wire.

    The smallest node is 7 bytes in a StreamsGroupTopologyDescriptionUpdate and 71 characters in JSON, and a control
    character becomes six: eleven times the size on the wire is enough. The rest is for the group's name, which is also
    in the key, and for the record itself.
    """
    return 11 * max_bytes + MIB


def replication_of(brokers: int, configured: int | None = None) -> int:
    """The configured replication factor, or the contract's min(3, brokers)."""
    return configured if configured is not None else max(1, min(3, brokers))


def topic_specs(*, prefix: str, brokers: int, max_bytes: int, replication: int | None = None) -> tuple[TopicSpec, ...]:
    """Every topic with its configs, in the order in which they are created."""
    factor = replication_of(brokers, replication)
    return tuple(
        TopicSpec(
            name=prefix + topic.suffix,
            partitions=topic.partitions,
            replication=factor,
            configs=_configs(topic, max_bytes, factor),
        )
        for topic in TOPICS
    )


def _configs(topic: FactTopic, max_bytes: int, replication: int) -> tuple[tuple[str, str], ...]:
    configs: list[tuple[str, str]] = [("cleanup.policy", topic.cleanup)]
    if replication >= _REPLICATION_FOR_TWO_IN_SYNC:
        configs.append(("min.insync.replicas", "2"))
    if topic.retention_ms is not None:
        configs.append(("retention.ms", str(topic.retention_ms)))
    if topic.suffix == "topologies":
        configs.append(("max.message.bytes", str(message_limit(max_bytes))))
    if topic.suffix == SPOOL:
        # Its headers and key come on top of the dead letter. Only closed segments are compacted, and every worker
        # reads the whole topic when it starts, so segments are small.
        configs += [
            ("max.message.bytes", str(LARGEST_DEAD_LETTER + MIB)),
            ("segment.bytes", str(64 * MIB)),
            ("segment.ms", str(HOUR_MS)),
        ]
    return tuple(configs)


def suffix_of(prefix: str, name: str) -> str | None:
    """The suffix of a headgate.* topic by its whole name, None for any other topic."""
    suffix = name.removeprefix(prefix)
    return suffix if name.startswith(prefix) and any(suffix == topic.suffix for topic in TOPICS) else None
