"""Writing trips: the leader's own records, in transactions under one id, so that Kafka fences a stale leader.

One rule: a writer is for one term of a leader. One that is fenced, or whose last commit is in doubt, is dropped and
never opened again by itself, because opening fences whoever leads now.

A transaction that is left open hides everything behind it from those who read committed records. So it is begun when
the decision is made, and begun, filled and committed by one thread without anything in between.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.base.errors import ClusterError
from headgate.base.threads import off_loop
from headgate.facts import BreakerTripped, encode
from headgate.kafka.fact_writer import Position
from headgate.kafka.topics import quiet, reason

_TRANSACTION_MS: Final = 5000
_WRITE_S: Final = 10.0
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - librdkafka's own codes begin so
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)


class FencedError(ClusterError):
    """Another leads: this writer will never write again."""


class TripWriter:
    """`trips` of the topics with this prefix. Every call runs on a thread; calls wait for each other."""

    def __init__(self, settings: Mapping[str, Any], *, prefix: str) -> None:
        self._settings = quiet(
            settings,
            transactional__id=f"{prefix}trips",
            transaction__timeout__ms=_TRANSACTION_MS,
            delivery__timeout__ms=_TRANSACTION_MS - 1000,
            request__timeout__ms=_TRANSACTION_MS - 1000,
            socket__timeout__ms=_TRANSACTION_MS,
            linger__ms=0,
            allow__auto__create__topics=False,
            reconnect__backoff__max__ms=1000,
        )
        self._topic = f"{prefix}trips"
        self._turn = threading.Lock()
        self._producer: Producer | None = None

    async def open(self, *, timeout_s: float = 30.0) -> None:
        """Fence whoever wrote before, and end what they left open; `ClusterError` when it cannot be done."""
        await off_loop(lambda: self._open(timeout_s))

    async def write(self, fact: BreakerTripped) -> Position:
        """The fact, which its caller has stamped, is there for all who read committed records; or this raises.

        `FencedError`: another leads. Another `ClusterError`: it may be there all the same; the topic says so.
        """
        return await off_loop(lambda: self._write(fact))

    async def close(self) -> None:
        """Nothing is left open: a transaction begins and ends in one call."""
        await off_loop(self._drop)

    # --- on a thread

    def _open(self, timeout_s: float) -> None:
        with self._turn:
            producer = Producer(self._settings)
            try:
                producer.init_transactions(timeout_s)
                # Where the topic's leader is, so that the first trip does not wait for it.
                producer.list_topics(self._topic, timeout=timeout_s)
            except KafkaException as failure:
                raise ClusterError(f"trips cannot be written to {self._topic}: {reason(failure)}") from None
            self._producer = producer

    def _write(self, fact: BreakerTripped) -> Position:
        _, key, value = encode(fact)
        with self._turn:
            if self._producer is None:
                raise ClusterError("the writer of trips is not open")
            said = _transaction(self._producer, self._topic, key, value)
            if isinstance(said, Position):
                return said
            problem = _not_aborted(self._producer)
            if problem is not None:  # something is left open, or a commit is in doubt
                self._producer = None
            if {said.code(), None if problem is None else problem.code()} & _FENCED:
                raise FencedError(f"another leads, and writes {self._topic}: {reason(said)}")
            raise ClusterError(f"a trip could not be written to {self._topic}: {reason(said)}")

    def _drop(self) -> None:
        with self._turn:
            self._producer = None


def _transaction(producer: Producer, topic: str, key: bytes, value: bytes | None) -> Position | KafkaError:
    """A failure is a value: an exception would keep a producer alive that is to be dropped."""
    found: list[Position] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        offset, partition = message.offset(), message.partition()
        if error is None and offset is not None and partition is not None:
            found.append(Position(topic=topic, partition=partition, offset=offset))

    try:
        producer.begin_transaction()
        producer.produce(topic, key=key, value=value, partition=0, on_delivery=on_delivery)
        _committed(producer)
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        return error
    # A commit succeeds only when every record was delivered.
    return found[0] if found else KafkaError(KafkaError.UNKNOWN, "a committed record without an offset")


def _committed(producer: Producer) -> None:
    """A commit that timed out may be asked for again: it is the same commit."""
    until = time.monotonic() + _WRITE_S
    while True:
        try:
            producer.commit_transaction(max(0.1, until - time.monotonic()))
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() >= until:
                raise
        else:
            return


def _not_aborted(producer: Producer) -> KafkaError | None:
    """End what a failure left open; if it cannot be ended, why not."""
    try:
        producer.abort_transaction(_WRITE_S)
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        return error
    return None
