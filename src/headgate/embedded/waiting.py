"""Waiting for a process without a surprise: every wait has an end, can be given up, and is not silent for long."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from headgate.base.errors import ClusterError, HeadgateError

_POLL_S, _SILENCE_S = 0.05, 2.0


class StartGivenUpError(HeadgateError):
    """Whoever asked for the start no longer wants it; nothing is left running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How the caller of a start wishes to wait: how long, told of what, and until when it cares.

    `progress` hears a sentence after every two seconds; `give_up` is asked many times a second.
    """

    limit_s: float = 90.0
    progress: Callable[[str], None] = lambda _: None
    give_up: Callable[[], bool] = lambda: False

    def at_most(self, limit_s: float) -> "Patience":
        return replace(self, limit_s=min(self.limit_s, limit_s))


class Wait:
    """One wait, begun now."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._began = self._told = time.monotonic()

    def pause(self, what: str, *, look_into: str) -> None:
        """Wait a moment longer for `what`; `ClusterError` when that is too long."""
        if self._patience.give_up():
            raise StartGivenUpError("the start of Kafka was given up")
        now = time.monotonic()
        waited = now - self._began
        if waited > self._patience.limit_s:
            raise ClusterError(f"Kafka is not up: still {what} after {waited:.0f} s; look into {look_into}")
        if now - self._told >= _SILENCE_S:
            self._patience.progress(f"starting Kafka: {what} ({waited:.0f} s; log {look_into})")
            self._told = now
        time.sleep(_POLL_S)
