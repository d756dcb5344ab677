"""Following a topic of several partitions from its end: what is written from now on, on a thread of its own.

One rule: nothing that was there before `started` is set is handed over, and after it nothing is missed while the topic
lives. A topic that was made anew, and a partition that was added, are read from their beginnings: whatever lies there
is newer than the start. Order holds within a partition; there is no replay.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from headgate.kafka.fact_reader import Record, batch_of, record_of
from headgate.kafka.topics import quiet, reason

log = structlog.get_logger()

_POLL_S: Final = 0.1
_RETRY_S: Final = 1.0
_LOOK_S: Final = 10.0  # how often partitions are counted
_CALL_S: Final = 2.0
_NOT_YET_S: Final = 10.0
# Said of a topic that was made a moment ago, until every broker has heard of it and its leaders are elected.
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


class FactTail(Generic[T]):
    """`digest` runs on the tail's thread, `take` on the event loop with what it returns; made on the loop.

    The thread waits until the loop has taken a batch in. If `digest` raises, the batch comes again after a second.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        topic: str,
        digest: Callable[[Sequence[Record]], T],
        take: Callable[[T], None],
    ) -> None:
        self._settings = quiet(
            settings,
            group__id="headgate",  # never joined: the partitions are assigned by hand
            enable__auto__commit=False,
            auto__offset__reset="error",
            queued__max__messages__kbytes=_QUEUED_KIB,
            fetch__wait__max__ms=500,
            fetch__error__backoff__ms=100,
            reconnect__backoff__max__ms=1000,
            error_cb=self._on_error,
        )
        self._topic = topic
        self._digest = digest
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._positions: dict[int, int] = {}  # the offset of the next record, of the thread
        self.started = asyncio.Event()
        self.problem: str | None = "the topic has not been read yet"

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"headgate-tail-{self._topic}", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    # --- on the event loop

    def _apply(self, made: T, done: threading.Event) -> None:
        """Whatever the call-back does, the thread goes on: what it raises is the loop's to report."""
        try:
            self._take(made)
        finally:
            done.set()

    # --- on the thread

    def _run(self) -> None:
        early_until = time.monotonic() + _NOT_YET_S
        while not self._stop.is_set():
            consumer = Consumer(self._settings)
            try:
                self._follow(consumer)
            except Exception as failure:  # noqa: BLE001 - the supervisor of this thread
                is_early = not self._positions and time.monotonic() < early_until
                if not (is_early and _is_not_yet(failure)):
                    self._warn(failure)
                self._stop.wait(_RETRY_S)
            finally:
                consumer.close()

    def _warn(self, failure: Exception) -> None:
        text = f"following {self._topic} failed: {failure}"
        if text != self.problem:  # a topic that is not there may be waited for all day
            log.warning("following a topic failed", topic=self._topic, error=repr(failure))
        self.problem = text

    def _follow(self, consumer: Consumer) -> None:
        is_first = not self._positions
        found = self._partitions(consumer)
        if is_first:
            self._positions = {partition: self._end(consumer, partition) for partition in found}
        consumer.assign([TopicPartition(self._topic, *place) for place in self._positions.items()])
        if is_first:
            self._tell(self.started.set)
        self.problem = None
        looked = time.monotonic()
        while not self._stop.is_set():
            self._step(consumer)
            if time.monotonic() - looked >= _LOOK_S:
                self._add(consumer)
                looked = time.monotonic()

    def _step(self, consumer: Consumer) -> None:
        records: list[Record] = []
        after: dict[int, int] = {}
        for message in batch_of(consumer):
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
            self._hand_over(self._digest(records))
            self._positions |= after
            self.problem = None

    def _add(self, consumer: Consumer) -> None:
        """Partitions that were added; a cluster that is away is asked again the next time."""
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

    def _partitions(self, consumer: Consumer) -> list[int]:
        found = consumer.list_topics(self._topic, timeout=_CALL_S).topics[self._topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)

    def _end(self, consumer: Consumer, partition: int) -> int:
        ends = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=_CALL_S)
        if ends is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "a partition does not tell its end"))  # noqa: SLF001
        return ends[1]

    def _hand_over(self, made: T) -> None:
        """Wait until the loop has it: a loop that is busy is not flooded."""
        done = threading.Event()
        self._tell(self._apply, made, done)
        while not done.wait(_POLL_S):
            if self._stop.is_set():
                return

    def _tell(self, what: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *arguments)
        except RuntimeError:  # the loop is closed, and nobody closed this
            self._stop.set()

    def _on_error(self, error: KafkaError) -> None:
        self.problem = reason(error)


def _is_not_yet(failure: Exception) -> bool:
    error = failure.args[0] if isinstance(failure, KafkaException) and failure.args else None
    return isinstance(error, KafkaError) and error.code() in _NOT_YET
