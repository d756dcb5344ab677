"""Whether a heartbeat response solicits a push, how often, and which pushes are rejected: KIP-1331 as shipped.

`solicitation` decides and changes nothing. Invariant: a caller that gets SOLICIT arms the group's back-off window with
`PushBackoff.arm_if_not_active` before anything else happens, and solicits only if that returns True; so of any number
of heartbeats one is solicited in a window.

`check_request` and `check_group` are the broker's checks of a push, in its order and words. READ on the group is
checked before them, by the broker itself, and the node types after them (`wire_descriptions.from_wire`). No rejected
push arms the back-off, or any client could silence a group.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from headgate.wire.errors import ErrorCode

FIRST_VERSION = 1
STALE_TOPOLOGY = 0

INITIAL_BACKOFF_S = 30.0
MAX_BACKOFF_S = 3600.0
JITTER = 0.2
# The epoch under which shipped brokers keep the window of failing deletes at a classic join: never a pushed epoch.
CLASSIC_JOIN_EPOCH = -2
# An entry takes about 250 bytes, its key not counted. Past the bound the entry that was armed longest ago is dropped;
# that costs one solicitation too early for its group, and a window that begins at 30 s again.
MAX_GROUPS = 50_000
# 2^7 x 30 s is over an hour: more attempts change nothing.
_ATTEMPTS_TO_MAX = 7


class Solicitation(StrEnum):
    """SOLICIT, or the reason why the member is not solicited; the values are labels of a metric.

    The order is the shipped broker's. NOT_SELECTED (the operator's patterns), CONFIRMED and ANOTHER_MEMBER (both about
    an unconfirmed description) are Headgate's own.
    """

    SOLICIT = "ask"
    OLD_VERSION = "old_version"
    NO_STORE = "no_store"
    NOT_SELECTED = "not_selected"
    LEAVING = "leaving"
    HEARTBEAT_FAILED = "heartbeat_failed"
    EPOCH_UNKNOWN = "epoch_unknown"
    STORED = "stored"
    FAILED = "failed"
    STALE = "stale_topology"
    CONFIRMED = "vouched"
    ANOTHER_MEMBER = "another_member"
    BACKING_OFF = "backing_off"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHeartbeat:
    """The fields of a StreamsGroupHeartbeat request that matter here, at the version that the client sent.

    `topology_epoch` is None when it carries no topology, and `process` likewise; clients send both when they join.
    """

    api_version: int
    group: str
    member: str
    member_epoch: int
    process: str | None = None
    topology_epoch: int | None = None

    @property
    def is_join(self) -> bool:
        return self.member_epoch == 0

    @property
    def is_leave(self) -> bool:
        """-1, or -2 for a static member that will be back."""
        return self.member_epoch < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult:
    """The fields of its response that matter here; `status_codes` are those of `Status`, empty when that is null.

    `is_topology_refused`: the group has another topology than the member, and the broker does not let it change.
    """

    error_code: int = 0
    status_codes: Sequence[int] = ()
    is_topology_refused: bool = False

    @property
    def is_stale(self) -> bool:
        return STALE_TOPOLOGY in self.status_codes


@dataclass(frozen=True, slots=True)
class BackoffWindow:
    """`attempts` counts the arms at this epoch before the last one; no solicitation goes out before `until`."""

    epoch: int
    attempts: int
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GateInputs:
    """The group, and this member in it, as the gate sees them.

    `stored_epoch` is -1 for none and -2 for uncertain or unconfirmed. `has_confirmed`: this member confirmed the stored
    description. `waits_for_new_member`: another member that is alive made it unconfirmed and has not pushed.
    """

    has_store: bool = True
    is_selected: bool = True
    current_epoch: int = -1
    stored_epoch: int = -1
    failed_epoch: int = -1
    has_confirmed: bool = False
    waits_for_new_member: bool = False
    window: BackoffWindow | None = None


def solicitation(heartbeat: MemberHeartbeat, result: HeartbeatResult, group: GateInputs, now: float) -> Solicitation:
    """SOLICIT or the first reason not to, in the broker's order."""
    if heartbeat.api_version < FIRST_VERSION:
        return Solicitation.OLD_VERSION
    if not group.has_store:
        return Solicitation.NO_STORE
    if not group.is_selected:
        return Solicitation.NOT_SELECTED
    if heartbeat.is_leave:
        return Solicitation.LEAVING
    if result.error_code != 0:
        return Solicitation.HEARTBEAT_FAILED
    if group.current_epoch < 0:
        return Solicitation.EPOCH_UNKNOWN
    if group.stored_epoch == group.current_epoch:
        return Solicitation.STORED
    if group.failed_epoch == group.current_epoch:
        return Solicitation.FAILED
    if result.is_stale:
        return Solicitation.STALE
    if group.has_confirmed:
        return Solicitation.CONFIRMED
    if group.waits_for_new_member:
        return Solicitation.ANOTHER_MEMBER
    if group.window is not None and group.window.epoch == group.current_epoch and now < group.window.until:
        return Solicitation.BACKING_OFF
    return Solicitation.SOLICIT


