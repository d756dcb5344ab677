"""When a member of a streams group sends its topology description: the client side of KIP-1331.

No I/O and no clock. The caller reports heartbeat responses and results of pushes, asks for the request that is due,
and sends it to the group's coordinator. The rules are those of the KIP and of kafka-clients 4.4.
"""

import random
from collections.abc import Callable
from enum import Enum

from headgate.facts.topology import Description
from headgate.topologies.wire_descriptions import to_wire
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.streams import (
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

_JITTER = 0.2
_REDISCOVER = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class PushResult(Enum):
    """What a push has led to, and what the caller does next."""

    STORED = "stored"
    RETRY = "retry"  # the next request comes by itself, after the back-off
    FIND_COORDINATOR = "find coordinator"  # and then the next request comes
    REJOIN = "rejoin"  # the group does not know the member: its next heartbeat says so too
    REFUSED = "refused"  # log the message at WARN; the next request follows when a heartbeat asks again


class TopologyPush:
    """The pushes of one member.

    Without a `description`, which is what `topology.description.push.enabled=false` means, nothing is ever sent.
    """

    def __init__(
        self,
        group: str,
        description: Description | None,
        *,
        topology_epoch: int = 0,
        retry_backoff_s: float = 0.1,
        retry_backoff_max_s: float = 1.0,
        jitter: Callable[[], float] = lambda: random.uniform(1 - _JITTER, 1 + _JITTER),  # noqa: S311 - no secret
    ) -> None:
        self._group = group
        self._description = None if description is None else to_wire(description)
        self._topology_epoch = topology_epoch
        self._first_backoff_s = retry_backoff_s
        self._longest_backoff_s = retry_backoff_max_s
        self._jitter = jitter
        self._failures = 0
        self._not_before_s = float("-inf")
        self.is_required = False
        self.is_in_flight = False

    def on_heartbeat(self, response: StreamsGroupHeartbeatResponse) -> None:
        """Remember that the coordinator asks; a later heartbeat that does not ask takes nothing back."""
        if self._description is not None and not response.error_code and response.topology_description_required:
            self.is_required = True

    def next_request(
        self, now_s: float, *, member_id: str, has_coordinator: bool = True
    ) -> StreamsGroupTopologyDescriptionUpdateRequest | None:
        """The request to send now. One is in flight at a time: report what becomes of it."""
        due = self.is_required and not self.is_in_flight and now_s >= self._not_before_s
        if not due or self._description is None or not member_id or not has_coordinator:
            return None
        self.is_in_flight = True
        return StreamsGroupTopologyDescriptionUpdateRequest(
            group_id=self._group,
            member_id=member_id,
            topology_epoch=self._topology_epoch,
            topology_description=self._description,
        )

    def wait_s(self, now_s: float) -> float | None:
        """How long until `next_request` may have one; None while none is required or one is in flight."""
        if not self.is_required or self.is_in_flight:
            return None
        return max(0.0, self._not_before_s - now_s)

    def on_response(self, now_s: float, response: StreamsGroupTopologyDescriptionUpdateResponse) -> PushResult:
        code = response.error_code
        if code in _REDISCOVER or code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._failed(now_s)
        else:
            self._ended(now_s)
        self._not_before_s = max(self._not_before_s, now_s + response.throttle_time_ms / 1000)
        if code in _REDISCOVER:
            return PushResult.FIND_COORDINATOR
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return PushResult.RETRY
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            return PushResult.REJOIN
        return PushResult.REFUSED if code else PushResult.STORED

    def on_disconnect(self, now_s: float) -> PushResult:
        """No response: the connection ended, or the request timed out."""
        self._failed(now_s)
        return PushResult.FIND_COORDINATOR

    def on_unsupported(self, now_s: float) -> PushResult:
        """The coordinator has no such request, so it was not sent; it is not tried again before a heartbeat asks."""
        self._ended(now_s)
        return PushResult.REFUSED

    def _failed(self, now_s: float) -> None:
        self.is_in_flight = False
        self._not_before_s = now_s + self._backoff_s(self._failures)
        self._failures += 1

    def _ended(self, now_s: float) -> None:
        self.is_in_flight = False
        self.is_required = False
        self._failures = 0
        self._not_before_s = now_s + self._backoff_s(0)

    def _backoff_s(self, failures: int) -> float:
        grown = self._first_backoff_s * (1 << min(failures, 32))
        return min(grown * self._jitter(), self._longest_backoff_s)
