"""The circuit breaker of KIP-1316: a rolling window of dead letters for each group, evaluated by the leader.

`dlq_written / (delivered + dlq_written)` is compared with the threshold at the end of each one-second bucket, in whole
numbers. Seconds are those of the leader's monotonic clock at which it read the counts. Nothing here pauses a group: the
totals of a window over its threshold are returned at the end of every bucket until the window is reset.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import floor

# A leader that was delayed evaluates this many ends of buckets one by one, and no older ones.
CATCH_UP_S = 60
MAX_GROUPS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    threshold_percent: int
    window_ms: int
    min_messages: int

    @property
    def width_s(self) -> int:
        """The window in buckets; a fraction of a second counts as a whole bucket."""
        return -(-self.window_ms // 1000)

    def trips(self, delivered: int, dlq_written: int) -> bool:
        total = delivered + dlq_written
        return total >= max(self.min_messages, 1) and 100 * dlq_written >= self.threshold_percent * total


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTotals:
    """The counts of a window over its threshold."""

    delivered: int
    dlq_written: int
    threshold_percent: int
    window_ms: int


@dataclass(slots=True)
class _Bucket:
    second: int
    delivered: int = 0
    dlq_written: int = 0


class BreakerWindow:
    """The window of one group. A bucket waits until its end is evaluated, then counts until it leaves the window."""

    __slots__ = ("_delivered", "_dlq_written", "_evaluated", "_inside", "_waiting", "_width_s")

    def __init__(self, window_ms: int) -> None:
        self._width_s = -(-window_ms // 1000)
        self.reset()

    def reset(self) -> None:
        self._waiting: deque[_Bucket] = deque()
        self._inside: deque[_Bucket] = deque()
        self._delivered = 0
        self._dlq_written = 0
        self._evaluated: int | None = None

    @property
    def is_empty(self) -> bool:
        return not self._waiting and not self._inside

    def count(self, now: float, delivered: int, dlq_written: int) -> None:
        second = floor(now)
        if self._evaluated is None:
            self._evaluated = second - 1
        elif second <= self._evaluated:  # the end of that bucket was evaluated: count it in the open one
            second = self._evaluated + 1
        if self._waiting and self._waiting[-1].second >= second:
            bucket = self._waiting[-1]
        else:
            bucket = _Bucket(second)
            self._waiting.append(bucket)
            if len(self._waiting) > CATCH_UP_S:
                self._advance(self._waiting[0].second)
        bucket.delivered += delivered
        bucket.dlq_written += dlq_written

    def totals(self, now: float) -> tuple[int, int]:
        """Delivered and dead-lettered records of the window that ends with the current bucket."""
        begin = floor(now) - self._width_s
        delivered, dlq_written = self._delivered, self._dlq_written
        for bucket in self._inside:
            if bucket.second > begin:
                break
            delivered -= bucket.delivered
            dlq_written -= bucket.dlq_written
        for bucket in self._waiting:
            if bucket.second > begin:
                delivered += bucket.delivered
                dlq_written += bucket.dlq_written
        return delivered, dlq_written

    def evaluate(self, now: float, rules: BreakerRules | None) -> WindowTotals | None:
        """The totals at the first end of a bucket since the last call that trips; without rules nothing trips."""
        ended = floor(now) - 1
        if rules is not None:
            self._width_s = rules.width_s
        if self._evaluated is None:
            return None
        totals = None
        for second in range(max(self._evaluated + 1, ended - CATCH_UP_S + 1), ended + 1):
            self._advance(second)
            if totals is None and rules is not None and rules.trips(self._delivered, self._dlq_written):
                totals = WindowTotals(
                    delivered=self._delivered,
                    dlq_written=self._dlq_written,
                    threshold_percent=rules.threshold_percent,
                    window_ms=rules.window_ms,
                )
        return totals

    def _advance(self, second: int) -> None:
        """Move the window so that it ends with this second."""
        while self._waiting and self._waiting[0].second <= second:
            bucket = self._waiting.popleft()
            self._inside.append(bucket)
            self._delivered += bucket.delivered
            self._dlq_written += bucket.dlq_written
        while self._inside and self._inside[0].second <= second - self._width_s:
            bucket = self._inside.popleft()
            self._delivered -= bucket.delivered
            self._dlq_written -= bucket.dlq_written
        self._evaluated = second if self._evaluated is None else max(self._evaluated, second)


class Breakers:
    """The windows of all groups, and the number of records that were left out of them, by reason."""

    __slots__ = ("_max", "_windows", "left_out", "old_generation", "too_old")

    def __init__(self, *, max_groups: int = MAX_GROUPS) -> None:
        self._max = max_groups
        self._windows: dict[str, BreakerWindow] = {}
        self.old_generation = 0
        self.too_old = 0
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._windows)

    def ignored(self) -> dict[str, int]:
        """Records that were left out of all windows, by reason."""
        return {"old_generation": self.old_generation, "too_old": self.too_old, "no_room": self.left_out}

    def count(
        self,
        group: str,
        now: float,
        *,
        generation: int,
        current_generation: int,
        age_ms: int,
        window_ms: int,
        delivered: int,
        dlq_written: int,
    ) -> None:
        """Count the records of one generation that a worker counted `age_ms` ago."""
        records = delivered + dlq_written
        if records == 0:
            return
        if generation < current_generation:
            self.old_generation += records
            return
        if age_ms > window_ms:
            self.too_old += records
            return
        window = self._windows.get(group)
        if window is None:
            if len(self._windows) >= self._max:
                self.left_out += records
                return
            window = self._windows[group] = BreakerWindow(window_ms)
        window.count(now, delivered, dlq_written)

    def totals(self, group: str, now: float) -> tuple[int, int]:
        window = self._windows.get(group)
        return (0, 0) if window is None else window.totals(now)

    def evaluate(self, now: float, rules_of: Callable[[str], BreakerRules | None]) -> list[tuple[str, WindowTotals]]:
        """The groups to pause; `rules_of` returns None for a group that is not evaluated now."""
        tripped = []
        for group, window in list(self._windows.items()):
            totals = window.evaluate(now, rules_of(group))
            if totals is not None:
                tripped.append((group, totals))
            elif window.is_empty:
                del self._windows[group]
        return tripped

    def reset(self, group: str) -> None:
        """Empty the group's window, after a trip or a resume."""
        self._windows.pop(group, None)

    def reset_all(self) -> None:
        """Empty all windows: a new leader starts with empty ones (KIP-1316, open question 1)."""
        self._windows.clear()
