"""Deferred acknowledgements: REJECTs that Headgate adds to a member's later request.

Records over the delivery limit are removed from a member's response and have to be rejected in its name. A deferred
acknowledgement expires with the lock of its records: then the broker makes them available again, and the next member
that acquires them finds them over the limit again. So losing one loses no record, and their number can be bounded.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from headgate.base.ids import ApiVersion
from headgate.share_groups.model.dead_letter_ranges import DeadLetterOutcome, DeadLetterRange
from headgate.share_groups.model.dispositions import merge_rejects
from headgate.wire.codec import decode, encode
from headgate.wire.messages.share import (
    AcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from headgate.wire.primitives import Buffer

MAX_MEMBERS: Final = 20_000
MAX_RANGES: Final = 2_000  # of one member; by default a broker lets it hold 2,000 records of a partition
TopicPartitionKey = tuple[bytes, int]
"""Topic id and partition."""


@dataclass(frozen=True, slots=True)
class DeferredAck:
    """One range to reject before `until`; `writing` has its outcome, at `index`."""

    range: DeadLetterRange
    until: float
    writing: "asyncio.Task[list[DeadLetterOutcome]]"
    index: int


class DeferredAcks:
    """By (group, member), as share sessions are."""

    def __init__(self) -> None:
        self._members: OrderedDict[tuple[str, str], list[DeferredAck]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._members)

    def add(self, deferred: DeferredAck) -> None:
        member = deferred.range.key[:2]
        of_member = self._members.setdefault(member, [])
        of_member.append(deferred)
        if len(of_member) > MAX_RANGES:
            del of_member[0]
        if len(self._members) > MAX_MEMBERS:
            self._members.popitem(last=False)

    def take(self, group: str, member: str, now: float, *, is_last: bool) -> list[DeferredAck]:
        """Remove and return those that can be sent now; `is_last`: no other request of the member will come.

        While its dead letters are being written one stays for a later request, so that an unavailable dead-letter
        topic does not hold the fetches of its group.
        """
        valid = [one for one in self._members.pop((group, member), ()) if one.until > now]
        if is_last:
            return valid
        pending = [one for one in valid if not one.writing.done()]
        if pending:
            self._members[group, member] = pending
        return [one for one in valid if one.writing.done()]


# The two requests have the same shape in types of their own.
_REQUEST_TYPES: Final[dict[type[ShareFetchRequest] | type[ShareAcknowledgeRequest], tuple[Any, Any]]] = {
    ShareFetchRequest: (ShareFetchTopic, ShareFetchPartition),
    ShareAcknowledgeRequest: (ShareAcknowledgeTopic, ShareAcknowledgePartition),
}


def add_rejects(
    kind: type[ShareFetchRequest] | type[ShareAcknowledgeRequest],
    body: Buffer,
    version: ApiVersion,
    rejects: Mapping[TopicPartitionKey, Sequence[tuple[int, int]]],
) -> bytes:
    """The request with a REJECT for each of these offset ranges; the client's own acknowledgements stay as they are."""
    topic_type, partition_type = _REQUEST_TYPES[kind]
    message: Any = decode(kind, version, body)
    topics = {one.topic_id: {part.partition_index: part for part in one.partitions} for one in message.topics}
    for (topic_id, index), ranges in rejects.items():
        partitions = topics.setdefault(topic_id, {})
        before = partitions.get(index) or partition_type(partition_index=index)
        of_client = [
            (batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in before.acknowledgement_batches
        ]
        batches = tuple(
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in merge_rejects(of_client, ranges)
        )
        partitions[index] = replace(before, acknowledgement_batches=batches)
    whole = tuple(topic_type(topic_id=topic_id, partitions=tuple(found.values())) for topic_id, found in topics.items())
    return encode(replace(message, topics=whole), version)


def remove_partitions(body: Buffer, version: ApiVersion, added: Collection[TopicPartitionKey]) -> bytes:
    """The response to a ShareAcknowledge without the partitions that the client did not name."""
    message = decode(ShareAcknowledgeResponse, version, body)
    topics = []
    for topic in message.responses:
        kept = tuple(one for one in topic.partitions if (topic.topic_id, one.partition_index) not in added)
        if kept:
            topics.append(replace(topic, partitions=kept))
    return encode(replace(message, responses=tuple(topics)), version)
