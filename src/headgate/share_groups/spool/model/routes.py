"""Decides which dead letters of a worker go to the spool instead of their topic.

A dead letter follows the earlier ones of its lane through the spool, so that they stay in order. A topic that failed is
not tried again while dead letters that this worker spooled for it are outstanding: when the leader has moved them, the
topic accepts dead letters again. Without any such dead letter one write is tried each second.

Records that are rejected all the time would keep their lane in the spool for ever. So, while the leader moves the last
dead letters of a lane, the next one waits a moment until there are none.

The index follows the spool a moment later than this worker writes it, so its own writes count until they were read.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final, TypeVar

from headgate.share_groups.spool.model.records import MAX_GROUP_SPOOL_BYTES, SpooledDeadLetter, SpoolLane, SpoolView

PROBE_S: Final = 1.0
MAX_UNREAD: Final = 100_000
_MAX_TOPICS: Final = 1_000
_FEW_DEAD_LETTERS: Final = 200  # which the leader moves in a moment
_MAX_LANES: Final = 10_000  # of a topic: enough of them to know that it is failing
_GROUP_FULL: Final = f"the spool holds {MAX_GROUP_SPOOL_BYTES} bytes of this group: no more are accepted"
_NOT_FOLLOWED: Final = f"{MAX_UNREAD} dead letters in the spool were not read back: no more are accepted"

K = TypeVar("K")


@dataclass(slots=True)
class _FailingTopic:
    """`lanes` have dead letters that this worker spooled for the topic since it failed."""

    at: float
    lanes: dict[SpoolLane, None] = field(default_factory=dict)


class SpoolRoutes:
    """Used on one event loop; times are of a monotonic clock, in seconds."""

    def __init__(self, view: SpoolView) -> None:
        self._view = view
        self._failing: dict[str, _FailingTopic] = {}
        self._writing: Counter[SpoolLane] = Counter()  # dead letters whose write to the spool has not ended
        self._unread: dict[int, deque[tuple[int, SpoolLane, int]]] = {}  # offset, lane, size; by partition of the spool
        self._unread_lanes: Counter[SpoolLane] = Counter()
        self._unread_dead_letters = 0
        self._times_cleared = 0
        self._waited: dict[SpoolLane, int] = {}  # how many dead letters of the lane had been removed
        self._own_bytes: Counter[str] = Counter()  # of both, by group

    # --- topics

    def is_failing(self, topic: str) -> bool:
        failing = self._failing.get(topic)
        if failing is None:
            return False
        if failing.lanes:
            while failing.lanes and self._accepts(lane := next(iter(failing.lanes))):
                del failing.lanes[lane]
            if not failing.lanes:  # the leader has moved them to their topic
                del self._failing[topic]
        return topic in self._failing

    def _accepts(self, lane: SpoolLane) -> bool:
        """Whether the leader moves, or has moved, the dead letters of this lane to their topic."""
        return not self.has_dead_letters(lane) or self.is_draining(lane)

    def may_try(self, topic: str, now: float) -> bool:
        """Whether to write to the topic: it is not failing, or this is the one write of a second that probes it."""
        if not self.is_failing(topic):
            return True
        failing = self._failing[topic]
        if failing.lanes or now - failing.at < PROBE_S:
            return False
        failing.at = now
        return True

    def mark_failing(self, topic: str, now: float) -> bool:
        """A write to this topic failed, or was not answered in time; returns whether that is new."""
        failing = self._failing.get(topic)
        if failing is not None:
            failing.at = now
            return False
        if len(self._failing) >= _MAX_TOPICS:
            del self._failing[next(iter(self._failing))]
        self._failing[topic] = _FailingTopic(now)
        return True

    def mark_healthy(self, topic: str) -> None:
        """A write to this topic succeeded."""
        self._failing.pop(topic, None)

    # --- dead letters in the spool

    def refusal(self, dead_letter: SpooledDeadLetter) -> str | None:
        """Why the spool takes no further dead letter of this group; None when it does."""
        self._read_back()
        group = dead_letter.group
        if self._view.group_bytes(group) + self._own_bytes[group] + dead_letter.size > MAX_GROUP_SPOOL_BYTES:
            return _GROUP_FULL
        return _NOT_FOLLOWED if self._unread_dead_letters >= MAX_UNREAD else None

    def begin(self, dead_letter: SpooledDeadLetter) -> None:
        """A write to the spool begins."""
        self._writing[dead_letter.lane] += 1
        self._own_bytes[dead_letter.group] += dead_letter.size

    def confirm(self, dead_letter: SpooledDeadLetter, partition: int, offset: int) -> None:
        """The dead letter is in the spool; this can come before or after `end`."""
        self._unread.setdefault(partition, deque()).append((offset, dead_letter.lane, dead_letter.size))
        self._unread_lanes[dead_letter.lane] += 1
        self._unread_dead_letters += 1
        self._own_bytes[dead_letter.group] += dead_letter.size
        failing = self._failing.get(dead_letter.target)
        if failing is not None and dead_letter.parked is None and len(failing.lanes) < _MAX_LANES:
            failing.lanes[dead_letter.lane] = None

    def end(self, dead_letter: SpooledDeadLetter) -> None:
        """The write to the spool ended, whatever its outcome."""
        _subtract(self._writing, dead_letter.lane, 1)
        _subtract(self._own_bytes, dead_letter.group, dead_letter.size)

    def has_dead_letters(self, lane: SpoolLane) -> bool:
        """Whether the lane has outstanding dead letters, as far as this worker knows."""
        self._read_back()
        return lane in self._writing or lane in self._unread_lanes or self._view.has_dead_letters(lane)

    def is_draining(self, lane: SpoolLane) -> bool:
        """Whether the leader is moving the last dead letters of the lane, as far as is known."""
        dead_letters, removed = self._view.lane_progress(lane)
        return dead_letters <= _FEW_DEAD_LETTERS and removed not in (0, self._waited.get(lane))

    def stop_waiting(self, lane: SpoolLane) -> None:
        """The lane still has dead letters: it is not waited for until more of them are moved."""
        _, removed = self._view.lane_progress(lane)
        self._waited.pop(lane, None)
        if removed:
            self._waited[lane] = removed
        if len(self._waited) > _MAX_LANES:
            del self._waited[next(iter(self._waited))]

    def _read_back(self) -> None:
        is_cleared = self._view.times_cleared != self._times_cleared  # those that are not lost are read again
        self._times_cleared = self._view.times_cleared
        for partition, unread in self._unread.items():
            while unread and (is_cleared or self._view.has_read(partition, unread[0][0])):
                _, lane, size = unread.popleft()
                self._unread_dead_letters -= 1
                _subtract(self._unread_lanes, lane, 1)
                _subtract(self._own_bytes, lane.group, size)


def _subtract(counter: "Counter[K]", key: K, number: int) -> None:
    counter[key] -= number
    if counter[key] <= 0:
        del counter[key]
