"""Writes trips in transactions under one transactional id, so that Kafka fences a previous leader.

A writer serves one term of a leader. One that was fenced, or whose last commit is in doubt, is dropped and never
reopened, because opening it would fence the current leader.

An open transaction hides all later records from readers of committed records. So one thread begins, fills and commits
a transaction without anything in between.
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
    """Another leader has fenced this writer for good."""


class TripWriter:
    """Writes to the `trips` topic. Every call runs on a thread; calls wait for each other."""

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
        """Fence earlier writers and abort their open transactions; `ClusterError` when that fails."""
        await off_loop(lambda: self._open(timeout_s))

    async def write(self, fact: BreakerTripped) -> Position:
        """Return when the trip, stamped by the caller, is committed.

        Raises `FencedError` when there is another leader. After any other `ClusterError` it may be committed.
        """
        return await off_loop(lambda: self._write(fact))

    async def close(self) -> None:
        await off_loop(self._drop)

    # --- on a thread

    def _open(self, timeout_s: float) -> None:
        with self._turn:
            producer = Producer(self._settings)
            try:
                producer.init_transactions(timeout_s)
                # The metadata of the topic, so that the first trip does not wait for it.
                producer.list_topics(self._topic, timeout=timeout_s)
            except KafkaException as failure:
                raise ClusterError(f"trips cannot be written to {self._topic}: {reason(failure)}") from None
            self._producer = producer

    def _write(self, fact: BreakerTripped) -> Position:
        _, key, value = encode(fact)
        with self._turn:
            if self._producer is None:
                raise ClusterError("the writer of trips is not open")
            result = _transaction(self._producer, self._topic, key, value)
            if isinstance(result, Position):
                return result
            problem = _abort(self._producer)
            if problem is not None:  # the transaction is open, or its commit is in doubt
                self._producer = None
            if {result.code(), None if problem is None else problem.code()} & _FENCED:
                raise FencedError(f"another leader writes {self._topic}: {reason(result)}")
            raise ClusterError(f"a trip could not be written to {self._topic}: {reason(result)}")

    def _drop(self) -> None:
        with self._turn:
            self._producer = None


def _transaction(producer: Producer, topic: str, key: bytes, value: bytes | None) -> Position | KafkaError:
    """Returns a failure instead of raising it: the traceback would keep the dropped producer alive."""
    found: list[Position] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        offset, partition = message.offset(), message.partition()
        if error is None and offset is not None and partition is not None:
            found.append(Position(topic=topic, partition=partition, offset=offset))

    try:
        producer.begin_transaction()
        producer.produce(topic, key=key, value=value, partition=0, on_delivery=on_delivery)
        _commit(producer)
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        return error
    # A commit succeeds only when every record was delivered.
    return found[0] if found else KafkaError(KafkaError.UNKNOWN, "a committed record without an offset")


def _commit(producer: Producer) -> None:
    """Commit, and repeat the same commit after a timeout."""
    until = time.monotonic() + _WRITE_S
    while True:
        try:
            producer.commit_transaction(max(0.1, until - time.monotonic()))
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() >= until:
                raise
        else:
            return


def _abort(producer: Producer) -> KafkaError | None:
    """Abort the transaction; returns the error when that fails."""
    try:
        producer.abort_transaction(_WRITE_S)
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        return error
    return None
