"""The driver of our raw-protocol loader (java/src/main/java/headgate/load): one warm JVM for all runs of a campaign.

One rule: the loader measures, this only asks. CPU times are read by the loader itself, at the two moments between
which it counts calls.
"""

import json
import os
import select
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.processes import BenchError
from headgate.embedded.java import class_path, find_java

SOURCES = Path(__file__).resolve().parents[1] / "java" / "src" / "main" / "java" / "headgate" / "load"
_SLACK_S = 60.0


def compile_java(sources: list[Path], classes: Path, *, jars: str) -> None:
    """Compile a few files into `classes`; it takes about two seconds and needs no jar in the tree."""
    java = find_java()
    classes.mkdir(parents=True, exist_ok=True)
    compiler: list[str | Path] = [
        java.command.with_name("javac"),
        "--release",
        "17",
        "-encoding",
        "UTF-8",
        "-proc:none",
    ]
    compiled = subprocess.run(
        [*compiler, "-cp", jars, "-d", classes, *sources], capture_output=True, text=True, timeout=120, check=False
    )
    if compiled.returncode != 0:
        raise BenchError(f"javac refuses {sources[0].name}: {compiled.stderr[-500:]}")


class Loader:
    """A context manager; the process ends when its input does, so it cannot outlive this one."""

    def __init__(self, folder: Path) -> None:
        jars = class_path("broker")
        classes = folder / "load"
        compile_java(sorted(SOURCES.glob("*.java")), classes, jars=jars)
        path = os.pathsep.join((str(classes), jars))
        self._errors = (folder / "loader.log").open("wb")
        self._process = subprocess.Popen(
            [find_java().command, "-Xmx512m", "-XX:+UseSerialGC", "-cp", path, "headgate.load.Loader"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def run(self, words: Mapping[str, object]) -> dict[str, Any]:
        """One run; `BenchError` when it could not be made or some of its calls failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = " ".join(f"{key}={value}" for key, value in words.items())
        self._process.stdin.write(line.encode() + b"\n")
        seconds = float(str(words.get("seconds", 0))) + float(str(words.get("warm", 0))) + _SLACK_S
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not ready:
            self._process.kill()  # a late answer would be taken for the next run's
            raise BenchError(f"the loader did not answer within {seconds:.0f} s: {line}")
        text = self._process.stdout.readline()
        if not text:
            raise BenchError(f"the loader ended: see {self._errors.name}")
        answer: dict[str, Any] = json.loads(text)
        if "failed" in answer:
            raise BenchError(answer["failed"])
        if answer.get("calls") == 0:
            raise BenchError("no call was answered")
        if answer.get("errors"):
            raise BenchError(f"{answer['errors']} of {answer['calls']} calls failed: {answer['first_error']}")
        return answer
