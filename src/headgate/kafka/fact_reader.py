"""Reading a topic on the thread of a `TopicConsumer`: replayed to its end and then followed, or only followed.

Invariant of `FactReader`: records are handed over in the log's order, and the position moves only after they were
taken in. So `await reached(offset)` is reading one's own writes, and a reader that starts at a saved position misses
nothing. If the topic lost records, it is read again from its start: the position does not lie in it any more (it was
created again, or truncated), its id is another, or the first records of a partition were deleted. The last two are
checked before it is read, and every ten seconds.

librdkafka reports the end of a partition only when nothing was written to it for half a second. So the end is also
reached with the last of the records that were there when the first one came.

By default partition 0 is read. With `every_partition` all partitions that exist when reading begins, for the first time
or again, are read from their beginnings; the order is then that of each partition.

A partition that exists answers: if nothing comes from one for ten seconds before its end was reached, the consumer is
replaced (librdkafka may not fetch some partitions of a topic that was created a moment ago).

Invariant of `FactTail`: of the records that were there before `started` is set, the last `history` of each partition
are handed over (by default none), and after it none is missed while the topic exists. A topic that was created anew,
and a partition that was added, are read from their beginnings: whatever lies there is newer than the start. Order holds
within a partition; there is no replay.
"""

import asyncio
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import structlog
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message

from headgate.base.errors import ClusterError
from headgate.kafka.consumer_thread import CALL_S, ConsumedRecord, record_of
from headgate.kafka.topic_consumer import Next, TopicConsumer, TopicFollower
from headgate.kafka.topics import TopicAdmin, reason

log = structlog.get_logger()

_CATCH_UP_BATCH: Final = 200
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
E = TypeVar("E")


class _Log(NamedTuple):
    """The signs that a topic lost records: another id, or a later first offset of a partition."""

    topic_id: str | None
    first_offsets: Mapping[int, int]

    def has_lost_since(self, before: "_Log") -> bool:
        now, then = self.first_offsets, before.first_offsets
        return self.topic_id != before.topic_id or any(now.get(one, first) > first for one, first in then.items())


