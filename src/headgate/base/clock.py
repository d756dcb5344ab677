"""Time as an argument: code that needs the time gets a `Clock`.

Durations are measured on the monotonic clock; epoch milliseconds are only for what people and other systems read.
"""

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""

    def epoch_ms(self) -> int:
        """Wall-clock milliseconds since 1970; may jump."""


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def epoch_ms(self) -> int:
        return time.time_ns() // 1_000_000
