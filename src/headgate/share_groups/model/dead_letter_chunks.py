"""Dead letters that are made together: chunks of the offsets that one request rejects, and the dead letters of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headgate.share_groups.model.dead_letter_ranges import DeadLetterRange
from headgate.share_groups.model.dead_letter_records import Cause, DeadLetter, DeadLetterSource
from headgate.share_groups.model.delivery_ledger import PartitionKey

Numbered = tuple[int, DeadLetter]
"""A dead letter, and the index of its range."""
BatchOffsets = tuple[int, int]
"""The first and the last offset of a batch of records."""


class RecordCopy(NamedTuple):
    """A record's key and value, or the reason why they are missing."""

    key: bytes | None = None
    value: bytes | None = None
    problem: str | None = None


NO_COPY = RecordCopy()


class DeadLetterChunk:
    """Offsets of one partition that are looked up together, as parts of ranges with their indexes.

    One that is not `is_joined` has offsets of one range only: its records may have to be fetched.
    """

    __slots__ = ("is_held", "is_joined", "key", "offsets", "parts")

    def __init__(self, some: DeadLetterRange, is_joined: bool) -> None:
        self.key: PartitionKey = some.key
        self.is_held = some.delivery_count is not None
        self.is_joined = is_joined
        self.parts: list[tuple[int, DeadLetterRange, range]] = []
        self.offsets: list[int] = []

    @property
    def topic_id(self) -> bytes:
        return self.key[2]

    def takes(self, some: DeadLetterRange, most: int, *, is_joined: bool) -> bool:
        """Whether offsets of this range can be added."""
        return (
            self.is_joined
            and is_joined
            and len(self.offsets) < most
            and self.key == some.key
            and self.is_held == (some.delivery_count is not None)
        )

    def dead_letters(
        self, copies: Mapping[int, RecordCopy], *, cluster: str, topic: str, at: int
    ) -> Iterator[Numbered]:
        """The dead letter of each offset, with its copy if there is one."""
        sources: dict[tuple[int | None, Cause], DeadLetterSource] = {}
        for index, some, offsets in self.parts:
            source = sources.get((some.delivery_count, some.cause))
            if source is None:
                source = _source(some, cluster, topic, at)
                sources[some.delivery_count, some.cause] = source
            for offset in offsets:
                yield index, DeadLetter(source, offset, *copies.get(offset, NO_COPY))


def chunks(
    ranges: Sequence[DeadLetterRange],
    most: int,
    kept_batch: Callable[[PartitionKey, int], BatchOffsets | None] | None = None,
) -> Iterator[DeadLetterChunk]:
    """The offsets of the ranges in order, at most so many in a chunk, of one partition each.

    `kept_batch`, if copies are wanted, is the batch of an offset whose records are in memory: only ranges of such are
    in one chunk with others.
    """
    chunk: DeadLetterChunk | None = None
    last_key: PartitionKey | None = None
    kept: BatchOffsets | None = None
    for index, some in enumerate(ranges):
        is_joined = kept_batch is None
        if kept_batch is not None and some.delivery_count is not None:
            if kept is None or last_key != some.key or not kept[0] <= some.first <= kept[1]:
                last_key, kept = some.key, kept_batch(some.key, some.first)
            is_joined = kept is not None and (some.last <= kept[1] or kept_batch(some.key, some.last) is not None)
        first = some.first
        while first <= some.last:
            if chunk is None or not chunk.takes(some, most, is_joined=is_joined):
                if chunk is not None:
                    yield chunk
                chunk = DeadLetterChunk(some, is_joined)
            offsets = range(first, min(some.last + 1, first + most - len(chunk.offsets)))
            chunk.parts.append((index, some, offsets))
            chunk.offsets.extend(offsets)
            first = offsets.stop
    if chunk is not None:
        yield chunk


def _source(some: DeadLetterRange, cluster: str, topic: str, at: int) -> DeadLetterSource:
    group, member, topic_id, partition = some.key
    return DeadLetterSource(
        group=group,
        member=member,
        cluster=cluster,
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        delivery_count=some.delivery_count,
        cause=some.cause,
        at=at,
    )
