"""Writing records and facts: producers with a thread that polls them, shares of one producer, and futures on the loop.

Invariants: `write` returns the position of a fact when every in-sync replica has it. If it raises, the fact may have
been written all the same, because a response can be lost: a caller that needs to know reads the topic.

Writers that share a producer do not take each other's room in its queue. Each has a share, refuses what does not fit
into it, and the queue holds all shares. They have one thing in common: it is idempotent, so after a record that was not
delivered in time it waits for the answers to all requests that are under way before it sends more.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.base.errors import ClusterError
from headgate.base.threads import off_loop
from headgate.facts import Ended, Fact, encode
from headgate.facts.topics import MIB
from headgate.kafka.topics import Origin, quiet, reason

log = structlog.get_logger()

_POLL_S: Final = 0.1
IDLE_S: Final = 1.0
SHARE_RECORDS: Final = 10_000
SHARE_BYTES: Final = 128 * MIB
_FULL: Final = "too many facts are waiting to be written: the cluster accepts none"
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_ATTEMPTS: Final = 3
F = TypeVar("F", bound=Fact)
MakeProducer = Callable[[dict[str, Any]], Producer]

# --- producers --------------------------------------------------------------------------------------------------------


class PolledProducer:
    """A librdkafka producer and the thread that polls it, replaced after a fatal error and after a failed callback.

    Used on one event loop; `on_fatal` is called on the thread. Delivery callbacks come while the thread polls; for what
    a replaced producer still held, `give_up` is called. Once closed, `alive` raises an `error`.

    The thread sleeps while the producer holds nothing: who has produced says so (`wake`), or waits up to `idle_s` for
    the callbacks. So long wait those about errors and tokens too.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        thread: str,
        give_up: Callable[[], None],
        on_fatal: Callable[[KafkaError], None] | None = None,
        error: type[ClusterError] = ClusterError,
        make_producer: MakeProducer = Producer,
        idle_s: float = IDLE_S,
    ) -> None:
        self._make_producer = make_producer
        self._idle_s = idle_s
        self._settings = dict(settings)
        self._name = thread
        self._give_up = give_up
        self._on_fatal = on_fatal
        self._error = error
        self._broken = False
        self._stop = threading.Event()
        self._awake = threading.Event()
        self._producer: Producer | None = None
        self._thread: threading.Thread | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        """Of the next producer."""
        return self._settings

    @property
    def is_closed(self) -> bool:
        return self._stop.is_set()

    def alive(self) -> Producer:
        """The producer; a new one after a failure."""
        if self._stop.is_set():
            raise self._error("the writer is closed")
        if self._broken:
            self._broken = False
            self._producer = None
            # The old one is not polled any more, so its delivery callbacks would never come.
            self._give_up()
        if self._producer is None:
            self._producer = self._make_producer({**self._settings, "error_cb": self._on_error})
        if self._thread is None:
            self._thread = threading.Thread(target=self._poll, name=self._name, daemon=True)
            self._thread.start()
        self.wake()
        return self._producer

    def wake(self) -> None:
        """Poll now: something was produced."""
        if not self._awake.is_set():
            self._awake.set()

    def replace_settings(self, settings: Mapping[str, Any]) -> None:
        """Go on with a new producer that has these settings; what the old one holds is given up."""
        self._settings = dict(settings)
        self._broken = self._producer is not None

    async def close(self) -> None:
        self._stop.set()
        self._awake.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    # --- on the thread

    def _poll(self) -> None:
        while not self._stop.is_set():
            try:
                producer = self._producer  # which `close` takes away
                is_awake = self._awake.wait(0 if producer is not None and len(producer) else self._idle_s)
                self._awake.clear()
                producer = self._producer
                if producer is not None:
                    producer.poll(_POLL_S if is_awake or len(producer) else 0)
            except Exception:  # any: without this thread no record is ever reported
                log.exception("callback of a producer failed", thread=self._name)
                self._broken = True  # what it still holds is given up

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            if self._on_fatal is not None:
                self._on_fatal(error)
            self._broken = True


