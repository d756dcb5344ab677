"""Streams applications in the classic group protocol: what their leader sees of all members, as a partial description.

The leader of a classic group gets the subscriptions of all members in its JoinGroup response and sends the assignments
of all members in its SyncGroup request, so one connection shows the whole group. Kafka Streams lists one active task
for each assigned partition, from which the source topics of each sub-topology follow. Stores, sinks and processors are
not known.

In a cooperative rebalance a task that moves to another member is in no assignment of that generation. So while the
subscribed topics stay the same, sub-topologies that were seen before are kept.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.base.errors import WireError
from headgate.facts.topology import Description, Node, ProcessorNode, SourceNode, Subtopology
from headgate.topologies.model.topology_graph import id_order
from headgate.wire.classic_streams import StreamsTask, read_assignment, read_subscription
from headgate.wire.primitives import Buffer

UNKNOWN: Final = "unknown"  # the sub-topology of topics of which no task was seen
MAX_SUBTOPOLOGIES: Final = 10_000
_PREFIX: Final = "ASSIGNMENT"

Topics = Mapping[str, frozenset[str]]  # of each sub-topology


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """A member of a classic group; `process` and `host` are None if its subscription does not say them."""

    member: str
    process: str | None = None
    host: str | None = None
    active: tuple[StreamsTask, ...] = ()
    standby: tuple[StreamsTask, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup:
    """The members of a group, and the topics of each sub-topology of which a task was seen."""

    topics: frozenset[str]
    subtopologies: Topics
    members: tuple[ClassicMember, ...] = ()

    @property
    def fingerprint(self) -> str:
        content = {id_: sorted(topics) for id_, topics in self.subtopologies.items()}
        written = json.dumps([sorted(self.topics), content], sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(written.encode()).hexdigest()

    @property
    def size(self) -> int:
        """About the bytes of its description."""
        names = [*self.topics, *(topic for topics in self.subtopologies.values() for topic in topics)]
        return sum(map(len, names)) + 100 * len(self.subtopologies)

    def merged(self, before: "ClassicGroup | None") -> "ClassicGroup":
        """With the sub-topologies that an earlier generation with the same subscription had."""
        if before is None or before.topics != self.topics:
            return self
        ids = before.subtopologies.keys() | self.subtopologies.keys()
        nothing: frozenset[str] = frozenset()
        merged = {id_: before.subtopologies.get(id_, nothing) | self.subtopologies.get(id_, nothing) for id_ in ids}
        return ClassicGroup(topics=self.topics, subtopologies=merged, members=self.members)

    def description(self) -> Description:
        seen = {topic for topics in self.subtopologies.values() for topic in topics}
        parts = [(id_, self.subtopologies[id_]) for id_ in sorted(self.subtopologies, key=id_order)]
        if unseen := self.topics - seen:
            parts.append((UNKNOWN, frozenset(unseen)))
        return Description(subtopologies=tuple(_subtopology(id_, topics) for id_, topics in parts))


def _subtopology(id_: str, topics: frozenset[str]) -> Subtopology:
    processor = ProcessorNode(name=f"{_PREFIX}-{id_}-PROCESSOR")
    source = SourceNode(name=f"{_PREFIX}-{id_}-SOURCE", topics=tuple(sorted(topics)), successors=(processor.name,))
    nodes: tuple[Node, ...] = (source, processor) if topics else (processor,)
    return Subtopology(id=id_, nodes=nodes)


def read_group(subscriptions: Sequence[tuple[str, Buffer]], assignments: Sequence[tuple[str, Buffer]]) -> ClassicGroup:
    """Reads a group from the metadata and assignments of its members; what cannot be read is left out."""
    topics: set[str] = set()
    subtopologies: dict[str, set[str]] = {}
    assigned = dict(assignments)
    members: list[ClassicMember] = []
    for member, metadata in subscriptions:
        process = endpoint = None
        try:
            subscribed, process, endpoint = read_subscription(metadata)
            topics.update(subscribed)
        except WireError:
            pass
        active: tuple[StreamsTask, ...] = ()
        standby: tuple[StreamsTask, ...] = ()
        try:
            active, standby, of_tasks = read_assignment(assigned.get(member, b""))
            for task in (*active, *standby):
                if len(subtopologies) < MAX_SUBTOPOLOGIES:
                    subtopologies.setdefault(task.subtopology, set())
            for task, topic in of_tasks:
                if task.subtopology in subtopologies:
                    subtopologies[task.subtopology].add(topic)
        except WireError:
            pass
        host = None if endpoint is None else endpoint.rpartition(":")[0] or endpoint
        members.append(ClassicMember(member=member, process=process, host=host, active=active, standby=standby))
    frozen = {id_: frozenset(found) for id_, found in subtopologies.items()}
    return ClassicGroup(topics=frozenset(topics), subtopologies=frozen, members=tuple(members))
