"""The headers of a dead letter: those that KIP-1191 shipped, and Headgate's under a prefix of its own.

There is one dead letter for each offset. Because it is written at least once, duplicates are recognised by (group,
topic id, partition, offset). The record's own headers are not copied.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

SHIPPED = "__dlq.errors."
OWN = "__headgate."
COPY_PROBLEM = f"{OWN}copy.problem"
# Readers expect a number, and no record is delivered 0 times.
UNKNOWN_COUNT = "0"
_MAX_CACHED_CHARACTERS = 1024
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")

Header = tuple[str, bytes]


class Cause(Enum):
    """Why a record became a dead letter; the values are the texts that Kafka shipped."""

    REJECTED = "Offset rejected by client."
    OVER_LIMIT = "Offset delivery count exceeded the threshold."


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One dead letter, made at `at` (epoch milliseconds); `delivery_count` is None when it is not known.

    `copy_problem` is the reason why key and value are missing although the group wants copies.
    """

    group: str
    member: str
    cluster: str
    topic: str
    topic_id: bytes
    partition: int
    offset: int
    delivery_count: int | None
    cause: Cause
    at: int
    key: bytes | None = None
    value: bytes | None = None
    copy_problem: str | None = None

    @property
    def identity(self) -> tuple[str, bytes, int, int]:
        return (self.group, self.topic_id, self.partition, self.offset)

    @property
    def headers(self) -> list[Header]:
        # Cached only while it is small: clients choose these names.
        is_small = len(self.group) + len(self.member) <= _MAX_CACHED_CHARACTERS
        same = (_same_headers if is_small else _same_headers.__wrapped__)(
            self.group,
            self.member,
            self.cluster,
            self.topic,
            self.topic_id,
            self.partition,
            self.delivery_count,
            self.cause,
            self.at,
        )
        headers = [*same[:2], (f"{SHIPPED}offset", b"%d" % self.offset), *same[2:]]  # in the order that Kafka shipped
        if self.copy_problem is not None:
            headers.append((COPY_PROBLEM, self.copy_problem.encode()))
        return headers


@lru_cache(maxsize=16)  # dead letters of one request come in a row
def _same_headers(
    group: str,
    member: str,
    cluster: str,
    topic: str,
    topic_id: bytes,
    partition: int,
    delivery_count: int | None,
    cause: Cause,
    at: int,
) -> tuple[Header, ...]:
    """The headers that all dead letters of one request share."""
    texts = {
        f"{SHIPPED}topic": topic,
        f"{SHIPPED}partition": str(partition),
        f"{SHIPPED}group": group,
        f"{SHIPPED}delivery.count": UNKNOWN_COUNT if delivery_count is None else str(delivery_count),
        f"{SHIPPED}message": cause.value,
        f"{OWN}topic.id": topic_id_text(topic_id),
        f"{OWN}member": member,
        f"{OWN}cluster": cluster,
        f"{OWN}at": str(at),
    }
    if delivery_count is None:
        texts[f"{OWN}delivery.count"] = "unknown"
    return tuple((name, text.encode()) for name, text in texts.items())


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