class RecordProducer:
    """An idempotent producer for the records of up to `shares` writers.

    Made on the event loop that it serves. `delivery_timeout_s` bounds how long a record is tried.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        largest: int = MIB,
        delivery_timeout_s: float = 5.0,
        shares: int = 1,
        share_records: int = SHARE_RECORDS,
        share_bytes: int = SHARE_BYTES,
        error: type[ClusterError] = ClusterError,
        make_producer: MakeProducer = Producer,
    ) -> None:
        self.delivery_timeout_s: Final = delivery_timeout_s
        self.share_records: Final = share_records
        self.share_bytes: Final = max(share_bytes, 2 * largest)
        self._options: dict[str, Any] = {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            "compression.type": "zstd",
            "delivery.timeout.ms": int(delivery_timeout_s * 1000),
            "request.timeout.ms": int(delivery_timeout_s * 1000),
            # librdkafka counts a record before it is compressed, and its own overhead.
            "message.max.bytes": largest + 4096,
            "queue.buffering.max.messages": shares * share_records,
            "queue.buffering.max.kbytes": shares * self.share_bytes // 1024,
        }
        self._give_ups: set[Callable[[], None]] = set()
        self._polled = PolledProducer(
            {**quiet(settings), **self._options},
            thread="headgate-producer",
            give_up=self._give_up,
            error=error,
            make_producer=make_producer,
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        """Of the next producer."""
        return self._polled.settings

    def alive(self) -> Producer:
        return self._polled.alive()

    def wake(self) -> None:
        """Something was produced."""
        self._polled.wake()

    def add(self, give_up: Callable[[], None]) -> None:
        """`give_up` is called when the producer failed with all that it held."""
        self._give_ups.add(give_up)

    def remove(self, give_up: Callable[[], None]) -> None:
        self._give_ups.discard(give_up)

    def replace_settings(self, settings: Mapping[str, Any]) -> None:
        """Go on with a new producer that has these settings."""
        self._polled.replace_settings({**quiet(settings), **self._options})

    async def close(self) -> None:
        await self._polled.close()

    def _give_up(self) -> None:
        for give_up in tuple(self._give_ups):
            give_up()


# --- writers ----------------------------------------------------------------------------------------------------------


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


class RecordWriter:
    """Writes records to the topics of one cluster.

    Made on the event loop that it serves. `source` is the producer that it shares with others, or settings: then it has
    a producer of its own. `delivery_timeout_s` bounds how long `append` waits. The records and bytes that wait are
    bounded too: past that, `append` raises at once, whatever others have written.
    """

    def __init__(
        self, source: RecordProducer | Mapping[str, Any], *, largest: int = MIB, delivery_timeout_s: float = 5.0
    ) -> None:
        self._is_shared = isinstance(source, RecordProducer)
        self._producer = (
            source
            if isinstance(source, RecordProducer)
            else RecordProducer(
                source, largest=largest, delivery_timeout_s=delivery_timeout_s, error=FactNotWrittenError
            )
        )
        is_shorter = delivery_timeout_s < self._producer.delivery_timeout_s
        self._timeout_s = delivery_timeout_s if is_shorter else None  # else the producer counts it
        self._loop = asyncio.get_running_loop()
        self._in_flight: set[_Pending] = set()  # what the producer has, also what is not waited for any more
        self._bytes = 0
        self._is_closed = False
        self._on_failure = partial(self._give_up, "the producer failed, and the fact may not have been written")
        self._producer.add(self._on_failure)

    async def append(self, topic: str, key: bytes, value: bytes | None) -> Position:
        """Write a record; cancelling the caller does not undo it.

        A broker that has the record already, from a request whose response was lost, does not tell its offset. Callers
        read a record back by its offset, so it is then written once more.
        """
        for _ in range(_ATTEMPTS):
            position = await self._append_once(topic, key, value)
            if position is not None:
                return position
        raise FactNotWrittenError(f"a fact was written to {topic}, and the broker does not tell its offset")

    async def _append_once(self, topic: str, key: bytes, value: bytes | None) -> Position | None:
        """Return None when the record is written and its offset is unknown."""
        if self._is_closed:
            raise FactNotWrittenError("the writer is closed")
        pending = _Pending(self._loop.create_future(), len(key) + len(value or b""))
        try:
            producer = self._producer.alive()  # first: one that failed gives back what it held
            if (
                len(self._in_flight) >= self._producer.share_records
                or self._bytes + pending.size > self._producer.share_bytes
            ):
                raise FactNotWrittenError(_FULL)
            producer.produce(topic, key=key, value=value, on_delivery=self._on_delivery(pending))
            self._producer.wake()
        except BufferError:
            raise FactNotWrittenError(_FULL) from None
        except KafkaException as failure:
            raise _not_written(failure.args[0], topic) from None
        self._in_flight.add(pending)
        self._bytes += pending.size
        try:
            async with asyncio.timeout(self._timeout_s):
                return await pending.done
        except TimeoutError:
            raise FactNotWrittenError(f"a fact was not written to {topic} in {self._timeout_s:g} s") from None
        except KafkaException as failure:
            raise _not_written(failure.args[0], topic) from None

    async def close(self, *, timeout_s: float = 5.0) -> None:
        """Wait for pending records, then stop; those that are not written in time raise in their `write`."""
        self._is_closed = True
        waiting = [one.done for one in self._in_flight if not one.done.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=timeout_s)
        self._producer.remove(self._on_failure)
        self._give_up("the writer was closed before the fact was written")
        if not self._is_shared:
            await self._producer.close()

    def _give_up(self, text: str) -> None:
        for pending in tuple(self._in_flight):
            self._settle(pending, FactNotWrittenError(text))

    def _settle(self, pending: "_Pending", outcome: Position | Exception | None) -> None:
        """The producer does not have it any more."""
        if pending not in self._in_flight:
            return
        self._in_flight.remove(pending)
        self._bytes -= pending.size
        if pending.done.done():  # not waited for any more
            return
        if isinstance(outcome, Exception):
            pending.done.set_exception(outcome)
        else:
            pending.done.set_result(outcome)

    def _on_delivery(self, pending: "_Pending") -> Callable[[KafkaError | None, Message], None]:
        """The delivery callback: it hands the outcome from the poll thread to the event loop."""

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            outcome: Position | Exception | None = None
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if error is not None:
                outcome = KafkaException(error)
            elif topic is not None and partition is not None and offset is not None:
                outcome = Position(topic=topic, partition=partition, offset=offset)
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._settle, pending, outcome)

        return on_delivery


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """A record that the producer has."""

    done: "asyncio.Future[Position | None]"
    size: int


class FactWriter(RecordWriter):
    """Writes facts to the headgate.* topics of one cluster; one for each feature of a worker."""

    def __init__(
        self,
        source: RecordProducer | Mapping[str, Any],
        *,
        prefix: str,
        origin: Origin,
        largest: int = MIB,
        delivery_timeout_s: float = 5.0,
    ) -> None:
        super().__init__(source, largest=largest, delivery_timeout_s=delivery_timeout_s)
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


def _not_written(error: KafkaError, topic: str) -> FactNotWrittenError:
    return FactNotWrittenError(
        f"a fact could not be written to {topic}: {reason(error)}", too_large=error.code() in _TOO_LARGE
    )
