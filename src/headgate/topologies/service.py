"""The topologies of one worker: the state machine, the topics that feed it, and the store, brought together.

One rule: nothing here fails a client's call or keeps it waiting beyond `call_timeout_ms`. Until the topics were read to
their ends nobody is asked and pushes are told to come again; if they cannot be read, records flow all the same.

The decisions are `domain.streams_groups`; what a call means on the wire is the interceptors' business.
"""

import asyncio
import os
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.config.model import Config
from headgate.facts.topology import Description
from headgate.plugin.topology_store import PushedTopology
from headgate.topologies.model.group_events import (
    AlreadyHeld,
    DescribeGroup,
    Effect,
    EpochsRead,
    Event,
    Outcome,
    StorePush,
    WriteEpochs,
    WriteFailed,
)
from headgate.topologies.model.group_life import NONE, Epochs, Held
from headgate.topologies.model.push_backoff import jitter_factor
from headgate.topologies.model.push_gate import HeartbeatAnswer, HeartbeatRequest, Verdict
from headgate.topologies.model.streams_groups import ClassicJoin, StreamsGroups
from headgate.topologies.resources import Opening, Parts, open_parts
from headgate.topologies.store_calls import Failed, Found, Missing
from headgate.topologies.stores.loading import keeper_of
from headgate.topologies.topology_metrics import TopologyMeter
from headgate.topologies.turns import Turns

log = structlog.get_logger()

_RETRY_SECONDS: Final = 2.0
_LAST_WORDS_SECONDS: Final = 2.0
# Joins that came before the topics were read: each is a member that may put what they hold in doubt.
_MOST_EARLY: Final = 100_000

_NO_CONTENT: Final = ""  # the hash of nothing that was ever stored
_AT_ONCE: Final = 200
_NOBODYS: Final = 0  # no connection has this number
# Groups, members and processes with longer names are let pass and not looked at: Kafka's own have 40 characters.
LONGEST_NAME: Final = 1024

