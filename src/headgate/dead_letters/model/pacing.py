"""How many records a replay may write now, so that its rate is the one that was asked for.

Allowances accrue with time. What a slow transaction did not use is made up for, up to a bound: a replay that was paused
or that the broker held up does not follow with a burst.
"""

from typing import Final

BATCH_S: Final = 0.2  # of records in one transaction, at a limited rate
_MOST_CARRIED_S: Final = 1.0


class Pacer:
    """`rate` is in records a second; None is as fast as possible. Times are seconds of a monotonic clock."""

    def __init__(self, rate: float | None, now: float, *, most: int) -> None:
        self._rate = rate
        self._most = most
        self._since = now
        self._allowance = 0.0

    def allowed(self, now: float) -> int:
        """How many records may be written now, at most the `most` of one transaction; 0 is: wait."""
        if self._rate is None:
            return self._most
        self._accrue(now)
        batch = max(1, min(self._most, int(self._rate * BATCH_S)))
        return min(int(self._allowance), self._most) if self._allowance >= batch else 0

    def wait_s(self, now: float) -> float:
        """How long until `allowed` is above 0."""
        if self._rate is None:
            return 0.0
        self._accrue(now)
        batch = max(1, min(self._most, int(self._rate * BATCH_S)))
        return max(0.0, (batch - self._allowance) / self._rate)

    def on_written(self, records: int) -> None:
        if self._rate is not None:
            self._allowance -= records

    def restart(self, now: float) -> None:
        """A pause is over: what would have been written meanwhile is not made up for."""
        self._since = now
        self._allowance = min(self._allowance, 0.0)

    def _accrue(self, now: float) -> None:
        assert self._rate is not None
        most = max(1.0, self._rate * _MOST_CARRIED_S)
        self._allowance = min(most, self._allowance + (now - self._since) * self._rate)
        self._since = now
