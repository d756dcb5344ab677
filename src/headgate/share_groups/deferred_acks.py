"""Deferred acknowledgements: REJECTs that Headgate adds to a member's later request.

Records over the delivery limit are removed from a member's response and have to be rejected in its name. A deferred
acknowledgement expires with the lock of its records: then the broker makes them available again, and the next member
that acquires them finds them over the limit again. So losing one loses no record, and their number can be bounded.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from headgate.base.ids import ApiVersion
from headgate.share_groups.model.dead_letter_records import DeadLetterOutcome, DeadLetterRange
from headgate.share_groups.model.delivery_ledger import AckType
from headgate.wire.codec import decode, encode
from headgate.wire.messages.share import (
    AcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
    ShareForgottenTopic,
)
from headgate.wire.primitives import Buffer
from headgate.wire.share_requests import ShareRequest

MAX_MEMBERS: Final = 20_000
MAX_RANGES: Final = 2_000  # of one member; by default a broker lets it hold 2,000 records of a partition
FIRST_EPOCH: Final = 0  # of a share session
LAST_EPOCH: Final = -1
_PENDING: Final = "it was still being written when its member acknowledged for the last time"
TopicPartitionKey = tuple[bytes, int]
"""Topic id and partition."""
SessionKey = tuple[int, str, str]
"""The number of the connection, group and member."""
Batch = tuple[int, int, tuple[int, ...]]
"""First offset, last offset, AcknowledgeTypes: one for all offsets, or one for each."""


@dataclass(frozen=True, slots=True)
class DeferredAck:
    """One range to reject before `until`, when its lock may end; `writing` has its outcome, at `index`."""

    range: DeadLetterRange
    until: float
    writing: "asyncio.Task[list[DeadLetterOutcome]]"
    index: int

    async def outcome(self, timeout_s: float) -> DeadLetterOutcome:
        """The outcome of its dead letters; after the timeout they count as not written."""
        await asyncio.wait({self.writing}, timeout=timeout_s)
        return self._written() or self.range.failed(_PENDING)

    def call_when_written(self, take: Callable[[DeadLetterOutcome], None]) -> None:
        """Call `take` with the outcome, at once or when there is one, and never if the writing fails."""

        def call(_: object) -> None:
            if (outcome := self._written()) is not None:
                take(outcome)

        if self.writing.done():
            call(self.writing)
        else:
            self.writing.add_done_callback(call)

    def _written(self) -> DeadLetterOutcome | None:
        writing = self.writing
        if not writing.done() or writing.cancelled() or writing.exception() is not None:
            return None
        return writing.result()[self.index]


class _MemberAcks:
    """The deferred acknowledgements of one member, and which of their partitions have left its share session."""

    __slots__ = ("acks", "left")

    def __init__(self) -> None:
        self.acks: list[DeferredAck] = []
        self.left: set[TopicPartitionKey] = set()


class DeferredAcks:
    """Keeps deferred acknowledgements by connection (on which the records were acquired), group and member.

    They are not sent on another connection: when a connection ends, the broker makes its records available again.
    """

    def __init__(self) -> None:
        self._members: OrderedDict[SessionKey, _MemberAcks] = OrderedDict()
        self._connections: dict[int, set[SessionKey]] = {}

    def __bool__(self) -> bool:
        return bool(self._members)

    def add(self, key: SessionKey, deferred: DeferredAck) -> list[DeferredAck]:
        """Returns those that are dropped for it."""
        of_member = self._members.get(key)
        if of_member is None:
            of_member = self._members[key] = _MemberAcks()
            self._connections.setdefault(key[0], set()).add(key)
        of_member.acks.append(deferred)
        of_member.left.discard(deferred.range.key[2:])
        dropped = [of_member.acks.pop(0)] if len(of_member.acks) > MAX_RANGES else []
        if len(self._members) > MAX_MEMBERS:
            dropped += self._drop(next(iter(self._members)))
        return dropped

    def follow(self, key: SessionKey, request: ShareRequest) -> None:
        """Note which partitions this ShareFetch adds to the member's session and which it removes."""
        of_member = self._members.get(key)
        if of_member is None:
            return
        if request.session_epoch == FIRST_EPOCH:
            of_member.left = {one.range.key[2:] for one in of_member.acks}
        of_member.left -= request.named
        of_member.left |= request.forgotten & {one.range.key[2:] for one in of_member.acks}

    def take(self, key: SessionKey, now: float, *, is_last: bool) -> tuple[list[DeferredAck], list[DeferredAck]]:
        """Remove and return those that can be sent now, and those whose time is over.

        While its dead letters are being written one stays for a later request, so that an unavailable dead-letter
        topic does not hold the fetches of its group; `is_last`: no other request of the member will come.
        """
        of_member = self._members.get(key)
        if of_member is None:
            return [], []
        expired = [one for one in of_member.acks if one.until <= now]
        valid = [one for one in of_member.acks if one.until > now]
        of_member.acks = [] if is_last else [one for one in valid if not one.writing.done()]
        if not of_member.acks:
            self._drop(key)
        return [one for one in valid if is_last or one.writing.done()], expired

    def left(self, key: SessionKey) -> frozenset[TopicPartitionKey]:
        """The partitions of the member's deferred acknowledgements that are not in its session any more."""
        of_member = self._members.get(key)
        return frozenset() if of_member is None else frozenset(of_member.left)

    def close(self, connection: int) -> list[DeferredAck]:
        """Remove and return those of a connection that has ended."""
        return [one for key in list(self._connections.get(connection, ())) for one in self._drop(key)]

    def _drop(self, key: SessionKey) -> list[DeferredAck]:
        of_connection = self._connections[key[0]]
        of_connection.discard(key)
        if not of_connection:
            del self._connections[key[0]]
        return self._members.pop(key).acks


