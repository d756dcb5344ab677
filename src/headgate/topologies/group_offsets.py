"""How far a streams group has read: for each partition of its active tasks the committed offset, the end and the lag.

As Kafka's own tool counts: only source topics have committed offsets that count, and where none is committed the lag is
everything that the partition holds.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headgate.base.errors import ClusterError
from headgate.config.addresses import Address
from headgate.kafka.connections import BrokerConnection, Connections, UnsupportedError
from headgate.kafka.group_admin import GroupError, group_error, on_coordinators
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from headgate.wire.messages.data import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from headgate.wire.messages.streams import DescribedStreamsGroup

_AGAIN = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


class Partition(NamedTuple):
    topic: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """`current_offset` and `leader_epoch` are those of the commit, None without one."""

    topic: str
    partition: int
    current_offset: int | None
    leader_epoch: int | None
    log_end_offset: int
    lag: int


class _PassingError(ClusterError):
    """A leader moves or is away: worth another attempt."""


async def group_offsets(connections: Connections, group: DescribedStreamsGroup) -> tuple[PartitionOffsets, ...]:
    """The committed, first and end offsets by topic and partition; empty for a group without active tasks."""
    partitions = active_partitions(group)
    if not partitions:
        return ()
    committed = await _committed(connections, group)
    first = await _list(connections, partitions, EARLIEST)
    end = await _list(connections, partitions, LATEST)
    rows = []
    for partition in partitions:
        current, epoch = committed.get(partition, (None, None))
        rows.append(
            PartitionOffsets(
                topic=partition.topic,
                partition=partition.number,
                current_offset=current,
                leader_epoch=epoch,
                log_end_offset=end[partition],
                lag=end[partition] - (first[partition] if current is None else current),
            )
        )
    return tuple(rows)


def active_partitions(group: DescribedStreamsGroup) -> list[Partition]:
    """What the active tasks of all members read, in order."""
    topics = {}
    for subtopology in () if group.topology is None else group.topology.subtopologies or ():
        repartitions = [topic.name for topic in subtopology.repartition_source_topics]
        topics[subtopology.subtopology_id] = [*subtopology.source_topics, *repartitions]
    found = set()
    for member in group.members:
        for task in member.assignment.active_tasks:
            if task.subtopology_id not in topics:
                raise ClusterError(f"Subtopology {task.subtopology_id} not found in group description!")
            found |= {Partition(topic, number) for topic in topics[task.subtopology_id] for number in task.partitions}
    return sorted(found)


async def _committed(connections: Connections, group: DescribedStreamsGroup) -> dict[Partition, tuple[int, int | None]]:
    answers = await on_coordinators(connections, [group.group_id], _fetch)
    answer = answers[group.group_id]
    if isinstance(answer, GroupError):
        raise ClusterError(f"the offsets of group '{group.group_id}' cannot be read: {answer.text}")
    subtopologies = () if group.topology is None else group.topology.subtopologies or ()
    sources = {topic for subtopology in subtopologies for topic in subtopology.source_topics}
    return {
        Partition(topic.name, one.partition_index): (
            one.committed_offset,
            one.committed_leader_epoch if one.committed_leader_epoch >= 0 else None,
        )
        for topic in answer.topics
        if topic.name in sources
        for one in topic.partitions
        if one.committed_offset >= 0 and not one.error_code
    }


async def _fetch(link: BrokerConnection, groups: Sequence[str]) -> Mapping[str, OffsetFetchResponseGroup | GroupError]:
    # From version 10 on topics have ids instead of names.
    request = OffsetFetchRequest(groups=tuple(OffsetFetchRequestGroup(group_id=one, topics=None) for one in groups))
    answer = await link.ask(request, lowest=8, highest=9)
    return {one.group_id: group_error(one.error_code) if one.error_code else one for one in answer.groups}


async def _list(connections: Connections, partitions: Iterable[Partition], when: int) -> dict[Partition, int]:
    """An offset for each partition, from its leader; again while leaders move, until the time is over."""
    found: dict[Partition, int] = {}
    left = list(partitions)
    delay = connections.retry_delay()
    while True:
        failure = ClusterError("a broker leaves out offsets of partitions that it leads")
        try:
            for leader, led in (await _leaders(connections, left)).items():
                found |= await _list_one(connections, leader, led, when)
        except _PassingError as passing:
            failure = passing
        left = [partition for partition in left if partition not in found]
        if not left:
            return found
        if not await delay.wait():
            raise failure


async def _leaders(connections: Connections, partitions: Iterable[Partition]) -> dict[Address, list[Partition]]:
    link = await connections.bootstrap()
    names = sorted({partition.topic for partition in partitions})
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in names), allow_auto_topic_creation=False
    )
    answer = await link.ask(request, lowest=4, highest=12)
    brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
    leaders: dict[Partition, int] = {}
    for topic in answer.topics:
        _check(topic.error_code, f"topic '{topic.name}'")
        leaders |= {Partition(topic.name or "", one.partition_index): one.leader_id for one in topic.partitions}
    led: dict[Address, list[Partition]] = defaultdict(list)
    for partition in partitions:
        leader = brokers.get(leaders.get(partition, -1))
        if leader is None:
            raise _PassingError(f"partition {partition.number} of topic '{partition.topic}' has no leader")
        led[leader].append(partition)
    return led


async def _list_one(
    connections: Connections, leader: Address, partitions: Iterable[Partition], when: int
) -> dict[Partition, int]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        numbers[partition.topic].append(partition.number)
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=tuple(
            ListOffsetsTopic(
                name=name,
                partitions=tuple(ListOffsetsPartition(partition_index=number, timestamp=when) for number in those),
            )
            for name, those in numbers.items()
        ),
    )
    try:
        link = await connections.to(leader)
        answer = await link.ask(request, lowest=1, highest=7)
    except UnsupportedError:
        raise
    except ClusterError as failure:
        raise _PassingError(str(failure)) from None
    found = {}
    for topic in answer.topics:
        for one in topic.partitions:
            _check(one.error_code, f"partition {one.partition_index} of topic '{topic.name}'")
            found[Partition(topic.name, one.partition_index)] = one.offset
    return found


def _check(code: int, what: str) -> None:
    if code:
        text = f"the offsets of {what} cannot be read: {group_error(code).text}"
        raise _PassingError(text) if code in _AGAIN else ClusterError(text)
