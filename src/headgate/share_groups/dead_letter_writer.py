"""Writes dead letters with an idempotent producer, its poll thread, and retries until the caller's deadline.

A dead letter is retried until its deadline whatever the problem is (no topic, no ACL, too few replicas, no broker),
because the problem may pass; only one that is too large for its topic fails at once. Calls never wait for each other:
dead letters over the bounds of this writer are refused at once.

Dead letters come by the hundred, so a call has one wait for all of them.

Delivery is at least once: a response can be lost, and then the dead letter is written twice, with the same headers.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError
from headgate.facts.topics import LARGEST_DEAD_LETTER
from headgate.kafka.delivery_reports import DeliveryReports
from headgate.kafka.fact_writer import MakeProducer, PolledProducer
from headgate.kafka.topics import TopicAdmin, quiet, reason
from headgate.share_groups.dead_letter_topics import DeadLetterTopicInfo, DeadLetterTopics
from headgate.share_groups.model.dead_letter_records import Header, partition_of
from headgate.share_groups.model.in_flight_shares import MAX_BYTES, MAX_DEAD_LETTERS, InFlightShares

log = structlog.get_logger()

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
# A broker compares a whole batch with max.message.bytes, so batches are small; a topic with a lower limit gets its dead
# letters one by one.
_BATCH_BYTES = 64 * 1024
_BATCH_OVERHEAD = 128
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_NO_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's own codes begin so
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)


class WritableDeadLetter(Protocol):
    """A dead letter as the writer sees it: a new one, or one from the spool."""

    @property
    def group(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header]: ...
    @property
    def header_bytes(self) -> int: ...


L = TypeVar("L", bound=WritableDeadLetter)
OnLate = Callable[[L], None]


class WriteFailureCause(Enum):
    """Why the last attempt to write a dead letter failed."""

    TOO_LARGE = "too_large"
    NO_TOPIC = "no_topic"
    NOT_ALLOWED = "not_allowed"
    UNREACHABLE = "unreachable"
    OVERLOADED = "overloaded"


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """`TOO_LARGE` is never retried, `OVERLOADED` was not attempted; all others were retried until the deadline."""

    cause: WriteFailureCause
    text: str


_NOT_IN_TIME: Final = WriteFailure(WriteFailureCause.UNREACHABLE, "no answer came")
_CLOSED: Final = WriteFailure(WriteFailureCause.UNREACHABLE, "the writer was closed")


class DeadLetterWriter:
    """Writes the dead letters of one worker process to their topics, made on the event loop that it serves.

    `delivery_timeout_s` bounds one attempt of librdkafka; an attempt in flight at the deadline may succeed up to that
    much later, and counts in the bounds until then.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        admin: TopicAdmin | None = None,
        auto_create: bool = False,
        replication: int | None = None,
        largest: int = LARGEST_DEAD_LETTER,
        max_dead_letters: int = MAX_DEAD_LETTERS,
        max_bytes: int = MAX_BYTES,
        delivery_timeout_s: float = 10.0,
        clock: Clock | None = None,
        topics: DeadLetterTopics | None = None,
        make_producer: MakeProducer = Producer,
    ) -> None:
        producing = quiet(
            settings,
            enable__idempotence=True,
            acks="all",
            linger__ms=2,  # batches instead of one request for each dead letter
            compression__type="zstd",
            # A topic that was deleted stays deleted, whatever the broker would do.
            allow__auto__create__topics=False,
            topic__metadata__propagation__max__ms=1000,
            delivery__timeout__ms=int(delivery_timeout_s * 1000),
            request__timeout__ms=int(delivery_timeout_s * 1000),
            reconnect__backoff__max__ms=1000,
            batch__size=_BATCH_BYTES,
            message__max__bytes=largest,
            queue__buffering__max__messages=2 * max_dead_letters,
            queue__buffering__max__kbytes=2 * (max_bytes + largest) // 1024,
        )
        self._producer = PolledProducer(
            producing,
            thread="headgate-dead-letters",
            give_up=lambda: self._reports.fail_all("the producer had a fatal error"),
            on_fatal=lambda error: log.warning("producer of dead letters replaced", error=reason(error)),
            make_producer=make_producer,
        )
        self._clock = clock or SystemClock()
        self._topics = topics or DeadLetterTopics(
            admin or TopicAdmin(settings), auto_create=auto_create, replication=replication, clock=self._clock
        )
        self._shares = InFlightShares(max_dead_letters, max_bytes)
        self._largest = largest
        self._loop = asyncio.get_running_loop()
        self._one_by_one: dict[str, asyncio.Lock] = {}
        self._reports: DeliveryReports[_Writing] = DeliveryReports(self._on_report)

    @property
    def expected_reports(self) -> int:
        """Dead letters that the producer has."""
        return len(self._reports)

    @property
    def dead_letters(self) -> int:
        """The number of dead letters in flight."""
        return self._shares.dead_letters

    @property
    def bytes(self) -> int:
        return self._shares.bytes

    async def open(self, *topics: str, timeout_s: float = 10.0) -> None:
        """Warm up, since the first dead letter would take half a second; an unavailable cluster is not an error."""
        producer = self._producer.alive()  # it connects by itself, to get its producer id
        with suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._topics.open()
                for topic in topics:
                    await self._topics.describe(topic, producer)

    async def describe_topic(self, topic: str) -> DeadLetterTopicInfo:
        """The topic's partitions and `max.message.bytes`, at most ten seconds old."""
        return await self._topics.describe(topic, self._producer.alive())

    async def write(
        self, topic: str, dead_letters: Sequence[L], deadline_s: float, on_late: OnLate[L] | None = None
    ) -> list[WriteFailure | None]:
        """Return when every in-sync replica has the dead letters, or at the deadline; None for each that is written.

        `on_late` is called on the loop for each that arrives after the deadline, or after the caller was cancelled.
        """
        writings = [_Writing(topic, dead_letter) for dead_letter in dead_letters]
        accepted = [one for one in writings if self._accept(one)]
        try:
            await self._until_written(topic, accepted, self._clock.monotonic() + deadline_s)
        finally:
            for one in accepted:
                self._release(one, on_late)
        return [_result(one, deadline_s) for one in writings]

    def _accept(self, writing: "_Writing") -> bool:
        text = self._shares.take(writing.dead_letter.group, writing.size)
        if text is not None:
            writing.failure = WriteFailure(WriteFailureCause.OVERLOADED, text)
        return text is None

    async def close(self, *, timeout_s: float = 5.0) -> None:
        """Wait for dead letters in flight, then stop; those that did not arrive fail in their `write`."""
        await self._reports.wait_until_idle(timeout_s)
        self._reports.fail_all(_CLOSED.text)
        await self._producer.close()
        await self._topics.close()

    async def _until_written(self, topic: str, writings: "Sequence[_Writing]", until: float) -> None:
        """Retry until all are written; `failure` of each is its last problem, None when it is written.

        A round is retried when all of its delivery reports have arrived.
        """
        pause = _FIRST_PAUSE_S
        while writings:
            try:
                async with asyncio.timeout(max(0.0, until - self._clock.monotonic())):
                    await self._attempt(topic, writings)
            except TimeoutError:
                return
            writings = [one for one in writings if one.failure is not None and not one.is_too_large]
            if not writings or self._producer.is_closed:
                return
            self._topics.expire(topic)
            left = until - self._clock.monotonic()
            await asyncio.sleep(max(0.0, min(pause, left)))
            if left <= pause:
                return
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _attempt(self, topic: str, writings: "Sequence[_Writing]") -> None:
        failure: WriteFailure | None = None
        try:
            producer = self._producer.alive()
            facts = await self._topics.describe(topic, producer)
        except ClusterError as problem:
            failure = WriteFailure(WriteFailureCause.UNREACHABLE, str(problem))
        else:
            if facts.partitions == 0:
                cause = WriteFailureCause.NO_TOPIC if facts.problem is None else WriteFailureCause.NOT_ALLOWED
                failure = WriteFailure(cause, facts.problem or "the topic does not exist")
        if failure is not None:
            for one in writings:
                one.failure = failure
            return
        max_bytes = None if facts.max_message_bytes is None else min(facts.max_message_bytes, self._largest)
        if max_bytes is None or max_bytes >= _BATCH_BYTES:
            await self._produce(producer, writings, facts.partitions)
            # Where max.message.bytes is unknown, a batch can be too large although its dead letters are not.
            writings = [one for one in writings if one.is_too_large and (max_bytes is None or one.size <= max_bytes)]
        for one in writings:
            async with self._one_by_one.setdefault(topic, asyncio.Lock()):
                await self._produce(producer, [one], facts.partitions)
            if one.failure and one.is_too_large and max_bytes is not None and one.size <= max_bytes:
                # It shared a batch with a dead letter whose deadline had passed, or the topic's limit was lowered.
                one.failure = WriteFailure(WriteFailureCause.UNREACHABLE, one.failure.text)

    async def _produce(self, producer: Producer, writings: "Sequence[_Writing]", partitions: int) -> None:
        """One round: hand each to the producer and wait for all delivery reports."""
        done: asyncio.Future[None] = self._loop.create_future()
        these = _Round(done)
        for one in writings:
            dead_letter = one.dead_letter
            try:
                if self._producer.is_closed:
                    one.failure = _CLOSED
                    continue
                self._reports.produce(
                    producer,
                    one,
                    one.topic,
                    key=dead_letter.key,
                    value=dead_letter.value,
                    headers=[*dead_letter.headers],
                    partition=partition_of(dead_letter.partition, partitions),
                )
            except BufferError:
                one.failure = WriteFailure(WriteFailureCause.UNREACHABLE, "the producer's queue is full")
            except KafkaException as problem:
                one.failure = _not_written(problem.args[0])
            else:
                one.round = these
                these.left += 1
        if these.left:
            self._producer.wake()
            await asyncio.wait({done})  # cancelling the caller does not cancel the round

    def _on_report(self, writing: "_Writing", error: KafkaError | str | None, _offset: int) -> None:
        if error is None:
            failure = None
        elif isinstance(error, str):
            failure = WriteFailure(WriteFailureCause.UNREACHABLE, error)
        else:
            failure = _not_written(error)
        these, writing.round = writing.round, None
        assert these is not None
        writing.failure = failure
        these.left -= 1
        if not these.left and not these.done.done():
            these.done.set_result(None)
        if writing.is_released:
            self._forget(writing)
            if failure is None and writing.on_late is not None:
                writing.on_late(writing.dead_letter)

    def _release(self, writing: "_Writing", on_late: OnLate[Any] | None) -> None:
        """Stop counting it in the bounds, after its attempt in flight has ended."""
        if writing.round is None:
            self._forget(writing)
        else:
            writing.is_released = True
            writing.on_late = on_late

    def _forget(self, writing: "_Writing") -> None:
        self._shares.release(writing.dead_letter.group, writing.size)


