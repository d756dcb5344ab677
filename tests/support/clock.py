"""The clock of tests."""


class FakeClock:
    """Stands still until a test moves it: `now_ms` in milliseconds, or `now`, the same in seconds.

    Its monotonic clock shows the seconds since `started_ms`: a test that must tell the two clocks apart gives one.
    Where a bare function is wanted, give `clock.monotonic`.
    """

    def __init__(self, now_ms: int = 1_000_000, *, started_ms: int = 0) -> None:
        self.now_ms = now_ms
        self._started_ms = started_ms

    @property
    def now(self) -> float:
        return self.now_ms / 1000

    @now.setter
    def now(self, seconds: float) -> None:
        self.now_ms = round(seconds * 1000)

    def monotonic(self) -> float:
        return (self.now_ms - self._started_ms) / 1000

    def epoch_ms(self) -> int:
        return self.now_ms
