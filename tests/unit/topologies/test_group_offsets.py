"""The lag of a streams group is counted as Kafka's own tool counts it."""

from dataclasses import replace
from typing import cast

import pytest

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiKey
from headgate.kafka.connections import Connections, RetryDelay
from headgate.topologies.group_offsets import Partition, PartitionOffsets, active_partitions, group_offsets
from headgate.wire.messages.cluster import MetadataPartition, MetadataRequest, MetadataTopic
from headgate.wire.messages.data import (
    EARLIEST,
    ListedPartition,
    ListedTopic,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from headgate.wire.messages.streams import (
    Assignment,
    DescribedStreamsGroup,
    DescribedSubtopology,
    DescribedTopology,
    StreamsGroupMember,
    TaskIds,
    TopicInfo,
)
from headgate.wire.schema import Message
from tests.support.scripted_cluster import ScriptedCluster

METADATA = 3
EARLIEST_OFFSET, END = 10, 100


def member(*tasks: TaskIds) -> StreamsGroupMember:
    return StreamsGroupMember(member_id="m", assignment=Assignment(active_tasks=tasks))


GROUP = DescribedStreamsGroup(
    group_id="g",
    group_state="Stable",
    topology=DescribedTopology(
        subtopologies=(
            DescribedSubtopology(subtopology_id="0", source_topics=("in",)),
            DescribedSubtopology(subtopology_id="1", repartition_source_topics=(TopicInfo(name="g-repartition"),)),
        )
    ),
    members=(
        member(TaskIds(subtopology_id="0", partitions=(1,))),
        member(TaskIds(subtopology_id="0", partitions=(0,)), TaskIds(subtopology_id="1", partitions=(0,))),
    ),
)
PARTITIONS = {"in": 2, "g-repartition": 1}


def committed(topic: str, *offsets: tuple[int, int, int]) -> OffsetFetchResponseTopics:
    """Partition, offset, leader epoch."""
    partitions = tuple(
        OffsetFetchResponsePartitions(partition_index=index, committed_offset=offset, committed_leader_epoch=epoch)
        for index, offset, epoch in offsets
    )
    return OffsetFetchResponseTopics(name=topic, partitions=partitions)


class Offsets(ScriptedCluster):
    """A cluster where every partition holds offsets 10 to 99, led by node 0 unless `leaders` says otherwise."""

    def serve(self, *commits: OffsetFetchResponseTopics, error_code: int = 0) -> "Offsets":
        self.leaders: dict[Partition, int] = {}
        self.errors: list[int] = []  # of the next ListOffsets answers
        fetched = OffsetFetchResponseGroup(group_id="g", topics=commits, error_code=error_code)
        self.answers = {
            METADATA: self._led,
            ApiKey.LIST_OFFSETS: self._listed,
            ApiKey.OFFSET_FETCH: lambda _node, _request: OffsetFetchResponse(groups=(fetched,)),
        }
        return self

    def _led(self, _node: int, request: Message) -> Message:
        topics = []
        for name in (topic.name or "" for topic in cast(MetadataRequest, request).topics or ()):
            partitions = tuple(
                MetadataPartition(partition_index=index, leader_id=self.leaders.get(Partition(name, index), 0))
                for index in range(PARTITIONS.get(name, 0))
            )
            topics.append(MetadataTopic(name=name, partitions=partitions, error_code=0 if name in PARTITIONS else 3))
        return replace(self.metadata(), topics=tuple(topics))

    def _listed(self, _node: int, request: Message) -> Message:
        code = self.errors.pop(0) if self.errors else 0
        return ListOffsetsResponse(
            topics=tuple(
                ListedTopic(
                    name=topic.name,
                    partitions=tuple(
                        ListedPartition(
                            partition_index=one.partition_index,
                            error_code=code,
                            offset=EARLIEST_OFFSET if one.timestamp == EARLIEST else END,
                        )
                        for one in topic.partitions
                    ),
                )
                for topic in cast(ListOffsetsRequest, request).topics
            )
        )


async def read(cluster: Offsets, group: DescribedStreamsGroup = GROUP) -> tuple[PartitionOffsets, ...]:
    async with cluster, Connections(cluster.dialler(timeout_s=60.0)) as connections:
        return await group_offsets(connections, group)


async def test_the_lag_is_counted_from_the_commit_or_else_from_the_start() -> None:
    rows = await read(Offsets().serve(committed("in", (0, 60, 4))))
    assert [(row.topic, row.partition, row.current_offset, row.leader_epoch, row.lag) for row in rows] == [
        ("g-repartition", 0, None, None, END - EARLIEST_OFFSET),
        ("in", 0, 60, 4, END - 60),
        ("in", 1, None, None, END - EARLIEST_OFFSET),
    ]
    assert {row.log_end_offset for row in rows} == {END}


async def test_a_commit_counts_for_source_topics_only() -> None:
    rows = await read(Offsets().serve(committed("g-repartition", (0, 60, 4)), committed("in", (0, -1, -1), (1, 7, -1))))
    assert [(row.current_offset, row.leader_epoch) for row in rows] == [(None, None), (None, None), (7, None)]


async def test_all_topics_are_asked_for_in_one_call() -> None:
    cluster = Offsets().serve()
    await read(cluster)
    [asked] = cluster.requests(ApiKey.OFFSET_FETCH)
    [group] = cast(OffsetFetchRequest, asked.request).groups
    assert (asked.version, group.group_id, group.topics) == (9, "g", None)


async def test_each_partition_is_asked_for_at_its_leader() -> None:
    cluster = Offsets(brokers=2).serve()
    cluster.leaders[Partition("in", 1)] = 1
    await read(cluster)
    asked = {
        (one.node, topic.name, partition.partition_index)
        for one in cluster.requests(ApiKey.LIST_OFFSETS)
        for topic in cast(ListOffsetsRequest, one.request).topics
        for partition in topic.partitions
    }
    assert asked == {(0, "g-repartition", 0), (0, "in", 0), (1, "in", 1)}


@pytest.mark.parametrize("code", [5, 6, 74, 75, 78])
async def test_a_leader_that_moved_is_looked_for_again(code: int) -> None:
    cluster = Offsets().serve()
    cluster.errors = [code]
    assert len(await read(cluster)) == 3


async def test_a_leader_that_never_comes_is_an_error_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connections, "retry_delay", lambda _: RetryDelay(deadline=0.0))
    cluster = Offsets().serve()
    cluster.leaders[Partition("in", 1)] = -1
    with pytest.raises(ClusterError, match="partition 1 of topic 'in' has no leader"):
        await read(cluster)


