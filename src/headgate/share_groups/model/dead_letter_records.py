"""Dead letters: their headers, the ranges of offsets that become dead letters, and the chunks in which they are made.

There is one dead letter for each offset. Because it is written at least once, duplicates are recognised by (group,
topic id, partition, offset). Its headers are those that KIP-1191 shipped, and Headgate's under a prefix of its own; the
record's own headers are not copied.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

SHIPPED = "__dlq.errors."
OWN = "__headgate."
COPY_PROBLEM = f"{OWN}copy.problem"
# Readers expect a number, and no record is delivered 0 times.
UNKNOWN_COUNT = "0"
HEADER_BYTES = 10  # of a header beside its name and its text
_OFFSET = f"{SHIPPED}offset"
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")

Header = tuple[str, bytes]
PartitionKey = tuple[str, str, bytes, int]
"""Group, member, topic id, partition."""
OffsetRanges = tuple[tuple[int, int], ...]
BatchOffsets = tuple[int, int]
"""The first and the last offset of a batch of records."""


class Cause(Enum):
    """Why a record became a dead letter; the values are the texts that Kafka shipped."""

    REJECTED = "Offset rejected by client."
    OVER_LIMIT = "Offset delivery count exceeded the threshold."


@dataclass(frozen=True, kw_only=True, eq=False)
class DeadLetterSource:
    """The properties that dead letters of one partition share when they are made together, at `at` (epoch ms).

    `delivery_count` is None when it is not known. Their common headers are encoded once.
    """

    group: str
    member: str
    cluster: str
    topic: str
    topic_id: bytes
    partition: int
    delivery_count: int | None
    cause: Cause
    at: int

    @cached_property
    def headers(self) -> tuple[Header, ...]:
        """In the order that Kafka shipped; the offset comes after the first two."""
        count = UNKNOWN_COUNT if self.delivery_count is None else str(self.delivery_count)
        texts = {
            f"{SHIPPED}topic": self.topic,
            f"{SHIPPED}partition": str(self.partition),
            f"{SHIPPED}group": self.group,
            f"{SHIPPED}delivery.count": count,
            f"{SHIPPED}message": self.cause.value,
            f"{OWN}topic.id": topic_id_text(self.topic_id),
            f"{OWN}member": self.member,
            f"{OWN}cluster": self.cluster,
            f"{OWN}at": str(self.at),
        }
        if self.delivery_count is None:
            texts[f"{OWN}delivery.count"] = "unknown"
        return tuple((name, text.encode()) for name, text in texts.items())

    @cached_property
    def header_bytes(self) -> int:
        return header_bytes(self.headers)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter; `copy_problem` is the reason why key and value are missing although the group wants copies."""

    source: DeadLetterSource
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    copy_problem: str | None = None

    @property
    def group(self) -> str:
        return self.source.group

    @property
    def partition(self) -> int:
        return self.source.partition

    @property
    def identity(self) -> tuple[str, bytes, int, int]:
        source = self.source
        return (source.group, source.topic_id, source.partition, self.offset)

    @property
    def headers(self) -> list[Header]:
        same = self.source.headers
        headers = [*same[:2], (_OFFSET, b"%d" % self.offset), *same[2:]]
        if self.copy_problem is not None:
            headers.append((COPY_PROBLEM, self.copy_problem.encode()))
        return headers

    @property
    def header_bytes(self) -> int:
        size = self.source.header_bytes + len(_OFFSET) + len(str(self.offset)) + HEADER_BYTES
        if self.copy_problem is not None:
            size += len(COPY_PROBLEM) + len(self.copy_problem.encode()) + HEADER_BYTES
        return size


def header_bytes(headers: Iterable[Header]) -> int:
    """At least what these headers take in a record."""
    return sum(len(name) + len(text) + HEADER_BYTES for name, text in headers)


def topic_id_text(topic_id: bytes) -> str:
    """The topic id as Kafka's tools show it."""
    return urlsafe_b64encode(topic_id).decode("ascii").rstrip("=")


def topic_id_of(text: str) -> bytes | None:
    """The topic id of this text; None when it is not one."""
    if not _TOPIC_ID.fullmatch(text):
        return None
    topic_id = urlsafe_b64decode(f"{text}==")
    return topic_id if topic_id_text(topic_id) == text else None


def partition_of(source_partition: int, partitions: int) -> int:
    """The partition of a dead-letter topic for the records of a source partition."""
    return source_partition % partitions


# --- ranges of offsets ------------------------------------------------------------------------------------------------


class DeadLetterRange(NamedTuple):
    """Offsets of one partition that become dead letters; `delivery_count` is None when it is not known.

    `generation` is the one under which they were acquired. A tuple, because one is made for each rejected range.
    """

    key: PartitionKey
    first: int
    last: int
    delivery_count: int | None
    generation: int
    cause: Cause

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_unknown(self) -> bool:
        """Whether the client is not known to hold the records."""
        return self.delivery_count is None

    def failed(self, reason: str) -> "DeadLetterOutcome":
        """The outcome when none of its dead letters was written."""
        return DeadLetterOutcome((), ((self.first, self.last),), reason)


class DeadLetterOutcome(NamedTuple):
    """The offsets of a `DeadLetterRange` whose dead letters are in their topic or in the spool, and the others.

    `reason` is why the first of the others is in neither.
    """

    written: OffsetRanges
    failed: OffsetRanges
    reason: str = ""


def record_count(found: OffsetRanges) -> int:
    if len(found) == 1:  # the usual case
        return found[0][1] - found[0][0] + 1
    return sum(last - first + 1 for first, last in found)


def offset_ranges(offsets: Iterable[int]) -> OffsetRanges:
    """Ascending offsets as ranges."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return tuple(found)


def ranges_text(found: OffsetRanges, limit: int = 20) -> str:
    """The ranges for a log line."""
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found[:limit])
    return text if len(found) <= limit else f"{text} and {len(found) - limit} more ranges"


# --- dead letters that are made together ------------------------------------------------------------------------------


class RecordCopy(NamedTuple):
    """A record's key and value, or the reason why they are missing."""

    key: bytes | None = None
    value: bytes | None = None
    problem: str | None = None


NO_COPY = RecordCopy()


Numbered = tuple[int, DeadLetter]
"""A dead letter, and the index of its range."""


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
