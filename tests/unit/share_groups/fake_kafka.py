"""The cluster as the share groups' service sees it: lists instead of topics, and a decision is read back at once.

With a real cluster all of this is tested in tests/integration/breaker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from headgate.base.errors import ClusterError
from headgate.config.model import Config
from headgate.facts import BreakerTripped, Fact
from headgate.kafka.fact_writer import Position
from headgate.kafka.topics import Origin
from headgate.share_groups.broker_configs import NO_SUCH_GROUP, BrokerValue
from headgate.share_groups.dead_letter_topics import DeadLetterTopicInfo
from headgate.share_groups.dead_letter_writer import OnLate, WriteFailure, WriteFailureCause
from headgate.share_groups.model.dead_letter_records import DeadLetter
from headgate.share_groups.model.group_configs import LIMIT
from headgate.share_groups.model.group_state import ShareGroupFact
from headgate.share_groups.resources import FactListeners, PartialDecisionError
from headgate.share_groups.spool.model.index import SpoolIndex, spool_record
from headgate.share_groups.spool.model.records import DeadLetterIdentity, SpooledDeadLetter, SpoolTombstone
from headgate.share_groups.spool.transfer import SpoolClients
from headgate.share_groups.spool.writer import OnWritten


def trip(resume_at: int | None = None) -> BreakerTripped:
    """The first trip of group "g"."""
    return BreakerTripped(
        group="g",
        generation=1,
        resume_at=resume_at,
        dlq_written=100,
        delivered=0,
        threshold_percent=20,
        window_ms=1,
        at=1,
    )


class FakeDeadLetterWriter:
    """Writes when `open` is set, and fails at the deadline otherwise; `failure` is raised, `problem` returned."""

    def __init__(self) -> None:
        self.written: list[DeadLetter] = []
        self.begun: list[DeadLetter] = []
        self.deadlines: list[float] = []
        self.open = asyncio.Event()
        self.open.set()
        self.described = 0
        self.describes = asyncio.Event()  # cleared: the topic's metadata does not come
        self.describes.set()
        self.blocked: set[int] = set()  # partitions that are never written
        self.problem: str | None = None
        self.failure: Exception | None = None
        self.max_bytes = 1 << 20  # of a value; a larger one is refused as TOO_LARGE
        self.on_late: OnLate[DeadLetter] | None = None

    async def write(
        self,
        topic: str,
        dead_letters: Sequence[DeadLetter],
        deadline_s: float,
        on_late: OnLate[DeadLetter] | None = None,
    ) -> list[WriteFailure | None]:
        assert topic.startswith("dlq.")
        self.on_late = on_late
        self.begun.extend(dead_letters)
        self.deadlines += [deadline_s] * len(dead_letters)
        if self.failure is not None:
            raise self.failure
        if self.problem is not None:
            return [WriteFailure(WriteFailureCause.NO_TOPIC, self.problem)] * len(dead_letters)
        try:
            async with asyncio.timeout(deadline_s):
                await (asyncio.Event() if self.blocked & {one.partition for one in dead_letters} else self.open).wait()
        except TimeoutError:
            return [WriteFailure(WriteFailureCause.UNREACHABLE, "no answer came")] * len(dead_letters)
        too_large = WriteFailure(WriteFailureCause.TOO_LARGE, "larger than the topic takes")
        results = [too_large if len(one.value or b"") > self.max_bytes else None for one in dead_letters]
        self.written.extend(one for one, failure in zip(dead_letters, results, strict=True) if failure is None)
        return results

    async def describe_topic(self, topic: str) -> DeadLetterTopicInfo:  # noqa: ARG002
        self.described += 1
        await self.describes.wait()
        return DeadLetterTopicInfo(partitions=1, max_message_bytes=1 << 20)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return sorted((dead_letter.partition, dead_letter.offset) for dead_letter in self.written)


class FakeSpoolWriter:
    """Writes when `open` is set; otherwise it fails after `answer_s`. One partition, which `follow` reads."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.answer_s = 0.01
        self.dead_letters: list[SpooledDeadLetter] = []
        self.removed: list[DeadLetterIdentity] = []
        self.deadlines: list[float] = []
        self.on_late: OnWritten | None = None
        self._records: list[SpooledDeadLetter | SpoolTombstone] = []
        self._followed = 0

    async def write(
        self,
        dead_letters: Sequence[SpooledDeadLetter],
        deadline_s: float,
        *,
        on_written: OnWritten | None = None,
        on_late: OnWritten | None = None,
    ) -> list[WriteFailure | None]:
        self.deadlines.append(deadline_s)
        self.on_late = on_late
        try:
            async with asyncio.timeout(min(self.answer_s, deadline_s)):
                await self.open.wait()
        except TimeoutError:
            return [WriteFailure(WriteFailureCause.UNREACHABLE, "the spool did not answer")] * len(dead_letters)
        for dead_letter in dead_letters:
            if on_written is not None:
                on_written(dead_letter, 0, len(self._records))
            self._records.append(dead_letter)
            self.dead_letters.append(dead_letter)
        return [None] * len(dead_letters)

    async def remove(self, identities: Sequence[DeadLetterIdentity]) -> list[WriteFailure | None]:
        self.removed += identities
        self._records += map(SpoolTombstone, identities)
        return [None] * len(identities)

    def move(self, number: int | None = None) -> None:
        """As if the leader had moved all dead letters, or the first ones."""
        self._records += [SpoolTombstone(one.identity) for one in self.dead_letters[:number]]

    def follow(self, index: SpoolIndex) -> None:
        for offset in range(self._followed, len(self._records)):
            index.apply(spool_record(0, offset, self._records[offset]))
        self._followed = len(self._records)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return [(dead_letter.partition, dead_letter.offset) for dead_letter in self.dead_letters]


