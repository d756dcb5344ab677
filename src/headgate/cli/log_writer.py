"""Writes log lines on a thread of its own, and suppresses lines that one cause brings too often.

Standard error may be a pipe whose reader stands still. The event loop never waits for it: lines wait in memory, a
bounded number of them, and those above it are dropped and counted. A hundred lines with the same event and cause are
written in ten seconds; the number of the others is logged when the ten seconds end, whether or not more come.
"""

import io
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from typing import Final, NamedTuple, TextIO

_MOST_LINES: Final = 10_000
_MOST_BYTES: Final = 16 * 1024 * 1024
_LINES_PER_WINDOW: Final = 100
_WINDOW_S: Final = 10.0
_MOST_CAUSES: Final = 1_000
_WAKE_UP_S: Final = 1.0


class LogCause(NamedTuple):
    """The cause of a line: its event, and its `cause` if it has one."""

    event: str
    cause: str


class LogBudget:
    """Counts the lines of each cause; used on any thread, under the lock of the writer."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = now()
        self._lines: dict[LogCause, int] = {}

    def allows(self, cause: LogCause) -> bool:
        """Count a line; True if it is to be written."""
        if cause not in self._lines and len(self._lines) >= _MOST_CAUSES:
            cause = LogCause("(others)", "")
        count = self._lines[cause] = self._lines.get(cause, 0) + 1
        return count <= _LINES_PER_WINDOW

    def end_window(self) -> dict[LogCause, int]:
        """The number of suppressed lines, by cause, if the window is over; then the next one begins."""
        if self._now() - self._since < _WINDOW_S:
            return {}
        self._since = self._now()
        lines, self._lines = self._lines, {}
        return {cause: count - _LINES_PER_WINDOW for cause, count in lines.items() if count > _LINES_PER_WINDOW}


class LogWriter:
    """A bounded queue of lines and the thread that writes them; `on_suppressed` and `on_dropped` log the counts."""

    def __init__(
        self,
        stream: TextIO,
        budget: LogBudget,
        *,
        on_suppressed: Callable[[LogCause, int], None],
        on_dropped: Callable[[int], None],
    ) -> None:
        self._stream = stream
        self._budget = budget
        self._on_suppressed = on_suppressed
        self._on_dropped = on_dropped
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._dropped = 0
        self._is_writing = False
        self._is_closed = False
        self._changed = Condition()
        self._thread = Thread(target=self._run, name="headgate-log", daemon=True)
        self._thread.start()

    def allows(self, cause: LogCause) -> bool:
        with self._changed:
            return self._budget.allows(cause)

    def write(self, text: str) -> None:
        """Queue a line, or drop it if too much waits; never blocks."""
        line = text.encode("utf-8", "backslashreplace") + b"\n"
        with self._changed:
            if len(self._lines) >= _MOST_LINES or self._bytes + len(line) > _MOST_BYTES:
                self._dropped += 1
                return
            self._lines.append(line)
            self._bytes += len(line)
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until all lines are written; False if they are not in this time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._lines and not self._is_writing, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Write what waits, for this time at most, and end the thread."""
        self.flush(timeout_s)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._lines:
                    self._changed.wait(_WAKE_UP_S)
                if self._is_closed and not self._lines:
                    return
                suppressed = self._budget.end_window()
                line = self._lines.popleft() if self._lines else b""
                self._bytes -= len(line)
                self._is_writing = bool(line)
                dropped = 0
                if not self._lines:
                    dropped, self._dropped = self._dropped, 0
            for cause, count in suppressed.items():
                self._on_suppressed(cause, count)
            if line:
                self._put(line)
            if dropped:
                self._on_dropped(dropped)
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def _put(self, line: bytes) -> None:
        """Write past the stream's buffer: its lock, held by a thread that waits, would keep the process from ending."""
        with suppress(OSError, ValueError):  # standard error is closed: there is nowhere to say so
            try:
                number = self._stream.fileno()
            except io.UnsupportedOperation:  # a stream in memory
                self._stream.write(line.decode())
                return
            while line:
                line = line[os.write(number, line) :]
