"""One Kafka node: a JVM that can be started, stopped, killed and started again, and how to wait until it responds.

Invariants: an unexpected end is reported once, with the error from its log. Every wait has a timeout, can be given up,
and reports progress. Readiness is one small Metadata request on a new socket, so that a response means what it would
mean to a new client: version 4 without topics is the oldest that names the cluster, and no ACL can deny it.
"""

import re
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.base.errors import ClusterError, HeadgateError
from headgate.base.ids import ClusterId, NodeId
from headgate.embedded.spawn import start_tethered

# Kafka logs a failure as an ERROR or FATAL line, with the exception on the line below.
_FAULT = re.compile(r"^\S+ \S+ (?:ERROR|FATAL) \[.*?\] \S+ (?P<text>.*)$")
_EXCEPTION = re.compile(
    r"^(?:Caused by: |Exception in thread \".*?\" )?(?:\w+[.$])*(?P<kind>\w*(?:Exception|Error))(?:: (?P<text>.*))?$"
)
# Exceptions whose text is enough without their name.
_TEXT_IS_ENOUGH = frozenset({"ConfigException", "IllegalArgumentException", "KafkaException"})
# How Kafka reports an invalid setting at start: by its own exception, or by a failed `require`.
_ABOUT_SETTINGS = ("ConfigException", "requirement failed")
_TAIL_BYTES = 1 << 16
_TAIL_LINES = 10
_METADATA, _VERSION, _CORRELATION_ID = 3, 4, 1
_MOST_BYTES = 1 << 16
_POLL_S, _SILENCE_S = 0.05, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDeath:
    """A node that ended unexpectedly."""

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
        """Whether the node should be running: it was started, and not stopped since."""
        return self._process is not None and not self._ending

    def start(self) -> None:
        """Start the process; `EmbeddedKafka.wait_ready` waits until it responds."""
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
        """The output of the JVM itself; Kafka's log is `log`."""
        return self.log.with_suffix(".out")

    def terminate(self) -> None:
        """Start a clean shutdown."""
        self._end_with(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process and wait until it has ended."""
        self._end_with(signal.SIGKILL)
        self.wait(10.0)

    def stop(self, timeout: float = 15.0) -> None:
        """Shut the node down cleanly, and kill it after `timeout` seconds."""
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
    """The last error of a log: the text of its exception, or else of its line."""
    for at in range(len(lines) - 1, -1, -1):
        if found := _FAULT.match(lines[at]):
            below = _EXCEPTION.match(lines[at + 1]) if at + 1 < len(lines) else None
            return _words(below) if below else found["text"]
    return next((_words(alone) for line in reversed(lines) if (alone := _EXCEPTION.match(line))), "")


def setting_refused(lines: Sequence[str]) -> bool:
    """Whether a log reports a setting that Kafka does not accept."""
    return any(word in line for line in lines for word in _ABOUT_SETTINGS)


def _words(exception: re.Match[str]) -> str:
    kind, text = exception["kind"], exception["text"]
    return text if text and kind in _TEXT_IS_ENOUGH else f"{kind}: {text}" if text else kind


def _tail(file: Path, start: int) -> list[str]:
    """The last lines of `file` after byte `start`."""
    try:
        with file.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(start if start <= size else 0, size - _TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()
    except OSError:
        return []


# Readiness.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """A broker's metadata: the id of the cluster, and the brokers that are up."""

    cluster_id: ClusterId
    nodes: frozenset[NodeId]


def request_metadata(host: str, port: int, *, timeout: float) -> ClusterMetadata | None:
    """The metadata from the broker at `host`:`port`; None when there is no broker."""
    # Header v1: key, version, correlation id, no client id. Body: no topics, no auto-creation.
    body = struct.pack(">hhihi?", _METADATA, _VERSION, _CORRELATION_ID, -1, 0, False)
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            if not 0 < size <= _MOST_BYTES:
                return None
            return parse_metadata(_exactly(connection, size))
    except (OSError, struct.error, IndexError, UnicodeDecodeError):
        return None


def parse_metadata(frame: bytes) -> ClusterMetadata | None:
    """Decode a Metadata v4 response; None for another correlation id."""
    # correlation_id, throttle_time_ms, then the array of brokers: node_id, host, port, rack.
    correlation_id, _, count = struct.unpack_from(">iii", frame)
    if correlation_id != _CORRELATION_ID:
        return None
    pos, nodes = 12, set()
    for _ in range(count):
        (node,) = struct.unpack_from(">i", frame, pos)
        nodes.add(NodeId(node))
        _, pos = _string(frame, pos + 4)
        _, pos = _string(frame, pos + 4)
    cluster_id, _ = _string(frame, pos)
    return ClusterMetadata(cluster_id=ClusterId(cluster_id), nodes=frozenset(nodes))


def _string(frame: bytes, pos: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", frame, pos)
    end = pos + 2 + max(size, 0)
    if end > len(frame):
        raise IndexError("the response ends inside a string")
    return frame[pos + 2 : end].decode(), end


def _exactly(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = connection.recv(size - len(got))
        if not more:
            raise ConnectionError("closed inside a response")
        got += more
    return got


# Waiting.


class StartGivenUpError(HeadgateError):
    """The start was cancelled by its caller; no process is left running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """How to wait for a start: `progress` is called every two seconds, `give_up` many times a second."""

    limit_s: float = 90.0
    progress: Callable[[str], None] = lambda _: None
    give_up: Callable[[], bool] = lambda: False

    def at_most(self, limit_s: float) -> "StartOptions":
        return replace(self, limit_s=min(self.limit_s, limit_s))


class Wait:
    """One wait that begins now."""

    def __init__(
        self,
        options: StartOptions,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._monotonic = monotonic
        self._sleep = sleep
        self._began = self._told = monotonic()

    def pause(self, what: str, *, look_into: str) -> None:
        """Wait a moment longer for `what`; `ClusterError` after the timeout."""
        if self._options.give_up():
            raise StartGivenUpError("the start of Kafka was cancelled")
        now = self._monotonic()
        waited = now - self._began
        if waited > self._options.limit_s:
            raise ClusterError(f"Kafka did not start: still {what} after {waited:.0f} s; see {look_into}")
        if now - self._told >= _SILENCE_S:
            self._options.progress(f"starting Kafka: {what} ({waited:.0f} s; log {look_into})")
            self._told = now
        self._sleep(_POLL_S)
