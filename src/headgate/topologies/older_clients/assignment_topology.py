"""The topology that a member sends for the assignment of tasks, as a partial description (provenance `assignment`).

A StreamsGroupHeartbeat that joins carries, for each sub-topology, what the broker needs to assign tasks: source topics,
patterns, changelog topics and the repartition topics that are written and read. Processors, sinks for other topics and
global stores are not among it. A client that does not push its description is known by this alone.

The nodes of a partial description have names of their own, which begin with `ASSIGNMENT-`: one source for the topics,
one for each pattern, one processor that holds the stores, and a sink for each repartition topic.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Final

from headgate.facts.topology import Description, Node, ProcessorNode, SinkNode, SourceNode, Subtopology
from headgate.topologies.model.topology_graph import CHANGELOG
from headgate.wire.messages.streams import HeartbeatSubtopology, HeartbeatTopology, TopicInfo

ASSIGNMENT: Final = "assignment"
_PREFIX: Final = "ASSIGNMENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTopology:
    """The topology in a member's join. `size` is that of the request in bytes, `host` the member's own endpoint.

    Members whose fingerprints are equal have sent the same topology, in whatever order its items were listed.
    """

    topology: HeartbeatTopology
    fingerprint: str
    size: int
    host: str | None = None

    @property
    def epoch(self) -> int:
        return self.topology.epoch


def member_topology(topology: HeartbeatTopology, *, size: int, host: str | None = None) -> MemberTopology:
    return MemberTopology(topology=topology, fingerprint=fingerprint(topology), size=size, host=host)


def fingerprint(topology: HeartbeatTopology) -> str:
    """`sha256:...` of everything that a broker compares: topics, their settings and which are co-partitioned."""
    content = sorted(map(_content, topology.subtopologies))
    written = json.dumps([topology.epoch, content], separators=(",", ":"))
    return "sha256:" + hashlib.sha256(written.encode()).hexdigest()


def _content(part: HeartbeatSubtopology) -> list[object]:
    topics, patterns = part.source_topics, part.source_topic_regex
    repartition = tuple(topic.name for topic in part.repartition_source_topics)
    # A co-partition group lists places in these three lists, so it depends on their order; its names do not.
    copartitioned = sorted(
        [
            _at(topics, group.source_topics),
            _at(patterns, group.source_topic_regex),
            _at(repartition, group.repartition_source_topics),
        ]
        for group in part.copartition_groups
    )
    return [
        part.subtopology_id,
        sorted(topics),
        sorted(patterns),
        sorted(map(_topic, part.state_changelog_topics)),
        sorted(part.repartition_sink_topics),
        sorted(map(_topic, part.repartition_source_topics)),
        copartitioned,
    ]


def _topic(topic: TopicInfo) -> list[object]:
    configs = sorted([config.key, config.value] for config in topic.topic_configs)
    return [topic.name, topic.partitions, topic.replication_factor, configs]


def _at(names: tuple[str, ...], places: tuple[int, ...]) -> list[str]:
    return sorted(names[place] if 0 <= place < len(names) else str(place) for place in places)


def partial_description(topology: HeartbeatTopology, application: str) -> Description:
    """What the topology says about the application with this id."""
    return Description(subtopologies=tuple(_subtopology(part, application) for part in topology.subtopologies))


def _subtopology(part: HeartbeatSubtopology, application: str) -> Subtopology:
    prefix = f"{_PREFIX}-{part.subtopology_id}"
    topics = _once(*part.source_topics, *(topic.name for topic in part.repartition_source_topics))
    patterns = _once(*part.source_topic_regex)
    sinks = [
        SinkNode(name=f"{prefix}-SINK-{number}", topic=topic)
        for number, topic in enumerate(_once(*part.repartition_sink_topics))
    ]
    processor = ProcessorNode(
        name=f"{prefix}-PROCESSOR",
        stores=_once(*filter(None, (_store(topic.name, application) for topic in part.state_changelog_topics))),
        successors=tuple(sink.name for sink in sinks),
    )
    sources = [SourceNode(name=f"{prefix}-SOURCE", topics=topics, successors=(processor.name,))] if topics else []
    sources += [
        SourceNode(name=f"{prefix}-SOURCE-{number}", pattern=pattern, successors=(processor.name,))
        for number, pattern in enumerate(patterns)
    ]
    nodes: list[Node] = [*sources, processor, *sinks]
    return Subtopology(id=part.subtopology_id, nodes=tuple(nodes))


def _store(changelog: str, application: str) -> str | None:
    """The store of a changelog topic; None if the name does not say it, as that of a source topic that is one too."""
    prefix = f"{application}-"
    if not changelog.startswith(prefix) or not changelog.endswith(CHANGELOG):
        return None
    return changelog[len(prefix) : -len(CHANGELOG)] or None


def _once(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
