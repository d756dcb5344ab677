"""Reading a topic of one partition: replayed to its end, then followed, on a thread of its own.

One rule: what is handed over is handed over in the log's order, and the position moves only after it was taken in. So
`await reached(offset)` is reading one's own writes, and a reader that starts at the position that was kept last misses
nothing. If the topic is not the one it was (the position does not lie in it), it is read again from the start.
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
        start: int,
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
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._tickets = itertools.count()
        self.position = start  # the offset of the next record
        self.replayed = asyncio.Event()  # set when the end was reached for the first time
        self.problem: str | None = "the topic has not been read yet"

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"headgate-read-{self._topic}", daemon=True)
        self._thread.start()

    async def reached(self, offset: int) -> None:
        """Return when the record at this offset was taken in."""
        if self.position > offset:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        heapq.heappush(self._waiters, (offset, next(self._tickets), waiter))
        await waiter

    def read_again(self) -> None:
        """From the start, because what was made of the records is lost; any thread may call it."""
        self._rewind.set()

    async def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        for _, _, waiter in self._waiters:
            waiter.cancel()
        self._waiters.clear()

    # --- on the event loop

    def _apply(self, taken: list[T], position: int, at_end: bool, done: threading.Event) -> None:
        """Whatever the callbacks do, the thread goes on: what they raise is the loop's to report."""
        try:
            for one in taken:
                self._take(one)
        finally:
            try:
                self._arrive(position, at_end)
            finally:
                done.set()

    def _arrive(self, position: int, at_end: bool) -> None:
        self.position = position
        self.problem = None
        try:
            if at_end and not self.replayed.is_set():
                self.replayed.set()
        finally:
            while self._waiters and self._waiters[0][0] < position:
                waiter = heapq.heappop(self._waiters)[2]
                if not waiter.done():
                    waiter.set_result(None)

    # --- on the thread

    def _run(self) -> None:
        position = self.position
        while not self._stop.is_set():
            consumer = Consumer(self._settings)
            try:
                consumer.assign([TopicPartition(self._topic, 0, position)])
                while not self._stop.is_set():
                    position = self._step(consumer, position)
            except Exception as failure:  # noqa: BLE001 - the supervisor of this thread
                log.warning("reading facts failed", topic=self._topic, position=position, error=repr(failure))
                self.problem = f"reading {self._topic} failed: {failure}"
                self._stop.wait(_RETRY_S)
            finally:
                consumer.close()

    def _step(self, consumer: Consumer, position: int) -> int:
        if self._rewind.is_set():
            self._rewind.clear()
            return self._again(consumer, another=False)
        records: list[Record] = []
        end: int | None = None
        batch = _batch(consumer)
        if not batch and self.problem is not None and self.replayed.is_set():
            self._look(consumer)
        for message in batch:
            error = message.error()
            if error is None:
                records.append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
                end = message.offset()
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
                return self._again(consumer, another=True)
            else:
                self.problem = reason(error)
        if records:
            position = records[-1].offset + 1
            self._hand_over([self._digest(records)], position, at_end=False)
        if end is not None:
            position = max(position, end)
            self._hand_over([], position, at_end=True)
        return position

    def _look(self, consumer: Consumer) -> None:
        """Whether the problem is over: at the end of a quiet topic nothing comes that would say so."""
        try:
            consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=_RETRY_S)
        except KafkaException:
            return
        self.problem = None

    def _again(self, consumer: Consumer, *, another: bool) -> int:
        log.warning("a topic is read again from its start", topic=self._topic, it_is_another=another)
        self._hand_over([self._forget(another)], 0, at_end=False)
        consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
        return 0

    def _hand_over(self, taken: list[T], position: int, *, at_end: bool) -> None:
        """Wait until the loop has it: a loop that is busy is not flooded."""
        done = threading.Event()
        try:
            self._loop.call_soon_threadsafe(self._apply, taken, position, at_end, done)
        except RuntimeError:  # the loop is closed, and nobody closed this
            self._stop.set()
        while not done.wait(_POLL_S):
            if self._stop.is_set():
                return

    def _on_error(self, error: KafkaError) -> None:
        self.problem = reason(error)


def _batch(consumer: Consumer) -> list[Message]:
    """What is there, at once: `consume` alone would wait for as many as it was asked for."""
    first = consumer.poll(_POLL_S)
    return [] if first is None else [first, *consumer.consume(num_messages=_BATCH - 1, timeout=0)]


def _record(message: Message) -> Record:
    offset, key, value = message.offset(), message.key(), message.value()
    if offset is None:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN, "a record without an offset"))
    return Record(offset, _bytes(key), _bytes(value))


def _bytes(part: str | bytes | None) -> bytes | None:
    return part.encode() if isinstance(part, str) else part
