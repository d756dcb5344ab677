"""One librdkafka consumer and its thread, which read several topics for their followers.

Invariant: followers do not wait for each other but in two ways. They share the thread and the queue of records that
were fetched, so a record waits for those in front of it; and a follower whose topic lost records replaces the consumer,
which takes the others a second at most and loses nothing: each goes on at its own position. Whatever asks the cluster
and waits for the answer runs on other threads. A follower that fails is left out for a second, and the others go on.

librdkafka stops to fetch at 500 records or 4 MiB in the queue, and has a fetch of each broker beside that, which is 64
KiB before it is unpacked. So topics of small records, which are to be read at once, do not share a consumer with topics
of large ones (`shared_clients.py`).

Several followers may read one topic. It is then fetched from the lowest of their positions, and each drops the records
that it has read before. Everything is read as committed: only `trips` is written in transactions, and the topics of
others must not show what was aborted.
"""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum, auto
from functools import partial
from typing import Any, Final, TypeVarTuple

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headgate.base.errors import ClusterError
from headgate.facts.topics import MIB
from headgate.kafka.consumer_thread import POLL_S, consuming_failed, next_batch
from headgate.kafka.topics import TopicAdmin, quiet, reason

log = structlog.get_logger()

# As it lies in the topic: descriptions unpack to a hundred times as much, and what was fetched is unpacked at once.
_FETCH_BYTES: Final = MIB // 16
# The queue is one for all topics, and a record waits for all that is in front of it.
_QUEUED_KIB: Final = 4 * 1024
_QUEUED_RECORDS: Final = 500
_SOON_S: Final = 0.01
_RETRY_S: Final = 1.0
Ts = TypeVarTuple("Ts")


class Next(Enum):
    """The next step that a follower needs after it was called."""

    GO_ON = auto()
    ASSIGN = auto()  # its positions are others
    NEW_CONSUMER = auto()  # librdkafka may not look for another topic of the same name for minutes


