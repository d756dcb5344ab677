"""Reading a topic: replayed to its end, then followed, on a thread of its own.

Invariant: records are handed over in the log's order, and the position moves only after they were taken in. So
`await reached(offset)` is reading one's own writes, and a reader that starts at a saved position misses nothing. If the
topic lost records, it is read again from its start: the position does not lie in it any more (it was created again, or
truncated), its id is another, or its first records were deleted. The last two are checked every ten seconds.

By default partition 0 is read. With `every_partition` all partitions that exist when reading begins, for the first time
or again, are read from their beginnings; the order is then that of each partition.
"""

import asyncio
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from headgate.base.errors import ClusterError
from headgate.facts.topics import MIB
from headgate.kafka.consumer_thread import CALL_S, ConsumedRecord, ConsumerThread, next_batch, record_of
from headgate.kafka.topics import TopicIdReader, reason

log = structlog.get_logger()

# As it lies in the topic: descriptions unpack to a hundred times as much, and what was fetched is unpacked at once.
_FETCH_BYTES: Final = MIB // 4
_QUEUED_KIB: Final = 16 * 1024
_CATCH_UP_BATCH: Final = 200
T = TypeVar("T")
E = TypeVar("E")


class FactReader(ConsumerThread, Generic[T]):
    """`digest` and `forget` run on the reader's thread, `take` on the event loop with what they return.

    `digest` converts a batch of records. `forget` is called before the topic is read again from its start, with True if
    the topic lost records. Neither may raise for what a record holds; if they raise, the batch comes again after a
    second. `replayed` is set, and `on_end` called on the event loop, when the end was reached for the first time, and
    again after records were lost.
    """

    look_s = 10.0

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        topic: str,
        start: int = 0,
        every_partition: bool = False,
        digest: Callable[[Sequence[ConsumedRecord]], T],
        forget: Callable[[bool], T],
        take: Callable[[T], None],
        on_end: Callable[[], None] | None = None,
        ids: TopicIdReader | None = None,
        largest: int = MIB,
        committed: bool = False,
        with_headers: bool = False,
    ) -> None:
        super().__init__(
            settings,
            topic=topic,
            problem="the topic has not been read yet",
            group__id="headgate",  # never joined: the partition is assigned by hand
            enable__partition__eof=True,
            auto__offset__reset="error",
            isolation__level="read_committed" if committed else "read_uncommitted",
            # A broker returns a batch that is larger than this all the same, so large facts are read too (KIP-74).
            fetch__message__max__bytes=_FETCH_BYTES,
            receive__message__max__bytes=max(100_000_000, largest + MIB),
            queued__max__messages__kbytes=_QUEUED_KIB,
            fetch__queue__backoff__ms=10,  # librdkafka's own second is longer than all the rest of a replay
            fetch__wait__max__ms=500,
            fetch__error__backoff__ms=100,
        )
        self._digest = digest
        self._forget = forget
        self._take = take
        self._with_headers = with_headers
        self._on_end = on_end
        self._ids = ids
        self._log: tuple[str, int] | None = None  # the topic's id and its first offset; used on the thread
        self._look_at = 0.0
        self._rewind = threading.Event()
        self._ended: set[int] = set()  # the partitions whose end was reached; used on the thread
        self._waiters: dict[int, list[tuple[int, int, asyncio.Future[None]]]] = {}
        self._tickets = itertools.count()
        self._every_partition = every_partition
        self._positions = {} if every_partition else {0: start}  # the offset of the next record of each partition
        self._next = dict(self._positions)  # the same, of the thread
        self.replayed = asyncio.Event()

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
        """Read from the start, because what was made of the records is lost; any thread may call it."""
        self._rewind.set()

    async def close(self) -> None:
        await super().close()
        self._ids = None
        for waiters in self._waiters.values():
            for _, _, waiter in waiters:
                waiter.cancel()
        self._waiters.clear()

    # --- on the event loop

    def _apply(self, taken: list[T], positions: dict[int, int], at_end: bool) -> None:
        try:
            for one in taken:
                self._take(one)
        finally:
            self._positions = positions
            self.problem = None
            if at_end and not self.replayed.is_set():
                self.replayed.set()
                if self._on_end is not None:
                    self._on_end()
            for partition, waiters in self._waiters.items():
                while waiters and waiters[0][0] < positions.get(partition, -1):
                    waiter = heapq.heappop(waiters)[2]
                    if not waiter.done():
                        waiter.set_result(None)

    def _begin_again(self, taken: T, positions: dict[int, int], lost: bool) -> None:
        if lost:
            self.replayed.clear()
        self._apply([taken], positions, False)

    # --- on the thread

    def _consume(self, consumer: Consumer) -> None:
        if not self._next:
            self._next = dict.fromkeys(self._partitions(consumer), OFFSET_BEGINNING)
        self._ended.clear()
        consumer.assign([TopicPartition(self._topic, *place) for place in self._next.items()])
        while not self._stop.is_set():
            reached = None if self._has_lost_records(consumer) else self._step(consumer, self._next)
            if reached is None:
                # A new consumer: librdkafka may not look for another topic of the same name for minutes.
                begin = self._begin(self._next, lost=True)
                self._next = {} if self._every_partition else begin  # it may have other partitions
                return
            self._next = reached

    def _step(self, consumer: Consumer, positions: dict[int, int]) -> dict[int, int] | None:
        """Read what is there, and return the new positions; None when a position does not lie in the topic."""
        if self._rewind.is_set():
            self._rewind.clear()
            positions = self._begin(positions, lost=False)
            consumer.assign([TopicPartition(self._topic, *place) for place in positions.items()])
            return positions
        records: list[ConsumedRecord] = []
        reached = dict(positions)
        ended = False
        batch = next_batch(consumer)
        if not batch and self.problem is not None and self.replayed.is_set():
            self._check_problem(consumer)
        for message in batch:
            error = message.error()
            if error is None:
                record = record_of(message, with_headers=self._with_headers)
                records.append(record)
                reached[record.partition] = record.offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
                partition, offset = message.partition() or 0, message.offset() or 0
                reached[partition] = max(reached[partition], offset)
                self._ended.add(partition)
                ended = True
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
                return None
            else:
                self.problem = reason(error)
        if records or ended:
            digested = [self._digest(records)] if records else []
            self._hand_over(self._apply, digested, reached, ended and self._ended >= reached.keys())
        return reached

    def _check_problem(self, consumer: Consumer) -> None:
        """Clear the problem if it is over: at the end of a quiet topic no record comes that would show it."""
        try:
            consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=self.retry_s)
        except KafkaException:
            return
        self.problem = None

    def _has_lost_records(self, consumer: Consumer) -> bool:
        """Whether the topic was created again, or its first records were deleted, since the last look."""
        if self._ids is None or time.monotonic() < self._look_at:
            return False
        if self._log is not None and self.problem is not None:  # a cluster that does not answer is not asked for more
            return False
        self._look_at = time.monotonic() + self.look_s
        before, now = self._log, self._look(self._ids, consumer)
        self._log = now or before  # a topic that does not exist now may come back as another
        return before is not None and now is not None and (now[0] != before[0] or now[1] > before[1])

    def _look(self, ids: TopicIdReader, consumer: Consumer) -> tuple[str, int] | None:
        """The topic's id and first offset; None when they cannot be read."""
        try:
            topic_id = ids.ids((self._topic,), timeout_s=CALL_S / 2).get(self._topic)
            offsets = consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=CALL_S / 2)
        except (ClusterError, KafkaException):
            return None
        return None if topic_id is None or offsets is None else (topic_id, offsets[0])

    def _begin(self, positions: dict[int, int], *, lost: bool) -> dict[int, int]:
        """Forget what was read; returns the positions to read from."""
        log.warning("a topic is read again from its start", topic=self._topic, lost_records=lost)
        if lost:
            self._log, self._look_at = None, 0.0
        self._ended.clear()
        self._hand_over(self._begin_again, self._forget(lost), dict.fromkeys(positions, 0), lost)
        return dict.fromkeys(positions, OFFSET_BEGINNING)


class CatchUp(Generic[E]):
    """Keeps the last event of each name until a topic was read to its end, then delivers all as they come.

    Catching up is done a few names at a time, so that clients are served meanwhile, and nothing overtakes it. Used on
    the event loop.
    """

    def __init__(self, deliver: Callable[[str, E], object]) -> None:
        self._deliver = deliver
        self._waiting: dict[str, E] | None = {}

    def take(self, name: str, event: E) -> None:
        """Deliver the event at once, or keep it as the last of its name."""
        if self._waiting is None:
            self._deliver(name, event)
        else:
            self._waiting[name] = event

    def forget(self) -> None:
        """Drop what has not been delivered."""
        if self._waiting is not None:
            self._waiting.clear()

    async def catch_up(self) -> None:
        """Deliver what was kept, because the end of the topic was reached."""
        while self._waiting:
            for name in list(self._waiting)[:_CATCH_UP_BATCH]:
                self._deliver(name, self._waiting.pop(name))
            await asyncio.sleep(0)
        self._waiting = None
