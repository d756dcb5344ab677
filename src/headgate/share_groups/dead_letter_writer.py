"""Writing dead letters: an idempotent producer, its poll thread, and attempts until the caller's deadline.

One rule: a letter is tried until its deadline whatever stands in its way (no topic, no right, too few replicas, no
broker), because what is missing may come back; only a letter that its topic will never take ends at once. What stands
in the way of one call's letters never keeps another call waiting: what is over the bounds is refused at once.

Letters come by the hundred: a call has one wait for all of its letters, and the poll thread wakes the event loop once
for all that it has heard of.

It is at least once: an answer can be lost, and then the letter is there twice, with the same headers.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.base.errors import ClusterError
from headgate.facts.topics import MIB
from headgate.kafka.fact_writer import PolledProducer
from headgate.kafka.topics import quiet, reason
from headgate.share_groups.dead_letter_topics import DeadLetterTopics, TopicFacts
from headgate.share_groups.model.dead_letter_records import DeadLetter, partition_of

log = structlog.get_logger()

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
# A broker measures a whole batch against max.message.bytes, so small batches; a topic that takes even less than one of
# them gets its letters one by one.
_BATCH_BYTES = 64 * 1024
_BATCH_OVERHEAD, _HEADER_BYTES = 128, 10
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_NO_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's own codes begin so
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)

OnLate = Callable[[DeadLetter], None]


class Trouble(Enum):
    """What stood in the way of a dead letter, last."""

    TOO_LARGE = "too_large"
    NO_TOPIC = "no_topic"
    NOT_ALLOWED = "not_allowed"
    UNREACHABLE = "unreachable"
    OVERLOADED = "overloaded"


@dataclass(frozen=True, slots=True)
class NotWritten:
    """`TOO_LARGE`: the topic will never take it. `OVERLOADED`: it was not tried. Else it was tried to the deadline."""

    trouble: Trouble
    text: str


_NOT_IN_TIME: Final = NotWritten(Trouble.UNREACHABLE, "no answer came")
_CLOSED: Final = NotWritten(Trouble.UNREACHABLE, "the writer was closed")


class DeadLetterWriter:
    """One for each worker process, made on the event loop that it serves.

    `delivery_timeout_s` is how long librdkafka tries one attempt; one that is still on its way at the deadline may
    succeed up to that much later, and counts in the bounds until then.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        auto_create: bool = False,
        replication: int | None = None,
        largest: int = 16 * MIB,
        most_letters: int = 10_000,
        most_bytes: int = 64 * MIB,
        delivery_timeout_s: float = 10.0,
    ) -> None:
        producing = quiet(
            settings,
            enable__idempotence=True,
            acks="all",
            linger__ms=2,  # letters come by the hundred; one by one each would be a request, packed by itself
            compression__type="zstd",
            # A topic that was deleted stays deleted, whatever the broker would do.
            allow__auto__create__topics=False,
            topic__metadata__propagation__max__ms=1000,
            delivery__timeout__ms=int(delivery_timeout_s * 1000),
            request__timeout__ms=int(delivery_timeout_s * 1000),
            reconnect__backoff__max__ms=1000,
            batch__size=_BATCH_BYTES,
            message__max__bytes=largest,
            queue__buffering__max__messages=2 * most_letters,
            queue__buffering__max__kbytes=2 * (most_bytes + largest) // 1024,
        )
        self._producer = PolledProducer(
            producing,
            thread="headgate-dead-letters",
            give_up=lambda: self._give_up("the producer met an error that it cannot get over"),
            on_fatal=lambda error: log.warning("a new producer writes dead letters", error=reason(error)),
        )
        self._topics = DeadLetterTopics(settings, auto_create=auto_create, replication=replication)
        self._most_letters, self._most_bytes, self._largest = most_letters, most_bytes, largest
        self._loop = asyncio.get_running_loop()
        self._alone: dict[str, asyncio.Lock] = {}
        self._rounds: set[asyncio.Future[None]] = set()
        # By a ticket for each attempt: a producer that is dropped keeps its call-backs, which must not keep letters.
        self._under_way: dict[int, _Writing] = {}
        self._tickets = count()
        self._heard: deque[tuple[int, KafkaError | None]] = deque()  # by the poll thread
        self._is_woken = False
        self.letters = 0  # on their way
        self.bytes = 0

    async def open(self, *topics: str, timeout_s: float = 10.0) -> None:
        """Warm up: the first letter would take half a second. A cluster that is away is not an error here."""
        producer = self._producer.alive()  # it connects by itself, to be given its number
        with suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                for topic in topics:
                    await self._topics.look(topic, producer)

    async def topic_facts(self, topic: str) -> TopicFacts:
        """Whether the topic is there, its partitions and its `max.message.bytes`, at most ten seconds old."""
        return await self._topics.look(topic, self._producer.alive())

    async def write(
        self, topic: str, letters: Sequence[DeadLetter], deadline_s: float, on_late: OnLate | None = None
    ) -> list[NotWritten | None]:
        """Return when every replica in sync has the letters, or at the deadline; None for each that is written.

        `on_late` is called on the loop when a letter arrived after all: past the deadline, or after a caller that was
        cancelled.
        """
        writings = [_Writing(topic, letter) for letter in letters]
        taken = [one for one in writings if self._is_taken(one)]
        try:
            await self._until_written(topic, taken, self._loop.time() + deadline_s)
        finally:
            for one in taken:
                self._let_go(one, on_late)
        return [_said(one, deadline_s) for one in writings]

    def _is_taken(self, writing: "_Writing") -> bool:
        """Whether there is room for it."""
        size = writing.size
        if self.letters >= self._most_letters or (self.letters and self.bytes + size > self._most_bytes):
            text = f"{self.letters} dead letters of {self.bytes} bytes wait to be written: no more are taken"
            writing.failure = NotWritten(Trouble.OVERLOADED, text)
            return False
        self.letters += 1
        self.bytes += size
        return True

    async def close(self, *, timeout_s: float = 5.0) -> None:
        """Wait for what is on its way, then stop; what did not arrive in time is said by its `write`."""
        if self._rounds:
            await asyncio.wait(tuple(self._rounds), timeout=timeout_s)
        self._give_up(_CLOSED.text)
        await self._producer.close()
        await self._topics.close()

    # --- the attempts at some letters

    async def _until_written(self, topic: str, writings: "Sequence[_Writing]", until: float) -> None:
        """Each has in `failure` what stood in its way last, None when it is written.

        What failed is tried again when all of the round have been heard of.
        """
        pause = _FIRST_PAUSE_S
        while writings:
            try:
                async with asyncio.timeout_at(until):
                    await self._attempt(topic, writings)
            except TimeoutError:
                return
            writings = [one for one in writings if one.failure is not None and not one.is_too_large]
            if not writings or self._producer.is_closed:
                return
            self._topics.doubt(topic)
            left = until - self._loop.time()
            await asyncio.sleep(max(0.0, min(pause, left)))
            if left <= pause:
                return
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _attempt(self, topic: str, writings: "Sequence[_Writing]") -> None:
        failure: NotWritten | None = None
        try:
            producer = self._producer.alive()
            facts = await self._topics.look(topic, producer)
        except ClusterError as problem:
            failure = NotWritten(Trouble.UNREACHABLE, str(problem))
        else:
            if facts.partitions == 0:
                trouble = Trouble.NO_TOPIC if facts.problem is None else Trouble.NOT_ALLOWED
                failure = NotWritten(trouble, facts.problem or "the topic does not exist")
        if failure is not None:
            for one in writings:
                one.failure = failure
            return
        most = None if facts.max_message_bytes is None else min(facts.max_message_bytes, self._largest)
        if most is None or most >= _BATCH_BYTES:
            await self._produced(producer, writings, facts.partitions)
            # Where nobody may know what the topic takes, a batch can be too large although its letters are not.
            writings = [one for one in writings if one.is_too_large and (most is None or one.size <= most)]
        for one in writings:
            async with self._alone.setdefault(topic, asyncio.Lock()):
                await self._produced(producer, [one], facts.partitions)
            if one.failure and one.is_too_large and most is not None and one.size <= most:
                # It shared a batch with a letter whose writer had given up waiting, or the topic takes less by now.
                one.failure = NotWritten(Trouble.UNREACHABLE, one.failure.text)

    async def _produced(self, producer: Producer, writings: "Sequence[_Writing]", partitions: int) -> None:
        """One round: each is given to the producer, and all are waited for."""
        done: asyncio.Future[None] = self._loop.create_future()
        these = _Round(done)
        for one in writings:
            letter, ticket = one.letter, next(self._tickets)
            try:
                if self._producer.is_closed:
                    one.failure = _CLOSED
                    continue
                producer.produce(
                    one.topic,
                    key=letter.key,
                    value=letter.value,
                    headers=[*one.headers],
                    partition=partition_of(letter.partition, partitions),
                    on_delivery=self._on_delivery(ticket),
                )
            except BufferError:
                one.failure = NotWritten(Trouble.UNREACHABLE, "the producer's queue is full")
            except KafkaException as problem:
                one.failure = _not_written(problem.args[0])
            else:
                one.round = these
                these.left += 1
                self._under_way[ticket] = one
        if these.left:
            self._rounds.add(done)
            done.add_done_callback(self._rounds.discard)
            await asyncio.wait({done})  # a caller that goes away does not take it back

    def _on_delivery(self, ticket: int) -> Any:
        """The poll thread's call-back: what it hears is taken over by the loop, if there still is one."""

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            self._heard.append((ticket, error))
            if not self._is_woken:
                self._is_woken = True
                with suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._hear)

        return on_delivery

    def _hear(self) -> None:
        self._is_woken = False  # first: what comes from here on is looked at below, or wakes the loop again
        while self._heard:
            ticket, error = self._heard.popleft()
            self._settle(ticket, None if error is None else _not_written(error))

    def _settle(self, ticket: int, failure: NotWritten | None) -> None:
        writing = self._under_way.pop(ticket, None)
        if writing is None:  # it was given up before
            return
        these, writing.round = writing.round, None
        assert these is not None
        writing.failure = failure
        these.left -= 1
        if not these.left and not these.done.done():
            these.done.set_result(None)
        if writing.is_let_go:
            self._forget(writing)
            if failure is None and writing.on_late is not None:
                writing.on_late(writing.letter)

    def _let_go(self, writing: "_Writing", on_late: OnLate | None) -> None:
        """Out of the bounds; an attempt that is still on its way stays in them until it has ended."""
        if writing.round is None:
            self._forget(writing)
        else:
            writing.is_let_go = True
            writing.on_late = on_late

    def _forget(self, writing: "_Writing") -> None:
        self.letters -= 1
        self.bytes -= writing.size

    def _give_up(self, text: str) -> None:
        self._hear()  # what has arrived has arrived
        for ticket in tuple(self._under_way):
            self._settle(ticket, NotWritten(Trouble.UNREACHABLE, text))


