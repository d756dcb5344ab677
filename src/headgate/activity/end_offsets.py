"""The end offsets of all topics of a cluster, as the service account sees them.

One rule: what cannot be asked for is left out, and the number of partitions is bounded; this is for an estimate.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from headgate.base.errors import ClusterError
from headgate.config.addresses import Address
from headgate.kafka.connections import Connections, Dialler
from headgate.wire.messages.cluster import MetadataRequest, MetadataResponse
from headgate.wire.messages.offsets import (
    LATEST,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

MOST_PARTITIONS: Final = 50_000
_METADATA: Final = 3
_PARTITIONS_A_CALL: Final = 2000
_Led = dict[Address, list[tuple[str, int]]]


async def end_offsets(dialler: Dialler, *, without: str) -> dict[tuple[str, bytes], dict[int, int]]:
    """By topic's name and id, then by partition; without internal topics and those that begin with `without`."""
    async with Connections(dialler) as connections:
        link = await connections.bootstrap()
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = await link.ask(_METADATA, request, MetadataResponse, lowest=12, highest=13)
        ids, led = _leaders(answer, without)
        found: dict[tuple[str, bytes], dict[int, int]] = defaultdict(dict)
        for leader, partitions in led.items():
            for first in range(0, len(partitions), _PARTITIONS_A_CALL):
                some = partitions[first : first + _PARTITIONS_A_CALL]
                for (name, number), end in (await _ask(connections, leader, some)).items():
                    found[name, ids[name]][number] = end
        return dict(found)


def _leaders(answer: MetadataResponse, without: str) -> tuple[dict[str, bytes], _Led]:
    brokers = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
    ids: dict[str, bytes] = {}
    led: _Led = defaultdict(list)
    count = 0
    for topic in answer.topics:
        if topic.error_code or topic.name is None or topic.is_internal or topic.name.startswith(without):
            continue
        count += len(topic.partitions)
        if count > MOST_PARTITIONS:
            break
        ids[topic.name] = topic.topic_id
        for one in topic.partitions:
            leader = brokers.get(one.leader_id)
            if leader is not None:
                led[leader].append((topic.name, one.partition_index))
    return ids, led


async def _ask(
    connections: Connections, leader: Address, partitions: list[tuple[str, int]]
) -> Mapping[tuple[str, int], int]:
    numbers: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for name, number in partitions:
        numbers[name].append(ListOffsetsPartition(partition_index=number, timestamp=LATEST))
    topics = tuple(ListOffsetsTopic(name=name, partitions=tuple(those)) for name, those in numbers.items())
    try:
        link = await connections.to(leader)
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        answer = await link.ask(LIST_OFFSETS, request, ListOffsetsResponse, lowest=1, highest=7)
    except ClusterError:
        return {}
    return {
        (topic.name, one.partition_index): one.offset
        for topic in answer.topics
        for one in topic.partitions
        if not one.error_code
    }
