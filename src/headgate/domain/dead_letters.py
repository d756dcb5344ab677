"""What a dead letter is: its headers as KIP-1191 shipped them, and our own under our own prefix.

One rule: one letter for each offset, told from its copies by (group, topic id, partition, offset), because it is
written at least once. The record's own headers are not copied, and what we add never uses the broker's names.
"""

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from enum import Enum

SHIPPED = "__dlq.errors."
OWN = "__headgate."
# No record was ever delivered 0 times, and a reader that wants a number gets one.
UNKNOWN_COUNT = "0"

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
        count = UNKNOWN_COUNT if self.delivery_count is None else str(self.delivery_count)
        texts = {
            f"{SHIPPED}topic": self.topic,
            f"{SHIPPED}partition": str(self.partition),
            f"{SHIPPED}offset": str(self.offset),
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
        if self.copy_problem is not None:
            texts[f"{OWN}copy.problem"] = self.copy_problem
        return [(name, text.encode()) for name, text in texts.items()]


def topic_id_text(topic_id: bytes) -> str:
    """As Kafka's tools show it."""
    return urlsafe_b64encode(topic_id).decode("ascii").rstrip("=")


def partition_of(source_partition: int, partitions: int) -> int:
    """Where the letters of a source partition go, in a topic of so many."""
    return source_partition % partitions
