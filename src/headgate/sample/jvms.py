"""The programs of the sample that run in small JVMs of their own, because their class paths differ.

They end when `headgate dev` ends in any way. One that ends before is reported once, with its log; all others go on.
"""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from headgate.embedded.java import class_path, find_java
from headgate.embedded.spawn import start_tethered, stop_all
from headgate.embedded.spec import render
from headgate.sample import connect
from headgate.sample.shop import APPLICATION, FULFILMENT, ORDERS, topology

_LOOK_S: Final = 1.0
_END_S: Final = 3.0
_SMALL_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k", "-XX:+ExitOnOutOfMemoryError")
_LOG4J: Final = Path(__file__).parents[1] / "embedded" / "log4j2.xml"


class SampleJvms:
    """Started one after the other; `stop` ends those that were started."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder / "sample"
        self._logs = folder / "logs"
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._stop = threading.Event()
        self._watching: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self) -> int:
        """Start all of them; return the port of the Connect worker's REST interface."""
        for folder in (self._folder, self._logs):
            folder.mkdir(parents=True, exist_ok=True)
        self._watching = threading.Thread(target=self._watch, name="headgate-sample-jvms", daemon=True)
        self._watching.start()
        port = connect.free_port()
        self._start_member()
        self._start_fulfilment()
        settings = self._write("connect.properties", render(connect.worker_settings(self._bootstrap, port)))
        self._start_java("sample-connect", class_path("broker"), connect.MAIN, settings, heap_mb=256)
        return port

    def stop(self) -> None:
        self._stop.set()
        with self._lock:
            children = list(self._children.values())
        stop_all(children, _END_S)
        if self._watching is not None:
            self._watching.join(_END_S)

    def log_of(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _start_member(self) -> None:
        join = {
            "id": 1,
            "op": "join",
            "member": "sample",
            "group": APPLICATION,
            "settings": {"bootstrap.servers": self._bootstrap},
            "subtopologies": {"0": {"sources": [ORDERS]}},
            "description": topology(),
            "epoch": 0,
            "process": None,
            "commits": False,
        }
        calls = self._write("member.jsonl", json.dumps(join) + "\n")
        self._start_java("sample-member", class_path("clients", "members"), "headgate.members.Main", calls, heap_mb=96)

    def _start_fulfilment(self) -> None:
        settings = {
            "application.id": FULFILMENT,
            "bootstrap.servers": self._bootstrap,
            "group.protocol": "streams",
            "client.id": FULFILMENT,
            "state.dir": str((self._folder / "state").absolute()),
            "replication.factor": "1",
            "num.stream.threads": "1",
            # Little comes, and nothing of it is urgent: it sleeps in between.
            "poll.ms": "1000",
            "commit.interval.ms": "10000",
            "default.dsl.store": "in_memory",
            "consumer.fetch.max.wait.ms": "3000",
        }
        file = self._write("fulfilment.properties", render(settings))
        self._start_java("sample-fulfilment", class_path("broker", "shop"), "headgate.shop.Fulfilment", file)

    def _write(self, name: str, text: str) -> Path:
        file = self._folder / name
        file.write_text(text, encoding="utf-8")
        return file

    def _start_java(self, name: str, jars: str, main: str, argument: Path, *, heap_mb: int = 128) -> None:
        logging = (f"-Dlog4j2.configurationFile={_LOG4J}", f"-Dheadgate.log={self.log_of(name)}")
        java = find_java().command
        command: list[str | Path] = [java, f"-Xmx{heap_mb}m", *_SMALL_JVM, *logging, "-cp", jars, main, argument]
        with self._lock:
            if not self._stop.is_set():
                self._children[name] = start_tethered(command, output=self._logs / f"{name}.out")

    def _watch(self) -> None:
        """Report the end of each program once."""
        reported: set[str] = set()
        while not self._stop.wait(_LOOK_S):
            with self._lock:
                ended = {name: child.poll() for name, child in self._children.items() if name not in reported}
            for name, code in ended.items():
                if code is not None:
                    reported.add(name)
                    logs = f"{self.log_of(name)} and {name}.out"
                    text = f"headgate: {name} ended with code {code}; everything else goes on. Its logs are {logs}"
                    print(text, file=sys.stderr, flush=True)
