"""What signals and other threads ask of a running replay: to pause, to go on, to stop."""

import threading


class ReplayControl:
    """Thread-safe, and may be used in signal handlers: it sets plain attributes and one event.

    The first reason to stop is kept; a replay stops between two transactions.
    """

    def __init__(self) -> None:
        self.is_paused = False
        self.stop_reason: str | None = None
        self._changed = threading.Event()

    def pause(self) -> None:
        self.is_paused = True
        self._changed.set()

    def resume(self) -> None:
        self.is_paused = False
        self._changed.set()

    def stop(self, why: str) -> None:
        if self.stop_reason is None:
            self.stop_reason = why
        self._changed.set()

    def wait(self, seconds: float) -> None:
        """Wait for a change, for so long at most."""
        self._changed.wait(seconds)
        self._changed.clear()
