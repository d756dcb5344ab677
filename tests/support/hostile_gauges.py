"""What can be seen of a gateway from outside: its memory, its sockets, its counters, its log.

One rule: everything is read from the kernel, the status pages and the log file; the gateway is never asked more than
an operator would ask it.
"""

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from tests.support.gateway import GatewayProcess

MIB = 1024 * 1024
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SAMPLE_SECONDS = 0.02
_REPORT_SECONDS = 1.2  # workers report twice a second
_LONGEST_WAKE_UP = "0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One look at a gateway: all of its processes together."""

    memory_bytes: int
    sockets: int
    connections: int
    received_bytes: int  # from clients and brokers
    ended: Mapping[str, int]
    long_wake_ups: int  # of the event loop, for the bytes of one socket, over 100 ms


def look_at(gateway: GatewayProcess) -> Level:
    """A level; what the metrics say is up to a second old."""
    pids = [gateway.pid, *gateway.workers()]
    values: dict[tuple[str, str], float] = {}
    received = 0.0
    for family in text_string_to_metric_families(gateway.page("/metrics")[1]):
        for sample in family.samples:
            label = sample.labels.get("cause") or sample.labels.get("le") or ""
            values[sample.name, label] = values.get((sample.name, label), 0.0) + sample.value
            if sample.name == "headgate_bytes_total" and sample.labels["direction"] == "received":
                received += sample.value
    bucket = "headgate_added_seconds_bucket"
    return Level(
        memory_bytes=sum(map(memory_of, pids)),
        sockets=sum(map(sockets_of, pids)),
        connections=round(values["headgate_connections", ""]),
        received_bytes=round(received),
        ended={
            cause: round(count) for (name, cause), count in values.items() if name == "headgate_connections_ended_total"
        },
        long_wake_ups=round(values[bucket, "+Inf"] - values[bucket, _LONGEST_WAKE_UP]),
    )


def memory_of(pid: int) -> int:
    """The bytes of a process that are in memory."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def sockets_of(pid: int) -> int:
    count = 0
    try:
        entries = list(os.scandir(f"/proc/{pid}/fd"))
    except OSError:
        return 0
    for entry in entries:
        try:
            count += Path(entry.path).readlink().name.startswith("socket:")
        except OSError:
            continue  # closed meanwhile
    return count


def cpu_seconds_of(pid: int) -> float:
    """User and system time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_seconds() -> float:
    """Processor time that the whole machine has spent so far, on everything."""
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(
        int, Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class MemoryPeak:
    """The most memory that the processes had together while the block ran."""

    pids: list[int]
    bytes: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._sample, name="memory-peak", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        assert self._thread
        self._thread.join()

    def _sample(self) -> None:
        while True:
            self.bytes = max(self.bytes, sum(map(memory_of, self.pids)))
            if self._stopped.wait(_SAMPLE_SECONDS):
                return


def await_reports() -> None:
    """Let the workers report what they have counted."""
    time.sleep(_REPORT_SECONDS)


def log_defects(gateway: GatewayProcess) -> list[str]:
    """Lines that an operator would have to look at: errors and tracebacks."""
    return [line for line in gateway.log_lines() if "level=error" in line or "Traceback" in line]
