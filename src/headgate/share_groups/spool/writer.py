"""Writes dead letters to the spool, and tombstones for those that have reached their topic.

A request of a client waits for each write, so none waits for long:

- A dead letter is written to all in-sync replicas of its lane's partition. When a broker has died, that takes until the
  cluster has noticed it, 9 s by default, whichever partition it is. So after 200 ms without an answer, and until all
  such writes have been answered, the answer of a partition's leader is enough. Its followers get the dead letter a
  moment later: only if two brokers die within seconds, a dead letter is lost. While too few replicas are alive, it is
  on one broker until another is back: without the spool its record would be archived without it.
- A leader that does not answer in 200 ms is not waited for: the next partition gets the dead letters, at most the
  third. If the first answers later, its record is removed again.
- When no partition answers, as while the whole cluster stands still, a write waits until the spool has been silent for
  three seconds, and later ones for 200 ms only.

A write that fails may still arrive; `on_late` is called for it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, Producer

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError
from headgate.facts.topics import SPOOL
from headgate.kafka.fact_writer import MakeProducer
from headgate.kafka.topics import reason
from headgate.share_groups.dead_letter_writer import WriteFailure, WriteFailureCause
from headgate.share_groups.model.in_flight_shares import MAX_BYTES, MAX_DEAD_LETTERS, InFlightShares
from headgate.share_groups.spool.model.records import (
    DeadLetterIdentity,
    DeadlinesReported,
    SpooledDeadLetter,
    SpoolLane,
    encode_identity,
    encode_reported,
    encode_spooled,
    spool_partitions,
)
from headgate.share_groups.spool.producer import SpoolProducer

ANSWER_S: Final = 0.2  # of one partition
PATIENCE_S: Final = 3.0  # since the spool last answered
_TOMBSTONES_S: Final = 5.0
_PAUSE_S: Final = 0.05
_WARM_UP_S: Final = 2.0  # of the service's start: one partition may be away
_WARM_UP_KEY: Final = b'"open"'  # of a record that is none of the spool's
_NOT_WRITTEN: Final = "the dead letter could not be written to the spool"
_UNREACHABLE: Final = WriteFailure(WriteFailureCause.UNREACHABLE, f"{_NOT_WRITTEN}: no answer came")

OnWritten = Callable[[SpooledDeadLetter, int, int], None]
"""A dead letter, and the partition and offset of its record."""


class SpoolWriter:
    """Writes the dead letters of one worker process to the spool, made on the event loop that it serves."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        prefix: str,
        max_dead_letters: int = MAX_DEAD_LETTERS,
        max_bytes: int = MAX_BYTES,
        patience_s: float = PATIENCE_S,
        clock: Clock | None = None,
        make_producer: MakeProducer = Producer,
        partitions: int = 0,
    ) -> None:
        """`partitions` of the topic where they are known; else `open` asks for them."""
        self._clock = clock or SystemClock()
        self._patience_s = patience_s
        self._replicated, self._leader_only = (
            SpoolProducer[_Attempt | _Tombstone](
                settings,
                prefix + SPOOL,
                acks=acks,
                max_dead_letters=max_dead_letters,
                max_bytes=max_bytes,
                on_report=self._on_report,
                make_producer=make_producer,
            )
            for acks in ("all", "1")
        )
        self._shares = InFlightShares(max_dead_letters, max_bytes)
        self._partitions = partitions
        # Attempts that are in flight and not waited for any more, by partition: to all replicas, and to leaders.
        self._slow: Counter[int] = Counter()
        self._slow_leaders: Counter[int] = Counter()
        self._silent_since: float | None = None  # no attempt that began later has succeeded
        self._next_mark = 0  # the partition of the next `DeadlinesReported`

    @property
    def dead_letters(self) -> int:
        """The number of dead letters in flight."""
        return self._shares.dead_letters

    async def open(self, *, timeout_s: float = 10.0) -> None:
        """Read the number of partitions and connect to their leaders, which takes longer than a client may wait.

        `ClusterError` when the topic cannot be reached.
        """
        until = self._clock.monotonic() + timeout_s
        while not self._partitions:
            try:
                self._partitions = await self._replicated.partitions(timeout_s)
            except ClusterError:
                # A broker may not know a topic yet that was created a moment ago.
                if self._clock.monotonic() > until:
                    raise
                await asyncio.sleep(_PAUSE_S)
        waited = _Tombstones(2 * self._partitions)
        for producer in (self._replicated, self._leader_only):
            for partition in range(self._partitions):
                producer.produce(_Tombstone(None, partition, waited), partition, _WARM_UP_KEY, None, [])
        await asyncio.wait({waited.done}, timeout=_WARM_UP_S)

    async def write(
        self,
        dead_letters: Sequence[SpooledDeadLetter],
        deadline_s: float,
        *,
        on_written: OnWritten | None = None,
        on_late: OnWritten | None = None,
        partition: int | None = None,
    ) -> list[WriteFailure | None]:
        """Return when the dead letters are written, or at the deadline; None for each that is written.

        `on_written` is called on the loop for each that is written in time, `on_late` for each that arrives later.
        `partition`: of the spool, instead of the lane's own, for a record that replaces another.
        """
        writings = [_SpoolWriting(dead_letter, on_written, on_late) for dead_letter in dead_letters]
        accepted = [one for one in writings if self._accept(one, partition)]
        until = self._clock.monotonic() + deadline_s
        try:
            for number in range(max((len(one.choices) for one in accepted), default=0)):
                await self._try(
                    [one for one in accepted if one.is_missing and number < len(one.choices)], number, until
                )
        finally:
            for one in accepted:
                self._release(one)
        return [one.failure for one in writings]

    async def remove(
        self, identities: Sequence[DeadLetterIdentity], *, partition: int | None = None
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
            self._produce_tombstone(one)
        if tombstones:
            await asyncio.wait({waited.done}, timeout=_TOMBSTONES_S)
        failed = {one.dead_letter: one.failure for one in tombstones if one.failure is not None}
        return [failed.get(identity, None if self._partitions else _UNREACHABLE) for identity in identities]

    def mark_reported(self, until_ms: int) -> None:
        """Write that the deadlines before this time were reported: to one partition after the other.

        Without waiting: when one fails, the next one says more.
        """
        if self._partitions:
            partition = self._next_mark % self._partitions
            self._next_mark = partition + 1
            record = _Tombstone(None, partition, None)
            self._replicated.produce(record, partition, *encode_reported(DeadlinesReported(until_ms)), [])

    async def close(self, *, timeout_s: float = 2.0) -> None:
        """Wait for records in flight, then stop; those that did not arrive fail in their `write`."""
        await asyncio.gather(self._replicated.close(timeout_s), self._leader_only.close(timeout_s))

    def _places(self, lane: SpoolLane) -> tuple[int, ...]:
        return spool_partitions(lane, self._partitions) if self._partitions else ()

    def _choices(self, lane: SpoolLane) -> "tuple[_Choice, ...]":
        """The attempts for this lane, in order; those that will hardly be answered come last."""
        choices = [(one, False) for one in sorted(self._places(lane), key=lambda one: self._slow_leaders[one] > 0)]
        if choices and not self._slow.total():
            choices.insert(0, (choices[0][0], True))
        return tuple(choices[:1] if self._is_silent(self._clock.monotonic()) else choices)

    def _accept(self, writing: "_SpoolWriting", partition: int | None) -> bool:
        dead_letter = writing.dead_letter
        writing.choices = self._choices(dead_letter.lane) if partition is None else ((partition, True),)
        if not writing.choices:
            return False
        text = self._shares.take(dead_letter.group, dead_letter.size)
        if text is not None:
            writing.failure = WriteFailure(WriteFailureCause.OVERLOADED, text)
        return text is None

    async def _try(self, writings: "Sequence[_SpoolWriting]", number: int, until: float) -> None:
        """Produce each to its choice with this number, and wait until all are written, have failed, or time is up."""
        if not writings:
            return
        began = self._clock.monotonic()
        these = _SpoolRound(asyncio.get_running_loop().create_future(), set(writings))
        attempts = [_Attempt(one, *one.choices[number]) for one in writings]
        for attempt in attempts:
            writing = attempt.writing
            writing.round = these
            writing.in_flight += 1
            producer = self._replicated if attempt.is_replicated else self._leader_only
            producer.produce(attempt, attempt.partition, *writing.record)
        tries_left = max(len(one.choices) for one in writings) - number
        await asyncio.wait({these.done}, timeout=self._wait_s(began, until, tries_left))
        for attempt in attempts:
            attempt.writing.round = None
            if not attempt.is_settled:
                attempt.is_slow = True
                self._slow_of(attempt)[attempt.partition] += 1
                self._silent_since = began if self._silent_since is None else self._silent_since

    def _wait_s(self, now: float, until: float, tries_left: int) -> float:
        left_s = max(0.0, until - now)
        if tries_left > 1:
            return min(ANSWER_S, left_s / tries_left)
        silent_since = now if self._silent_since is None else self._silent_since
        return min(left_s, max(ANSWER_S, silent_since + self._patience_s - now))

    def _is_silent(self, now: float) -> bool:
        return self._silent_since is not None and now - self._silent_since > self._patience_s

    def _slow_of(self, attempt: "_Attempt") -> "Counter[int]":
        return self._slow if attempt.is_replicated else self._slow_leaders

    def _produce_tombstone(self, one: "_Tombstone") -> None:
        assert one.dead_letter is not None
        self._replicated.produce(one, one.partition, encode_identity(one.dead_letter), None, [])

    def _on_report(self, item: "_Attempt | _Tombstone", error: KafkaError | str | None, offset: int) -> None:
        failure = None if error is None else _failure(error)
        if isinstance(item, _Tombstone):
            item.settle(failure)
            return
        writing, item.is_settled = item.writing, True
        writing.in_flight -= 1
        if item.is_slow:
            self._slow_of(item)[item.partition] -= 1
        if failure is not None:
            if writing.is_missing:
                writing.failure = failure
        else:
            self._silent_since = None
            self._on_delivered(writing, item.partition, offset)
        if writing.round is not None and (not writing.is_missing or not writing.in_flight):
            writing.round.leave(writing)
        if writing.is_released and not writing.in_flight:
            self._shares.release(writing.dead_letter.group, writing.dead_letter.size)

    def _on_delivered(self, writing: "_SpoolWriting", partition: int, offset: int) -> None:
        if writing.is_missing:
            writing.failure = None
            writing.partition = partition
            writing.tell(partition, offset)
        elif partition != writing.partition:  # another one has it already
            self._produce_tombstone(_Tombstone(writing.dead_letter.identity, partition, None))

    def _release(self, writing: "_SpoolWriting") -> None:
        """Stop counting it in the bounds, after its attempts in flight have ended."""
        writing.is_released = True
        if not writing.in_flight:
            self._shares.release(writing.dead_letter.group, writing.dead_letter.size)


_Choice = tuple[int, bool]
"""A partition of the spool, and whether to wait for all of its in-sync replicas."""


class _SpoolWriting:
    """One dead letter being written; `failure` is None as soon as one partition has it."""

    __slots__ = (
        "_on_late",
        "_on_written",
        "choices",
        "dead_letter",
        "failure",
        "in_flight",
        "is_released",
        "partition",
        "record",
        "round",
    )

    def __init__(self, dead_letter: SpooledDeadLetter, on_written: OnWritten | None, on_late: OnWritten | None) -> None:
        self.dead_letter = dead_letter
        self.record = encode_spooled(dead_letter)
        self.choices: tuple[_Choice, ...] = ()
        self.failure: WriteFailure | None = _UNREACHABLE
        self.partition = -1  # which has it
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
            receiver(self.dead_letter, partition, offset)


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
    """One record in flight; `is_slow`: it is not waited for any more and may still arrive."""

    writing: _SpoolWriting
    partition: int
    is_replicated: bool
    is_settled: bool = False
    is_slow: bool = False


class _Tombstones:
    """Tombstones that are waited for together, by their number."""

    def __init__(self, number: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = number


@dataclass(slots=True, eq=False)
class _Tombstone:
    """A record that is not a dead letter; `dead_letter` is None for one that removes none."""

    dead_letter: DeadLetterIdentity | None
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
