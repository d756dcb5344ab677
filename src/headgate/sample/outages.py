"""When the downstream of a share group of the sample fails: for a while every few minutes, and while a file exists.

The file is the reader's own switch (`touch .headgate/billing-is-down`). The rest is by the time since the start alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

DEFAULT_EVERY_S: Final = 300.0
_LONGEST_S: Final = 50.0


class DownstreamState(Enum):
    """Why a downstream fails, if it does: by its switch, or by the schedule of the sample."""

    UP = "up"
    SWITCHED_OFF = "switched off"
    SCHEDULED_OUTAGE = "scheduled outage"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageSchedule:
    """An outage every `every_s`, the first after a part of it; 0 is never. A third of the time at most is one."""

    every_s: float
    first_part: float

    def is_down(self, elapsed_s: float) -> bool:
        if not self.every_s:
            return False
        since_last = (elapsed_s - self.first_part * self.every_s) % self.every_s
        return elapsed_s >= self.first_part * self.every_s and since_last < min(_LONGEST_S, self.every_s / 3)


class Downstream:
    """The system behind a share group; `switch` is the file that makes it fail."""

    def __init__(self, switch: Path, schedule: OutageSchedule, monotonic: Callable[[], float]) -> None:
        self._switch = switch
        self._schedule = schedule
        self._monotonic = monotonic
        self._started_at = monotonic()
        switch.unlink(missing_ok=True)

    def state(self) -> DownstreamState:
        if self._switch.exists():
            return DownstreamState.SWITCHED_OFF
        is_down = self._schedule.is_down(self._monotonic() - self._started_at)
        return DownstreamState.SCHEDULED_OUTAGE if is_down else DownstreamState.UP