class FakeFactWriter:
    """Records facts at once; their writes end when `accepts` is set."""

    def __init__(self) -> None:
        self.origin = Origin(cluster="c", writer="w", boot="b")
        self.facts: list[Fact] = []
        self.accepts = asyncio.Event()
        self.accepts.set()

    async def write(self, fact: Fact) -> None:
        self.facts.append(fact)
        await self.accepts.wait()

    def stamped(self, fact: Fact) -> Fact:
        return fact


class FakeGroupConfigs:
    """The brokers' default limit is 5 and their maximum 10; `default` None: they cannot be read."""

    def __init__(self) -> None:
        self.default: int | None = 5
        self.limits: dict[str, int | None] = {}  # what was set, by group
        self.refuses = False  # changes
        self.loads = 0
        self.blocks: asyncio.Event | None = None
        self.existing_groups: set[str] | None = set()  # None: the cluster does not answer
        self.lookups: list[tuple[str, ...]] = []

    async def existing(self, groups: Sequence[str]) -> frozenset[str]:
        self.lookups.append(tuple(groups))
        if self.existing_groups is None:
            raise ClusterError("no response")
        return frozenset(self.existing_groups.intersection(groups))

    async def values(self, groups: Iterable[str]) -> dict[str, Mapping[str, BrokerValue]]:
        if self.blocks is not None:
            self.blocks.set()
            await asyncio.Event().wait()
        self.loads += 1
        if self.default is None:
            raise ClusterError("the limits cannot be read")
        found: dict[str, Mapping[str, BrokerValue]] = {}
        for group in groups:
            limit = self.limits.get(group)
            is_set = limit is not None and group != NO_SUCH_GROUP
            found[group] = {LIMIT: BrokerValue(str(limit if is_set else self.default), is_set)}
        return found

    async def max_limit(self) -> int | None:
        return 10

    async def set_limit(self, group: str, limit: int | None) -> None:
        if self.refuses:
            raise ClusterError("the limit cannot be set")
        self.limits[group] = limit