@dataclass(slots=True)
class _Round:
    """Dead letters that are waited for together; `left` of them have no delivery report yet."""

    done: "asyncio.Future[None]"
    left: int = 0


class _Writing:
    """One dead letter being written; `round` is that of its attempt in flight."""

    __slots__ = ("dead_letter", "failure", "is_released", "on_late", "round", "size", "topic")

    def __init__(self, topic: str, dead_letter: WritableDeadLetter) -> None:
        self.topic = topic
        self.dead_letter = dead_letter
        # At least the size of a batch with this dead letter alone.
        self.size = (
            _BATCH_OVERHEAD + dead_letter.header_bytes + len(dead_letter.key or b"") + len(dead_letter.value or b"")
        )
        self.failure: WriteFailure | None = _NOT_IN_TIME
        self.round: _Round | None = None
        self.is_released = False
        self.on_late: OnLate[Any] | None = None

    @property
    def is_too_large(self) -> bool:
        return self.failure is not None and self.failure.cause is WriteFailureCause.TOO_LARGE


def _not_written(error: KafkaError) -> WriteFailure:
    code = error.code()
    if code in _TOO_LARGE:
        return WriteFailure(WriteFailureCause.TOO_LARGE, reason(error))
    if code in _NO_TOPIC:
        return WriteFailure(WriteFailureCause.NO_TOPIC, reason(error))
    if code in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
        return WriteFailure(WriteFailureCause.NOT_ALLOWED, reason(error))
    return WriteFailure(WriteFailureCause.UNREACHABLE, reason(error))


def _result(writing: _Writing, deadline_s: float) -> WriteFailure | None:
    failure = writing.failure
    if failure is None or failure.cause is WriteFailureCause.OVERLOADED:
        return failure
    within = "" if writing.is_too_large else f" within {deadline_s:g} s"
    text = f"a dead letter could not be written to {writing.topic}{within}: {failure.text}"
    return WriteFailure(failure.cause, text)
