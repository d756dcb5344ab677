"""Records partial descriptions of applications whose members do not push: from what they send when they join.

| a join of | is recorded |
|---|---|
| StreamsGroupHeartbeat version 0 | at once |
| version 1 | after `GRACE_S`, unless a description was pushed by then |

Invariants: nothing here costs a member its heartbeat or delays it. A partial description is written only on change, and
never while a pushed description of the group is stored; no describe shows it, because the store `kafka:` reads only
pushed ones as current. One task writes, one group after the other. With another store nothing is recorded, as nothing
that members push is then in `headgate.topologies`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import HeadgateError
from headgate.base.log_throttle import LogThrottle
from headgate.facts import TopologyDescribed
from headgate.facts.topology import Description, content_hash
from headgate.kafka.group_admin import GroupOutline
from headgate.plugin import PermanentFailure, TransientFailure
from headgate.topologies.model.push_gate import FIRST_VERSION, HeartbeatResult, MemberHeartbeat
from headgate.topologies.model.push_rate import PushRate
from headgate.topologies.older_clients.assignment_topology import ASSIGNMENT, MemberTopology, partial_description
from headgate.topologies.service import MAX_NAME, TopologyService
from headgate.topologies.stores.kafka_store import KafkaStore
from headgate.wire.errors import ErrorCode

log = structlog.get_logger()

GRACE_S: Final = 60.0  # a member is asked at its join, and again after the shortest back-off window of 36 s at most
RETRY_S: Final = 30.0
MAX_BYTES: Final = 1024 * 1024  # of the request; a thousand sub-topologies with long names have half of it
MAX_WAITING_BYTES: Final = 16 * MAX_BYTES
_MAX_REMEMBERED: Final = 50_000
_TICK_S: Final = 5.0
_GROUPS_A_CYCLE: Final = 500
_BATCH: Final = 100

DescribeGroups = Callable[[Sequence[str]], Awaitable[Mapping[str, GroupOutline]]]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A partial description that is to be recorded at `due`; `fingerprint` is that of its source."""

    fingerprint: str
    epoch: int
    describe: Callable[[], Description]
    size: int
    due: float