class FakeSpoolReader:
    async def close(self) -> None:
        pass


class FakeTripWriter:
    """After a failure it is of no use, as the real one."""

    def __init__(self, kafka: "FakeKafka") -> None:
        self._kafka = kafka
        self._is_broken = False

    async def write(self, fact: BreakerTripped) -> Position:
        if self._is_broken:
            raise ClusterError("the writer of trips is not open")
        if self._kafka.trip_failures:
            self._is_broken = True
            raise self._kafka.trip_failures.pop(0)
        self._kafka.decided.append(fact)
        if self._kafka.late_trips is None:
            self._kafka.read(fact)
        else:
            self._kafka.late_trips.append(fact)
        return Position(topic="headgate.trips", partition=0, offset=1)

    async def close(self) -> None:
        pass


class FakeKafka:
    """Stands for `open_resources` (`open`) and for the `ShareGroupResources` that it returns."""

    def __init__(self) -> None:
        self.opens = asyncio.Event()  # cleared: opening waits for it
        self.opens.set()
        self.open_failures: list[Exception] = []
        self.history: list[ShareGroupFact] = []  # what the topics hold when they are opened
        self.attempts = 0
        self.closed = 0
        self.listeners: FactListeners | None = None
        self.writer = FakeFactWriter()
        self.dead_letter_writer = FakeDeadLetterWriter()
        self.spool_writer = FakeSpoolWriter()
        self.spool_replayed = asyncio.Event()
        self.spool_replayed.set()
        self.group_configs = FakeGroupConfigs()
        self.trip_writers: list[FakeTripWriter] = []
        self.trip_failures: list[ClusterError] = []  # of the next writes
        self.late_trips: list[BreakerTripped] | None = None  # a list: trips are added to it and not read back
        self.decided: list[ShareGroupFact] = []
        self.is_away = False
        self.fails_after: int | None = None  # so many facts of a decision are written, and the next one fails
        self.is_deciding = False
        self.goes_on = asyncio.Event()  # cleared: decisions wait for it
        self.goes_on.set()
        self.on_decide: Callable[[], None] = lambda: None

    async def open(self, _config: Config, _worker: int, listeners: FactListeners, stack: AsyncExitStack) -> "FakeKafka":
        self.attempts += 1
        self.listeners = listeners
        stack.callback(self._close)
        self.read(*self.history)
        if self.open_failures:
            raise self.open_failures.pop(0)
        await self.opens.wait()
        return self

    def _close(self) -> None:
        self.closed += 1

    def listeners_of(self) -> FactListeners:
        assert self.listeners is not None
        return self.listeners

    def read(self, *facts: ShareGroupFact) -> None:
        """As if another gateway had written it."""
        for fact in facts:
            self.listeners_of().on_fact(fact)

    async def decide(self, *facts: ShareGroupFact) -> None:
        self.is_deciding = True
        await self.goes_on.wait()
        self.on_decide()
        written = 0 if self.is_away else self.fails_after
        if written is not None:
            self.read(*facts[:written])
            raise PartialDecisionError("the topic is away", facts, written)
        self.decided.extend(facts)
        self.read(*facts)

    async def open_trip_writer(self) -> FakeTripWriter:
        if self.is_away:
            raise ClusterError("the cluster is away")
        self.trip_writers.append(FakeTripWriter(self))
        return self.trip_writers[-1]

    def follow_spool(self, index: SpoolIndex, on_change: Callable[[], None]) -> SpoolClients:
        """A test feeds the index."""
        self.spool_index = index
        self.on_spool_change = on_change
        nothing: Any = FakeSpoolReader()
        return SpoolClients(dead_letters=nothing, spool=nothing, reader=nothing, replayed=self.spool_replayed)

    def start_leadership(
        self, on_gained: Callable[[], Awaitable[None]], on_lost: Callable[[], Awaitable[None]]
    ) -> None:
        """Another gateway leads."""
