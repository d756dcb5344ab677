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
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from headgate.kafka.consumer_thread import CALL_S, ConsumedRecord, ConsumerThread, next_batch, record_of
from headgate.kafka.topics import reason

log = structlog.get_logger()

_LOOK_S: Final = 10.0  # how often partitions are counted
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
_QUEUED_KIB: Final = 16 * 1024
T = TypeVar("T")


class FactTail(ConsumerThread, Generic[T]):
    """`digest` runs on the tail's thread, `take` on the event loop with what it returns.

    The thread waits until the loop has taken a batch in. If `digest` raises, the batch comes again after a second.
    For the first `settling_s` seconds a topic that was just created may have no leader yet: that is not reported.
    """

    settling_s = 10.0

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        topic: str,
        digest: Callable[[Sequence[ConsumedRecord]], T],
        take: Callable[[T], None],
        history: int = 0,
    ) -> None:
        super().__init__(
            settings,
            topic=topic,
            problem="the topic has not been read yet",
            group__id="headgate",  # never joined: the partitions are assigned by hand
            auto__offset__reset="error",
            queued__max__messages__kbytes=_QUEUED_KIB,
            fetch__wait__max__ms=500,
            fetch__error__backoff__ms=100,
            reconnect__backoff__max__ms=1000,
        )
        self._digest = digest
        self._take = take
        self._history = history
        self._early_until = time.monotonic() + self.settling_s
        self._positions: dict[int, int] = {}  # the offset of the next record; used on the thread
        self.started = asyncio.Event()

    # --- on the thread

    def _is_expected(self, failure: Exception) -> bool:
        error = failure.args[0] if isinstance(failure, KafkaException) and failure.args else None
        is_early = not self._positions and time.monotonic() < self._early_until
        return is_early and isinstance(error, KafkaError) and error.code() in _NOT_YET

    def _consume(self, consumer: Consumer) -> None:
        is_first = not self._positions
        found = self._partitions(consumer)
        if is_first:
            self._positions = {partition: self._first(consumer, partition) for partition in found}
        consumer.assign([TopicPartition(self._topic, *place) for place in self._positions.items()])
        if is_first:
            self._call_on_loop(self.started.set)
        self.problem = None
        looked = time.monotonic()
        while not self._stop.is_set():
            self._step(consumer)
            if time.monotonic() - looked >= _LOOK_S:
                self._add(consumer)
                looked = time.monotonic()

    def _step(self, consumer: Consumer) -> None:
        records: list[ConsumedRecord] = []
        after: dict[int, int] = {}
        for message in next_batch(consumer):
            error, partition = message.error(), message.partition()
            if error is None and partition is not None:
                record = record_of(message)
                records.append(record)
                after[partition] = record.offset + 1
            elif error is not None and partition is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
                log.warning("a partition is read again from its start", topic=self._topic, partition=partition)
                after.pop(partition, None)
                self._positions[partition] = OFFSET_BEGINNING
                consumer.seek(TopicPartition(self._topic, partition, OFFSET_BEGINNING))
            elif error is not None:
                self.problem = reason(error)
        if records:
            self._hand_over(self._take, self._digest(records))
            self._positions |= after
            self.problem = None

    def _add(self, consumer: Consumer) -> None:
        """Follow partitions that were added; a cluster that does not answer is asked again the next time."""
        try:
            found = self._partitions(consumer)
        except KafkaException as failure:
            self.problem = reason(failure)
            return
        self.problem = None
        new = [partition for partition in found if partition not in self._positions]
        if new:
            self._positions |= dict.fromkeys(new, OFFSET_BEGINNING)
            consumer.assign([TopicPartition(self._topic, *place) for place in self._positions.items()])

    def _first(self, consumer: Consumer, partition: int) -> int:
        ends = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=CALL_S)
        if ends is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the end of a partition is not known"))  # noqa: SLF001
        return max(ends[0], ends[1] - self._history)