def merge_rejects(batches: Sequence[Batch], rejects: Sequence[tuple[int, int]]) -> list[Batch]:
    """The client's batches and a REJECT for all of `rejects` that they do not name, in the order of offsets.

    When the client's batches do not ascend they are returned alone, because the broker refuses the whole partition.
    """
    client = list(batches)
    if not rejects or not _ascend(client):
        return client
    added: list[Batch] = []
    at, next_offset = 0, -1
    for first, last in sorted(rejects):
        start = max(first, next_offset)
        next_offset = max(next_offset, last + 1)
        while at < len(client) and client[at][1] < start:
            at += 1
        after = at
        while after < len(client) and client[after][0] <= last:
            if client[after][0] > start:
                added.append(_reject(start, client[after][0] - 1))
            start = client[after][1] + 1
            after += 1
        if start <= last:
            added.append(_reject(start, last))
    return sorted([*client, *added])


def _reject(first: int, last: int) -> Batch:
    return (first, last, (int(AckType.REJECT),))


def _ascend(batches: Sequence[Batch]) -> bool:
    end = -1
    for first, last, _ in batches:
        if first <= end or last < first:
            return False
        end = last
    return True


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
    forget: Collection[TopicPartitionKey] = (),
) -> bytes:
    """The request with a REJECT for each of these offset ranges; the client's own acknowledgements stay as they are.

    A broker adds every partition that a ShareFetch names to the session: those of `forget` are removed again.
    """
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
    message = replace(message, topics=whole)
    if forget:
        message = replace(message, forgotten_topics_data=_forgotten(message.forgotten_topics_data, forget))
    return encode(message, version)


def _forgotten(
    before: Sequence[ShareForgottenTopic], forget: Collection[TopicPartitionKey]
) -> tuple[ShareForgottenTopic, ...]:
    topics = {one.topic_id: dict.fromkeys(one.partitions) for one in before}
    for topic_id, index in forget:
        topics.setdefault(topic_id, {})[index] = None
    return tuple(ShareForgottenTopic(topic_id=topic_id, partitions=tuple(found)) for topic_id, found in topics.items())


def remove_partitions(
    kind: type[ShareFetchResponse] | type[ShareAcknowledgeResponse],
    body: Buffer,
    version: ApiVersion,
    added: Collection[TopicPartitionKey],
) -> bytes:
    """The response without the partitions that the client did not name."""
    message: Any = decode(kind, version, body)
    topics = []
    for topic in message.responses:
        kept = tuple(one for one in topic.partitions if (topic.topic_id, one.partition_index) not in added)
        if kept:
            topics.append(replace(topic, partitions=kept))
    return encode(replace(message, responses=tuple(topics)), version)