T = TypeVar("T")
Describe = Callable[[str], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class _EarlyJoin:
    at: float
    request: HeartbeatRequest
    answer: HeartbeatAnswer


@dataclass(frozen=True, slots=True)
class PushFailed:
    """`text` is for the client's ErrorMessage."""

    text: str


@dataclass(frozen=True, slots=True)
class Noted:
    """`ask`: the member is asked. `doubt`: a newcomer's, on its way to the topic until this task has ended."""

    ask: bool
    doubt: "asyncio.Task[None] | None" = None


NOT_ASKED: Final = Noted(ask=False)


class TopologyService:
    """Made on the event loop; `async with service.running()` opens it in the background."""

    def __init__(
        self,
        config: Config,
        *,
        worker: int = 0,
        cache: str = "topologies.db",
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._chance = chance
        self._opening = Opening(
            config=config,
            worker=worker,
            cache_name=cache,
            clock=self._clock,
            environment=environment,
            on_event=self._on_event,
            on_another=self._on_another_state,
        )
        self._timeout_s = config.topologies.call_timeout_ms / 1000
        self._parts: Parts | None = None
        self._is_open = False  # and what came before was made up for
        self._early: OrderedDict[tuple[str, str], _EarlyJoin] = OrderedDict()  # the last of each member
        self._said = LogThrottle(self._clock.monotonic)
        self._turns = Turns()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.groups = StreamsGroups(keeper_of(config.topologies.store))
        self.meter = TopologyMeter()
        self.has_store = config.topologies.store.scheme != "none"
        self.problem: str | None = "not opened yet" if self.has_store else None

    @property
    def is_ready(self) -> bool:
        """Whether what the topics hold is known."""
        return self._is_open

    def selects(self, group: str) -> bool:
        """Whether the operator wants descriptions of this group; names that nobody gives a group are never wanted."""
        return len(group) <= LONGEST_NAME and self._config.topologies.groups.matches(group)

    def samples(self) -> Mapping[tuple[str, tuple[str, ...]], float]:
        return self.meter.samples(ready=self.is_ready, groups=len(self.groups))

    # --- its life

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self.has_store:
                self.spawn(self._open(stack))
            try:
                yield
            finally:
                await self._end_tasks()
                self._parts, self._is_open = None, False

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run it to its end, whoever waits for it or does not any more."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("task of the topologies failed", exc_info=failure)

    async def _end_tasks(self) -> None:
        """Store calls under way may end; then everything else is over."""
        tasks = list(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=_LAST_WORDS_SECONDS if self._turns else 0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _open(self, life: AsyncExitStack) -> None:
        """Open everything, again and again until it succeeds; what is in the way is said once."""
        while not self._is_open:
            try:
                async with AsyncExitStack() as attempt:
                    self._parts = await self._open_once(attempt)
                    life.push_async_callback(attempt.pop_all().aclose)
                    await self._make_up()
            except Exception as failure:  # noqa: BLE001 - a plugin may raise whatever it likes
                problem = str(failure) or repr(failure)
                if problem != self.problem:
                    log.warning("topologies are not available, still trying", problem=problem)
                self.problem = problem
                await asyncio.sleep(_RETRY_SECONDS)

    async def _open_once(self, attempt: AsyncExitStack) -> Parts:
        return await open_parts(self._opening, attempt)

    async def _make_up(self) -> None:
        """Note the joins that came before the topics were read, a few at a time; then it is open.

        They prove nothing: their connections may have ended since.
        """
        while self._early:
            writes = []
            for member in list(self._early)[:_AT_ONCE]:
                early = self._early.pop(member)
                decision = self.groups.on_heartbeat(
                    _NOBODYS, early.request, early.answer, now=early.at, jitter=1.0, store=False
                )
                written = self._do(decision.effects, None)
                if written is not None:
                    writes.append(written)
            if writes:
                await asyncio.wait(writes)
            await asyncio.sleep(0)
        self._is_open, self.problem = True, None
        log.info("topologies are available", store=self._config.topologies.store.scheme, groups=len(self.groups))

    # --- facts

    def _on_event(self, group: str, event: Event) -> None:
        self._do(self.groups.handle(group, event), None)

    def _on_another_state(self) -> None:
        """The topic is new and empty: of what was stored it says nothing any more."""
        for group in self.groups.stored_groups():
            epochs = self.groups.life(group).epochs
            if epochs is not None:
                none = Epochs(incarnation=epochs.incarnation, stored_epoch=NONE, failed_epoch=NONE)
                self._on_event(group, EpochsRead(epochs=none, own=False))

    def _do(self, effects: Sequence[Effect], describe: Describe | None) -> "asyncio.Task[None] | None":
        """Begin what the state machine wants done; the last write, for a join, which must not be answered before it."""
        written = None
        for effect in effects:
            match effect:
                case WriteEpochs():
                    written = self.spawn(self._write_quietly(effect))
                case DescribeGroup(group=group):
                    if describe is not None:
                        self.spawn(describe(group))
        return written

    async def _write_quietly(self, effect: WriteEpochs) -> None:
        try:
            await self._write(effect)
        except ClusterError as problem:
            if self._said.allows("epochs", effect.group):
                log.warning("epochs of a group were not written", group=effect.group, problem=str(problem))

    async def _write(self, effect: WriteEpochs) -> None:
        """Write epochs and wait until they are read back; `ClusterError` when that cannot be said."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._open_parts().epochs.write(effect)
        except (ClusterError, TimeoutError) as failure:
            self.groups.handle(effect.group, WriteFailed())
            text = str(failure) or f"not read back within {self._timeout_s:g} s"
            raise ClusterError(text) from None

    def _open_parts(self) -> Parts:
        if self._parts is None:
            raise ClusterError("topologies are not available: " + (self.problem or "the gateway ends"))
        return self._parts

    # --- heartbeats

    def on_heartbeat(
        self, connection: int, request: HeartbeatRequest, answer: HeartbeatAnswer, describe: Describe
    ) -> Noted:
        """Take note of a heartbeat that the broker answered."""
        if max(len(request.group), len(request.member), len(request.process or "")) > LONGEST_NAME:
            return NOT_ASKED
        if not self._is_open:
            if request.joins and answer.error_code == 0 and self.has_store:
                self._early[request.group, request.member] = _EarlyJoin(self._clock.monotonic(), request, answer)
                if len(self._early) > _MOST_EARLY:
                    self._early.popitem(last=False)
            return NOT_ASKED
        decision = self.groups.on_heartbeat(
            connection,
            request,
            answer,
            now=self._clock.monotonic(),
            jitter=jitter_factor(self._chance()),
            selected=self.selects(request.group),
        )
        self.meter.gate[decision.verdict] += 1
        doubt = self._do(decision.effects, describe) if decision.effects else None
        if not request.joins:
            doubt = None
        if decision.verdict is not Verdict.ASK:
            return NOT_ASKED if doubt is None else Noted(ask=False, doubt=doubt)
        epoch = self.groups.life(request.group).current_epoch
        log.info("topology description requested", group=request.group, member=request.member, epoch=epoch)
        return Noted(ask=True, doubt=doubt)

    def on_close(self, connection: int) -> None:
        self.groups.roster.closed(connection)

    def proves(self, connection: int, group: str, member: str) -> bool:
        """Whether a heartbeat on this connection proved that the member is in the group and its principal may READ."""
        return self.groups.roster.proves(connection, group, member, self._clock.monotonic())

    # --- calls of the store

    async def push(
        self, group: str, member: str, epoch: int, description: Description, content: str
    ) -> PushFailed | None:
        """Store what a member pushed; `content` is its hash. It goes on if the client goes away meanwhile."""
        return await asyncio.shield(self.spawn(self._push(group, member, epoch, description, content)))

    async def _push(
        self, group: str, member: str, epoch: int, description: Description, content: str
    ) -> PushFailed | None:
        try:
            async with self._turns.of(group, self._timeout_s):
                return await self._push_now(group, member, epoch, description, content)
        except ClusterError as problem:
            return PushFailed(str(problem))

    async def _push_now(
        self, group: str, member: str, epoch: int, description: Description, content: str
    ) -> PushFailed | None:
        plan = self.groups.begin_push(group, member, epoch, content, now=self._clock.monotonic())
        if isinstance(plan, AlreadyHeld):
            effects = self.groups.confirm_push(group, member, epoch, now=self._clock.monotonic())
            return await self._write_all(effects)
        pushed = PushedTopology(
            group=group,
            epoch=epoch,
            description=description,
            incarnation=plan.incarnation,
            hash=content,
            member=member,
            process=self.groups.roster.process_of(group, member),
        )
        outcome, text = await self._set(plan, pushed)
        now, jitter = self._clock.monotonic(), jitter_factor(self._chance())
        effects = self.groups.settle_push(plan, outcome, now=now, jitter=jitter)
        failed = await self._write_all(effects)
        if outcome is Outcome.STORED:
            if self._said.allows("stored", group):
                log.info("topology description stored", group=group, epoch=epoch, version=f"{plan.incarnation}/{epoch}")
            return failed
        self._warn_not_stored(group, epoch, outcome, text)
        return PushFailed(text or outcome.value)

    def _warn_not_stored(self, group: str, epoch: int, outcome: Outcome, text: str | None) -> None:
        if self._said.allows("not stored", group):
            log.warning("topology description not stored", group=group, epoch=epoch, outcome=outcome.value, reason=text)

    async def refuse(self, group: str, member: str, epoch: int, text: str) -> PushFailed:
        """A push that no store will ever take, so none is asked: the same as its permanent failure."""
        try:
            async with self._turns.of(group, self._timeout_s):
                now, jitter = self._clock.monotonic(), jitter_factor(self._chance())
                plan = self.groups.begin_push(group, member, epoch, _NO_CONTENT, now=now)
                assert isinstance(plan, StorePush)
                await self._write_all(self.groups.settle_push(plan, Outcome.PERMANENT, now=now, jitter=jitter))
        except ClusterError as problem:
            return PushFailed(str(problem))
        self._warn_not_stored(group, epoch, Outcome.PERMANENT, text)
        return PushFailed(text)

    async def _set(self, plan: StorePush, pushed: PushedTopology) -> tuple[Outcome, str | None]:
        try:
            if plan.barrier is not None:
                await self._write(plan.barrier)
            result = await self._open_parts().calls.set(pushed)
        except ClusterError as problem:
            return Outcome.TRANSIENT, str(problem)
        self.meter.called("set", failed=result.outcome is not Outcome.STORED)
        return result.outcome, result.text

    async def _write_all(self, effects: Sequence[Effect]) -> PushFailed | None:
        """The last word about a push: without it the member is asked again, and the same push closes the gap."""
        try:
            for effect in effects:
                if isinstance(effect, WriteEpochs):
                    await self._write(effect)
        except ClusterError as problem:
            return PushFailed(str(problem))
        return None

    async def get(self, group: str, held: Held) -> Found | Missing | Failed:
        """What a describe shows of a group, by what `groups.on_described` said that is held."""
        parts = self._parts
        if parts is None:
            return Failed(self.problem or "the gateway ends")
        found = await parts.calls.get(group, held.epoch)
        self.meter.called("get", failed=isinstance(found, Failed))
        match found:
            case Failed(text=text):
                if self._said.allows("cannot be read", group):
                    log.warning("topology description cannot be read", group=group, epoch=held.epoch, reason=text)
            case Missing():
                if self._said.allows("is not there", group):
                    log.warning("topology description is not in the store any more", group=group, epoch=held.epoch)
                self._do(self.groups.on_lost(group), None)
        return found

    def knows(self, group: str) -> bool:
        """Whether anything is kept of the group, be it that somebody was asked."""
        return self.groups.knows(group)

    def on_deleted(self, group: str) -> None:
        """The broker has deleted the group: who comes back under its name begins afresh."""
        if self.must_delete(group):  # it was not to be expected that the broker would
            self.spawn(self._delete(group))
        elif self.knows(group):
            self._do(self.groups.settle_deletion(group), None)

    def must_delete(self, group: str) -> bool:
        """Whether the store has to delete something before the group may go."""
        return self.is_ready and self.groups.life(group).must_delete

    async def delete(self, group: str) -> Failed | None:
        """Delete what is stored of a group; None: it is gone. It goes on if the client goes away meanwhile."""
        return await asyncio.shield(self.spawn(self._delete(group)))

    async def _delete(self, group: str) -> Failed | None:
        try:
            async with self._turns.of(group, self._timeout_s):
                failed = await self._delete_now(group)
        except ClusterError as problem:
            failed = Failed(str(problem))
        if failed is None:
            log.info("topology description deleted", group=group)
        elif self._said.allows("not deleted", group):
            log.warning("topology description not deleted", group=group, reason=failed.text)
        return failed

    async def _delete_now(self, group: str) -> Failed | None:
        plan = self.groups.begin_deletion(group)
        if plan.call_store:
            if plan.barrier is not None:
                await self._write(plan.barrier)
            failed = await self._open_parts().calls.delete(group)
            self.meter.called("delete", failed=failed is not None)
            if failed is not None:
                return failed
        for effect in self.groups.settle_deletion(group):
            if isinstance(effect, WriteEpochs):
                await self._write(effect)
        return None

    def classic_join(self, group: str) -> ClassicJoin:
        return self.groups.classic_join(group, now=self._clock.monotonic())

    def classic_join_failed(self, group: str) -> None:
        now, jitter = self._clock.monotonic(), jitter_factor(self._chance())
        self.groups.classic_join_failed(group, now=now, jitter=jitter)
