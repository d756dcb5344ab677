"""Writes dead letters to the spool, and tombstones for those that have reached their topic.

A request of a client waits for each write, so a partition of the spool that does not answer in 200 ms (its broker is
down, and no other leads it yet) is not waited for: the dead letters go to the next partition, at most to the third.
Until the first one has answered, later ones go to the next partition at once; while none answers, only one is tried. If
then both answer, the later record is removed again.

A write that fails may still arrive; `on_late` is called for it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError, KafkaException

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError
from headgate.base.threads import off_loop
from headgate.facts.topics import LARGEST_DEAD_LETTER, MIB, SPOOL
from headgate.kafka.delivery_reports import DeliveryReports
from headgate.kafka.fact_writer import PolledProducer
from headgate.kafka.topics import quiet, reason
from headgate.share_groups.dead_letter_writer import WriteFailure, WriteFailureCause
from headgate.share_groups.model.dead_letter_records import Header
from headgate.share_groups.model.in_flight_shares import MAX_BYTES, MAX_LETTERS, InFlightShares
from headgate.share_groups.model.spool_records import (
    MAX_LANE_PARTITIONS,
    LetterIdentity,
    SpooledLetter,
    SpoolLane,
    encode_identity,
    encode_spooled,
    spool_partitions,
)

log = structlog.get_logger()

ANSWER_S: Final = 0.2  # of one partition
_TOMBSTONES_S: Final = 5.0
_NOT_WRITTEN: Final = "the dead letter could not be written to the spool"
_UNREACHABLE: Final = WriteFailure(WriteFailureCause.UNREACHABLE, f"{_NOT_WRITTEN}: no answer came")

OnWritten = Callable[[SpooledLetter, int, int], None]
"""A dead letter, and the partition and offset of its record."""


class SpoolWriter:
    """One for each worker process, made on the event loop that it serves."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        prefix: str,
        max_letters: int = MAX_LETTERS,
        max_bytes: int = MAX_BYTES,
        delivery_timeout_s: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        largest = LARGEST_DEAD_LETTER + MIB
        producing = quiet(
            settings,
            enable__idempotence=True,
            acks="all",
            linger__ms=2,
            compression__type="zstd",
            allow__auto__create__topics=False,
            delivery__timeout__ms=int(delivery_timeout_s * 1000),
            request__timeout__ms=int(delivery_timeout_s * 1000),
            reconnect__backoff__max__ms=1000,
            message__max__bytes=largest,
            queue__buffering__max__messages=4 * max_letters,  # two partitions, and tombstones
            queue__buffering__max__kbytes=2 * (max_bytes + largest) // 1024,
        )
        self._producer = PolledProducer(
            producing,
            thread="headgate-spool",
            give_up=lambda: self._reports.fail_all("the producer had a fatal error"),
            on_fatal=lambda error: log.warning("producer of the spool replaced", error=reason(error)),
        )
        self._topic = prefix + SPOOL
        self._clock = clock or SystemClock()
        self._reports: DeliveryReports[_Attempt | _Tombstone] = DeliveryReports(self._on_report)
        self._shares = InFlightShares(max_letters, max_bytes)
        self._partitions = 0
        self._slow: Counter[int] = Counter()  # attempts that were given up and are still in flight, by partition

    @property
    def letters(self) -> int:
        """How many dead letters are in flight."""
        return self._shares.letters

    async def open(self, *, timeout_s: float = 10.0) -> None:
        """Connect and read the number of partitions; `ClusterError` when the topic cannot be reached."""
        producer = self._producer.alive()
        try:
            metadata = await off_loop(partial(producer.list_topics, self._topic, timeout_s))
        except KafkaException as failure:
            raise ClusterError(f"the topic {self._topic} cannot be reached: {reason(failure)}") from None
        found = metadata.topics.get(self._topic)
        if found is None or not found.partitions:
            problem = "it has no partitions" if found is None or found.error is None else reason(found.error)
            raise ClusterError(f"the topic {self._topic} cannot be reached: {problem}")
        self._partitions = len(found.partitions)

    async def write(
        self,
        letters: Sequence[SpooledLetter],
        deadline_s: float,
        *,
        on_written: OnWritten | None = None,
        on_late: OnWritten | None = None,
        partition: int | None = None,
    ) -> list[WriteFailure | None]:
        """Return when every in-sync replica has the dead letters, or at the deadline; None for each that is written.

        `on_written` is called on the loop for each that is written in time, `on_late` for each that arrives later.
        `partition`: of the spool, instead of the lane's own, for a record that replaces another.
        """
        writings = [_SpoolWriting(letter, on_written, on_late) for letter in letters]
        accepted = [one for one in writings if self._accept(one, partition)]
        until = self._clock.monotonic() + deadline_s
        try:
            for number in range(MAX_LANE_PARTITIONS):
                await self._try(
                    [one for one in accepted if one.is_missing and number < len(one.choices)], number, until
                )
        finally:
            for one in accepted:
                self._release(one)
        return [one.failure for one in writings]

    async def remove(
        self, identities: Sequence[LetterIdentity], *, partition: int | None = None
    ) -> list[WriteFailure | None]:
        """Write tombstones to this partition of the spool, or to all that may hold the dead letters.

        Returns when they are written, or after five seconds. Nothing is lost when one fails: its dead letter is moved
        once more.
        """
        places = [
            (identity, place)
            for identity in identities
            for place in ((partition,) if partition is not None else self._places(SpoolLane(*identity[:3])))
        ]
        waited = _Tombstones(len(places))
        tombstones = [_Tombstone(identity, place, waited) for identity, place in places]
        for one in tombstones:
            self._produce(one, one.partition, encode_identity(one.identity), None, [])
        if tombstones:
            await asyncio.wait({waited.done}, timeout=_TOMBSTONES_S)
        failed = {one.identity: one.failure for one in tombstones if one.failure is not None}
        return [failed.get(identity, None if self._partitions else _UNREACHABLE) for identity in identities]

    async def close(self, *, timeout_s: float = 2.0) -> None:
        """Wait for records in flight, then stop; those that did not arrive fail in their `write`."""
        await self._reports.wait_until_idle(timeout_s)
        self._reports.fail_all("the writer was closed")
        await self._producer.close()

    def _places(self, lane: SpoolLane) -> tuple[int, ...]:
        """The partitions for this lane, those that do not answer last."""
        if not self._partitions:
            return ()
        return tuple(sorted(spool_partitions(lane, self._partitions), key=lambda one: self._slow[one] > 0))

    def _accept(self, writing: "_SpoolWriting", partition: int | None) -> bool:
        letter = writing.letter
        writing.choices = self._places(letter.lane) if partition is None else (partition,)
        if not writing.choices:
            return False
        if self._slow[writing.choices[0]]:  # and so are the others
            writing.choices = writing.choices[:1]
        text = self._shares.take(letter.group, letter.size)
        if text is not None:
            writing.failure = WriteFailure(WriteFailureCause.OVERLOADED, text)
        return text is None

    async def _try(self, writings: "Sequence[_SpoolWriting]", number: int, until: float) -> None:
        """Produce each to its choice with this number, and wait until all are written, have failed, or time is up."""
        if not writings:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        these = _SpoolRound(done, set(writings))
        attempts = [_Attempt(one, one.choices[number]) for one in writings]
        for attempt in attempts:
            writing = attempt.writing
            writing.round = these
            writing.in_flight += 1
            self._produce(attempt, attempt.partition, *writing.record)
        left_s = max(0.0, until - self._clock.monotonic())
        await asyncio.wait({done}, timeout=min(ANSWER_S, left_s / (MAX_LANE_PARTITIONS - number)))
        for attempt in attempts:
            attempt.writing.round = None
            if not attempt.is_settled:
                attempt.is_slow = True
                self._slow[attempt.partition] += 1

    def _produce(
        self, item: "_Attempt | _Tombstone", partition: int, key: bytes, value: bytes | None, headers: list[Header]
    ) -> None:
        try:
            producer = self._producer.alive()
            self._reports.produce(
                producer, item, self._topic, key=key, value=value, headers=headers, partition=partition
            )
        except BufferError:
            self._on_report(item, "the producer's queue is full", -1)
        except ClusterError as problem:
            self._on_report(item, str(problem), -1)
        except KafkaException as problem:
            self._on_report(item, problem.args[0], -1)

    def _on_report(self, item: "_Attempt | _Tombstone", error: KafkaError | str | None, offset: int) -> None:
        failure = None if error is None else _failure(error)
        if isinstance(item, _Tombstone):
            item.settle(failure)
            return
        writing, item.is_settled = item.writing, True
        writing.in_flight -= 1
        if item.is_slow:
            self._slow[item.partition] -= 1
        if failure is not None:
            if writing.is_missing:
                writing.failure = failure
        elif writing.is_missing:
            writing.failure = None
            writing.tell(item.partition, offset)
        else:  # another partition has it already
            again = _Tombstone(writing.letter.identity, item.partition, None)
            self._produce(again, item.partition, encode_identity(again.identity), None, [])
        if writing.round is not None and (not writing.is_missing or not writing.in_flight):
            writing.round.leave(writing)
        if writing.is_released and not writing.in_flight:
            self._shares.release(writing.letter.group, writing.letter.size)

    def _release(self, writing: "_SpoolWriting") -> None:
        """Stop counting it in the bounds, after its attempts in flight have ended."""
        writing.is_released = True
        if not writing.in_flight:
            self._shares.release(writing.letter.group, writing.letter.size)


