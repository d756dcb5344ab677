"""The topologies of one worker: the state machine of `model`, the topics that feed it, and the store.

Invariant: the service never fails a client's request and never delays it beyond `call_timeout_ms`. Until the topics
were read to their ends no member is solicited, and pushes are answered with COORDINATOR_LOAD_IN_PROGRESS; if the topics
cannot be read, records flow all the same.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.base.tasks import TaskSet, retry, run_forever
from headgate.config.model import Config
from headgate.facts import TopologyEpochsSet
from headgate.facts.topology import Description
from headgate.kafka.group_admin import GroupOutline
from headgate.plugin import PushedTopology
from headgate.proxy.interceptor import Session
from headgate.topologies.model.group_state import PushOutcome, StoredVersion, StorePush
from headgate.topologies.model.push_gate import HeartbeatResult, MemberHeartbeat, Push, Solicitation, jitter_factor
from headgate.topologies.model.push_rate import PushRate
from headgate.topologies.model.streams_groups import ClassicJoin, StreamsGroups
from headgate.topologies.resources import TopologyResources
from headgate.topologies.store_calls import GroupLocks, SetResult, StoreFailure
from headgate.topologies.store_health import store_details
from headgate.topologies.stores.loading import bookkeeping_of
from headgate.topologies.streams_api import describe_group
from headgate.topologies.topology_metrics import TopologyMetrics

log = structlog.get_logger()

_RETRY_S: Final = 2.0
_SHUTDOWN_GRACE_S: Final = 2.0
# Joins before the topics were read: each may be of a new member, which makes what is stored unconfirmed.
_MAX_EARLY_JOINS: Final = 100_000
_EARLY_JOINS_AT_ONCE: Final = 200
_NO_CONNECTION: Final = 0
# Groups, members and processes with longer names are passed through and not recorded: Kafka's own have 40 characters.
MAX_NAME: Final = 1024
MAX_NAME_BYTES: Final = 4 * MAX_NAME + 8  # in UTF-8, with its size

T = TypeVar("T")
OpenResources = Callable[[StreamsGroups, AsyncExitStack], Awaitable[TopologyResources]]


@dataclass(frozen=True, slots=True)
class _EarlyJoin:
    at: float
    heartbeat: MemberHeartbeat
    result: HeartbeatResult


@dataclass(frozen=True, slots=True)
class HeartbeatHandled:
    """`solicit`: the response asks for the description. `write`: it waits until this task has written "unconfirmed"."""

    solicit: bool
    write: "asyncio.Task[None] | None" = None


_NOT_SOLICITED: Final = HeartbeatHandled(solicit=False)


class TopologyService:
    """Created on the event loop; `async with service.running()` opens its resources in the background by `opening`."""

    def __init__(
        self,
        config: Config,
        opening: OpenResources,
        *,
        clock: Clock | None = None,
        random_number: Callable[[], float] = random.random,
        retry_s: float = _RETRY_S,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._random_number = random_number
        self.groups = StreamsGroups(bookkeeping_of(config.topologies.store))
        self._opening, self._retry_s = opening, retry_s
        self._timeout_s = config.topologies.call_timeout_ms / 1000
        self._resources: TopologyResources | None = None
        self._early_joins: OrderedDict[tuple[str, str], _EarlyJoin] = OrderedDict()  # the last of each member
        self._throttle = LogThrottle(self._clock.monotonic)
        self._locks = GroupLocks()
        self._push_rate = PushRate()
        self._tasks = TaskSet(self._on_failure)
        self.metrics = TopologyMetrics()
        self.has_store = config.topologies.store.scheme != "none"
        self.is_ready = False  # the topics were read, and the early joins were recorded
        self.problem: str | None = "not opened yet" if self.has_store else None

    def is_selected(self, group: str) -> bool:
        """Whether the operator selected this group; one with a longer name than Kafka's never is."""
        return len(group) <= MAX_NAME and self._config.topologies.groups.matches(group)

    def samples(self) -> Mapping[tuple[str, tuple[str, ...]], float]:
        store = None if self._resources is None else self._resources.kafka_store
        lost = 0 if store is None else store.lost_descriptions
        hanging = 0 if self._resources is None else self._resources.store.hanging
        return self.metrics.samples(
            ready=self.is_ready,
            groups=self.groups.counts(),
            backing_off=self.groups.backoff.active_count(self._clock.monotonic()),
            lost_descriptions=lost,
            hanging=hanging,
        )

    def problems(self) -> Mapping[str, str]:
        """For `/readyz`: a topic that lost records is being read again."""
        store = None if self._resources is None else self._resources.kafka_store
        if store is None or not store.is_reading_again:
            return {}
        return {"topologies": "their topic lost records and is read again: descriptions are not known yet"}

    def details(self) -> Mapping[str, str]:
        """For `/readyz`: the health of the store, without which clients are served all the same."""
        if not self.has_store:
            return {}
        return store_details(None if self._resources is None else self._resources.store, is_ready=self.is_ready)

    # --- opening and closing

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self.has_store:
                self.spawn(self._open(stack))
            try:
                yield
            finally:
                await self._tasks.cancel_all(grace_s=_SHUTDOWN_GRACE_S if self._locks else 0)
                self._resources, self.is_ready = None, False

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run it to its end, also when its caller stops waiting for it."""
        return self._tasks.spawn(work)

    def keep_running(self, work: Callable[[], Awaitable[None]]) -> None:
        """Start a loop that ends with the service; when it fails it is started again."""
        self.spawn(run_forever(work, pause_s=self._retry_s, on_failure=self._on_failure))

    def count_push(self, error_code: int) -> None:
        """Count a push by the error code of its response."""
        self.metrics.pushes[error_code] += 1

    def _on_failure(self, failure: BaseException) -> None:
        self.metrics.failures += 1
        log.error("topologies task failed", exc_info=failure)

    async def _open(self, stack: AsyncExitStack) -> None:
        """Open the resources, again and again until it succeeds; a problem is logged when it changes."""

        async def attempt() -> None:
            async with AsyncExitStack() as opened:
                self._resources = await self._opening(self.groups, opened)
                await self._record_early_joins()
                # Last, so that an attempt that fails closes its store before the next one makes another.
                stack.push_async_callback(opened.pop_all().aclose)

        await retry(attempt, pause_s=self._retry_s, on_problem=self._on_problem)
        log.info("topologies are available", store=self._config.topologies.store.scheme, groups=len(self.groups))

    def _on_problem(self, problem: str) -> None:
        self.problem = problem
        log.warning("topologies are not available, retrying", problem=problem)

    async def _record_early_joins(self) -> None:
        """Record the joins that came before the topics were read, some at a time; then the service is ready.

        They prove nothing: their connections may have closed since.
        """
        while self._early_joins:
            writes = []
            for member in list(self._early_joins)[:_EARLY_JOINS_AT_ONCE]:
                early = self._early_joins.pop(member)
                decision = self.groups.on_heartbeat(
                    _NO_CONNECTION, early.heartbeat, early.result, now=early.at, jitter=1.0, has_store=False
                )
                if decision.write is not None:
                    writes.append(self._begin_write(decision.write))
            if writes:
                await asyncio.wait(writes)
            await asyncio.sleep(0)
        self.is_ready, self.problem = True, None

    @property
    def resources(self) -> TopologyResources | None:
        """None until the topics were read."""
        return self._resources if self.is_ready else None

    def lock(self, group: str) -> AbstractAsyncContextManager[None]:
        """While it is held, no call of the store about this group runs; `ClusterError` when it is not free in time."""
        return self._locks.acquire(group, self._timeout_s)

    def _opened(self) -> TopologyResources:
        if self._resources is None:
            raise ClusterError("topologies are not available: " + (self.problem or "the gateway is shutting down"))
        return self._resources

    # --- writing epochs

    def _begin_write(self, epochs: TopologyEpochsSet) -> "asyncio.Task[None]":
        return self.spawn(self._write_and_log(epochs))

    async def _write_and_log(self, epochs: TopologyEpochsSet) -> None:
        try:
            await self._write(epochs)
        except ClusterError as problem:
            if self._throttle.allows("epochs", epochs.group):
                log.warning("topology epochs were not written", group=epochs.group, problem=str(problem))

    async def _write(self, epochs: TopologyEpochsSet | None) -> None:
        """Write epochs and return when they were read back; `ClusterError` when they may not have been written."""
        if epochs is None:
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._opened().write_epochs(epochs)
        except (ClusterError, TimeoutError) as failure:
            self.groups.on_write_failed(epochs.group)
            raise ClusterError(str(failure) or f"not read back within {self._timeout_s:g} s") from None

    # --- heartbeats

    def on_heartbeat(self, session: Session, heartbeat: MemberHeartbeat, result: HeartbeatResult) -> HeartbeatHandled:
        """Record a heartbeat and its response; an internal error never costs the member its heartbeat."""
        try:
            return self._handle_heartbeat(session, heartbeat, result)
        except Exception:
            self.metrics.gate_failures += 1
            if self.metrics.gate_failures == 1:
                log.exception("topology gate failed, heartbeat response sent unchanged", group=heartbeat.group)
            return _NOT_SOLICITED

    def _handle_heartbeat(
        self, session: Session, heartbeat: MemberHeartbeat, result: HeartbeatResult
    ) -> HeartbeatHandled:
        if max(len(heartbeat.group), len(heartbeat.member), len(heartbeat.process or "")) > MAX_NAME:
            return _NOT_SOLICITED
        now = self._clock.monotonic()
        if not self.is_ready:
            if heartbeat.is_join and result.error_code == 0 and self.has_store:
                self._early_joins[heartbeat.group, heartbeat.member] = _EarlyJoin(now, heartbeat, result)
                if len(self._early_joins) > _MAX_EARLY_JOINS:
                    self._early_joins.popitem(last=False)
            return _NOT_SOLICITED
        decision = self.groups.on_heartbeat(
            session.number,
            heartbeat,
            result,
            now=now,
            jitter=self._jitter(),
            is_selected=self.is_selected(heartbeat.group),
        )
        self.metrics.heartbeats[decision.solicitation] += 1
        write = None if decision.write is None else self._begin_write(decision.write)
        if decision.describe:
            self.spawn(self._describe(session, heartbeat.group))
        solicit = decision.solicitation is Solicitation.SOLICIT
        if solicit:
            epoch = self.groups.state(heartbeat.group).current_epoch
            log.info("topology description requested", group=heartbeat.group, member=heartbeat.member, epoch=epoch)
        elif write is None:
            return _NOT_SOLICITED
        return HeartbeatHandled(solicit, write if heartbeat.is_join else None)

    def _jitter(self) -> float:
        return jitter_factor(self._random_number())

    async def _describe(self, session: Session, group: str) -> None:
        """Find out the group's epoch on the member's own connection."""
        try:
            self.on_described(await describe_group(session, group))
        except ClusterError:
            return  # a later heartbeat tries again

    def on_close(self, session: Session) -> None:
        self.groups.members.close_connection(session.number)

    # --- pushes

    def is_proven(self, session: Session, push: Push) -> bool:
        """Whether a heartbeat on this connection proved that the member is in the group and its principal may READ."""
        return self.groups.members.is_proven(session.number, push.group, push.member, self._clock.monotonic())

    def current_epoch(self, group: str) -> int:
        return self.groups.state(group).current_epoch

    def on_described(self, group: GroupOutline) -> StoredVersion | None:
        """The broker described a group; the version to show, None for NOT_STORED."""
        return self.groups.on_described(
            group.group, error_code=group.error_code, topology_epoch=group.topology_epoch, members=group.member_ids
        )

    async def push(self, push: Push, description: Description, content_hash: str) -> StoreFailure | None:
        """Store a pushed description. It goes on if the client disconnects meanwhile."""
        return await asyncio.shield(self.spawn(self._push(push, description, content_hash)))

    async def _push(self, push: Push, description: Description, content_hash: str) -> StoreFailure | None:
        group, member, epoch = push.group, push.member, push.topology_epoch
        try:
            async with self._locks.acquire(group, self._timeout_s):
                now = self._clock.monotonic()
                if not self.groups.is_stored(group, epoch, content_hash) and not self._push_rate.take(group, now):
                    self.groups.backoff.arm_or_extend(group, epoch, now, self._jitter())
                    return StoreFailure("Descriptions of this group are replaced too often. Try again later.")
                plan = self.groups.begin_push(group, member, epoch, content_hash, now=now)
                if plan is None:
                    await self._write(self.groups.confirm_push(group, member, epoch, now=self._clock.monotonic()))
                    return None
                result = await self._set(plan, description)
                return await self._settle(plan, result)
        except ClusterError as problem:
            return StoreFailure(str(problem))

    async def _set(self, plan: StorePush, description: Description) -> SetResult:
        pushed = PushedTopology(
            group=plan.group,
            epoch=plan.epoch,
            description=description,
            incarnation=plan.incarnation,
            hash=plan.hash,
            member=plan.member,
            process=self.groups.members.process_of(plan.group, plan.member),
        )
        try:
            await self._write(plan.barrier)
            result = await self._opened().store.set(pushed)
        except ClusterError as problem:
            return SetResult(PushOutcome.TRANSIENT, str(problem))
        self.metrics.count_store_call("set", failed=result.outcome is not PushOutcome.STORED)
        return result

    async def _settle(self, plan: StorePush, result: SetResult) -> StoreFailure | None:
        """Write the outcome of a push; if that fails, the same push comes again and closes the gap."""
        outcome = result.outcome
        epochs = self.groups.settle_push(plan, outcome, now=self._clock.monotonic(), jitter=self._jitter())
        failure = None
        try:
            await self._write(epochs)
        except ClusterError as problem:
            failure = StoreFailure(str(problem))
        if outcome is PushOutcome.STORED:
            if self._throttle.allows("stored", plan.group):
                version = f"{plan.incarnation}/{plan.epoch}"
                log.info("topology description stored", group=plan.group, epoch=plan.epoch, version=version)
            return failure
        self._log_not_stored(plan.group, plan.epoch, outcome, result.text)
        return StoreFailure(result.text or outcome.value)

    async def reject_permanently(self, push: Push, text: str) -> StoreFailure:
        """A push that no store would accept has a permanent failure without a call of the store."""
        group, epoch = push.group, push.topology_epoch
        try:
            async with self._locks.acquire(group, self._timeout_s):
                now = self._clock.monotonic()
                await self._write(self.groups.refuse_push(group, push.member, epoch, now=now))
        except ClusterError as problem:
            return StoreFailure(str(problem))
        self._log_not_stored(group, epoch, PushOutcome.PERMANENT, text)
        return StoreFailure(text)

    def _log_not_stored(self, group: str, epoch: int, outcome: PushOutcome, reason: str | None) -> None:
        if self._throttle.allows("not stored", group):
            log.warning(
                "topology description not stored", group=group, epoch=epoch, outcome=outcome.value, reason=reason
            )

    # --- describes

    async def get(self, group: GroupOutline) -> Description | StoreFailure | None:
        """The description that a describe of this group without an error shows, None for NOT_STORED."""
        if not self.has_store or not self.is_selected(group.group):
            return None
        resources = self._resources
        if not self.is_ready or resources is None:
            return StoreFailure(self.problem or "the gateway is shutting down")
        version = self.on_described(group)
        if version is None:
            return None
        name, epoch = group.group, version.epoch
        found = await resources.store.get(name, epoch)
        self.metrics.count_store_call("get", failed=isinstance(found, StoreFailure))
        match found:
            case StoreFailure(text=text):
                if self._throttle.allows("cannot be read", name):
                    log.warning("topology description cannot be read", group=name, epoch=epoch, reason=text)
            case None:
                if self._throttle.allows("missing", name):
                    log.warning("topology description is missing from the store", group=name, epoch=epoch)
                if (epochs := self.groups.on_missing(name)) is not None:
                    self._begin_write(epochs)
        return found

    # --- deletions

    def is_known(self, group: str) -> bool:
        """Whether any state is kept of the group, such as a back-off window."""
        return self.groups.is_known(group)

    def must_delete(self, group: str) -> bool:
        """Whether the store has to delete a description before the group may be deleted."""
        return self.is_ready and self.groups.state(group).must_delete

    def is_stored_or_failed(self, group: str) -> bool:
        """`must_delete`, or the description failed permanently, so that the group's members are not asked again."""
        return self.is_ready and self.groups.state(group).is_stored_or_failed

    def may_be_stored(self, group: str) -> bool:
        """`must_delete`; while the topics have not been read, every group may have a stored description."""
        return self.must_delete(group) if self.is_ready else self.has_store and len(group) <= MAX_NAME

    def on_deleted(self, group: str) -> None:
        """The broker has deleted the group: a new one under its name begins afresh."""
        if self.must_delete(group):  # stored after the request was checked
            self.spawn(self._delete(group))
        elif self.is_known(group) and (epochs := self.groups.settle_deletion(group)) is not None:
            self._begin_write(epochs)

    async def delete(self, group: str) -> StoreFailure | None:
        """Delete a group's description; None: it is gone. It goes on if the client disconnects meanwhile."""
        return await asyncio.shield(self.spawn(self._delete(group)))

    async def disown(self, group: str) -> StoreFailure | None:
        """`delete` while another process has the store open: it is not shown and solicited again, which replaces it."""
        try:
            await self._write(self.groups.disown(group))
        except ClusterError as problem:
            return StoreFailure(str(problem))
        return None

    async def _delete(self, group: str) -> StoreFailure | None:
        if not self.is_ready:
            return StoreFailure("Topology descriptions are not available yet.")
        try:
            async with self._locks.acquire(group, self._timeout_s):
                failure = await self._delete_locked(group)
        except ClusterError as problem:
            failure = StoreFailure(str(problem))
        if failure is None:
            log.info("topology description deleted", group=group)
        elif self._throttle.allows("not deleted", group):
            log.warning("topology description not deleted", group=group, reason=failure.text)
        return failure

    async def _delete_locked(self, group: str) -> StoreFailure | None:
        plan = self.groups.begin_deletion(group)
        if plan is not None:
            await self._write(plan.barrier)
            failure = await self._opened().store.delete(group)
            self.metrics.count_store_call("delete", failed=failure is not None)
            if failure is not None:
                return failure
        await self._write(self.groups.settle_deletion(group))
        return None

    def classic_join(self, group: str) -> ClassicJoin:
        return self.groups.classic_join(group, now=self._clock.monotonic())

    def on_classic_join_failed(self, group: str) -> None:
        self.groups.on_classic_join_failed(group, now=self._clock.monotonic(), jitter=self._jitter())

    # --- the periodic cleanup

    def groups_to_clean_up(self) -> list[str]:
        """The groups that the cleanup describes."""
        return self.groups.groups_to_clean_up()

    async def on_cleanup_described(self, group: GroupOutline) -> None:
        """Delete the description of a group that is gone; a failure leaves it for the next cycle."""
        if self.groups.on_cleanup_described(
            group.group, error_code=group.error_code, topology_epoch=group.topology_epoch, members=group.member_ids
        ):
            self.metrics.cleanup_eligible += await self.delete(group.group) is None
