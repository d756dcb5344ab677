"""The processes of a benchmark: started tied to this one, watched through /proc, ended by their id.

One rule: a figure of a process is that of its whole tree, so that workers and helpers of a proxy count for it.
"""

import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from headgate.embedded.spawn import start_tethered

_PROC = Path("/proc")
_TICKS_A_SECOND = 100  # USER_HZ, the same on every Linux
_POLL_S, _STOP_S = 0.05, 10.0


class BenchError(Exception):
    """A part of the benchmark cannot run; the text says why and goes into the results."""


class Child:
    """A program with its output in a file; `log` is read to see whether it is ready and why it ended."""

    def __init__(self, command: Sequence[str | Path], *, log: Path) -> None:
        log.unlink(missing_ok=True)
        self.log = log
        self._process = start_tethered(command, output=log)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def pids(self) -> tuple[int, ...]:
        return tree(self._process.pid)

    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def wait_until(self, is_ready: Callable[[], bool], *, seconds: float) -> None:
        """Return when it is ready; raise with the last words of its log when it ends or is late."""
        deadline = time.monotonic() + seconds
        while not is_ready():
            if not self.running:
                raise BenchError(f"ended before it was ready: {self.last_words()}")
            if time.monotonic() > deadline:
                raise BenchError(f"was not ready within {seconds:.0f} s: {self.last_words()}")
            time.sleep(_POLL_S)

    def wait(self, seconds: float) -> None:
        """Wait for its end; raise when it fails or is late, and end it then."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise BenchError(f"did not end within {seconds:.0f} s: {self.last_words()}") from None
        if code != 0:
            raise BenchError(f"ended with code {code}: {self.last_words()}")

    def last_words(self) -> str:
        lines = [line.strip() for line in self.output().splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it said nothing"

    def stop(self) -> None:
        """Ask it to end, and insist when it does not."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_S)


def tree(root: int) -> tuple[int, ...]:
    """The process and all that descend from it."""
    children = defaultdict(list)
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children[int(fields[1])].append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children[pid]
    return tuple(found)


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time, and that of children that have ended."""
    return sum(sum(times(pid)) for pid in pids)


def times(pid: int) -> tuple[float, float]:
    """User and system seconds of one process and of its children that have ended."""
    fields = _stat(pid)
    if not fields:
        return 0.0, 0.0
    user, system, ended_user, ended_system = (int(field) / _TICKS_A_SECOND for field in fields[11:15])
    return user + ended_user, system + ended_system


def resident_mb(pid: int) -> float:
    """VmRSS in megabytes (10^6); 0 for a process that has ended."""
    with suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, state first; empty for a process that has ended."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()
