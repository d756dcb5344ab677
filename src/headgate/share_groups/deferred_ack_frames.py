"""Putting the REJECTs that a member owes into its request, and taking the answers to them out of what it gets.

One rule: what the client itself acknowledges stays as it is, and it never hears of a partition that it did not name.
"""

from dataclasses import replace
from typing import Any, Final

from headgate.base.ids import ApiVersion
from headgate.share_groups.acks import Work
from headgate.share_groups.model.acknowledgements import merged
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

# The two requests have the same shape in types of their own.
_PARTS: Final[dict[type[ShareFetchRequest] | type[ShareAcknowledgeRequest], tuple[Any, Any]]] = {
    ShareFetchRequest: (ShareFetchTopic, ShareFetchPartition),
    ShareAcknowledgeRequest: (ShareAcknowledgeTopic, ShareAcknowledgePartition),
}


def paid(
    kind: type[ShareFetchRequest] | type[ShareAcknowledgeRequest], body: Buffer, version: ApiVersion, work: Work
) -> bytes:
    """The request with a REJECT for all that is owed."""
    of_topic, of_partition = _PARTS[kind]
    message: Any = decode(kind, version, body)
    topics = {one.topic_id: {part.partition_index: part for part in one.partitions} for one in message.topics}
    for (topic_id, index), one in work.partitions.items():
        if not one.debts:
            continue
        partitions = topics.setdefault(topic_id, {})
        was = partitions.get(index) or of_partition(partition_index=index)
        theirs = [
            (batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in was.acknowledgement_batches
        ]
        batches = tuple(
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in merged(theirs, [(debt.wanted.first, debt.wanted.last) for debt in one.debts])
        )
        partitions[index] = replace(was, acknowledgement_batches=batches)
    whole = tuple(of_topic(topic_id=topic_id, partitions=tuple(found.values())) for topic_id, found in topics.items())
    return encode(replace(message, topics=whole), version)


def without_ours(body: Buffer, version: ApiVersion, work: Work) -> bytes:
    """The answer to a ShareAcknowledge without the partitions that only we acknowledged."""
    message = decode(ShareAcknowledgeResponse, version, body)
    ours = {place for place, one in work.partitions.items() if one.is_ours}
    topics = []
    for topic in message.responses:
        kept = tuple(one for one in topic.partitions if (topic.topic_id, one.partition_index) not in ours)
        if kept:
            topics.append(replace(topic, partitions=kept))
    return encode(replace(message, responses=tuple(topics)), version)
