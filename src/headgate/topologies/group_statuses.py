"""The status of each group's description in this worker, for `headgate topology status`.

The back-off windows and the last pushes are the worker's own and in memory only. A group's members are connected to the
port of its coordinator, which belongs to one worker, and so does the describe that asks for the status; the members of
other gateways are in the windows of those.
"""

from collections import OrderedDict
from typing import Final

from headgate.base.clock import Clock
from headgate.topologies.model.group_state import NONE, UNCERTAIN
from headgate.topologies.model.group_status import BackoffStatus, DescriptionStatus, LastPush, version_text
from headgate.topologies.model.push_gate import CLASSIC_JOIN_EPOCH, Push
from headgate.topologies.service import MAX_NAME, TopologyService

# An entry has two names of at most `MAX_NAME` characters.
_MAX_PUSHES: Final = 10_000


class GroupStatuses:
    """Builds the statuses, and keeps the last push of each group; `clock` is the service's."""

    def __init__(
        self, service: TopologyService, clock: Clock, *, worker: int = 0, max_pushes: int = _MAX_PUSHES
    ) -> None:
        self._service = service
        self._clock = clock
        self._worker = worker
        self._max_pushes = max_pushes
        self._pushes: OrderedDict[str, LastPush] = OrderedDict()  # oldest first

    def record_push(self, push: Push, error_code: int) -> None:
        """A push of a member of the group got its response."""
        self._pushes[push.group] = LastPush(
            at=self._clock.epoch_ms(),
            member=push.member[:MAX_NAME],
            epoch=push.topology_epoch,
            error_code=error_code,
        )
        self._pushes.move_to_end(push.group)
        if len(self._pushes) > self._max_pushes:
            self._pushes.popitem(last=False)

    def status(self, group: str) -> DescriptionStatus:
        state = self._service.groups.state(group)
        stored = state.stored
        return DescriptionStatus(
            selected=self._service.has_store and self._service.is_selected(group),
            available=self._service.is_ready,
            version=None if stored is None else version_text(stored.incarnation, stored.epoch, stored.hash),
            pushed_by=None if stored is None else stored.member,
            unconfirmed=state.stored_epoch == UNCERTAIN,
            failed_epoch=None if state.failed_epoch == NONE else state.failed_epoch,
            backoff=self._backoff(group),
            last_push=self._pushes.get(group),
            worker=self._worker,
        )

    def _backoff(self, group: str) -> BackoffStatus | None:
        window = self._service.groups.backoff.window(group)
        if window is None:
            return None
        left_s = window.until - self._clock.monotonic()
        return BackoffStatus(
            epoch=None if window.epoch == CLASSIC_JOIN_EPOCH else window.epoch,
            active=left_s > 0,
            until=self._clock.epoch_ms() + round(left_s * 1000),
            attempts=window.attempts + 1,
        )
