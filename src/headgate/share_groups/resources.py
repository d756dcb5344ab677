"""The Kafka clients of share groups: topics that are replayed, topics that are followed, and writers.

They are opened in one order and closed in the opposite one, also after a failure in between (`stack`). When
`open_resources` returns, `state` and `trips` have been read to their ends.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.base.errors import ClusterError
from headgate.base.threads import off_loop
from headgate.config.model import Config
from headgate.facts import BreakerTripped, DispositionsCounted, EventHappened, decode, encode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactReader, FactTail
from headgate.kafka.fact_writer import FactWriter, Position
from headgate.kafka.leadership import LEADER, Leadership
from headgate.kafka.shared_clients import SharedClients, open_clients
from headgate.kafka.topics import ends, find_origin, quiet, reason
from headgate.share_groups.dead_letter_writer import DeadLetterWriter
from headgate.share_groups.model.group_state import ShareGroupFact
from headgate.share_groups.spool.model.index import SpoolIndex
from headgate.share_groups.spool.readers import SpoolFollower, SpoolReader
from headgate.share_groups.spool.transfer import SpoolClients
from headgate.share_groups.spool.writer import SpoolWriter

STATE, TRIPS = "state", "trips"
DISPOSITIONS, EVENTS = "dispositions", "events"
# Of each partition, read at a start for the last resume of each group: at most some 20 MB in all.
EVENT_HISTORY: Final = 5_000
_RESUMED: Final = b'"resumed"'
_MAX_REPLAY_S: Final = 300.0
_READ_BACK_S: Final = 10.0
_TRANSACTION_MS: Final = 5000
_COMMIT_S: Final = 10.0
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - librdkafka's own codes begin so
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
F = TypeVar("F")


class FencedError(ClusterError):
    """Another leader has fenced this writer for good."""


class PartialDecisionError(ClusterError):
    """Not all facts of a decision are known to be written, in their order: the one that failed may be."""

    def __init__(self, text: str, facts: Sequence[ShareGroupFact], written: int) -> None:
        super().__init__(text)
        self.written = tuple(facts[:written])
        self.uncertain = tuple(facts[written : written + 1])
        self.unwritten = tuple(facts[written + 1 :])


class TripWriter:
    """Writes trips in transactions under one transactional id, so that Kafka fences a previous leader.

    A writer serves one term of a leader. One that was fenced, or whose last commit is in doubt, is dropped and never
    reopened, because opening it would fence the current leader. An open transaction hides all later records from
    readers of committed records, so one thread begins, fills and commits a transaction without anything in between.
    """

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
    until = time.monotonic() + _COMMIT_S
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
        producer.abort_transaction(_COMMIT_S)
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        return error
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactListeners:
    """Receivers of what is read, called on the event loop and in the order of each topic.

    `on_happened` gets the events of resumed groups, also those among the last `EVENT_HISTORY` before the start.
    `on_lost`: `trips` (True) or `state` (False) lost records and is read again. `on_replayed`: it was read to its end,
    for the first time or again.
    """

    on_fact: Callable[[ShareGroupFact], None]
    on_lost: Callable[[bool], None]
    on_replayed: Callable[[bool], None]
    on_counted: Callable[[Sequence[DispositionsCounted]], None]
    on_happened: Callable[[Sequence[EventHappened]], None]


class ShareGroupResources:
    """The open clients of one worker."""

    def __init__(
        self,
        clients: SharedClients,
        prefix: str,
        writer: FactWriter,
        dead_letter_writer: DeadLetterWriter,
        spool_writer: SpoolWriter,
        listeners: FactListeners,
    ) -> None:
        self._clients = clients
        self._prefix = prefix
        self.writer = writer
        self.dead_letter_writer = dead_letter_writer
        self.spool_writer = spool_writer
        self._listeners = listeners
        self._state = self._reader(STATE)
        self._trips = self._reader(TRIPS)
        self._leadership: Leadership | None = None
        self._follower: SpoolFollower | None = None
        self._tails: tuple[FactTail[Any], ...] = (
            self._tail(DISPOSITIONS, DispositionsCounted, listeners.on_counted),
            FactTail(
                clients.consumer,
                topic=prefix + EVENTS,
                digest=resumed_events,
                take=listeners.on_happened,
                history=EVENT_HISTORY,
            ),
        )

    def _tail(self, suffix: str, kind: type[F], take: Callable[[Sequence[F]], None]) -> FactTail[Any]:
        def only(records: Sequence[ConsumedRecord]) -> list[F]:
            facts = (decode(suffix, record.key, record.value) for record in records)
            return [fact for fact in facts if isinstance(fact, kind)]

        return FactTail(self._clients.consumer, topic=self._prefix + suffix, digest=only, take=take)

    def _reader(self, suffix: str) -> "FactReader[list[ShareGroupFact] | None]":
        of_trips = suffix == TRIPS
        return FactReader(
            self._clients.consumer,
            topic=self._prefix + suffix,
            digest=lambda records: share_group_facts(suffix, records),
            forget=lambda lost: None if lost else [],
            take=lambda found: self._take(found, of_trips=of_trips),
            on_end=lambda: self._listeners.on_replayed(of_trips),
            detects_loss=True,
        )

    def _take(self, found: list[ShareGroupFact] | None, *, of_trips: bool) -> None:
        if found is None:
            self._listeners.on_lost(of_trips)
            return
        for fact in found:
            self._listeners.on_fact(fact)

    async def open(self) -> None:
        for tail in self._tails:
            tail.start()
        self._state.start()
        self._trips.start()
        try:
            async with asyncio.timeout(_MAX_REPLAY_S):
                await self._state.replayed.wait()
                await self._trips.replayed.wait()
        except TimeoutError:
            problem = self._state.problem or self._trips.problem
            raise ClusterError(f"not read to their ends in {_MAX_REPLAY_S:g} s: {problem}") from None

    async def close(self) -> None:
        if self._leadership is not None:
            await self._leadership.close()
        if self._follower is not None:
            await self._follower.close()
        await asyncio.gather(self._state.close(), self._trips.close(), *(tail.close() for tail in self._tails))

    def follow_spool(self, index: SpoolIndex, on_change: Callable[[], None]) -> SpoolClients:
        """Begin to read the spool into the index, without waiting for its end."""
        self._follower = SpoolFollower(
            self._clients.bulk_consumer, prefix=self._prefix, index=index, on_change=on_change
        )
        self._follower.start()
        return SpoolClients(
            dead_letters=self.dead_letter_writer,
            spool=self.spool_writer,
            reader=SpoolReader(self._clients.settings, prefix=self._prefix),
            replayed=self._follower.replayed,
        )

    def start_leadership(
        self, on_gained: Callable[[], Awaitable[None]], on_lost: Callable[[], Awaitable[None]]
    ) -> None:
        self._leadership = Leadership(
            self._clients.settings,
            topic=self._prefix + LEADER,
            worker=self.writer.origin.writer,
            on_gained=on_gained,
            on_lost=on_lost,
        )
        self._leadership.start()

    async def open_trip_writer(self) -> TripWriter:
        """A writer that has fenced all others, opened after all that they wrote was read."""
        writer = TripWriter(self._clients.settings, prefix=self._prefix)
        await writer.open()
        found = await ends(self._clients.admin, (self._prefix + STATE, self._prefix + TRIPS))
        await self._read_back(self._state, found[self._prefix + STATE] - 1)
        await self._read_back(self._trips, found[self._prefix + TRIPS] - 1)
        return writer

    async def decide(self, *facts: ShareGroupFact) -> None:
        """Write the facts and return when they were read back; `PartialDecisionError` when that is not known."""
        offset = -1
        for number, fact in enumerate(facts):
            try:
                offset = (await self.writer.write(fact)).offset
            except ClusterError as problem:
                raise PartialDecisionError(str(problem), facts, number) from problem
        try:
            await self._read_back(self._state, offset)
        except ClusterError as problem:
            raise PartialDecisionError(str(problem), facts, len(facts)) from problem

    async def _read_back(self, reader: "FactReader[list[ShareGroupFact] | None]", offset: int) -> None:
        try:
            async with asyncio.timeout(_READ_BACK_S):
                await reader.reached(offset)
        except TimeoutError:
            raise ClusterError(f"not read back within {_READ_BACK_S:g} s") from None


OpenResources = Callable[[Config, int, FactListeners, AsyncExitStack], Awaitable[ShareGroupResources]]


async def open_resources(
    config: Config,
    worker: int,
    listeners: FactListeners,
    stack: AsyncExitStack,
    *,
    clients: SharedClients | None = None,
) -> ShareGroupResources:
    """`clients` are those of the worker; by default new ones, which are closed with the stack."""
    clients = await open_clients(config, clients, stack)
    settings = clients.settings
    prefix = config.facts.prefix
    origin = await find_origin(config, worker, clients.admin, STATE)
    writer = FactWriter(clients.producer, prefix=prefix, origin=origin)
    stack.push_async_callback(writer.close)
    await writer.open(STATE, DISPOSITIONS, EVENTS)
    dead_letter_writer = DeadLetterWriter(
        settings,
        admin=clients.admin,
        auto_create=config.share_groups.dlq_auto_create,
        replication=config.facts.replication,
    )
    stack.push_async_callback(dead_letter_writer.close)
    spool_writer = SpoolWriter(settings, prefix=prefix)
    stack.push_async_callback(spool_writer.close)
    resources = ShareGroupResources(clients, prefix, writer, dead_letter_writer, spool_writer, listeners)
    stack.push_async_callback(resources.close)
    await resources.open()
    await dead_letter_writer.open()
    await spool_writer.open()
    return resources


def resumed_events(records: Sequence[ConsumedRecord]) -> list[EventHappened]:
    """The events of resumed groups; all others, which are far more, are not decoded."""
    facts = (decode(EVENTS, one.key, one.value) for one in records if one.value is not None and _RESUMED in one.value)
    return [fact for fact in facts if isinstance(fact, EventHappened) and fact.event == "resumed"]


def share_group_facts(suffix: str, records: Sequence[ConsumedRecord]) -> list[ShareGroupFact]:
    """Decodes the records of a topic and drops all that is not about share groups."""
    facts = (decode(suffix, record.key, record.value) for record in records)
    return [fact for fact in facts if isinstance(fact, ShareGroupFact)]
