"""The headers of a dead letter: those that KIP-1191 shipped, and Headgate's under a prefix of its own.

There is one dead letter for each offset. Because it is written at least once, duplicates are recognised by (group,
topic id, partition, offset). The record's own headers are not copied.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

SHIPPED = "__dlq.errors."
OWN = "__headgate."
COPY_PROBLEM = f"{OWN}copy.problem"
# Readers expect a number, and no record is delivered 0 times.
UNKNOWN_COUNT = "0"
HEADER_BYTES = 10  # of a header beside its name and its text
_OFFSET = f"{SHIPPED}offset"
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")

Header = tuple[str, bytes]


class Cause(Enum):
    """Why a record became a dead letter; the values are the texts that Kafka shipped."""

    REJECTED = "Offset rejected by client."
    OVER_LIMIT = "Offset delivery count exceeded the threshold."


@dataclass(frozen=True, kw_only=True, eq=False)
class DeadLetterSource:
    """What the dead letters of one partition have in common that are made together, at `at` (epoch milliseconds).

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