async def test_offsets_that_may_not_be_read_are_an_error_at_once() -> None:
    cluster = Offsets().serve()
    cluster.errors = [29]
    with pytest.raises(ClusterError, match=r"of topic '.*' cannot be read: Topic authorization failed\."):
        await read(cluster)
    with pytest.raises(ClusterError, match=r"the offsets of group 'g' cannot be read: Group authorization failed\."):
        await read(Offsets().serve(error_code=30))


async def test_a_topic_that_is_gone_is_named() -> None:
    subtopology = DescribedSubtopology(subtopology_id="0", source_topics=("gone",))
    group = replace(
        GROUP,
        topology=DescribedTopology(subtopologies=(subtopology,)),
        members=(member(TaskIds(subtopology_id="0", partitions=(0,))),),
    )
    with pytest.raises(ClusterError, match="the offsets of topic 'gone' cannot be read: This server does not host"):
        await read(Offsets().serve(), group)


async def test_a_group_without_tasks_needs_no_call() -> None:
    cluster = Offsets().serve()
    assert await read(cluster, replace(GROUP, members=())) == ()
    assert cluster.asked == []


def test_a_task_of_an_unknown_subtopology_is_an_error_in_the_tools_words() -> None:
    group = replace(GROUP, members=(member(TaskIds(subtopology_id="7", partitions=(0,))),))
    with pytest.raises(ClusterError, match=r"^Subtopology 7 not found in group description!$"):
        active_partitions(group)
