"""Polls the end offsets of all topics, so that writes that bypass the gateway are known.

The growth of each topic is written to `headgate.activity` with the rule `end-offsets`, an unattributed actor and no
bytes (docs/facts.md). Worker 0 of a gateway polls, as the service account. A failed poll is repeated; the next one
that succeeds covers its time. The number of partitions is bounded.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog

from headgate.activity.model.end_offset_tracker import (
    EndOffsets,
    EndOffsetTracker,
    RecordsAppended,
    TopicKey,
    next_poll_ms,
)
from headgate.activity.topic_resolver import topic_id_text
from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.base.tasks import retry
from headgate.config.addresses import Address
from headgate.facts import ActivityObserved, Actor, Fact
from headgate.kafka.connections import Connections, Dialler
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.cluster import MetadataRequest, MetadataResponse
from headgate.wire.messages.data import (
    LATEST,
    ListedPartition,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

log = structlog.get_logger()

_MOST_PARTITIONS: Final = 50_000
_PARTITIONS_PER_REQUEST: Final = 2000
_FACTS_PER_WRITE: Final = 50
_RETRY_S: Final = 10.0
_NOT_KNOWN_YET: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_UNATTRIBUTED: Final = Actor(kind="unattributed", name="unattributed", rule="end-offsets", confidence="certain")

_Partition = tuple[TopicKey, int]


class EndOffsetPoller:
    """Runs as a task of the feature."""

    def __init__(
        self,
        read_end_offsets: Callable[[], Awaitable[EndOffsets]],
        write: Callable[[Sequence[Fact]], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._read_end_offsets = read_end_offsets
        self._write = write
        self._clock = clock
        self._tracker = EndOffsetTracker()

    async def run(self) -> None:
        while True:
            await retry(
                self.poll,
                pause_s=_RETRY_S,
                on_problem=lambda problem: log.warning("end offsets could not be read, retrying", problem=problem),
                errors=ClusterError,
            )
            now_ms = self._clock.epoch_ms()
            await asyncio.sleep((next_poll_ms(now_ms) - now_ms) / 1000)

    async def poll(self) -> None:
        """Poll once, and write a fact for each topic that grew."""
        polled = await self._read_end_offsets()
        appended = self._tracker.update(polled, self._clock.epoch_ms())
        for first in range(0, len(appended), _FACTS_PER_WRITE):
            await self._write([_fact(one) for one in appended[first : first + _FACTS_PER_WRITE]])


def _fact(appended: RecordsAppended) -> ActivityObserved:
    return ActivityObserved(
        at=appended.until_ms,
        actor=_UNATTRIBUTED,
        topic=appended.topic.name,
        topic_id=appended.topic.id,
        direction="write",
        since=appended.since_ms,
        until=appended.until_ms,
        bytes=0,
        records=appended.records,
        principal=None,
        client_id=None,
        group=None,
        transactional_id=None,
        software=None,
        host=None,
    )


async def read_end_offsets(dialler: Dialler, *, without_prefix: str) -> EndOffsets:
    """The end offsets of all topics but internal ones and those whose names begin with the prefix.

    The leader of a new partition may not know it yet. It is asked again, so that the partition has an end offset before
    its first records arrive.
    """
    async with Connections(dialler) as connections:
        delay = connections.retry_delay()
        while True:
            link = await connections.bootstrap()
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            metadata = await link.ask(request, lowest=12, highest=13)
            topics, leaders, is_complete = await asyncio.to_thread(_partitions, metadata, without_prefix)
            is_settled = True
            for leader, partitions in leaders.items():
                for first in range(0, len(partitions), _PARTITIONS_PER_REQUEST):
                    some = partitions[first : first + _PARTITIONS_PER_REQUEST]
                    for (topic, partition), listed in (await _list_offsets(connections, leader, some)).items():
                        topics[topic][partition] = None if listed.error_code else listed.offset
                        is_settled = is_settled and listed.error_code not in _NOT_KNOWN_YET
            if is_settled or not await delay.wait():
                return EndOffsets(topics=topics, is_complete=is_complete)


def _partitions(
    metadata: MetadataResponse, without_prefix: str
) -> tuple[dict[TopicKey, dict[int, int | None]], dict[Address, list[_Partition]], bool]:
    """All partitions without their end offsets, the partitions of each leader, and whether these are all topics."""
    brokers = {one.node_id: Address(one.host, one.port) for one in metadata.brokers}
    topics: dict[TopicKey, dict[int, int | None]] = {}
    leaders: dict[Address, list[_Partition]] = defaultdict(list)
    is_complete, count = True, 0
    for topic in metadata.topics:
        if topic.name is not None and (topic.is_internal or topic.name.startswith(without_prefix)):
            continue
        count += len(topic.partitions)
        if topic.error_code or topic.name is None or count > _MOST_PARTITIONS:
            is_complete = False
            continue
        key = TopicKey(topic.name, topic_id_text(topic.topic_id))
        topics[key] = dict.fromkeys(one.partition_index for one in topic.partitions)
        for one in topic.partitions:
            leader = brokers.get(one.leader_id)
            if leader is not None:
                leaders[leader].append((key, one.partition_index))
    return topics, leaders, is_complete


async def _list_offsets(
    connections: Connections, leader: Address, partitions: Sequence[_Partition]
) -> Mapping[_Partition, ListedPartition]:
    """What this leader returned; nothing if it does not answer."""
    keys = {topic.name: topic for topic, _ in partitions}
    asked: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for topic, partition in partitions:
        asked[topic.name].append(ListOffsetsPartition(partition_index=partition, timestamp=LATEST))
    topics = tuple(ListOffsetsTopic(name=name, partitions=tuple(some)) for name, some in asked.items())
    try:
        link = await connections.to(leader)
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        response = await link.ask(request, lowest=1, highest=7)
    except ClusterError:
        return {}
    return {
        (keys[topic.name], one.partition_index): one
        for topic in response.topics
        if topic.name in keys
        for one in topic.partitions
    }
