"""`python -m bench.dev_idle`: what all of `headgate dev` costs at rest, and how soon its map is there.

It starts the command in a folder and on ports of its own, waits until the map has the whole sample and the pipeline has
made its tables, lets it settle, and reads the CPU time of each process from /proc. The goals: first nodes within 60 s,
all within 150 s, and at most 60 % of one core in total. Nothing else may run on the machine meanwhile.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench import machine
from bench.processes import BenchError, Child, cpu_seconds, resident_mb, tree
from headgate.sample.shop import MAP_EDGES

_HEADGATE: Final = Path(sys.executable).with_name("headgate")
_WAIT_S: Final = 600.0
_ANSWER_S: Final = 30.0
# The parts by what their command lines have. What is left is the command itself: the gateway, the web server, and what
# of the sample is in Python.
_PARTS: Final = {
    "Kafka": "kafka.Kafka",
    "Streams 4.4 member": "headgate.members.Main",
    "Streams 4.3.1 application": "headgate.shop.Fulfilment",
    "Connect": "connect.cli.ConnectDistributed",
    "pipeline, Spark": "org.apache.spark.deploy.SparkSubmit",
    "pipeline, Python": "pipeline",
}
_REST: Final = "gateway, web, sample in Python"


def part_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return _REST
    command = " ".join(words)
    for part, text in _PARTS.items():
        if text in words if text == "pipeline" else text in command:
            return part
    return "pipeline, Python" if "pyspark" in command else _REST


def processes(child: Child) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {_REST: [], **{part: [] for part in _PARTS}}
    for pid in tree(child.pids()[0]):
        found[part_of(pid)].append(pid)
    return found


class Dev:
    """The command, and questions to its web server."""

    def __init__(self, folder: Path, port: int, options: list[str]) -> None:
        self._web = f"http://127.0.0.1:{port + 20}"
        os.environ |= {"HEADGATE_METRICS_LISTEN": f"127.0.0.1:{port + 30}", "HEADGATE_GATEWAY_NODES": "0-0"}
        ports = ["--gateway-port", str(port), "--kafka-port", str(port + 10), "--web-port", str(port + 20)]
        self._began = time.monotonic()
        self.child = Child([_HEADGATE, "dev", *ports, "--data-dir", folder / "data", *options], log=folder / "dev.log")

    def until(self, reached: Callable[[], bool]) -> float:
        """Seconds from the start until then."""
        self.child.wait_until(reached, seconds=_WAIT_S)
        return time.monotonic() - self._began

    def is_ready(self) -> bool:
        return "\nready " in f"\n{self.child.output()}"

    def edges(self) -> set[tuple[str, str]]:
        found = self._ask("graph")
        if found is None:
            return set()
        names = [node["name"] for node in found["nodes"]]
        return {(names[edge["from"]], names[edge["to"]]) for edge in found["edges"]}

    def has_tables(self) -> bool:
        """Whether the map comes from the tables alone."""
        found = self._ask("graph")
        return found is not None and found["nodes"] != [] and found["provisional"] is False

    def _ask(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"{self._web}/api/v1/{path}", timeout=_ANSWER_S) as answer:
                return json.loads(answer.read())
        except (OSError, ValueError):  # urllib's errors are OSErrors
            return None


def measure(dev: Dev, seconds: float) -> list[tuple[str, float, float]]:
    """The percentage of a core and the resident memory of each part."""
    before = {part: cpu_seconds(pids) for part, pids in processes(dev.child).items()}
    began = time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        if not dev.child.running:
            raise BenchError(f"headgate dev ended: {dev.child.last_words()}")
        time.sleep(min(1.0, left))
    took = time.monotonic() - began
    return [
        (part, 100 * (cpu_seconds(pids) - before[part]) / took, sum(map(resident_mb, pids)))
        for part, pids in processes(dev.child).items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.dev_idle", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long CPU time is measured (default: 5)")
    parser.add_argument("--settle", type=float, default=60.0, help="seconds between the tables and that (default: 60)")
    parser.add_argument("--port", type=int, default=28092, help="of the gateway; the others follow (default: 28092)")
    parser.add_argument("options", nargs="*", help="further options of headgate dev, after --")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headgate-dev-idle-") as folder:
        facts = machine.facts()
        dev = Dev(Path(folder), args.port, args.options)
        try:
            steps = {
                "ready": dev.until(dev.is_ready),
                "first nodes": dev.until(lambda: bool(dev.edges())),
                "all nodes and edges": dev.until(lambda: dev.edges() >= MAP_EDGES),
            }
            if "--no-pipeline" not in args.options:
                steps["map from tables alone"] = dev.until(dev.has_tables)
            time.sleep(args.settle)
            rows = measure(dev, 60 * args.minutes)
        finally:
            dev.child.stop()
    print("\n".join(f"- {name}: {value}" for name, value in facts.items()))
    print("\n| from the start until | s |\n|---|---|")
    print("\n".join(f"| {step} | {seconds:.1f} |" for step, seconds in steps.items()))
    print(f"\n| part, at rest for {args.minutes:g} minutes | % of a core | resident MB |\n|---|---|---|")
    rows.append(("total", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    print("\n".join(f"| {part} | {share:.1f} | {memory:.0f} |" for part, share, memory in rows))


if __name__ == "__main__":
    main()
