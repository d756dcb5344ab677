"""The share groups of one worker: their life cycle, their state, and all that interceptors ask of them.

Records flow whatever fails here, with two exceptions: a group stays paused until the reason of its pause ends, and
after a start, and after a topic lost records, nothing is acquired until it is known which groups are paused, for half a
minute at most.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeVar

import structlog

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.base.tasks import TaskSet, retry, run_forever
from headgate.config.model import Config
from headgate.proxy.rights import Rights
from headgate.share_groups.acknowledgements import MAX_HOLD_S, AcknowledgementTracker
from headgate.share_groups.breaker_leader import BreakerLeader
from headgate.share_groups.broker_configs import DeliveryLimits, GroupConfigClient
from headgate.share_groups.dead_letter_delivery import DeadLetterDelivery
from headgate.share_groups.fact_outbox import FactOutbox
from headgate.share_groups.group_start import GroupStart, StartRefusal
from headgate.share_groups.model.breaker import Breakers, BreakerStatus
from headgate.share_groups.model.delivery_ledger import AckType
from headgate.share_groups.model.group_configs import ConfigRules
from headgate.share_groups.model.group_state import ShareGroupFact, ShareGroupState, ShareStates
from headgate.share_groups.operator_actions import OperatorActions
from headgate.share_groups.resources import (
    STATE,
    TRIPS,
    FactListeners,
    OpenResources,
    ShareGroupResources,
    open_resources,
)
from headgate.share_groups.share_metrics import Samples, ShareMeter
from headgate.share_groups.spool.model.index import SpoolIndex
from headgate.share_groups.spool.mover import SpoolMover
from headgate.share_groups.state_recovery import StateRecovery
from headgate.wire.share_requests import ShareRequest

log = structlog.get_logger()

MAX_OPENING_S: Final = 30.0
MAX_GROUP_NAME: Final = 1024  # groups with longer names are not managed
_RETRY_S: Final = 2.0
_LOAD_LIMITS_S: Final = 60.0
T = TypeVar("T")


class ShareGroupService:
    """Made on the event loop; `async with service.running()` opens it in the background.

    `open_with` and `group_configs` are its clients of the cluster, which tests replace.
    """

    def __init__(
        self,
        config: Config,
        *,
        worker: int = 0,
        clock: Clock | None = None,
        open_with: OpenResources = open_resources,
        group_configs: GroupConfigClient | None = None,
        max_opening_s: float = MAX_OPENING_S,
        retry_s: float = _RETRY_S,
        load_limits_s: float = _LOAD_LIMITS_S,
    ) -> None:
        self._config = config
        self._worker = worker
        self._clock = clock or SystemClock()
        self._open_with = open_with
        self._max_opening_s = max_opening_s
        self._retry_s = retry_s
        self._load_limits_s = load_limits_s
        self._throttle = LogThrottle(self._clock.monotonic)
        self._tasks = TaskSet(self.report_failure)
        self._resources: ShareGroupResources | None = None
        self._opened = asyncio.Event()
        self._gave_up = False
        self._problem = "not opened yet"
        self._resumed: dict[str, asyncio.Event] = {}  # of groups whose members wait
        self._managed: set[bytes] = set()  # names of groups, as they are encoded in requests
        self._states = ShareStates()
        self._recovery = StateRecovery(self._states, self._clock)
        self._outbox = FactOutbox(self._clock)
        self.rules = ConfigRules(
            dlq_prefix=config.share_groups.dlq_prefix, pause_enable=config.share_groups.pause_enable
        )
        self.meter = ShareMeter()
        self.rights = Rights(self._clock)
        client = group_configs or GroupConfigClient(config.upstream)
        self._limits = DeliveryLimits(client, self._throttle)
        self._group_start = GroupStart(
            client,
            states=self._states,
            outbox=self._outbox,
            clock=self._clock,
            throttle=self._throttle,
            pause_enable=config.share_groups.pause_enable,
        )
        self._actions = OperatorActions(
            self._open_or_raise, states=self._states, limits=self._limits, outbox=self._outbox, clock=self._clock
        )
        self._spool_index = SpoolIndex()
        self._dead_letters = DeadLetterDelivery(
            view=self._spool_index,
            is_replayed=lambda: self._mover.is_replayed,
            hold_max_s=config.share_groups.hold_max_ms / 1000,
            outbox=self._outbox,
            tasks=self._tasks,
            clock=self._clock,
            meter=self.meter,
        )
        self.acknowledgements = AcknowledgementTracker(
            states=self._states,
            limits=self._limits,
            dead_letters=self._dead_letters,
            tasks=self._tasks,
            clock=self._clock,
            meter=self.meter,
        )
        self._breakers = Breakers()
        self._leader = BreakerLeader(
            breakers=self._breakers,
            states=self._states,
            limits=self._limits,
            clock=self._clock,
            meter=self.meter,
            outbox=self._outbox,
            pause_enable=config.share_groups.pause_enable,
        )
        self._mover = SpoolMover(
            index=self._spool_index,
            states=self._states,
            clock=self._clock,
            meter=self.meter,
            reports=self._dead_letters.reports,
        )

    # --- life cycle

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            self._tasks.spawn(self._open(stack))
            self._tasks.spawn(self._limit_opening())
            try:
                yield
            finally:
                await self._close()

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task that runs to its end also when its caller is cancelled."""
        return self._tasks.spawn(work)

    def _keep_running(self, work: Callable[[], Awaitable[None]]) -> None:
        """Start a loop that ends with the service; when it fails it is started again."""
        self._tasks.spawn(run_forever(work, pause_s=self._retry_s, on_failure=self.report_failure))

    def report_failure(self, failure: BaseException) -> None:
        self.meter.failures += 1
        log.error("task of the share groups failed", exc_info=failure)

    async def _open(self, stack: AsyncExitStack) -> None:
        resources = await retry(
            lambda: self._open_resources(stack), pause_s=self._retry_s, on_problem=self._on_open_problem
        )
        cluster = resources.writer.origin.cluster or ""
        self._dead_letters.open(resources.dead_letter_writer, resources.spool_writer, cluster)
        self._leader.open(resources)
        self._resources = resources
        await asyncio.wait((self._tasks.spawn(self._limits.load()),))  # groups are known also if it fails
        self._open_if_read()
        self._warn_of_missing_pause()
        self._keep_running(lambda: self._outbox.run(resources.writer))
        self._keep_running(lambda: self._outbox.put_counts_of_seconds(self.acknowledgements.drain))
        self._keep_running(lambda: self._limits.keep_loading(self._load_limits_s))
        self._keep_running(self._leader.run)
        self._keep_running(self._leader.maintain)
        self._keep_running(lambda: self._recovery.run(resources.writer.write, lambda: self._leader.is_leading))
        self._mover.open(resources.follow_spool(self._spool_index, self._mover.wake))
        self._keep_running(self._mover.run)
        resources.start_leadership(self.start_leading, self.stop_leading)

    async def start_leading(self) -> None:
        await self._leader.on_gained()
        self._mover.start()

    async def stop_leading(self) -> None:
        await asyncio.gather(self._mover.stop(), self._leader.on_lost())

    def _warn_of_missing_pause(self) -> None:
        groups = sum(self._states.of(group).settings.breaker_enable for group in self._states.groups())
        if groups and not self.rules.pause_enable:
            log.warning("circuit breakers have no effect, because pausing is switched off", groups=groups)

    async def _open_resources(self, stack: AsyncExitStack) -> ShareGroupResources:
        listeners = FactListeners(
            on_fact=self._on_fact,
            on_lost=self._on_lost,
            on_replayed=self._on_replayed,
            on_counted=self._leader.on_counted,
            on_happened=self._actions.on_happened,
        )
        try:
            async with AsyncExitStack() as attempt:
                resources = await self._open_with(self._config, self._worker, listeners, attempt)
                stack.push_async_callback(attempt.pop_all().aclose)
        except Exception:
            self._forget()
            raise
        return resources

    def _on_open_problem(self, problem: str) -> None:
        self._problem = problem
        log.warning("share groups are not available, still trying", problem=problem)

    async def _limit_opening(self) -> None:
        if not await self.wait_until_open(self._max_opening_s):
            self._gave_up = True
            if self._resources is None:
                log.error("share groups are unknown, records flow without the brake", problem=self._problem)
            else:
                log.error("share groups were not read again in time, what was known holds", problem=self._problem)

    async def _close(self) -> None:
        """End all tasks, then write the counts and events that are not written yet."""
        await self._tasks.cancel_all()
        await self._mover.stop()
        if self._resources is not None:
            self._dead_letters.reports.report()
            for fact in self.acknowledgements.drain(self._clock.epoch_ms()):
                self._outbox.put_counts(fact)
            await self._outbox.flush(self._resources.writer)

    @property
    def is_ready(self) -> bool:
        """Whether the topics were read to their ends: before that nothing is known of any group."""
        return self._opened.is_set()

    @property
    def is_opening(self) -> bool:
        """Whether requests wait because nothing is known of the groups yet."""
        return not self._opened.is_set() and not self._gave_up

    async def wait_until_open(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._opened.wait()
        except TimeoutError:
            return False
        return True

    def problems(self) -> Mapping[str, str]:
        """The problems that `/readyz` reports."""
        return {"share groups": f"it is not known yet which are paused: {self._problem}"} if self.is_opening else {}

    @property
    def is_leading(self) -> bool:
        """Whether this worker is the leader of all gateways."""
        return self._leader.is_leading

    def samples(self) -> Samples:
        topics = self._states.registered_topics()
        return self.meter.samples(
            ready=self.is_ready,
            leading=self._leader.is_leading,
            paused=sum(map(self.is_paused, self._states.groups())),
            ledger=self.acknowledgements.acquired_ranges,
            lost=self._outbox.lost + self.acknowledgements.lost,
            unwritten=self._recovery.lost_facts,
            shared=((topic, len(groups)) for topic, groups in topics.items() if len(groups) > 1),
            ignored=self._breakers.ignored(),
            spooled=((group, self._spool_index.totals(group)) for group in self._spool_index.groups()),
            now_ms=self._clock.epoch_ms(),
        )

    # --- the facts that were read

    def _on_fact(self, fact: ShareGroupFact) -> None:
        if self._recovery.read(fact):
            self._apply(fact)

    def _apply(self, fact: ShareGroupFact) -> None:
        group = self._states.apply(fact)
        self._leader.on_fact(fact)
        state = self._states.of(group)
        name = group.encode(errors="surrogatepass")
        if state.is_managed and self.selects(group):
            self._managed.add(name)
        else:
            self._managed.discard(name)
        if not state.is_paused and (waiting := self._resumed.pop(group, None)) is not None:
            waiting.set()

    def _on_lost(self, of_trips: bool) -> None:
        """A topic lost records: what is known holds, and requests wait as after the start until it was read again."""
        if self._resources is None:  # only a part of the topic is known
            self._states.clear()
            self._managed.clear()
            for fact in self._recovery.restart(of_trips=of_trips):
                self._apply(fact)
            return
        self._recovery.begin(of_trips=of_trips)
        if self._opened.is_set():
            self._opened.clear()
            self._gave_up = False
            self._problem = f"{self._config.facts.prefix}{TRIPS if of_trips else STATE} lost records and is read again"
            log.warning("share groups are opening again", problem=self._problem)
            self._tasks.spawn(self._limit_opening())

    def _on_replayed(self, of_trips: bool) -> None:
        for fact in self._recovery.end(of_trips=of_trips):
            self._apply(fact)
        if of_trips:
            self._leader.on_trips_read()
        if self._resources is not None:
            self._open_if_read()

    def _open_if_read(self) -> None:
        if not self._recovery.is_reading_again:
            self._opened.set()

    def _forget(self) -> None:
        self._states.clear()
        self._managed.clear()
        self._leader.on_trips_read()
        self._recovery.forget()

    # --- questions of the interceptors

    def selects(self, group: str) -> bool:
        """Whether `[share_groups] groups` selects the group."""
        return len(group) <= MAX_GROUP_NAME and self._config.share_groups.groups.matches(group)

    def state(self, group: str) -> ShareGroupState:
        return self._states.of(group)

    def listed_groups(self) -> Iterable[str]:
        """The groups that have configs of Headgate or parked dead letters."""
        known = dict.fromkeys((*self._states.groups(), *self._spool_index.groups()))
        return (one for one in known if self._states.of(one).values or self.parked_counts(one))

    def parked_counts(self, group: str) -> Mapping[str, Mapping[str, int]]:
        """The parked dead letters of the group: their number by topic and reason."""
        return self._spool_index.parked_counts(group)

    def may_be_refused(self, group: str) -> bool:
        """Whether `start_refusal` has to be asked; for most groups it has not."""
        return self.is_ready and self._group_start.may_be_refused(group)

    async def start_refusal(self, group: str) -> StartRefusal | None:
        """Why the members of the group may not join now; None when they may."""
        return await self._group_start.refusal(group)

    def manages(self, group: str) -> bool:
        """Whether the group is selected and has a config of Headgate, a pause or a trip."""
        return self._states.of(group).is_managed and self.selects(group)

    def manages_name(self, name: bytes) -> bool:
        """`manages` for a name as it is encoded in a request."""
        return name in self._managed

    def is_paused(self, group: str) -> bool:
        """Whether the group is paused; none is where pausing is switched off, whatever its state is."""
        return self.rules.pause_enable and self._states.of(group).is_paused

    async def wait_until_resumed(self, group: str, seconds: float, outcome: T) -> T:
        """Returns `outcome` when the group is not paused any more, or after these seconds."""
        if self.is_paused(group):
            event = self._resumed.setdefault(group, asyncio.Event())
            try:
                async with asyncio.timeout(seconds):
                    await event.wait()
            except TimeoutError:
                pass
        return outcome

    def opening_wait_s(self, share: ShareRequest) -> float:
        """A fetch may wait as long as at the broker, and a request with REJECTs as long as for dead letters."""
        wait_s = share.max_wait_ms / 1000
        if any(AckType.REJECT in batch.types for one in share.acks for batch in one.batches):
            wait_s = max(wait_s, MAX_HOLD_S)
        return min(wait_s, self._max_opening_s)

    def max_hold_s(self) -> float:
        return MAX_HOLD_S + self._max_opening_s

    # --- actions and views of operators

    async def set_configs(self, group: str, changes: Mapping[str, str | None], by: str) -> None:
        """Returns when the changes were read back; None restores a default."""
        await self._actions.set_configs(group, changes, by)

    async def pause(self, group: str, reason: str, by: str) -> None:
        await self._actions.pause(group, reason, by)

    async def resume(self, group: str, reason: str, by: str) -> None:
        await self._actions.resume(group, reason, by)

    def _open_or_raise(self) -> ShareGroupResources:
        if self._resources is None or not self._opened.is_set():
            raise ClusterError(f"share groups are not available: {self._problem}")
        return self._resources

    def status(self, group: str) -> BreakerStatus:
        state = self._states.of(group)
        settings = state.settings
        delivered, dlq_written = self._breakers.totals(group, self._clock.monotonic())
        total = delivered + dlq_written
        trip = state.trip if state.is_tripped and self.rules.pause_enable else None
        spooled = self._spool_index.totals(group) if self._mover.is_replayed else None
        return BreakerStatus(
            group=group,
            # Without the pause a breaker has no effect, and records flow whatever the state is.
            enabled=settings.breaker_enable and self.rules.pause_enable,
            paused=self.is_paused(group),
            pause_reasons=state.pause_reasons if self.rules.pause_enable else (),
            generation=state.generation,
            window_ms=settings.window_ms,
            delivered=delivered,
            dlq_written=dlq_written,
            dlq_rate=dlq_written / total if total else 0.0,
            threshold_percent=settings.threshold_percent,
            min_messages=settings.min_messages,
            auto_resume_at=None if trip is None else trip.resume_at,
            last_resume=self._actions.last_resume(group),
            dlq_topic=settings.dlq_topic,
            limit=self._limits.effective(state),
            limit_unprotected=self._limits.is_unprotected(group, state),
            spooled=None if spooled is None else spooled.dead_letters,
            oldest_spooled_at=None if spooled is None else spooled.oldest_at,
        )
