"""Writing facts: an idempotent producer, its poll thread, and futures on the event loop.

Invariant: `write` returns the position of a fact when every in-sync replica has it. If it raises, the fact may have
been written all the same, because a response can be lost: a caller that needs to know reads the topic.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.base.errors import ClusterError
from headgate.base.threads import off_loop
from headgate.facts import Ended, Fact, encode
from headgate.facts.topics import MIB
from headgate.kafka.topics import Origin, quiet, reason

_POLL_S: Final = 0.1
_QUEUE_MESSAGES = 10_000
_QUEUE_KIB = 128 * 1024
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
F = TypeVar("F", bound=Fact)


class FactNotWrittenError(ClusterError):
    """A fact was not written. `too_large`: the topic will never accept it; otherwise it may be tried again."""

    def __init__(self, text: str, *, too_large: bool = False) -> None:
        super().__init__(text)
        self.too_large = too_large


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The position of a record."""

    topic: str
    partition: int
    offset: int


class PolledProducer:
    """A librdkafka producer and the thread that polls it, replaced after a fatal error.

    Used on one event loop; `on_fatal` is called on the thread. Delivery callbacks come while the thread polls; for what
    a replaced producer still held, `give_up` is called. Once closed, `alive` raises an `error`.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        thread: str,
        give_up: Callable[[], None],
        on_fatal: Callable[[KafkaError], None] | None = None,
        error: type[ClusterError] = ClusterError,
    ) -> None:
        self._settings = {**settings, "error_cb": self._on_error}
        self._name = thread
        self._give_up = give_up
        self._on_fatal = on_fatal
        self._error = error
        self._broken = False
        self._stop = threading.Event()
        self._producer: Producer | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_closed(self) -> bool:
        return self._stop.is_set()

    def alive(self) -> Producer:
        """The producer; a new one after a fatal error."""
        if self._stop.is_set():
            raise self._error("the writer is closed")
        if self._broken:
            self._broken = False
            self._producer = None
            # The old one is not polled any more, so its delivery callbacks would never come.
            self._give_up()
        if self._producer is None:
            self._producer = Producer(self._settings)
        if self._thread is None:
            self._thread = threading.Thread(target=self._poll, name=self._name, daemon=True)
            self._thread.start()
        return self._producer

    async def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    # --- on the thread

    def _poll(self) -> None:
        while not self._stop.is_set():
            producer = self._producer
            if producer is None:
                self._stop.wait(_POLL_S)
            else:
                producer.poll(_POLL_S)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            if self._on_fatal is not None:
                self._on_fatal(error)
            self._broken = True


class RecordWriter:
    """Writes records to the topics of one cluster.

    Made on the event loop that it serves. `delivery_timeout_s` bounds how long a record is tried, and the bytes that
    wait are bounded too: past that, `append` raises at once.
    """

    def __init__(self, settings: Mapping[str, Any], *, largest: int = MIB, delivery_timeout_s: float = 5.0) -> None:
        producing = quiet(
            settings,
            enable__idempotence=True,
            acks="all",
            linger__ms=0,
            compression__type="zstd",
            delivery__timeout__ms=int(delivery_timeout_s * 1000),
            request__timeout__ms=int(delivery_timeout_s * 1000),
            # librdkafka counts a record before it is compressed, and its own overhead.
            message__max__bytes=largest + 4096,
            queue__buffering__max__messages=_QUEUE_MESSAGES,
            queue__buffering__max__kbytes=max(_QUEUE_KIB, 2 * largest // 1024),
        )
        broke = "the producer failed, and the fact may not have been written"
        self._producer = PolledProducer(
            producing, thread="headgate-facts", give_up=lambda: self._give_up(broke), error=FactNotWrittenError
        )
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[Position]] = set()

    async def append(self, topic: str, key: bytes, value: bytes | None) -> Position:
        """Write a record; cancelling the caller does not undo it."""
        done: asyncio.Future[Position] = self._loop.create_future()
        on_delivery = _on_delivery(self._loop, done)
        try:
            self._producer.alive().produce(topic, key=key, value=value, on_delivery=on_delivery)
        except BufferError:
            raise FactNotWrittenError("too many facts are waiting to be written: the cluster accepts none") from None
        except KafkaException as failure:
            raise _not_written(failure.args[0], topic) from None
        self._waiting.add(done)
        done.add_done_callback(self._waiting.discard)
        try:
            return await done
        except KafkaException as failure:
            raise _not_written(failure.args[0], topic) from None

    async def close(self, *, timeout_s: float = 5.0) -> None:
        """Wait for pending records, then stop; those that are not written in time raise in their `write`."""
        waiting = tuple(self._waiting)
        if waiting:
            await asyncio.wait(waiting, timeout=timeout_s)
        self._give_up("the writer was closed before the fact was written")
        await self._producer.close()

    def _give_up(self, text: str) -> None:
        for done in tuple(self._waiting):
            if not done.done():
                done.set_exception(FactNotWrittenError(text))


class FactWriter(RecordWriter):
    """Writes facts to the headgate.* topics of one cluster; one for each worker process."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        prefix: str,
        origin: Origin,
        largest: int = MIB,
        delivery_timeout_s: float = 5.0,
    ) -> None:
        super().__init__(settings, largest=largest, delivery_timeout_s=delivery_timeout_s)
        self._prefix = prefix
        self._origin = origin
        self._seq = 0

    @property
    def origin(self) -> Origin:
        return self._origin

    async def open(self, *suffixes: str, timeout_s: float = 10.0) -> None:
        """Connect and read the metadata of the topics, so that the first fact does not wait for it."""
        producer = self._producer.alive()
        for suffix in suffixes:
            try:
                await off_loop(partial(producer.list_topics, self._prefix + suffix, timeout_s))
            except KafkaException as failure:
                raise ClusterError(f"the topic {self._prefix}{suffix} cannot be reached: {reason(failure)}") from None

    def stamped(self, fact: F) -> F:
        """The fact with the origin and the next sequence number of this writer."""
        origin, seq = self._origin, self._seq
        self._seq += 1
        return replace(fact, cluster=origin.cluster, writer=origin.writer, boot=origin.boot, seq=seq)

    def is_own(self, fact: Fact) -> bool:
        """Whether this process wrote the fact."""
        return fact.writer == self._origin.writer and fact.boot == self._origin.boot

    async def write(self, fact: Fact | Ended) -> Position:
        """Stamp, encode and write a fact; cancelling the caller does not undo it."""
        written = self.stamped(fact) if isinstance(fact, Fact) else fact
        suffix, key, value = await _encoded(written)
        return await self.append(self._prefix + suffix, key, value)


async def _encoded(fact: Fact | Ended) -> tuple[str, bytes, bytes | None]:
    """Encode a fact; a description of ten thousand nodes takes long, so not on the event loop."""
    if hasattr(fact, "description"):
        return await asyncio.to_thread(encode, fact)
    return encode(fact)


def _on_delivery(loop: asyncio.AbstractEventLoop, done: "asyncio.Future[Position]") -> Any:
    """The delivery callback: it hands the outcome from the poll thread to the event loop."""

    def settle(error: KafkaError | None, position: Position | None) -> None:
        if done.done():
            return
        if position is None:
            done.set_exception(KafkaException(error))
        else:
            done.set_result(position)

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        position = None
        if error is None:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            position = Position(topic=topic, partition=partition, offset=offset)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, error, position)

    return on_delivery


def _not_written(error: KafkaError, topic: str) -> FactNotWrittenError:
    return FactNotWrittenError(
        f"a fact could not be written to {topic}: {reason(error)}", too_large=error.code() in _TOO_LARGE
    )