class AssignmentRecorder:
    """One for each worker; `run` writes what `on_join` and `on_deleted` left."""

    def __init__(
        self, service: TopologyService, *, clock: Clock | None = None, groups_a_cycle: int = _GROUPS_A_CYCLE
    ) -> None:
        self._groups_a_cycle = groups_a_cycle
        self._service = service
        self._clock = clock or SystemClock()
        self._throttle = LogThrottle(self._clock.monotonic)
        self._rate = PushRate()
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()
        self.waiting_bytes = 0
        self._ended: OrderedDict[str, None] = OrderedDict()
        # The fingerprint that was last found to be recorded, with the group's incarnation then; the oldest first.
        self._recorded: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._not_found: set[str] = set()  # by the last cleanup that looked for them
        self._after: str | None = None  # the last group that the cleanup has looked at
        self._is_due = asyncio.Event()

    # --- what is to be written

    def on_join(self, heartbeat: MemberHeartbeat, joined: MemberTopology, result: HeartbeatResult) -> None:
        """The broker responded to a heartbeat with a topology; an internal error costs no member its response."""
        try:
            self._on_join(heartbeat, joined, result)
        except Exception:
            if self._throttle.allows("failed", ""):
                log.exception("topology of a member was not recorded, heartbeat response sent", group=heartbeat.group)

    def _on_join(self, heartbeat: MemberHeartbeat, joined: MemberTopology, result: HeartbeatResult) -> None:
        if result.error_code or result.is_stale or not heartbeat.is_join:
            return
        group, topology = heartbeat.group, joined.topology
        self.put(
            group,
            joined.fingerprint,
            epoch=joined.epoch,
            size=joined.size,
            describe=lambda: partial_description(topology, group),
            after_s=GRACE_S if heartbeat.api_version >= FIRST_VERSION else 0.0,
        )

    def put(
        self,
        group: str,
        fingerprint: str,
        *,
        epoch: int,
        size: int,
        describe: Callable[[], Description],
        after_s: float = 0.0,
    ) -> None:
        """Record the description of this group after some seconds, unless that is done or one was pushed."""
        service = self._service
        if not service.has_store or size > MAX_BYTES or epoch < 0 or not service.is_selected(group):
            return
        if service.is_ready:
            state = service.groups.state(group)
            if state.must_delete or self._recorded.get(group) == (fingerprint, state.incarnation):
                return
        due = self._clock.monotonic() + after_s
        before = self._pop(group)
        if before is not None and before.fingerprint == fingerprint:
            due = min(due, before.due)
        self._waiting[group] = _Waiting(fingerprint, epoch, describe, size, due)
        self.waiting_bytes += size
        while self.waiting_bytes > MAX_WAITING_BYTES:
            self._pop(next(iter(self._waiting)))
        if not after_s:
            self._is_due.set()

    def is_recorded(self, group: str) -> bool:
        """Whether this worker has recorded the group, or is about to."""
        return group in self._recorded or group in self._waiting

    def on_deleted(self, group: str) -> None:
        """The broker has deleted the group."""
        self._pop(group)
        self._end(group)

    def _end(self, group: str) -> None:
        if len(group) > MAX_NAME or not self._service.has_store:
            return
        self._recorded.pop(group, None)
        self._ended[group] = None
        if len(self._ended) > _MAX_REMEMBERED:
            self._ended.popitem(last=False)
        self._is_due.set()

    def _pop(self, group: str) -> _Waiting | None:
        found = self._waiting.pop(group, None)
        if found is not None:
            self.waiting_bytes -= found.size
        return found

    # --- writing

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_TICK_S):
                    await self._is_due.wait()
            except TimeoutError:
                pass
            await self.write_due()
            if self._is_due.is_set():  # the topics have not been read yet
                await asyncio.sleep(_TICK_S)

    async def write_due(self) -> None:
        """Write everything that is due, if the topics were read."""
        resources = self._service.resources
        if resources is None:
            return
        self._is_due.clear()
        store = resources.kafka_store
        if store is None:
            self._waiting.clear()
            self._ended.clear()
            self.waiting_bytes = 0
            return
        while self._ended:
            await self._write_end(store, self._ended.popitem(last=False)[0])
        now = self._clock.monotonic()
        for group in [group for group, waiting in self._waiting.items() if waiting.due <= now]:
            waiting = self._pop(group)
            if waiting is not None:
                await self._write(store, group, waiting)

    async def _write(self, store: KafkaStore, group: str, waiting: _Waiting) -> None:
        try:
            await self._write_if_changed(store, group, waiting)
        except (HeadgateError, PermanentFailure, TransientFailure) as failure:
            if self._throttle.allows("not recorded", group):
                log.warning("partial topology description not recorded", group=group, problem=str(failure))
            if not isinstance(failure, PermanentFailure) and group not in self._waiting:
                due = self._clock.monotonic() + RETRY_S
                self._waiting[group] = _Waiting(waiting.fingerprint, waiting.epoch, waiting.describe, waiting.size, due)
                self.waiting_bytes += waiting.size

    async def _write_if_changed(self, store: KafkaStore, group: str, waiting: _Waiting) -> None:
        description, hash_ = await asyncio.to_thread(_described, waiting.describe)
        async with self._service.lock(group):
            state = self._service.groups.state(group)
            if state.must_delete:  # a member has pushed
                return
            incarnation = state.incarnation
            if await store.newest_assignment(group) != (incarnation, waiting.epoch, hash_):
                if not self._rate.take(group, self._clock.monotonic()):
                    raise TransientFailure("it changes too often")
                await store.keep(
                    TopologyDescribed(
                        at=self._clock.epoch_ms(),
                        group=group,
                        incarnation=incarnation,
                        epoch=waiting.epoch,
                        hash=hash_,
                        provenance=ASSIGNMENT,
                        member=None,
                        process=None,
                        description=description,
                    )
                )
                if self._throttle.allows("recorded", group):
                    log.info("partial topology description recorded", group=group, epoch=waiting.epoch)
        self._recorded[group] = (waiting.fingerprint, incarnation)
        self._recorded.move_to_end(group)
        if len(self._recorded) > _MAX_REMEMBERED:
            self._recorded.popitem(last=False)

    async def _write_end(self, store: KafkaStore, group: str) -> None:
        try:
            async with self._service.lock(group):
                if not self._service.groups.state(group).must_delete:
                    await store.end_assignment(group)
        except (HeadgateError, TransientFailure) as failure:  # then the cleanup finds the group
            if self._throttle.allows("not ended", group):
                log.warning("partial topology description not ended", group=group, problem=str(failure))

    # --- the periodic cleanup

    async def clean_up(self, describe: DescribeGroups) -> None:
        """Look for some of the groups, and end the descriptions of those that were not found twice in a row."""
        resources = self._service.resources
        if resources is None or (store := resources.kafka_store) is None:
            return
        groups = await store.groups_with_assignments(after=self._after, limit=self._groups_a_cycle)
        self._after = groups[-1] if len(groups) == self._groups_a_cycle else None
        for start in range(0, len(groups), _BATCH):
            for outline in (await describe(groups[start : start + _BATCH])).values():
                self._on_cleanup_described(outline)
        await self.write_due()

    def _on_cleanup_described(self, outline: GroupOutline) -> None:
        group = outline.group
        if outline.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            self._not_found.discard(group)
        elif group in self._not_found:
            self._not_found.remove(group)
            self._end(group)
        elif len(self._not_found) < _MAX_REMEMBERED:
            self._not_found.add(group)


def _described(describe: Callable[[], Description]) -> tuple[Description, str]:
    description = describe()
    return description, content_hash(description)
