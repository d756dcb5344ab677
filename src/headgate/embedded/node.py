"""One Kafka node: a JVM that can be started, stopped, killed and started again, and whose death is noticed.

One rule: an end that nobody asked for is reported once, with what the log says about it.
"""

import re
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.base.ids import NodeId
from headgate.embedded.spawn import start_tethered

# Kafka writes what is wrong as an ERROR or FATAL line, with the exception's own words on the line below.
_FAULT = re.compile(r"^\S+ \S+ (?:ERROR|FATAL) \[.*?\] \S+ (?P<text>.*)$")
_EXCEPTION = re.compile(
    r"^(?:Caused by: |Exception in thread \".*?\" )?(?:\w+[.$])*(?P<kind>\w*(?:Exception|Error))(?:: (?P<text>.*))?$"
)
# Exceptions whose text says it all.
_SAYS_IT_ALL = frozenset({"ConfigException", "IllegalArgumentException", "KafkaException"})
# How Kafka's start speaks of a setting that it does not accept: by its own exception, or by a failed `require`.
_ABOUT_SETTINGS = ("ConfigException", "requirement failed")
_TAIL_BYTES = 1 << 16
_TAIL_LINES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDeath:
    """A node ended by itself, or somebody else ended it."""

    node: NodeId
    exit_code: int
    log: Path
    reason: str
    tail: tuple[str, ...]
    setting_refused: bool = False

    def __str__(self) -> str:
        code = self.exit_code
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        because = f": {self.reason}" if self.reason else ""
        return f"Kafka node {self.node} {how}{because}; its log is {self.log}"


class Node:
    """The process of one node. Methods may be called from any thread."""

    def __init__(
        self, node: NodeId, command: Sequence[str | Path], *, log: Path, on_death: Callable[[NodeDeath], None]
    ) -> None:
        self.id = node
        self.log = log
        self._command = command
        self._on_death = on_death
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = False
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """The process id while the node runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def wanted(self) -> bool:
        """Whether the node was started and nobody has ended it since: it should be running."""
        return self._process is not None and not self._ending

    def start(self) -> None:
        """Start the process; it is ready when it answers, which `EmbeddedKafka.wait_ready` waits for."""
        with self._lock:
            if self.running:
                return
            self._ending = False
            self._log_start = self.log.stat().st_size if self.log.exists() else 0
            self._process = start_tethered(self._command, output=self.output)
            threading.Thread(
                target=self._watch, args=(self._process,), name=f"kafka-node-{self.id}", daemon=True
            ).start()

    @property
    def output(self) -> Path:
        """What the JVM itself prints; Kafka's own words are in `log`."""
        return self.log.with_suffix(".out")

    def terminate(self) -> None:
        """Ask for a clean end."""
        self._end_with(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would, and wait until it is gone."""
        self._end_with(signal.SIGKILL)
        self.wait(10.0)

    def stop(self, timeout: float = 15.0) -> None:
        """Ask for a clean end, and after `timeout` seconds insist."""
        self.terminate()
        if not self.wait(timeout):
            self.kill()

    def wait(self, timeout: float) -> bool:
        """Whether the process has ended, after at most `timeout` seconds."""
        process = self._process
        if process is None:
            return True
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def death(self, exit_code: int) -> NodeDeath:
        lines = _tail(self.log, self._log_start) or _tail(self.output, 0)
        return NodeDeath(
            node=self.id,
            exit_code=exit_code,
            log=self.log if self.log.exists() else self.output,
            reason=fault(lines),
            tail=tuple(lines[-_TAIL_LINES:]),
            setting_refused=setting_refused(lines),
        )

    def _end_with(self, signum: signal.Signals) -> None:
        with self._lock:
            self._ending = True
            if self._process is not None:
                self._process.send_signal(signum)  # does nothing once the process has been reaped

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        exit_code = process.wait()
        with self._lock:
            unasked = process is self._process and not self._ending
        if unasked:
            self._on_death(self.death(exit_code))


def fault(lines: Sequence[str]) -> str:
    """The last thing that a log calls an error, in the words of its exception where there is one."""
    for at in range(len(lines) - 1, -1, -1):
        if found := _FAULT.match(lines[at]):
            below = _EXCEPTION.match(lines[at + 1]) if at + 1 < len(lines) else None
            return _words(below) if below else found["text"]
    return next((_words(alone) for line in reversed(lines) if (alone := _EXCEPTION.match(line))), "")


def setting_refused(lines: Sequence[str]) -> bool:
    """Whether a log tells of a setting that Kafka does not accept."""
    return any(word in line for line in lines for word in _ABOUT_SETTINGS)


def _words(exception: re.Match[str]) -> str:
    kind, text = exception["kind"], exception["text"]
    return text if text and kind in _SAYS_IT_ALL else f"{kind}: {text}" if text else kind


def _tail(file: Path, start: int) -> list[str]:
    """The last lines of `file`, of those behind byte `start`."""
    try:
        with file.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(start if start <= size else 0, size - _TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()
    except OSError:
        return []
