"""When too many of a share group's records become dead letters: KIP-1316's rolling window, judged by the leader.

One rule: `dlq_written / (delivered + dlq_written)` is judged at the end of each one-second bucket, in whole numbers.
Seconds are the leader's monotonic ones, at which it read what others counted. Nothing here pauses anything: a tally is
what a trip would say, and it says so again at every end of a bucket until the window is reset.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import floor

# Ends of buckets that are judged one by one when the leader was held up; of older ones nobody asks any more.
CATCH_UP_S = 60
MOST_GROUPS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    threshold_percent: int
    window_ms: int
    min_messages: int

    @property
    def width_s(self) -> int:
        """A window that is no whole number of seconds has the bucket in which it begins."""
        return -(-self.window_ms // 1000)

    def trips(self, delivered: int, dlq_written: int) -> bool:
        total = delivered + dlq_written
        return total >= max(self.min_messages, 1) and 100 * dlq_written >= self.threshold_percent * total


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The numbers of a window that trips."""

    delivered: int
    dlq_written: int
    threshold_percent: int
    window_ms: int

    @property
    def rate(self) -> float:
        """To be shown, never to be compared."""
        return self.dlq_written / (self.delivered + self.dlq_written)


@dataclass(slots=True)
class _Bucket:
    second: int
    delivered: int = 0
    dlq_written: int = 0


class Window:
    """One group's. A bucket waits until its end is judged, then counts until it leaves the window."""

    __slots__ = ("_delivered", "_dlq_written", "_inside", "_judged", "_waiting", "_width_s")

    def __init__(self, window_ms: int) -> None:
        self._width_s = -(-window_ms // 1000)
        self.reset()

    def reset(self) -> None:
        self._waiting: deque[_Bucket] = deque()
        self._inside: deque[_Bucket] = deque()
        self._delivered = 0
        self._dlq_written = 0
        self._judged: int | None = None

    @property
    def is_empty(self) -> bool:
        return not self._waiting and not self._inside

    def count(self, now: float, delivered: int, dlq_written: int) -> None:
        second = floor(now)
        if self._judged is None:
            self._judged = second - 1
        elif second <= self._judged:  # this end was judged: as late as it is, it belongs to the bucket that is open
            second = self._judged + 1
        if self._waiting and self._waiting[-1].second >= second:
            bucket = self._waiting[-1]
        else:
            bucket = _Bucket(second)
            self._waiting.append(bucket)
            if len(self._waiting) > CATCH_UP_S:
                self._step(self._waiting[0].second)
        bucket.delivered += delivered
        bucket.dlq_written += dlq_written

    def totals(self, now: float) -> tuple[int, int]:
        """Delivered and dead-lettered within the window that ends with the bucket of `now`, open as it is."""
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

    def judge(self, now: float, rules: BreakerRules | None) -> Tally | None:
        """The tally of the first bucket that ended since the last call and trips; without rules time only passes."""
        ended = floor(now) - 1
        if rules is not None:
            self._width_s = rules.width_s
        if self._judged is None:
            return None
        tally = None
        for second in range(max(self._judged + 1, ended - CATCH_UP_S + 1), ended + 1):
            self._step(second)
            if tally is None and rules is not None and rules.trips(self._delivered, self._dlq_written):
                tally = Tally(
                    delivered=self._delivered,
                    dlq_written=self._dlq_written,
                    threshold_percent=rules.threshold_percent,
                    window_ms=rules.window_ms,
                )
        return tally

    def _step(self, second: int) -> None:
        """A bucket has ended: the window is now the one that ends with it."""
        while self._waiting and self._waiting[0].second <= second:
            bucket = self._waiting.popleft()
            self._inside.append(bucket)
            self._delivered += bucket.delivered
            self._dlq_written += bucket.dlq_written
        while self._inside and self._inside[0].second <= second - self._width_s:
            bucket = self._inside.popleft()
            self._delivered -= bucket.delivered
            self._dlq_written -= bucket.dlq_written
        self._judged = second if self._judged is None else max(self._judged, second)


class Breakers:
    """The windows of all groups. What is not counted is counted here, in records, by why."""

    __slots__ = ("_most", "_windows", "left_out", "old_generation", "too_old")

    def __init__(self, *, most_groups: int = MOST_GROUPS) -> None:
        self._most = most_groups
        self._windows: dict[str, Window] = {}
        self.old_generation = 0
        self.too_old = 0
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._windows)

    def ignored(self) -> dict[str, int]:
        """Records that were in no window, by why."""
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
        """What another worker counted `age_ms` ago, of records that were acquired under this generation."""
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
            if len(self._windows) >= self._most:
                self.left_out += records
                return
            window = self._windows[group] = Window(window_ms)
        window.count(now, delivered, dlq_written)

    def totals(self, group: str, now: float) -> tuple[int, int]:
        window = self._windows.get(group)
        return (0, 0) if window is None else window.totals(now)

    def judge(self, now: float, rules_of: Callable[[str], BreakerRules | None]) -> list[tuple[str, Tally]]:
        """The groups that are to be paused; `rules_of` gives None for one that is not to be judged now."""
        tripped = []
        for group, window in list(self._windows.items()):
            tally = window.judge(now, rules_of(group))
            if tally is not None:
                tripped.append((group, tally))
            elif window.is_empty:
                del self._windows[group]
        return tripped

    def reset(self, group: str) -> None:
        """It tripped or was resumed: what was counted before says nothing about what comes."""
        self._windows.pop(group, None)

    def reset_all(self) -> None:
        """Another leader begins, with empty windows (KIP-1316, open question 1)."""
        self._windows.clear()
