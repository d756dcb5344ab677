"""Writes `topology_mismatch` events to `headgate.events`: members of one Streams group run different topologies.

One event when a mismatch begins or becomes another one, and one when it ends; never one for each heartbeat. Nothing
here costs a member its heartbeat or delays it: what happens is noted, and a task writes. An event that cannot be
written, or that comes after too many others of its group, is kept and tried again, the last of each group only.
"""

import asyncio
from collections import OrderedDict
from typing import Final
from uuid import uuid4

import structlog

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.facts import EventHappened, JsonText
from headgate.proxy.features import Samples
from headgate.proxy.interceptor import Session
from headgate.topologies.model.push_gate import HeartbeatResult, MemberHeartbeat
from headgate.topologies.model.push_rate import PushRate
from headgate.topologies.model.topology_mismatches import (
    Mismatch,
    MismatchChange,
    MismatchSide,
    SeenMember,
    TopologyMismatches,
)
from headgate.topologies.older_clients.assignment_topology import MemberTopology
from headgate.topologies.service import MAX_NAME, TopologyService

log = structlog.get_logger()

APPLICATION: Final = "application"  # the subject kind of these events
_EVENT: Final = "topology_mismatch"
_TICK_S: Final = 5.0
_MAX_WAITING: Final = 1_000
# So that an event has less than 1 MiB, whatever the names are: topologies, and characters of a name.
MAX_TOPOLOGIES: Final = 10
MAX_NAME_CHARACTERS: Final = 200


class MismatchReporter:
    """One for each worker; `run` writes what the other methods left."""

    def __init__(self, service: TopologyService, *, clock: Clock | None = None) -> None:
        self._service = service
        self._clock = clock or SystemClock()
        self._throttle = LogThrottle(self._clock.monotonic)
        self._mismatches = TopologyMismatches()
        self._rate = PushRate()
        self._open: OrderedDict[str, tuple[str, int]] = OrderedDict()  # the id of a group's mismatch, and since when
        self._waiting: OrderedDict[str, EventHappened] = OrderedDict()
        self._noted = asyncio.Event()

    # --- what happens

    def on_join(
        self, session: Session, heartbeat: MemberHeartbeat, joined: MemberTopology, result: HeartbeatResult
    ) -> None:
        """The broker responded to a heartbeat with a topology; an internal error costs no member its response."""
        try:
            if result.error_code == 0 or result.is_topology_refused:
                self._note_join(session, heartbeat, joined, is_refused=result.is_topology_refused)
        except Exception:
            if self._throttle.allows("failed", ""):
                log.exception("topology of a member was not recorded, heartbeat response sent", group=heartbeat.group)

    def _note_join(
        self, session: Session, heartbeat: MemberHeartbeat, joined: MemberTopology, *, is_refused: bool
    ) -> None:
        group, member, process = heartbeat.group, heartbeat.member, heartbeat.process
        host = joined.host or session.peer
        names = (member, process or "", host)
        if not self._service.has_store or not self._service.is_selected(group) or max(map(len, names)) > MAX_NAME:
            return
        seen = SeenMember(
            member=member,
            process=process,
            host=host,
            connection=session.number,
            fingerprint=joined.fingerprint,
            is_refused=is_refused,
        )
        self._mismatches.on_join(group, seen, now=self._clock.monotonic())
        self._noted.set()

    def on_leave(self, heartbeat: MemberHeartbeat) -> None:
        self._mismatches.on_leave(heartbeat.group, heartbeat.member)
        self._noted.set()

    def on_pushed(self, group: str, member: str, content_hash: str) -> None:
        """A member pushed this description, and it is stored."""
        self._mismatches.on_push(group, member, content_hash)
        self._noted.set()

    def on_close(self, session: Session) -> None:
        self._mismatches.close_connection(session.number, now=self._clock.monotonic())

    def samples(self) -> Samples:
        counts = self._mismatches.open_counts
        return {("headgate_topologies_mismatched_groups", (str(kind),)): count for kind, count in counts.items()}

    # --- writing

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_TICK_S):
                    await self._noted.wait()
            except TimeoutError:
                pass
            self._noted.clear()
            await self.write_changes()

    async def write_changes(self) -> None:
        """Write the events that are due, if the topics were read."""
        for change in self._mismatches.changes(now=self._clock.monotonic()):
            self._waiting[change.group] = self._event(change)
            self._waiting.move_to_end(change.group)
            if len(self._waiting) > _MAX_WAITING:
                self._waiting.popitem(last=False)
        resources = self._service.resources
        if resources is None or resources.write_event is None:
            return
        for group, event in list(self._waiting.items()):
            if not self._rate.take(group, self._clock.monotonic()):
                continue
            try:
                await resources.write_event(event)
            except ClusterError as problem:  # tried again at the next tick
                if self._throttle.allows("not written", ""):
                    log.warning("topology mismatch event was not written", group=group, problem=str(problem))
                return
            if self._waiting.get(group) is event:
                del self._waiting[group]

    def _event(self, change: MismatchChange) -> EventHappened:
        at, group, mismatch = self._clock.epoch_ms(), change.group, change.mismatch
        number, since = self._open.pop(group, (uuid4().hex, at))
        if mismatch is None:
            detail: dict[str, object] = {"state": "ended", "mismatch": number, "since": since}
            log.info("members of a Streams group run the same topology again", group=group)
        else:
            self._open[group] = number, since
            detail = {"state": "open", "mismatch": number, "since": since, **detail_of(mismatch)}
            if self._throttle.allows("mismatch", group):
                log.warning("members of a Streams group run different topologies", group=group, kind=str(mismatch.kind))
        return EventHappened(
            at=at,
            subject_kind=APPLICATION,
            subject=group,
            id=uuid4().hex,
            event=_EVENT,
            by=None,
            detail=JsonText.of(detail),
        )


def detail_of(mismatch: Mismatch) -> dict[str, object]:
    return {
        "kind": str(mismatch.kind),
        "topology_count": len(mismatch.sides),
        "topologies": [_side(side) for side in mismatch.sides[:MAX_TOPOLOGIES]],
    }


def _side(side: MismatchSide) -> dict[str, object]:
    members = [
        {"member": _short(seen.member), "process": _short(seen.process), "host": _short(seen.host)}
        for seen in side.members
    ]
    return {
        "fingerprint": side.fingerprint,
        "refused": side.is_refused,
        "member_count": side.count,
        "members": members,
    }


def _short(name: str | None) -> str | None:
    return None if name is None else name[:MAX_NAME_CHARACTERS]
