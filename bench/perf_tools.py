"""Kafka's own performance tools as a second view: whole Java clients, which follow the addresses that they are told.

One rule: rates are what the tool itself reports, without the start of its JVM.
"""

import re
from pathlib import Path

from bench.peers.peer import Peer
from bench.processes import BenchError, Child, cpu_seconds
from bench.scenarios import Scenario
from headgate.embedded.java import class_path, find_java

_LIMIT_S = 180.0
_MIB = 1 << 20
_SENT = re.compile(r"^(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec", re.MULTILINE)
_FETCH_MS = 7  # fields of the consumer's line
_FETCHED = 4


def run(scenario: Scenario, peer: Peer, *, folder: Path, broker_pids: tuple[int, ...]) -> dict[str, float]:
    """One run of the scenario's tool; CPU is that of the whole run, since the tool says nothing of its moments."""
    records, size = int(str(scenario.words["records"])), int(str(scenario.words["size"]))
    makes = {"java-producer": _producer, "java-consumer": _consumer}[str(scenario.words["call"])]
    tool, arguments = makes(peer.bootstrap, str(scenario.words["topic"]), records, size)
    command: list[str | Path] = [
        find_java().command.absolute(),
        "-Xmx512m",
        "-cp",
        class_path("broker"),
        tool,
        *arguments,
    ]
    pids = peer.pids()
    proxy, broker = cpu_seconds(pids), cpu_seconds(broker_pids)
    child = Child(command, log=folder / f"{scenario.name}.log")
    child.wait(_LIMIT_S)
    figures = {"proxy_cpu_s": cpu_seconds(pids) - proxy, "broker_cpu_s": cpu_seconds(broker_pids) - broker}
    return figures | _read(child.output(), size)


def _producer(bootstrap: str, topic: str, records: int, size: int) -> tuple[str, list[str]]:
    return "org.apache.kafka.tools.ProducerPerformance", [
        *("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(records), "--record-size", str(size)),
        *("--command-property", "acks=all", f"batch.size={64 * 1024}", "linger.ms=5"),
    ]


def _consumer(bootstrap: str, topic: str, records: int, size: int) -> tuple[str, list[str]]:  # noqa: ARG001
    return "org.apache.kafka.tools.ConsumerPerformance", [
        *("--bootstrap-server", bootstrap, "--topic", topic, "--hide-header"),
        *("--num-records", str(records), "--fetch-size", str(_MIB)),
    ]


def _read(output: str, size: int) -> dict[str, float]:
    if sent := list(_SENT.finditer(output)):
        calls, seconds = int(sent[-1]["records"]), int(sent[-1]["records"]) / float(sent[-1]["rate"])
    else:
        lines = [fields for line in output.splitlines() if len(fields := line.split(", ")) == 10]
        if not lines:
            raise BenchError(f"the tool's output is not understood: {output[-200:]}")
        calls, seconds = int(lines[-1][_FETCHED]), int(lines[-1][_FETCH_MS]) / 1000
    return {"calls": calls, "bytes": calls * size, "seconds": seconds}
