"""One JVM with real Java clients that runs scenario after scenario (`headgate.clients.Main`).

Starting a JVM and loading Kafka's classes costs more than most scenarios, so one serves a whole test run.
"""

import subprocess
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from headgate.embedded.java import ClassPath, class_path, find_java
from tests.support.calling_jvm import end_jvm

_LOG4J = Path(__file__).with_name("log4j2.xml")
_START_S = 60.0


class ScenarioError(AssertionError):
    """A scenario failed: the clients did not get what they asked for, through the gateway or without it."""


class JavaClients:
    """The clients of one class path: `broker` holds kafka-clients 4.3.1, `clients` holds 4.4.0."""

    def __init__(self, clients: ClassPath, log: Path) -> None:
        self.log = log
        self._command: list[str | Path] = [
            find_java().command,
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={_LOG4J}",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            class_path(clients, "clients"),
            "headgate.clients.Main",
        ]
        self._start()

    def _start(self) -> None:
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8"
            )
        self._answers: SimpleQueue[str] = SimpleQueue()
        reading = (self._process, self._answers)
        threading.Thread(target=_read, args=reading, name="java-clients", daemon=True).start()
        self._answer(_START_S)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """The process ends with its input; if that is not enough it is killed by its id."""
        end_jvm(self._process)

    def run(self, scenario: str, bootstrap: str, name: str, *, deadline: float = 120.0, **options: object) -> str:
        """Run a scenario to its end and give its result, which is empty for most."""
        self.begin(scenario, bootstrap, name, **options)
        return self.end(deadline=deadline)

    def begin(self, scenario: str, bootstrap: str, name: str, **options: object) -> None:
        if self._process.poll() is not None:
            self._start()
        words = [scenario, bootstrap, name, *(f"{key}={value}" for key, value in options.items())]
        assert self._process.stdin
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()

    def end(self, *, deadline: float = 120.0) -> str:
        """Wait for the scenario that was begun."""
        outcome, _, rest = self._answer(deadline).partition(" ")
        _, _, result = rest.partition(" ")
        if outcome != "ok":
            raise ScenarioError(f"{rest}; the clients' log is {self.log}")
        return result

    def _answer(self, deadline: float) -> str:
        try:
            return self._answers.get(timeout=deadline)
        except Empty:
            # The next scenario must not be given the answer of this one.
            self._process.kill()
            self._process.wait()
            raise ScenarioError(f"no answer within {deadline:.0f} s; the clients' log is {self.log}") from None


def _read(process: "subprocess.Popen[str]", answers: "SimpleQueue[str]") -> None:
    assert process.stdout
    with process.stdout:
        for line in process.stdout:
            answers.put(line.strip())
    answers.put("failed: the JVM has ended")
