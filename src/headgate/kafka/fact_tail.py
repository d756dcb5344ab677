"""Following a topic of several partitions: the records that are written from now on, and perhaps the last ones before.

Invariant: of the records that were there before `started` is set, the last `history` of each partition are handed over
(by default none), and after it none is missed while the topic exists. A topic that was created anew, and a partition
that was added, are read from their beginnings: whatever lies there is newer than the start. Order holds within a
partition; there is no replay.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import structlog
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message

from headgate.kafka.consumer_thread import CALL_S, ConsumedRecord, record_of
from headgate.kafka.topic_consumer import Next, TopicConsumer, TopicFollower
from headgate.kafka.topics import TopicAdmin, reason

log = structlog.get_logger()

# Errors for a topic that was created a moment ago, until every broker knows it and its leaders are elected.
_NOT_YET: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's own codes begin so
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)
T = TypeVar("T")


class FactTail(TopicFollower, Generic[T]):
    """`digest` runs on the consumer's thread, `take` on the event loop with what it returns.

    The thread waits until the loop has taken a batch in. If `digest` raises, the batch comes again after a second.
    For the first `settling_s` seconds a topic that was just created may have no leader yet: that is not reported.
    """

    settling_s = 10.0
    look_s = 10.0  # how often partitions are counted

    def __init__(
        self,
        source: TopicConsumer | Mapping[str, Any],
        *,
        topic: str,
        digest: Callable[[Sequence[ConsumedRecord]], T],
        take: Callable[[T], None],
        history: int = 0,
    ) -> None:
        super().__init__(source, topic=topic)
        self._digest = digest
        self._take = take
        self._history = history
        self._early_until = time.monotonic() + self.settling_s
        self.started = asyncio.Event()

    # --- on a thread for lookups

    def locate(self, admin: TopicAdmin) -> dict[int, int]:
        """The end of each partition, or so many records before it."""
        partitions = admin.partitions(self.topic, timeout_s=CALL_S)
        bounds = admin.bounds(self.topic, partitions, timeout_s=CALL_S)
        return {partition: max(first, end - self._history) for partition, (first, end) in bounds.items()}

    def look(self, admin: TopicAdmin) -> list[int] | KafkaException:
        try:
            return admin.partitions(self.topic, timeout_s=CALL_S)
        except KafkaException as failure:
            return failure

    # --- on the consumer's thread

    def is_expected(self, failure: Exception) -> bool:
        error = failure.args[0] if isinstance(failure, KafkaException) and failure.args else None
        is_early = not self.positions and time.monotonic() < self._early_until
        return is_early and isinstance(error, KafkaError) and error.code() in _NOT_YET

    def on_assigned(self) -> None:
        self.problem = None
        if not self.started.is_set():
            self._call_on_loop(self.started.set)

    def look_interval_s(self) -> float:
        return self.look_s

    def on_look(self, found: list[int] | KafkaException) -> Next:
        """Follow partitions that were added; a cluster that does not answer is asked again the next time."""
        if isinstance(found, KafkaException):
            self.problem = reason(found)
            return Next.GO_ON
        self.problem = None
        new = [partition for partition in found if partition not in self.positions]
        self.positions |= dict.fromkeys(new, OFFSET_BEGINNING)
        return Next.ASSIGN if new else Next.GO_ON

    def on_messages(self, messages: Sequence[Message]) -> Next:
        records: list[ConsumedRecord] = []
        after: dict[int, int] = {}
        needed = Next.GO_ON
        for message in messages:
            error, partition = message.error(), message.partition() or 0
            position = after.get(partition, self.positions.get(partition))
            if position is None:  # of another follower
                continue
            if error is None:
                record = record_of(message)
                if record.offset >= position:
                    records.append(record)
                    after[partition] = record.offset + 1
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
                log.warning("a partition is read again from its start", topic=self.topic, partition=partition)
                after.pop(partition, None)
                self.positions[partition] = OFFSET_BEGINNING
                needed = Next.ASSIGN
            elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
                self.problem = reason(error)
        if records:
            self._hand_over(self._take, self._digest(records))
            self.positions |= after
            self.problem = None
        return needed
