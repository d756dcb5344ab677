"""Reading a topic: replayed to its end, then followed, on a thread of its own.

One rule: what is handed over is handed over in the log's order, and the position moves only after it was taken in. So
`await reached(offset)` is reading one's own writes, and a reader that starts at the position that was kept last misses
nothing. If the topic is not the one it was (the position does not lie in it), it is read again from the start.

By default it is partition 0 that is read. With `every_partition` it is all that there are when reading begins, from
their beginnings; the order is then that of each partition.
"""

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from headgate.facts.topics import MIB
from headgate.kafka.topics import quiet, reason

log = structlog.get_logger()

_POLL_S = 0.1
_RETRY_S = 1.0
_LOOKUP_S = 3.0  # as long as closing may have to wait
_BATCH = 500
# As it lies in the topic: descriptions unpack to a hundred times as much, and what was fetched is unpacked at once.
_FETCH_BYTES = MIB // 4
_QUEUED_KIB = 16 * 1024
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    key: bytes | None
    value: bytes | None
    partition: int = 0


class FactReader(Generic[T]):
    """`digest` and `forget` run on the reader's thread, `take` on the event loop with what they return.

    `digest` makes something of a batch of records. `forget` is called before the topic is read again from its start,
    and told whether that is because the topic is another. Neither may raise for what a record holds; if they raise, the
    batch comes again after a second. `replayed` is set when the end was reached for the first time. Made on the loop.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        topic: str,
        start: int = 0,
        every_partition: bool = False,
        digest: Callable[[Sequence[Record]], T],
        forget: Callable[[bool], T],
        take: Callable[[T], None],
        largest: int = MIB,
        committed: bool = False,
    ) -> None:
        self._settings = quiet(
            settings,
            group__id="headgate",  # never joined: the partition is assigned by hand
            enable__auto__commit=False,
            enable__partition__eof=True,
            auto__offset__reset="error",
            isolation__level="read_committed" if committed else "read_uncommitted",
            # A broker gives a batch that is larger than this all the same, so large facts are read too (KIP-74).
            fetch__message__max__bytes=_FETCH_BYTES,
            receive__message__max__bytes=max(100_000_000, largest + MIB),
            queued__max__messages__kbytes=_QUEUED_KIB,
            fetch__queue__backoff__ms=10,  # librdkafka's own second is longer than all the rest of a replay
            fetch__wait__max__ms=500,
            fetch__error__backoff__ms=100,
            error_cb=self._on_error,
        )
        self._topic = topic
        self._digest = digest
        self._forget = forget
        self._take = take
        self._rewind = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._ended: set[int] = set()  # the partitions whose end was reached; of the thread
        self._waiters: dict[int, list[tuple[int, int, asyncio.Future[None]]]] = {}
        self._tickets = itertools.count()
        self._every_partition = every_partition
        self._positions = {} if every_partition else {0: start}  # the offset of the next record of each partition
        self.replayed = asyncio.Event()  # set when the end was reached for the first time
        self.problem: str | None = "the topic has not been read yet"

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"headgate-read-{self._topic}", daemon=True)
        self._thread.start()

    @property
    def position(self) -> int:
        """The offset of the next record, where one partition is read."""
        return self._positions[0]

    async def reached(self, offset: int, partition: int = 0) -> None:
        """Return when the record at this offset was taken in."""
        if self._positions.get(partition, -1) > offset:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        heapq.heappush(self._waiters.setdefault(partition, []), (offset, next(self._tickets), waiter))
        await waiter

    def read_again(self) -> None:
        """From the start, because what was made of the records is lost; any thread may call it."""
        self._rewind.set()

    async def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        for waiters in self._waiters.values():
            for _, _, waiter in waiters:
                waiter.cancel()
        self._waiters.clear()

    # --- on the event loop

    def _apply(self, taken: list[T], positions: dict[int, int], at_end: bool, done: threading.Event) -> None:
        """Whatever the callbacks do, the thread goes on: what they raise is the loop's to report."""
        try:
            for one in taken:
                self._take(one)
        finally:
            try:
                self._arrive(positions, at_end)
            finally:
                done.set()

    def _arrive(self, positions: dict[int, int], at_end: bool) -> None:
        self._positions = positions
        self.problem = None
        try:
            if at_end and not self.replayed.is_set():
                self.replayed.set()
        finally:
            for partition, waiters in self._waiters.items():
                while waiters and waiters[0][0] < positions.get(partition, -1):
                    waiter = heapq.heappop(waiters)[2]
                    if not waiter.done():
                        waiter.set_result(None)

    # --- on the thread

    def _run(self) -> None:
        positions = dict(self._positions)
        while not self._stop.is_set():
            consumer = Consumer(self._settings)
            try:
                if not positions:
                    positions = self._partitions(consumer)
                self._ended.clear()
                consumer.assign([TopicPartition(self._topic, *place) for place in positions.items()])
                while not self._stop.is_set():
                    positions = self._step(consumer, positions)
            except Exception as failure:  # noqa: BLE001 - the supervisor of this thread
                text = f"reading {self._topic} failed: {failure}"
                if text != self.problem:  # a topic that is not there yet may be waited for all day
                    log.warning("reading a topic failed", topic=self._topic, positions=positions, error=repr(failure))
                self.problem = text
                self._stop.wait(_RETRY_S)
            finally:
                consumer.close()

    def _partitions(self, consumer: Consumer) -> dict[int, int]:
        """All of them, from where they begin; raises while there is no such topic."""
        found = consumer.list_topics(self._topic, timeout=_LOOKUP_S).topics[self._topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return dict.fromkeys(sorted(found.partitions), OFFSET_BEGINNING)

    def _step(self, consumer: Consumer, positions: dict[int, int]) -> dict[int, int]:
        if self._rewind.is_set():
            self._rewind.clear()
            return self._again(consumer, positions, another=False)
        records: list[Record] = []
        reached = dict(positions)
        ended = False
        batch = batch_of(consumer)
        if not batch and self.problem is not None and self.replayed.is_set():
            self._look(consumer)
        for message in batch:
            error = message.error()
            if error is None:
                record = record_of(message)
                records.append(record)
                reached[record.partition] = record.offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
                partition, offset = message.partition() or 0, message.offset() or 0
                reached[partition] = max(reached[partition], offset)
                self._ended.add(partition)
                ended = True
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
                return self._again(consumer, positions, another=True)
            else:
                self.problem = reason(error)
        if records or ended:
            digested = [self._digest(records)] if records else []
            self._hand_over(digested, reached, at_end=ended and self._ended >= reached.keys())
        return reached

    def _look(self, consumer: Consumer) -> None:
        """Whether the problem is over: at the end of a quiet topic nothing comes that would say so."""
        try:
            consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=_RETRY_S)
        except KafkaException:
            return
        self.problem = None

    def _again(self, consumer: Consumer, positions: dict[int, int], *, another: bool) -> dict[int, int]:
        log.warning("a topic is read again from its start", topic=self._topic, it_is_another=another)
        positions = dict.fromkeys(positions, 0)
        self._ended.clear()
        self._hand_over([self._forget(another)], positions, at_end=False)
        consumer.assign([TopicPartition(self._topic, partition, OFFSET_BEGINNING) for partition in positions])
        return positions

    def _hand_over(self, taken: list[T], positions: dict[int, int], *, at_end: bool) -> None:
        """Wait until the loop has it: a loop that is busy is not flooded."""
        done = threading.Event()
        try:
            self._loop.call_soon_threadsafe(self._apply, taken, dict(positions), at_end, done)
        except RuntimeError:  # the loop is closed, and nobody closed this
            self._stop.set()
        while not done.wait(_POLL_S):
            if self._stop.is_set():
                return

    def _on_error(self, error: KafkaError) -> None:
        self.problem = reason(error)


def batch_of(consumer: Consumer) -> list[Message]:
    """What is there, at once: `consume` alone would wait for as many as it was asked for."""
    first = consumer.poll(_POLL_S)
    return [] if first is None else [first, *consumer.consume(num_messages=_BATCH - 1, timeout=0)]


def record_of(message: Message) -> Record:
    offset, key, value = message.offset(), message.key(), message.value()
    if offset is None:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN, "a record without an offset"))
    return Record(offset, _bytes(key), _bytes(value), message.partition() or 0)


def _bytes(part: str | bytes | None) -> bytes | None:
    return part.encode() if isinstance(part, str) else part
