"""What a dead letter is: its headers as KIP-1191 shipped them, and our own under our own prefix.

One rule: one letter for each offset, told from its copies by (group, topic id, partition, offset), because it is
written at least once. The record's own headers are not copied, and what we add never uses the broker's names.
"""

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

SHIPPED = "__dlq.errors."
OWN = "__headgate."
# No record was ever delivered 0 times, and a reader that wants a number gets one.
UNKNOWN_COUNT = "0"
_LONGEST_KEPT = 1024

Header = tuple[str, bytes]


class Cause(Enum):
    """The values are the shipped texts."""

    REJECTED = "Offset rejected by client."
    OVER_LIMIT = "Offset delivery count exceeded the threshold."


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """`delivery_count` is None when nobody knows it; `at` is when the letter was made, in epoch milliseconds.

    `copy_problem` says why key and value are missing although they were asked for.
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
        # Kept only while it is small: clients choose these names.
        is_small = len(self.group) + len(self.member) <= _LONGEST_KEPT
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
        headers = [*same[:2], (f"{SHIPPED}offset", b"%d" % self.offset), *same[2:]]  # in the order of those shipped
        if self.copy_problem is not None:
            headers.append((f"{OWN}copy.problem", self.copy_problem.encode()))
        return headers


@lru_cache(maxsize=16)  # letters of one request come in a row
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
    """What the letters of one request have in common: all but their offsets."""
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
    """As Kafka's tools show it."""
    return urlsafe_b64encode(topic_id).decode("ascii").rstrip("=")


def partition_of(source_partition: int, partitions: int) -> int:
    """Where the letters of a source partition go, in a topic of so many."""
    return source_partition % partitions