class TopicFollower(ABC):
    """One reader of one topic; made on the event loop that it serves.

    `source` is the consumer that it shares with others, or settings: then it has a consumer of its own. `problem` says
    why it does not work now, or is None.
    """

    retry_s = _RETRY_S

    def __init__(self, source: "TopicConsumer | Mapping[str, Any]", *, topic: str) -> None:
        self._is_shared = isinstance(source, TopicConsumer)
        self._consumer = source if isinstance(source, TopicConsumer) else TopicConsumer(source)
        self._loop = asyncio.get_running_loop()
        self.topic: Final = topic
        self.problem: str | None = "the topic has not been read yet"
        self.positions: dict[int, int] = {}  # the offset of the next record of each partition; used on the thread

    def start(self) -> None:
        self._consumer.add(self)

    async def close(self) -> None:
        """Return when nothing is called any more."""
        await self._consumer.remove(self)
        if not self._is_shared:
            await self._consumer.close()

    # --- on a thread for lookups

    def locate(self, admin: TopicAdmin) -> dict[int, int]:
        """The positions to begin at, where none are known."""
        raise NotImplementedError(self.topic)

    def look(self, admin: TopicAdmin) -> Any:
        """Ask the cluster about the topic; raises nothing."""
        raise NotImplementedError(self.topic)

    # --- on the consumer's thread; what is raised is reported, and the follower goes on a second later

    def looks_first(self) -> bool:
        """Whether `look` is to be called before the topic is fetched."""
        return False

    @abstractmethod
    def on_messages(self, messages: Sequence[Message]) -> Next:
        """Take in messages of the topic, also records before its positions; moves the positions."""

    def on_assigned(self) -> None:  # noqa: B027 - most have nothing to do
        """The topic is fetched from its positions, for the first time or again."""

    def on_step(self) -> Next:
        """Called between batches."""
        return Next.GO_ON

    def look_interval_s(self) -> float | None:
        """The time between two calls of `look`; None: not now."""
        return None

    def on_look(self, _found: Any) -> Next:
        """Take in what `look` returned."""
        return Next.GO_ON

    def is_expected(self, _failure: Exception) -> bool:
        """Whether a failure is no problem yet, and is not reported."""
        return False

    def report(self, failure: Exception) -> None:
        text = consuming_failed(self.topic, failure)
        if text != self.problem:  # a topic that does not exist yet may be waited for all day
            log.warning("consuming a topic failed", topic=self.topic, error=repr(failure))
        self.problem = text

    def _call_on_loop(self, function: Callable[[*Ts], None], *arguments: *Ts) -> bool:
        """Call it on the event loop; False, and the end of the consumer, when the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            self._consumer.stop()
            return False
        return True

    def _hand_over(self, function: Callable[[*Ts], None], *arguments: *Ts) -> None:
        """Call it on the event loop and wait until it returned; what it raises is for the loop to report."""
        done = threading.Event()

        def call() -> None:
            try:
                function(*arguments)
            finally:
                done.set()

        if self._call_on_loop(call):
            while not done.wait(POLL_S) and not self._consumer.is_stopped:
                pass


class _Entry:
    """A follower, and whether its partitions are in the assignment."""

    def __init__(self, follower: TopicFollower) -> None:
        self.follower = follower
        self.is_following = False
        self.has_looked = False  # before it follows
        self.resume_at = 0.0
        self.look_at = 0.0
        self.lookup: Future[Any] | None = None

    def leave(self, until: float) -> None:
        self.is_following = False
        self.has_looked = False
        self.resume_at = until
        self.drop_lookup()

    def drop_lookup(self) -> None:
        """Ignore the lookup under way, which is out of date, and look again at once."""
        self.lookup = None
        self.look_at = 0.0


class TopicConsumer:
    """Made on the event loop; its thread runs from the first follower until `close`."""

    def __init__(self, settings: Mapping[str, Any], *, admin: TopicAdmin | None = None, largest: int = MIB) -> None:
        self._options: dict[str, Any] = {
            "group.id": "headgate",  # never joined: partitions are assigned by hand
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            # A broker returns a batch that is larger than this all the same, so large facts are read too (KIP-74).
            "fetch.message.max.bytes": _FETCH_BYTES,
            "receive.message.max.bytes": max(100_000_000, largest + MIB),
            "queued.max.messages.kbytes": _QUEUED_KIB,
            "queued.min.messages": _QUEUED_RECORDS,
            "fetch.queue.backoff.ms": 10,  # librdkafka's own second is longer than all the rest of a replay
            "fetch.wait.max.ms": 500,
            "fetch.error.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1000,
            "error_cb": self._on_error,
        }
        self._settings = settings
        self._admin = admin or TopicAdmin(settings)
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # of the two below
        self._changes: deque[tuple[TopicFollower, asyncio.Future[None] | None]] = deque()
        self._has_ended = True  # no thread takes changes
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._needs_new_consumer = threading.Event()
        # Used on the thread.
        self._fetching: Consumer | None = None
        self._entries: dict[TopicFollower, _Entry] = {}
        self._assigned: dict[str, dict[int, int]] = {}
        self._changed: set[str] = set()  # topics whose assignment is to be renewed

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()

    def add(self, follower: TopicFollower) -> None:
        with self._lock:
            self._changes.append((follower, None))
            self._wake.set()
            if self._has_ended and not self._stop.is_set():
                self._has_ended = False
                self._thread = threading.Thread(target=self._run, name="headgate-consumer", daemon=True)
                self._thread.start()

    async def remove(self, follower: TopicFollower) -> None:
        """Return when the follower is not called any more."""
        removed: asyncio.Future[None] = self._loop.create_future()
        with self._lock:
            if self._has_ended:
                return
            self._changes.append((follower, removed))
            self._wake.set()
        await removed

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the next consumer."""
        return self._settings

    @property
    def is_replacement_due(self) -> bool:
        """The consumer is to be replaced, and has not been yet."""
        return self._needs_new_consumer.is_set()

    def replace_settings(self, settings: Mapping[str, Any]) -> None:
        """Go on with a new consumer that has these settings."""
        self._settings = settings
        self._needs_new_consumer.set()

    async def close(self) -> None:
        self.stop()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    # --- on the thread

    def known_end(self, topic: str, partition: int) -> int | None:
        """The end of a partition as its last fetch showed it; None when there was none."""
        if self._fetching is None:
            return None
        try:
            known = self._fetching.get_watermark_offsets(TopicPartition(topic, partition), cached=True)
        except KafkaException:
            return None
        return known[1] if known is not None and known[1] >= 0 else None

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._wake.clear()
                self._take_changes()
                try:
                    self._needs_new_consumer.clear()
                    # Fails for a certificate that cannot be read.
                    consumer = Consumer({**quiet(self._settings), **self._options})
                    try:
                        self._fetching = consumer
                        self._consume(consumer)
                    finally:
                        self._fetching = None
                        consumer.close()
                except Exception as failure:  # noqa: BLE001 - the supervisor of this thread
                    for follower in self._entries:
                        if not follower.is_expected(failure):
                            follower.report(failure)
                    self._wake.wait(_RETRY_S)
        finally:
            with self._lock:
                self._has_ended = True
            self._take_changes()

    def _take_changes(self) -> None:
        while True:
            with self._lock:
                if not self._changes:
                    return
                follower, removed = self._changes.popleft()
            if removed is None:
                self._entries[follower] = _Entry(follower)
                continue
            if self._entries.pop(follower, None) is not None:
                self._changed.add(follower.topic)
            try:
                self._loop.call_soon_threadsafe(_resolve, removed)
            except RuntimeError:  # the loop is closed
                self._stop.set()

    def _consume(self, consumer: Consumer) -> None:
        """Work until `_stop` is set or a new consumer is needed."""
        self._assigned.clear()
        self._changed.clear()
        for entry in self._entries.values():
            entry.is_following = False
            entry.has_looked = False
            entry.lookup = None
        while not self._stop.is_set() and not self._needs_new_consumer.is_set():
            self._take_changes()
            for entry in tuple(self._entries.values()):
                self._advance(entry)
            if self._needs_new_consumer.is_set():
                return
            for topic in tuple(self._changed):
                self._assign(consumer, topic)
            is_waiting = any(one.lookup is not None and not one.is_following for one in self._entries.values())
            self._dispatch(next_batch(consumer, _SOON_S if is_waiting else POLL_S))

    def _advance(self, entry: _Entry) -> None:
        now = time.monotonic()
        follower = entry.follower
        lookup = entry.lookup
        if lookup is not None and lookup.done():
            entry.lookup = None
            self._call(entry, lambda: self._on_lookup(entry, lookup))
        if entry.is_following:
            self._call(entry, follower.on_step)
            interval_s = follower.look_interval_s() if entry.is_following else None
            if interval_s is not None and entry.lookup is None and now >= entry.look_at:
                entry.look_at = now + interval_s
                entry.lookup = self._start_lookup(follower.look)
        elif now >= entry.resume_at and entry.lookup is None:
            if not follower.positions:
                entry.lookup = self._start_lookup(follower.locate)
            elif follower.looks_first() and not entry.has_looked:
                entry.has_looked = True
                entry.lookup = self._start_lookup(follower.look)
            else:
                entry.is_following = True
                entry.has_looked = False
                self._changed.add(follower.topic)

    def _start_lookup(self, lookup: Callable[[TopicAdmin], Any]) -> "Future[Any]":
        """Run it on a thread that does not delay the end of the process."""
        found: Future[Any] = Future()

        def run() -> None:
            try:
                found.set_result(lookup(self._admin))
            except Exception as failure:  # noqa: BLE001 - it is raised where the result is used
                found.set_exception(failure)

        threading.Thread(target=run, name="headgate-lookup", daemon=True).start()
        return found

    def _on_lookup(self, entry: _Entry, lookup: "Future[Any]") -> Next:
        if entry.is_following or entry.has_looked:
            return entry.follower.on_look(lookup.result())
        positions = lookup.result()
        if not positions:
            raise ClusterError("the topic has no partitions")
        entry.follower.positions = positions
        return Next.GO_ON

    def _call(self, entry: _Entry, function: Callable[[], Next]) -> None:
        follower = entry.follower
        try:
            needed = function()
        except Exception as failure:  # noqa: BLE001 - one follower must not stop the others
            if not follower.is_expected(failure):
                follower.report(failure)
            entry.leave(time.monotonic() + follower.retry_s)
            needed = Next.ASSIGN
        if needed is not Next.GO_ON:
            self._changed.add(follower.topic)
        if needed is Next.NEW_CONSUMER:
            entry.drop_lookup()
            self._needs_new_consumer.set()

    def _assign(self, consumer: Consumer, topic: str) -> None:
        self._changed.discard(topic)
        entries = [one for one in self._entries.values() if one.is_following and one.follower.topic == topic]
        wanted: dict[int, int] = {}
        for entry in entries:
            for partition, offset in entry.follower.positions.items():
                wanted[partition] = min(offset, wanted.get(partition, offset))
        assigned = self._assigned.pop(topic, None)
        if assigned:
            consumer.incremental_unassign([TopicPartition(topic, partition) for partition in assigned])
        if wanted:
            consumer.incremental_assign([TopicPartition(topic, *place) for place in wanted.items()])
            self._assigned[topic] = wanted
        for entry in entries:
            entry.follower.on_assigned()

    def _dispatch(self, batch: Sequence[Message]) -> None:
        topics: dict[str | None, list[Message]] = {}
        for message in batch:
            topics.setdefault(message.topic(), []).append(message)
        for topic, messages in topics.items():
            error = messages[-1].error() if topic is None else None
            if error is not None:
                self._on_error(error)
            for entry in tuple(self._entries.values()):
                if entry.is_following and entry.follower.topic == topic:
                    self._call(entry, partial(entry.follower.on_messages, messages))

    def _on_error(self, error: KafkaError) -> None:
        """The consumer as a whole has a problem."""
        for follower in tuple(self._entries):
            follower.problem = reason(error)


def _resolve(removed: "asyncio.Future[None]") -> None:
    if not removed.done():
        removed.set_result(None)