class FactReader(TopicFollower, Generic[T]):
    """`digest` and `forget` run on the consumer's thread, `take` on the event loop with what they return.

    `digest` converts a batch of records. `forget` is called before the topic is read again from its start, with True if
    the topic lost records. Neither may raise for what a record holds; if they raise, the batch comes again after a
    second. `replayed` is set, and `on_end` called on the event loop, when the end was reached for the first time, and
    again after records were lost. `detects_loss`: look every ten seconds whether the topic lost records.
    """

    look_s = 10.0
    stalled_s = 10.0

    def __init__(
        self,
        source: TopicConsumer | Mapping[str, Any],
        *,
        topic: str,
        start: int = 0,
        every_partition: bool = False,
        digest: Callable[[Sequence[ConsumedRecord]], T],
        forget: Callable[[bool], T],
        take: Callable[[T], None],
        on_end: Callable[[], None] | None = None,
        detects_loss: bool = False,
        with_headers: bool = False,
    ) -> None:
        super().__init__(source, topic=topic)
        self._digest = digest
        self._forget = forget
        self._take = take
        self._with_headers = with_headers
        self._on_end = on_end
        self._detects_loss = detects_loss
        self._log: _Log | None = None  # used on the thread, as is the first offset that was read of each partition
        self._first_read: dict[int, int] = {}
        self._rewind = threading.Event()
        # Used on the thread: the ends when the first records came, the partitions read to them, when each answered.
        self._ends: dict[int, int] = {}
        self._ended: set[int] = set()
        self._heard_at: dict[int, float] = {}
        self._waiters: dict[int, list[tuple[int, int, asyncio.Future[None]]]] = {}
        self._tickets = itertools.count()
        self._every_partition = every_partition
        self._taken_in = {} if every_partition else {0: start}  # the positions as the event loop knows them
        self.positions = dict(self._taken_in)
        self.replayed = asyncio.Event()

    @property
    def position(self) -> int:
        """The offset of the next record, where one partition is read."""
        return self._taken_in[0]

    async def reached(self, offset: int, partition: int = 0) -> None:
        """Return when the record at this offset was taken in."""
        if self._taken_in.get(partition, -1) > offset:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        heapq.heappush(self._waiters.setdefault(partition, []), (offset, next(self._tickets), waiter))
        await waiter

    def read_again(self) -> None:
        """Read from the start, because what was made of the records is lost; any thread may call it."""
        self._rewind.set()

    async def close(self) -> None:
        await super().close()
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
            self._taken_in = positions
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

    # --- on a thread for lookups

    def locate(self, admin: TopicAdmin) -> dict[int, int]:
        return dict.fromkeys(admin.partitions(self.topic, timeout_s=CALL_S), OFFSET_BEGINNING)

    def look(self, admin: TopicAdmin) -> _Log | None:
        """The topic's id and the first offsets of what is read; None when they cannot be read."""
        try:
            numbers = admin.partitions(self.topic, timeout_s=CALL_S / 2) if self._every_partition else [0]
            found = admin.first_offsets({self.topic: numbers}, timeout_s=CALL_S / 2)
            topic_id = admin.ids((self.topic,), timeout_s=CALL_S / 2).get(self.topic) if self._detects_loss else None
        except (ClusterError, KafkaException, TimeoutError):
            return None
        is_known = len(found) == len(numbers) and (topic_id is not None or not self._detects_loss)
        return _Log(topic_id, {partition: first for (_, partition), first in found.items()}) if is_known else None

    # --- on the consumer's thread

    def looks_first(self) -> bool:
        """The id of a topic that is created again while it is read must be known from before."""
        return self._detects_loss and self._log is None

    def look_interval_s(self) -> float | None:
        if self.problem is not None and self.replayed.is_set():
            return self.retry_s  # at the end of a quiet topic no record comes that would show that it is over
        return self.look_s if self._detects_loss else None

    def on_look(self, found: _Log | None) -> Next:
        if found is None:
            return Next.GO_ON
        if self.replayed.is_set():
            self.problem = None
        # If the look before reading failed, what was read shows where each partition began.
        if found.has_lost_since(self._log or _Log(found.topic_id, self._first_read)):
            return self._begin(lost=True)
        self._log = found
        return Next.GO_ON

    def on_assigned(self) -> None:
        self._ends.clear()
        self._ended.clear()
        self._heard_at = dict.fromkeys(self.positions, time.monotonic())

    def on_step(self) -> Next:
        exists = self._every_partition or self._log is not None  # a topic that does not exist yet may be waited for
        if exists and not self.replayed.is_set() and self._has_stalled():
            log.warning("a topic is not read to its end, replacing the consumer", topic=self.topic)
            return Next.NEW_CONSUMER
        if not self._rewind.is_set():
            return Next.GO_ON
        needed = self._begin(lost=False)
        self._rewind.clear()
        return needed

    def _has_stalled(self) -> bool:
        latest = time.monotonic() - self.stalled_s
        return any(at < latest for partition, at in self._heard_at.items() if partition not in self._ended)

    def on_messages(self, messages: Sequence[Message]) -> Next:
        now = time.monotonic()
        records: list[ConsumedRecord] = []
        reached = dict(self.positions)
        ended = False
        for message in messages:
            error, partition = message.error(), message.partition() or 0
            if partition not in reached:  # of another follower
                continue
            self._heard_at[partition] = now
            if error is None:
                record = record_of(message, with_headers=self._with_headers)
                if record.offset >= reached[partition]:
                    self._first_read.setdefault(partition, record.offset)
                    records.append(record)
                    reached[partition] = record.offset + 1
                ended |= self._is_first_end(partition, reached[partition])
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
                reached[partition] = max(reached[partition], message.offset() or 0)
                self._ended.add(partition)
                ended = True
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
                return self._begin(lost=True)
            else:
                self.problem = reason(error)
        if records or ended:
            digested = [self._digest(records)] if records else []
            self._hand_over(self._apply, digested, reached, ended and self._ended >= reached.keys())
            self.positions = reached
        return Next.GO_ON

    def _is_first_end(self, partition: int, position: int) -> bool:
        """Whether the partition is read for the first time to where it ended when its first record came."""
        if partition in self._ended:
            return False
        if partition not in self._ends and (end := self._consumer.known_end(self.topic, partition)) is not None:
            self._ends[partition] = end
        if position < self._ends.get(partition, position + 1):
            return False
        self._ended.add(partition)
        return True

    def _begin(self, *, lost: bool) -> Next:
        """Forget what was read, and read from the start."""
        log.warning("a topic is read again from its start", topic=self.topic, lost_records=lost)
        self._hand_over(self._begin_again, self._forget(lost), dict.fromkeys(self.positions, 0), lost)
        self.positions = dict.fromkeys(self.positions, OFFSET_BEGINNING)
        self._ended.clear()
        self._first_read.clear()
        if lost:
            self._log = None
            if self._every_partition:
                self.positions = {}  # it may have other partitions
            return Next.NEW_CONSUMER
        return Next.ASSIGN


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
