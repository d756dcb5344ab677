"""Requests of the lag poller: groups of a broker, their committed offsets, leaders and end offsets of partitions.

Responses become plain tuples on a thread. A group's error is a value beside the offsets of the others; a broker that
does not answer is a `ClusterError`. Versions that have topic ids instead of names are not used.
"""

import asyncio
import base64
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast, get_args

from headgate.base.errors import ClusterError
from headgate.config.addresses import Address
from headgate.facts.lags import GroupKind
from headgate.kafka.connections import BrokerConnection
from headgate.kafka.group_admin import group_error
from headgate.lags.model.group_lags import TopicOffsets, TopicPartition
from headgate.lags.model.round_plan import LagGroup
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headgate.wire.messages.data import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from headgate.wire.messages.groups import ListGroupsRequest, ListGroupsResponse
from headgate.wire.messages.share import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareOffsetsRequestGroup,
)

_KINDS: Final = frozenset(get_args(GroupKind))

GroupAnswers = Mapping[str, tuple[TopicOffsets, ...] | int]  # an `int` is an error code


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLeaders:
    """The ids of topics, and the node that leads each partition."""

    ids: Mapping[str, str]
    leaders: Mapping[TopicPartition, int]


async def broker_addresses(link: BrokerConnection) -> dict[int, Address]:
    answer = await link.ask(MetadataRequest(topics=(), allow_auto_topic_creation=False), lowest=4, highest=12)
    return {one.node_id: Address(one.host, one.port) for one in answer.brokers}


async def listed_groups(link: BrokerConnection, node: int) -> list[LagGroup]:
    """The groups that this broker coordinates, as far as the account may describe them."""
    answer = await link.ask(ListGroupsRequest(), lowest=5, highest=5)
    if answer.error_code:
        raise ClusterError(f"node {node} does not list its groups: {group_error(answer.error_code).text}")
    return await asyncio.to_thread(_listed, answer, node)


def _listed(answer: ListGroupsResponse, node: int) -> list[LagGroup]:
    """Types of groups that later brokers may have are left out: it is not known where their offsets are."""
    return [
        LagGroup(one.group_id, cast(GroupKind, one.group_type.lower()), node)
        for one in answer.groups
        if one.group_type.lower() in _KINDS
    ]


async def group_offsets(link: BrokerConnection, groups: Sequence[LagGroup]) -> GroupAnswers:
    """The offsets of groups of one request of the plan, by group: all of them are share groups, or none is."""
    if groups[0].kind == "share":
        described = DescribeShareGroupOffsetsRequest(
            groups=tuple(ShareOffsetsRequestGroup(group_id=one.name, topics=None) for one in groups)
        )
        return await asyncio.to_thread(_share_offsets, await link.ask(described, lowest=0, highest=1))
    fetched = OffsetFetchRequest(
        groups=tuple(OffsetFetchRequestGroup(group_id=one.name, topics=None) for one in groups)
    )
    return await asyncio.to_thread(_committed_offsets, await link.ask(fetched, lowest=8, highest=9))


def _committed_offsets(answer: OffsetFetchResponse) -> GroupAnswers:
    found: dict[str, tuple[TopicOffsets, ...] | int] = {}
    for group in answer.groups:
        if group.error_code:
            found[group.group_id] = group.error_code
            continue
        topics = []
        for topic in group.topics:
            # A partition without a commit has -1.
            some = [one for one in topic.partitions if one.committed_offset >= 0 and not one.error_code]
            some.sort(key=lambda one: one.partition_index)
            if some:
                partitions = tuple(one.partition_index for one in some)
                topics.append(TopicOffsets(topic.name, partitions, tuple(one.committed_offset for one in some)))
        found[group.group_id] = tuple(topics)
    return found


def _share_offsets(answer: DescribeShareGroupOffsetsResponse) -> GroupAnswers:
    found: dict[str, tuple[TopicOffsets, ...] | int] = {}
    for group in answer.groups:
        if group.error_code:
            found[group.group_id] = group.error_code
            continue
        topics = []
        for topic in group.topics:
            some = sorted((one for one in topic.partitions if not one.error_code), key=lambda one: one.partition_index)
            if some:
                topics.append(
                    TopicOffsets(
                        topic.topic_name,
                        tuple(one.partition_index for one in some),
                        tuple(one.start_offset if one.start_offset >= 0 else None for one in some),
                        # Brokers before version 1 of this request count none.
                        tuple(one.lag if one.lag >= 0 else None for one in some),
                    )
                )
        found[group.group_id] = tuple(topics)
    return found


async def topic_leaders(link: BrokerConnection, topics: Sequence[str]) -> TopicLeaders:
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in topics), allow_auto_topic_creation=False
    )
    return await asyncio.to_thread(_leaders, await link.ask(request, lowest=4, highest=12))


def _leaders(answer: MetadataResponse) -> TopicLeaders:
    ids: dict[str, str] = {}
    leaders: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        if topic.name is None or topic.error_code:
            continue
        if any(topic.topic_id):
            ids[topic.name] = base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("=")
        leaders |= {(topic.name, one.partition_index): one.leader_id for one in topic.partitions if one.leader_id >= 0}
    return TopicLeaders(ids=ids, leaders=leaders)


async def end_offsets(link: BrokerConnection, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    """The end offsets of partitions that this broker leads; those with an error are not in the result."""
    asked: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for topic, number in partitions:
        asked[topic].append(ListOffsetsPartition(partition_index=number, timestamp=LATEST))
    topics = tuple(ListOffsetsTopic(name=name, partitions=tuple(some)) for name, some in asked.items())
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    return await asyncio.to_thread(_ends, await link.ask(request, lowest=1, highest=7))


def _ends(answer: ListOffsetsResponse) -> Mapping[TopicPartition, int]:
    return {
        (topic.name, one.partition_index): one.offset
        for topic in answer.topics
        for one in topic.partitions
        if not one.error_code and one.offset >= 0
    }
