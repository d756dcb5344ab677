"""The share groups of one worker: what is decided about them, what their members hold, and what is done about both.

One rule: records flow whatever fails here. Two exceptions: a group stays paused until its reason ends, and after a
start nothing is acquired until it is known who is paused, for half a minute at most.

What a call means on the wire is the interceptors' business; what is decided is `domain.share_state`'s.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeVar
from uuid import uuid4

import structlog

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.config.model import Config
from headgate.facts import DispositionsCounted, EventHappened, JsonText
from headgate.facts.observations import EventName
from headgate.kafka.leadership import Leadership
from headgate.proxy.interceptor import Session
from headgate.share_groups.acks import Acks
from headgate.share_groups.breaker_leader import Judging
from headgate.share_groups.dead_letter_delivery import Letters, Wanted
from headgate.share_groups.deferred_acks import Debt, Debts
from headgate.share_groups.limits import Limits
from headgate.share_groups.model.acknowledgements import AckType
from headgate.share_groups.model.delivery_ledger import Ledger, PartitionKey
from headgate.share_groups.model.dispositions import Dispositions
from headgate.share_groups.model.group_configs import GroupSettings
from headgate.share_groups.model.group_state import ShareGroupFact, ShareStates
from headgate.share_groups.operator_actions import SHARE_GROUP, Operating
from headgate.share_groups.outbox import Outbox
from headgate.share_groups.record_copies import Copies
from headgate.share_groups.resources import LEADER, Listeners, Parts, open_parts
from headgate.share_groups.share_metrics import Samples, ShareMeter
from headgate.wire.share_calls import ShareRequest

log = structlog.get_logger()

LONGEST_OPENING_S: Final = 30.0
LONGEST_NAME: Final = 1024  # of a group; longer ones are nobody's, and pass
_RETRY_S: Final = 2.0
_LEARN_S: Final = 60.0
_PUT_AT_ONCE: Final = 1_000
_MOST_HELD_RANGES: Final = 1_000_000
_MOST_LOCKS: Final = 100_000
_LOCK_MARGIN_S: Final = 2.0  # of a lock: the acknowledgement has to get there
_LEAST_HOLD_S: Final = 0.1
T = TypeVar("T")


class ShareGroupService:
    """Made on the event loop; `async with service.running()` opens it in the background."""

    def __init__(self, config: Config, *, worker: int = 0, clock: Clock | None = None) -> None:
        self._config = config
        self._worker = worker
        self._clock = clock or SystemClock()
        self._said = LogThrottle(self._clock.monotonic)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._parts: Parts | None = None
        self._opened = asyncio.Event()
        self._gave_up = False
        self._resumed: dict[str, asyncio.Event] = {}  # of groups whose members wait
        self._locks: OrderedDict[PartitionKey, tuple[float, float, float]] = OrderedDict()
        self._outbox = Outbox()
        self._problem = "not opened yet"
        self.states = ShareStates()
        self.minded: set[bytes] = set()  # names of groups that are opened, as they stand on the wire
        self.meter = ShareMeter()
        self.ledger = Ledger(_MOST_HELD_RANGES)
        self.dispositions = Dispositions()
        self.debts = Debts()
        self.copies = Copies()
        self.limits = Limits(config.upstream, self._said)
        self.letters = Letters(
            writer=lambda: None if self._parts is None else self._parts.letters,
            cluster=lambda: "" if self._parts is None else self._parts.writer.origin.cluster or "",
            topic_of=lambda group: self.states.of(group).settings.dlq_topic,
            copies=self.copies,
            clock=self._clock,
            tell=self.tell,
            meter=self.meter,
        )
        self.acks = Acks(
            ledger=self.ledger,
            dispositions=self.dispositions,
            clock=self._clock,
            meter=self.meter,
            tell=self.tell,
            give_up=self.letters.give_up,
        )
        self.judging = Judging(
            states=self.states,
            limits=self.limits,
            clock=self._clock,
            meter=self.meter,
            tell=self.tell,
            parts=lambda: self._parts,
        )
        self.operating = Operating(self, config.share_groups, clock=self._clock, said=self._said)

    # --- its life

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            self.spawn(self._open(stack))
            self.spawn(self._give_up_waiting())
            try:
                yield
            finally:
                await self._end()

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run it to its end, whoever waits for it or does not any more."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.meter.failures += 1
            log.error("task of the share groups failed", exc_info=failure)

    async def _open(self, life: AsyncExitStack) -> None:
        """Open everything, again and again until it succeeds; what is in the way is said once."""
        told = Listeners(
            on_event=self._on_event,
            on_forget=self._on_forget,
            on_counted=self.judging.on_counted,
            on_happened=self.operating.on_happened,
        )
        while self._parts is None:
            try:
                async with AsyncExitStack() as attempt:
                    parts = await open_parts(self._config, self._worker, told, attempt)
                    life.push_async_callback(attempt.pop_all().aclose)
            except Exception as failure:  # noqa: BLE001 - whatever it is, records flow and it is tried again
                problem = str(failure) or repr(failure)
                if problem != self._problem:
                    log.warning("share groups are not available, still trying", problem=problem)
                self._problem = problem
                self._on_forget()
                await asyncio.sleep(_RETRY_S)
            else:
                self._parts = parts
        await self.limits.learn()
        self._opened.set()
        self.spawn(self._outbox.run(parts.writer))
        self.spawn(self._count())
        self.spawn(self._learn_limits())
        self.spawn(self.judging.run())
        self.spawn(self.judging.tend())
        leadership = Leadership(
            parts.settings,
            topic=parts.prefix + LEADER,
            on_gained=self.judging.on_gained,
            on_lost=self.judging.on_lost,
        )
        life.push_async_callback(leadership.close)
        leadership.start()

    async def _give_up_waiting(self) -> None:
        if not await self.opened_within(LONGEST_OPENING_S):
            self._gave_up = True
            log.error("share groups are unknown, records flow without the brake", problem=self._problem)

    async def _end(self) -> None:
        """Everything is over; then what was counted and told and not yet written is written."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        parts = self._parts
        if parts is not None:
            self.letters.say()
            for fact in self._drain_counts(self._clock.epoch_ms()):
                self._outbox.put(fact)
            await self._outbox.flush(parts.writer)

    @property
    def is_ready(self) -> bool:
        """Whether what the topics hold is known."""
        return self._opened.is_set()

    @property
    def is_opening(self) -> bool:
        """Nothing is known yet, and that is not to be waited for in vain."""
        return not self._opened.is_set() and not self._gave_up

    async def opened_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._opened.wait()
        except TimeoutError:
            return False
        return True

    def problems(self) -> Mapping[str, str]:
        """For `/readyz`."""
        return {"share groups": f"it is not known yet which are paused: {self._problem}"} if self.is_opening else {}

    def samples(self) -> Samples:
        return self.meter.samples(
            ready=self.is_ready,
            leading=self.judging.is_leading,
            paused=sum(self.states.of(group).is_paused for group in self.states.groups()),
            ledger=len(self.ledger),
            lost=self._outbox.lost + self.dispositions.lost,
            shared=((topic, len(groups)) for topic, groups in self.states.topics().items() if len(groups) > 1),
            ignored=self.judging.breakers.ignored(),
        )

    # --- what is read

    def _on_event(self, event: ShareGroupFact) -> None:
        group = self.states.apply(event)
        self.judging.on_event(event)
        state = self.states.of(group)
        name = group.encode(errors="surrogatepass")
        if state.is_minded and self.selects(group):
            self.minded.add(name)
        else:
            self.minded.discard(name)
        if not state.is_paused and (waiting := self._resumed.pop(group, None)) is not None:
            waiting.set()

    def _on_forget(self) -> None:
        self.states.forget()
        self.minded.clear()

    # --- what is counted and told

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            counted = deque(self._drain_counts(self._clock.epoch_ms() // 1000))
            try:
                while counted:
                    for _ in range(min(_PUT_AT_ONCE, len(counted))):
                        self._outbox.put(counted.popleft())
                    await asyncio.sleep(0)
            finally:
                for fact in counted:
                    self._outbox.put(fact)

    async def _learn_limits(self) -> None:
        """Until they are known: without them what is over the brokers' own limit cannot be told."""
        while self.limits.default is None:
            await asyncio.sleep(_LEARN_S)
            await self.limits.learn()

    def _drain_counts(self, before_second: int) -> list[DispositionsCounted]:
        return self.dispositions.drain(before_second, at=self._clock.epoch_ms(), topic_name=self.letters.known_name)

    def tell(self, event: EventName, group: str, detail: Mapping[str, object]) -> None:
        """An event for operators; `by` may stand in the detail."""
        rest = dict(detail)
        by = rest.pop("by", None)
        fact = EventHappened(
            at=self._clock.epoch_ms(),
            subject_kind=SHARE_GROUP,
            subject=group,
            id=uuid4().hex,
            event=event,
            by=None if by is None else str(by),
            detail=JsonText.of(rest),
        )
        self._outbox.put(fact)

    # --- asked by the calls

    def now(self) -> float:
        return self._clock.monotonic()

    def selects(self, group: str) -> bool:
        return len(group) <= LONGEST_NAME and self._config.share_groups.groups.matches(group)

    def is_paused(self, group: str) -> bool:
        """Where pausing is switched off nothing is paused, whatever was decided before."""
        return self._config.share_groups.pause_enable and self.states.of(group).is_paused

    def opening_wait_s(self, share: ShareRequest) -> float:
        """A fetch may wait as long as at the broker; what rejects something as long as it would for dead letters."""
        wait_s = share.max_wait_ms / 1000
        if any(AckType.REJECT in batch.types for one in share.acks for batch in one.batches):
            wait_s = max(wait_s, self._config.share_groups.hold_max_ms / 1000)
        return min(wait_s, LONGEST_OPENING_S)

    def longest_hold_s(self) -> float:
        return self._config.share_groups.hold_max_ms / 1000 + LONGEST_OPENING_S

    def lock_began(self, key: PartitionKey, lock_ms: int) -> None:
        """The member acquired something: from now, or from when it acquired before, its acknowledgements must hurry."""
        now = self._clock.monotonic()
        was = self._locks.get(key)
        self._locks[key] = (now if was is None else was[1], now, lock_ms / 1000)
        self._locks.move_to_end(key)
        if len(self._locks) > _MOST_LOCKS:
            self._locks.popitem(last=False)

    def hold_s(self, settings: GroupSettings, keys: Iterable[PartitionKey]) -> float:
        """How long acknowledgements may wait for dead letters: longer, and all of them would be void."""
        longest = min(settings.write_timeout_ms, self._config.share_groups.hold_max_ms) / 1000
        now = self._clock.monotonic()
        for key in keys:
            before, last, lock_s = self._locks.get(key, (now, now, 0.0))
            since = before if now - before < lock_s else last
            if now - since < lock_s:  # else it was renewed, or is void anyway
                longest = min(longest, since + lock_s - _LOCK_MARGIN_S - now)
        return max(_LEAST_HOLD_S, longest)

    def owe(self, owed: Sequence[Wanted], settings: GroupSettings, lock_ms: int, session: Session) -> None:
        """Taken out of one answer, as over the limit: dead-letter them, and REJECT them with the next request."""
        deadline_s = self.hold_s(settings, [one.key for one in owed])
        letter = self.spawn(self.letters.write(settings, owed, session, deadline_s))
        until = self._clock.monotonic() + lock_ms / 1000 - _LOCK_MARGIN_S
        for at, one in enumerate(owed):
            self.meter.stripped += one.last - one.first + 1
            self.debts.add(Debt(one, until, letter, at))

    async def resumed_within(self, group: str, seconds: float, outcome: T) -> T:
        """`outcome`, when the group is not paused any more, or the time is over."""
        if self.is_paused(group):
            event = self._resumed.setdefault(group, asyncio.Event())
            try:
                async with asyncio.timeout(seconds):
                    await event.wait()
            except TimeoutError:
                pass
        return outcome

    def open_parts(self) -> Parts:
        """`ClusterError` while they are not open."""
        if self._parts is None or not self._opened.is_set():
            raise ClusterError(f"share groups are not available: {self._problem}")
        return self._parts
