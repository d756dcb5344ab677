"""Writing dead letters: an idempotent producer, its poll thread, and attempts until the caller's deadline.

One rule: a letter is tried until its deadline whatever stands in its way (no topic, no right, too few replicas, no
broker), because what is missing may come back; only a letter that its topic will never take ends at once. What stands
in the way of one letter never keeps another waiting: over the bounds `write` raises at once.

It is at least once: an answer can be lost, and then the letter is there twice, with the same headers.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.base.errors import ClusterError
from headgate.domain.dead_letters import DeadLetter, Header, partition_of
from headgate.facts.topics import MIB
from headgate.kafka.dead_letter_topics import DeadLetterTopics, TopicFacts
from headgate.kafka.polled_producer import PolledProducer
from headgate.kafka.topics import quiet, reason

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


class DeadLetterNotWrittenError(ClusterError):
    """`TOO_LARGE`: the topic will never take it. `OVERLOADED`: it was not tried. Else it was tried to the deadline."""

    def __init__(self, text: str, trouble: Trouble) -> None:
        super().__init__(text)
        self.trouble = trouble

    @property
    def too_large(self) -> bool:
        return self.trouble is Trouble.TOO_LARGE


@dataclass(frozen=True, slots=True)
class _Failure:
    trouble: Trouble
    text: str


_NOT_IN_TIME: Final = _Failure(Trouble.UNREACHABLE, "no answer came")


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
            linger__ms=0,
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
        self._most_letters, self._most_bytes = most_letters, most_bytes
        self._loop = asyncio.get_running_loop()
        self._alone: dict[str, asyncio.Lock] = {}
        self._attempts: set[asyncio.Future[_Failure | None]] = set()
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

    async def write(self, topic: str, letter: DeadLetter, deadline_s: float, on_late: OnLate | None = None) -> None:
        """Return when every replica in sync has the letter; else `DeadLetterNotWrittenError` within `deadline_s`.

        `on_late` is called on the loop when the letter arrived after all: past the deadline, or after a caller that was
        cancelled.
        """
        headers = letter.headers
        size = _size(letter, headers)
        if self.letters >= self._most_letters or (self.letters and self.bytes + size > self._most_bytes):
            raise DeadLetterNotWrittenError(
                f"{self.letters} dead letters of {self.bytes} bytes wait to be written: no more are taken",
                Trouble.OVERLOADED,
            )
        writing = _Writing(topic=topic, letter=letter, headers=headers, size=size, until=self._loop.time() + deadline_s)
        self.letters += 1
        self.bytes += size
        try:
            failure = await self._until_written(writing)
        finally:
            self._let_go(writing, on_late)
        if failure is not None:
            raise _not_written(topic, failure, deadline_s)

    async def close(self, *, timeout_s: float = 5.0) -> None:
        """Wait for what is on its way, then stop; what did not arrive in time raises in its `write`."""
        if self._attempts:
            await asyncio.wait(tuple(self._attempts), timeout=timeout_s)
        self._give_up("the writer was closed")
        await self._producer.close()
        await self._topics.close()

    # --- the attempts at one letter

    async def _until_written(self, writing: "_Writing") -> _Failure | None:
        """None when it is written; else what stood in the way last."""
        pause, failure = _FIRST_PAUSE_S, _NOT_IN_TIME
        while True:
            try:
                async with asyncio.timeout_at(writing.until):
                    said = await self._attempt(writing)
            except TimeoutError:
                return failure
            if said is None:
                return None
            failure = said
            if said.trouble is Trouble.TOO_LARGE or self._producer.is_closed:
                return failure
            self._topics.doubt(writing.topic)
            left = writing.until - self._loop.time()
            await asyncio.sleep(max(0.0, min(pause, left)))
            if left <= pause:
                return failure
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _attempt(self, writing: "_Writing") -> _Failure | None:
        try:
            producer = self._producer.alive()
            facts = await self._topics.look(writing.topic, producer)
        except ClusterError as failure:
            return _Failure(Trouble.UNREACHABLE, str(failure))
        if facts.partitions == 0:
            trouble = Trouble.NO_TOPIC if facts.problem is None else Trouble.NOT_ALLOWED
            return _Failure(trouble, facts.problem or "the topic does not exist")
        most = facts.max_message_bytes
        if most is None or most >= _BATCH_BYTES:
            return await self._produced(producer, writing, facts.partitions)
        async with self._alone.setdefault(writing.topic, asyncio.Lock()):
            said = await self._produced(producer, writing, facts.partitions)
        if said is not None and said.trouble is Trouble.TOO_LARGE and writing.size <= most:
            # It shared a batch with a letter whose writer had given up waiting.
            return _Failure(Trouble.UNREACHABLE, said.text)
        return said

    async def _produced(self, producer: Producer, writing: "_Writing", partitions: int) -> _Failure | None:
        letter = writing.letter
        done: asyncio.Future[_Failure | None] = self._loop.create_future()
        try:
            producer.produce(
                writing.topic,
                key=letter.key,
                value=letter.value,
                headers=[*writing.headers],
                partition=partition_of(letter.partition, partitions),
                on_delivery=_on_delivery(self._loop, done),
            )
        except BufferError:
            return _Failure(Trouble.UNREACHABLE, "the producer's queue is full")
        except KafkaException as failure:
            return _failure(failure.args[0])
        writing.attempt = done
        self._attempts.add(done)
        done.add_done_callback(self._attempts.discard)
        await asyncio.wait({done})  # a caller that goes away does not take it back
        return done.result()

    def _let_go(self, writing: "_Writing", on_late: OnLate | None) -> None:
        """Out of the bounds; an attempt that is still on its way stays in them until it has ended."""

        def ended(done: "asyncio.Future[_Failure | None] | None") -> None:
            self.letters -= 1
            self.bytes -= writing.size
            if done is not None and done.result() is None and on_late is not None:
                on_late(writing.letter)

        if writing.attempt is None or writing.attempt.done():
            ended(None)
        else:
            writing.attempt.add_done_callback(ended)

    def _give_up(self, text: str) -> None:
        for done in tuple(self._attempts):
            if not done.done():
                done.set_result(_Failure(Trouble.UNREACHABLE, text))


@dataclass(slots=True, kw_only=True)
class _Writing:
    """One letter on its way; `attempt` is the last."""

    topic: str
    letter: DeadLetter
    headers: list[Header]
    size: int
    until: float
    attempt: "asyncio.Future[_Failure | None] | None" = None


def _size(letter: DeadLetter, headers: Iterable[Header]) -> int:
    """No less than a batch of this letter alone has."""
    in_headers = sum(len(name) + len(text) + _HEADER_BYTES for name, text in headers)
    return _BATCH_OVERHEAD + in_headers + len(letter.key or b"") + len(letter.value or b"")


def _on_delivery(loop: asyncio.AbstractEventLoop, done: "asyncio.Future[_Failure | None]") -> Any:
    """The poll thread's call-back: the outcome goes to the loop, if there still is one."""

    def settle(error: KafkaError | None) -> None:
        if not done.done():
            done.set_result(None if error is None else _failure(error))

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, error)

    return on_delivery


def _failure(error: KafkaError) -> _Failure:
    code = error.code()
    if code in _TOO_LARGE:
        return _Failure(Trouble.TOO_LARGE, reason(error))
    if code in _NO_TOPIC:
        return _Failure(Trouble.NO_TOPIC, reason(error))
    if code in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
        return _Failure(Trouble.NOT_ALLOWED, reason(error))
    return _Failure(Trouble.UNREACHABLE, reason(error))


def _not_written(topic: str, failure: _Failure, deadline_s: float) -> DeadLetterNotWrittenError:
    within = "" if failure.trouble is Trouble.TOO_LARGE else f" within {deadline_s:g} s"
    return DeadLetterNotWrittenError(
        f"a dead letter could not be written to {topic}{within}: {failure.text}", failure.trouble
    )