class _SpoolWriting:
    """One dead letter being written; `failure` is None as soon as one partition has it."""

    __slots__ = (
        "_on_late",
        "_on_written",
        "choices",
        "failure",
        "in_flight",
        "is_released",
        "letter",
        "record",
        "round",
    )

    def __init__(self, letter: SpooledLetter, on_written: OnWritten | None, on_late: OnWritten | None) -> None:
        self.letter = letter
        self.record = encode_spooled(letter)
        self.choices: tuple[int, ...] = ()
        self.failure: WriteFailure | None = _UNREACHABLE
        self.in_flight = 0
        self.is_released = False
        self.round: _SpoolRound | None = None
        self._on_written, self._on_late = on_written, on_late

    @property
    def is_missing(self) -> bool:
        return self.failure is not None

    def tell(self, partition: int, offset: int) -> None:
        receiver = self._on_late if self.is_released else self._on_written
        if receiver is not None:
            receiver(self.letter, partition, offset)


@dataclass(slots=True)
class _SpoolRound:
    """Dead letters that are waited for together."""

    done: "asyncio.Future[None]"
    left: set[_SpoolWriting]

    def leave(self, writing: _SpoolWriting) -> None:
        self.left.discard(writing)
        if not self.left and not self.done.done():
            self.done.set_result(None)


@dataclass(slots=True, eq=False)
class _Attempt:
    """One record in flight; `is_slow`: it was given up and may still arrive."""

    writing: _SpoolWriting
    partition: int
    is_settled: bool = False
    is_slow: bool = False


class _Tombstones:
    """Tombstones that are waited for together, by their number."""

    def __init__(self, number: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = number


@dataclass(slots=True, eq=False)
class _Tombstone:
    identity: LetterIdentity
    partition: int
    waited: _Tombstones | None
    failure: WriteFailure | None = _UNREACHABLE

    def settle(self, failure: WriteFailure | None) -> None:
        self.failure = failure
        if self.waited is not None:
            self.waited.left -= 1
            if not self.waited.left and not self.waited.done.done():
                self.waited.done.set_result(None)


def _failure(error: KafkaError | str) -> WriteFailure:
    text = error if isinstance(error, str) else reason(error)
    return WriteFailure(WriteFailureCause.UNREACHABLE, f"{_NOT_WRITTEN}: {text}")