@dataclass(slots=True)
class _Round:
    """Letters that are waited for together; `left` of them have not been heard of."""

    done: "asyncio.Future[None]"
    left: int = 0


class _Writing:
    """One letter on its way; `round` is that of its attempt while nothing is heard of it."""

    __slots__ = ("failure", "headers", "is_let_go", "letter", "on_late", "round", "size", "topic")

    def __init__(self, topic: str, letter: DeadLetter) -> None:
        self.topic = topic
        self.letter = letter
        self.headers = letter.headers
        # No less than a batch of this letter alone has.
        in_headers = sum(len(name) + len(text) + _HEADER_BYTES for name, text in self.headers)
        self.size = _BATCH_OVERHEAD + in_headers + len(letter.key or b"") + len(letter.value or b"")
        self.failure: NotWritten | None = _NOT_IN_TIME
        self.round: _Round | None = None
        self.is_let_go = False
        self.on_late: OnLate | None = None

    @property
    def is_too_large(self) -> bool:
        return self.failure is not None and self.failure.trouble is Trouble.TOO_LARGE


def _not_written(error: KafkaError) -> NotWritten:
    code = error.code()
    if code in _TOO_LARGE:
        return NotWritten(Trouble.TOO_LARGE, reason(error))
    if code in _NO_TOPIC:
        return NotWritten(Trouble.NO_TOPIC, reason(error))
    if code in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
        return NotWritten(Trouble.NOT_ALLOWED, reason(error))
    return NotWritten(Trouble.UNREACHABLE, reason(error))


def _said(writing: _Writing, deadline_s: float) -> NotWritten | None:
    """For the caller."""
    failure = writing.failure
    if failure is None or failure.trouble is Trouble.OVERLOADED:
        return failure
    within = "" if writing.is_too_large else f" within {deadline_s:g} s"
    text = f"a dead letter could not be written to {writing.topic}{within}: {failure.text}"
    return NotWritten(failure.trouble, text)
