"""Polls the offsets of all groups once a minute while this worker leads, and writes the lags that have changed.

A round has four steps: list the groups of every broker, read their committed offsets at these brokers, which are their
coordinators, read the end offset of every partition once for all groups, and write facts. Brokers are asked side by
side, one request at a time each. A broker that does not answer ends its own part of a step, and no other's; what is
left out is counted. Committed offsets are read before end offsets, so no lag is too small.

Invariant: large responses are decoded and turned into facts on threads, and facts are written in small pieces, so that
the event loop is free for the data plane.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.config.addresses import Address
from headgate.facts import GroupLagsObserved
from headgate.kafka.connections import Connections, Dialler
from headgate.lags.model.group_lags import PolledGroup, TopicPartition, WrittenLags, lag_facts
from headgate.lags.model.round_plan import LagGroup, RoundBudget, RoundLimits, RoundPlanner
from headgate.lags.offset_requests import (
    GroupAnswers,
    broker_addresses,
    end_offsets,
    group_offsets,
    listed_groups,
    topic_leaders,
)
from headgate.wire.errors import ErrorCode

log = structlog.get_logger()

ROUND_S: Final = 60.0
_CALL_S: Final = 5.0
_STEP_S: Final = 15.0  # for all requests of a step; a broker that is slower than that is left for the next round
_BROKERS_AT_ONCE: Final = 16
_BETWEEN_REQUESTS_S: Final = 0.02
_TOPICS_PER_REQUEST: Final = 500
_ENDS_PER_REQUEST: Final = 2000
_GROUPS_PER_STEP: Final = 100
_FACTS_PER_WRITE: Final = 50
_PARTITIONS_PER_WRITE: Final = 1000
_BETWEEN_WRITES_S: Final = 0.05
_WRITING_S: Final = 30.0
_CHECK_LEAD_S: Final = 1.0
_GONE: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND})


@dataclass(slots=True)
class RoundCounts:
    """The numbers of a round: of groups by what became of them, of partitions, and how long it took."""

    polled: int = 0
    not_visible: int = 0
    failed: int = 0
    left_out: int = 0
    failed_brokers: int = 0
    partitions: int = 0
    seconds: float = 0.0
    problem: str | None = None  # of the broker that failed last

    @property
    def is_whole(self) -> bool:
        return not (self.not_visible or self.failed or self.left_out or self.failed_brokers)


@dataclass(slots=True)
class _LagRound:
    """What a round has read so far."""

    counts: RoundCounts = field(default_factory=RoundCounts)
    addresses: Mapping[int, Address] = field(default_factory=dict)
    polled: list[PolledGroup] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)


class LagPoller:
    """Runs as a task of the feature; `is_leader` says whether this worker leads, and `write` writes one fact.

    Between requests and between writes there are short pauses, unless `has_pauses` is False.
    """

    def __init__(
        self,
        dial: Callable[[], Awaitable[Dialler]],
        write: Callable[[GroupLagsObserved], Awaitable[object]],
        is_leader: Callable[[], bool],
        clock: Clock,
        *,
        limits: RoundLimits = RoundLimits(),  # noqa: B008 - immutable
        has_pauses: bool = True,
        check_lead_s: float = _CHECK_LEAD_S,
    ) -> None:
        self._dial = dial
        self._write = write
        self._is_leader = is_leader
        self._clock = clock
        self._limits = limits
        self._has_pauses = has_pauses
        self._check_lead_s = check_lead_s
        self._planner = RoundPlanner(limits)
        self._written = WrittenLags()
        self._logged_reasons: tuple[bool, ...] = ()
        self._logged_problem: str | None = None
        self._logged_write: str | None = None
        self.last = RoundCounts()
        self.rounds = 0
        self.facts_written = 0
        self.facts_lost = 0

    async def run(self) -> None:
        """Poll once a minute while this worker leads; a round ends when another worker takes the lead."""
        while True:
            if not self._is_leader():
                self._forget()
                await asyncio.sleep(self._check_lead_s)
                continue
            until = self._clock.monotonic() + ROUND_S
            polling = asyncio.create_task(self._try_to_poll())
            try:
                while self._is_leader() and not polling.done():
                    await asyncio.wait({polling}, timeout=self._check_lead_s)
            finally:
                polling.cancel()
                await asyncio.wait({polling})
            if not polling.cancelled():
                polling.result()
            while self._is_leader() and (left := until - self._clock.monotonic()) > 0:  # noqa: ASYNC110 - or a lost lead
                await asyncio.sleep(min(left, self._check_lead_s))

    async def _try_to_poll(self) -> None:
        try:
            await self.poll()
        except ClusterError as failure:
            if str(failure) != self._logged_problem:
                log.warning("lags could not be read, retrying", problem=str(failure))
            self._logged_problem = str(failure)
        else:
            self._logged_problem = None

    def _forget(self) -> None:
        """Another worker writes facts, so what this one wrote says nothing any more."""
        if len(self._written):
            self._written = WrittenLags()
        self.last = RoundCounts()

    async def poll(self) -> RoundCounts:
        """Poll all groups once, and write what has changed."""
        started = self._clock.monotonic()
        current = _LagRound()
        dialler = replace(await self._dial(), call_timeout_s=_CALL_S)
        async with Connections(dialler) as connections:
            current.addresses = await broker_addresses(await connections.bootstrap())
            await self._read_committed(connections, current, await self._listed(connections, current))
            await self._read_ends(connections, current)
        await self._write_changes(current)
        current.counts.seconds = self._clock.monotonic() - started
        self.last = current.counts
        self.rounds += 1
        self._report(current.counts)
        return current.counts

    # --- reading

    async def _listed(self, connections: Connections, current: _LagRound) -> list[LagGroup]:
        found: list[LagGroup] = []

        async def list_one(node: int) -> None:
            async with self._failures_of(node, current):
                found.extend(await listed_groups(await connections.to(current.addresses[node]), node))

        await _for_each(current.addresses, list_one)
        return found

    async def _read_committed(self, connections: Connections, current: _LagRound, listed: list[LagGroup]) -> None:
        counts = current.counts
        plan = await asyncio.to_thread(self._planner.plan, listed, is_complete=not counts.failed_brokers)
        self._written.retain(self._planner.known)
        counts.left_out += plan.left_out
        budget = RoundBudget(self._limits)
        until = self._clock.monotonic() + _STEP_S

        async def read_one(node: int) -> None:
            rest = sum(map(len, plan.requests[node]))
            try:
                async with self._failures_of(node, current):
                    for groups in plan.requests[node]:
                        if budget.is_used_up or self._clock.monotonic() > until:
                            counts.left_out += rest
                            rest = 0
                            return
                        link = await connections.to(current.addresses[node])
                        answers = await group_offsets(link, groups)
                        rest -= len(groups)
                        self._take(groups, answers, budget, current)
                        await self._pause()
            finally:
                counts.failed += rest

        await _for_each(plan.requests, read_one)

    def _take(
        self,
        groups: Sequence[LagGroup],
        answers: GroupAnswers,
        budget: RoundBudget,
        current: _LagRound,
    ) -> None:
        counts = current.counts
        for one in groups:
            answer = answers.get(one.name, int(ErrorCode.UNKNOWN_SERVER_ERROR))
            if isinstance(answer, tuple):
                if budget.is_used_up:
                    counts.left_out += 1
                    continue
                polled = PolledGroup(one.name, one.kind, answer)
                partitions = polled.partition_count
                budget.take(partitions=partitions, fact_bytes=polled.fact_bytes)
                self._planner.on_polled(one.name, partitions)
                counts.polled += 1
                counts.partitions += partitions
                if partitions:
                    current.polled.append(polled)
            elif answer == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                self._planner.on_polled(one.name, 0)
                counts.not_visible += 1
            elif answer not in _GONE:
                counts.failed += 1

    async def _read_ends(self, connections: Connections, current: _LagRound) -> None:
        """The end offset of each partition that any group has read, once; unknown where its leader does not answer."""
        by_node = await self._read_leaders(connections, current)
        until = self._clock.monotonic() + _STEP_S

        async def read_one(node: int) -> None:
            async with self._failures_of(node, current):
                for first in range(0, len(by_node[node]), _ENDS_PER_REQUEST):
                    if self._clock.monotonic() > until:
                        raise ClusterError(f"its end offsets were not read within {_STEP_S:g} s")
                    link = await connections.to(current.addresses[node])
                    current.ends.update(await end_offsets(link, by_node[node][first : first + _ENDS_PER_REQUEST]))
                    await self._pause()

        await _for_each([node for node in by_node if node in current.addresses], read_one)

    async def _read_leaders(
        self, connections: Connections, current: _LagRound
    ) -> Mapping[int, Sequence[TopicPartition]]:
        """The partitions that groups have read by their leader; where a broker fails, the next one is asked."""
        wanted = await asyncio.to_thread(_partitions, current.polled)
        topics = sorted(wanted)
        by_node: dict[int, list[TopicPartition]] = defaultdict(list)
        until = self._clock.monotonic() + _STEP_S
        first = 0
        for node in (None, *current.addresses):
            async with self._failures_of(node, current):
                while first < len(topics):
                    if self._clock.monotonic() > until:
                        raise ClusterError(f"the leaders of partitions were not read within {_STEP_S:g} s")
                    some = topics[first : first + _TOPICS_PER_REQUEST]
                    to_broker = connections.bootstrap() if node is None else connections.to(current.addresses[node])
                    found = await topic_leaders(await to_broker, some)
                    current.ids.update(found.ids)
                    await asyncio.to_thread(_sort_by_leader, wanted, some, found.leaders, by_node)
                    first += len(some)
                    await self._pause()
            if first >= len(topics) or self._clock.monotonic() > until:
                break
        return by_node

    @asynccontextmanager
    async def _failures_of(self, node: int | None, current: _LagRound) -> AsyncIterator[None]:
        """A broker that fails ends its own part; the next request connects again."""
        try:
            yield
        except ClusterError as failure:
            current.counts.failed_brokers += 1
            current.counts.problem = str(failure) if node is None else f"node {node}: {failure}"

    async def _pause(self) -> None:
        await asyncio.sleep(_BETWEEN_REQUESTS_S if self._has_pauses else 0)

    # --- writing

    async def _write_changes(self, current: _LagRound) -> None:
        at, now = self._clock.epoch_ms(), self._clock.monotonic()
        writes: list[list[GroupLagsObserved]] = [[]]
        partitions = 0
        for first in range(0, len(current.polled), _GROUPS_PER_STEP):
            some = current.polled[first : first + _GROUPS_PER_STEP]
            for fact in await asyncio.to_thread(self._due, some, current, at, now):
                if len(writes[-1]) == _FACTS_PER_WRITE or partitions + len(fact.partitions) > _PARTITIONS_PER_WRITE:
                    writes.append([])
                    partitions = 0
                writes[-1].append(fact)
                partitions += len(fact.partitions)
        pause_s = min(_BETWEEN_WRITES_S, _WRITING_S / len(writes)) if self._has_pauses else 0
        for facts in writes:
            await self._write_some(facts, now)
            await asyncio.sleep(pause_s)

    def _due(self, polled: Iterable[PolledGroup], current: _LagRound, at: int, now: float) -> list[GroupLagsObserved]:
        return [
            fact
            for one in polled
            for fact in self._written.due(one.group, lag_facts(one, current.ends, current.ids, at), now)
        ]

    async def _write_some(self, facts: Sequence[GroupLagsObserved], now: float) -> None:
        outcomes = await asyncio.gather(*map(self._write, facts), return_exceptions=True)
        failures = []
        for fact, outcome in zip(facts, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                failures.append(outcome)
            else:
                self._written.on_written(fact, now)
        self.facts_written += len(facts) - len(failures)
        self.facts_lost += len(failures)
        problem = str(failures[0]) if failures else None
        if problem is not None and problem != self._logged_write:
            log.warning("lags not written", problem=problem)
        self._logged_write = problem

    def _report(self, counts: RoundCounts) -> None:
        """Log when groups begin to be left out for a reason, not again every minute."""
        reasons = (bool(counts.not_visible), bool(counts.failed or counts.failed_brokers), bool(counts.left_out))
        if not counts.is_whole and reasons != self._logged_reasons:
            log.warning(
                "lags of some groups are not known",
                polled=counts.polled,
                not_visible=counts.not_visible,
                failed=counts.failed,
                left_out=counts.left_out,
                failed_brokers=counts.failed_brokers,
                problem=counts.problem,
            )
        self._logged_reasons = reasons


async def _for_each(nodes: Iterable[int], work: Callable[[int], Awaitable[None]]) -> None:
    """Run `work` for all nodes side by side, a bounded number at a time."""
    turn = asyncio.Semaphore(_BROKERS_AT_ONCE)

    async def run(node: int) -> None:
        async with turn:
            await work(node)

    async with asyncio.TaskGroup() as tasks:
        for node in nodes:
            tasks.create_task(run(node))


def _partitions(polled: Iterable[PolledGroup]) -> dict[str, set[int]]:
    """All partitions, by topic."""
    found: dict[str, set[int]] = defaultdict(set)
    for one in polled:
        for topic in one.topics:
            found[topic.topic].update(topic.partitions)
    return found


def _sort_by_leader(
    wanted: Mapping[str, set[int]],
    topics: Iterable[str],
    leaders: Mapping[TopicPartition, int],
    by_node: dict[int, list[TopicPartition]],
) -> None:
    for topic in topics:
        for number in sorted(wanted[topic]):
            leader = leaders.get((topic, number))
            if leader is not None:
                by_node[leader].append((topic, number))