def jitter_factor(random: float) -> float:
    """From a random number between 0 and 1 to the factor that `PushBackoff` takes: 1 less or more `JITTER`."""
    return 1.0 - JITTER + 2.0 * JITTER * random


def backoff_s(attempts: int, jitter: float) -> float:
    """The length of a window; as shipped, jitter never makes it longer than the longest."""
    return min(min(INITIAL_BACKOFF_S * 2.0 ** min(attempts, _ATTEMPTS_TO_MAX), MAX_BACKOFF_S) * jitter, MAX_BACKOFF_S)


class _WindowEnds:
    """Counts the windows that have not ended, without looking at each: it is asked twice a second.

    They are counted by the second in which they end, of which there are as many as the longest window has.
    """

    __slots__ = ("_active", "_by_second", "_past")

    def __init__(self) -> None:
        self._by_second: Counter[int] = Counter()
        self._active = 0
        self._past = -math.inf

    def add(self, window: BackoffWindow, by: int) -> None:
        second = math.ceil(window.until)
        if window.epoch != CLASSIC_JOIN_EPOCH and second > self._past:
            self._by_second[second] += by
            self._active += by

    def count(self, now: float) -> int:
        for second in [one for one in self._by_second if one <= now]:
            self._active -= self._by_second.pop(second)
        self._past = max(self._past, now)
        return self._active


class PushBackoff:
    """The back-off windows of all groups of one worker: 30 s, doubling up to 1 h.

    As a broker's, they are in memory only. A window belongs to a group and a topology epoch; another epoch begins
    afresh. Times are seconds of the caller's clock.
    """

    __slots__ = ("_ends", "_max_groups", "_windows")

    def __init__(self, *, max_groups: int = MAX_GROUPS) -> None:
        self._max_groups = max_groups
        self._windows: OrderedDict[str, BackoffWindow] = OrderedDict()
        self._ends = _WindowEnds()

    def __len__(self) -> int:
        return len(self._windows)

    def window(self, group: str) -> BackoffWindow | None:
        return self._windows.get(group)

    def active_count(self, now: float) -> int:
        """The groups of which no member is solicited now, to the second."""
        return self._ends.count(now)

    def is_active(self, group: str, epoch: int, now: float) -> bool:
        """Whether a window of exactly this epoch has not ended."""
        window = self._windows.get(group)
        return window is not None and window.epoch == epoch and now < window.until

    def arm_if_not_active(self, group: str, epoch: int, now: float, jitter: float) -> bool:
        """True, and the window is armed, unless one of this epoch is active: then it stays as it is."""
        if self.is_active(group, epoch, now):
            return False
        self._arm(group, epoch, now, jitter)
        return True

    def arm_or_extend(self, group: str, epoch: int, now: float, jitter: float) -> None:
        """After a transient failure: the next longer window from now; nothing if the window is of a newer epoch."""
        window = self._windows.get(group)
        if window is None or window.epoch <= epoch:
            self._arm(group, epoch, now, jitter)

    def clear(self, group: str, epoch: int) -> None:
        """After a success or a permanent failure at this epoch; a late one leaves another epoch's window alone."""
        window = self._windows.get(group)
        if window is not None and window.epoch == epoch:
            self.clear_group(group)

    def clear_group(self, group: str) -> None:
        if (window := self._windows.pop(group, None)) is not None:
            self._ends.add(window, -1)

    def _arm(self, group: str, epoch: int, now: float, jitter: float) -> None:
        window = self._windows.get(group)
        attempts = window.attempts + 1 if window is not None and window.epoch == epoch else 0
        self.clear_group(group)  # the new one is the last
        self._windows[group] = armed = BackoffWindow(epoch, attempts, now + backoff_s(attempts, jitter))
        self._ends.add(armed, 1)
        if len(self._windows) > self._max_groups:
            self._ends.add(self._windows.popitem(last=False)[1], -1)


@dataclass(frozen=True, slots=True)
class PushRejection:
    """`text` is the ErrorMessage of the response, null if it is empty."""

    error_code: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    group: str
    member: str
    topology_epoch: int


def check_request(push: Push, *, has_store: bool) -> PushRejection | None:
    """The checks that need only the request."""
    if not has_store:
        text = "The broker has no streams group topology description plugin configured."
        return PushRejection(ErrorCode.UNSUPPORTED_VERSION, text)
    if not push.member:
        return PushRejection(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    if not push.group:
        return PushRejection(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    return None


def check_group(push: Push, *, is_found: bool, is_member: bool, current_epoch: int) -> PushRejection | None:
    """The checks against the group as its coordinator has it."""
    if not is_found:
        return PushRejection(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {push.group} not found.")
    if not is_member:
        return PushRejection(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {push.member} is not a member of group {push.group}."
        )
    if push.topology_epoch != current_epoch:
        text = (
            f"Topology epoch {push.topology_epoch} does not match the group's current topology epoch {current_epoch}."
        )
        return PushRejection(ErrorCode.INVALID_REQUEST, text)
    return None
