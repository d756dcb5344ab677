"""A JVM that is called by lines of JSON: one line in is a call, one line out is its answer or an event.

    {"id": 1, "op": "join", ...}    {"id": 1, "result": {}} or {"id": 1, "error": "...", "message": "..."}
    {"event": "ready", "member": ""}, and so on: events stand between the answers, as they happen

One rule: every wait has a deadline, and what the JVM says after one has passed cannot be taken for the answer to
something else. The JVM ends with its input, or by its id.
"""

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

Data = dict[str, Any]
T = TypeVar("T")


class CallingJvm:
    """The process and what it said; a context manager that waits until the JVM is ready."""

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        *,
        error: type[AssertionError],
        start_s: float,
        call_s: float,
    ) -> None:
        self.log = log
        self._error = error
        self._start_s, self._call_s = start_s, call_s
        self._numbers = itertools.count(1)
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._answers: dict[int, Data] = {}
        self._events: list[Data] = []
        self._ended = False
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8"
            )
        self._reader = threading.Thread(target=self._read, name="calling-jvm", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        try:
            self.wait_until(lambda: bool(self._events) or None, "a JVM that is ready", self._start_s, str)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Members that are left end without leaving their groups."""
        end_jvm(self._process)
        self._reader.join(10)

    def crash(self) -> None:
        """End it as kill -9 would."""
        self._process.kill()
        self._process.wait()
        self._reader.join(10)

    def events(self) -> list[Data]:
        with self._changed:
            return list(self._events)

    def call(self, operation: str, **arguments: object) -> Data:
        """What one call gives; calls of several threads do not wait for each other."""
        number = next(self._numbers)
        line = json.dumps({"id": number, "op": operation, **arguments}) + "\n"
        assert self._process.stdin
        with self._writing:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        answer = self.wait_until(lambda: self._answers.pop(number, None), operation, self._call_s, str)
        if "error" in answer:
            raise self._error(f"{operation}: {answer['error']}: {answer['message']}; log {self.log}")
        result: Data = answer["result"]
        return result

    def wait_until(self, found: Callable[[], T | None], what: str, deadline: float, story: Callable[[], str]) -> T:
        """What `found` gives as soon as it gives something; it is asked again whenever the JVM has said something."""
        by = time.monotonic() + deadline
        with self._changed:
            while (value := found()) is None:
                if self._ended:
                    raise self._error(f"{what}: the JVM has ended; {story()}; log {self.log}")
                if not self._changed.wait(by - time.monotonic()):
                    raise self._error(f"{what}: not in {deadline:.0f} s; {story()}; log {self.log}")
        return value

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                data = json.loads(line)
                with self._changed:
                    if "id" in data:
                        self._answers[data["id"]] = data
                    else:
                        self._events.append(data)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def end_jvm(process: "subprocess.Popen[str]") -> None:
    """End this process and no other: its input ends, and if that is not enough it is killed by its id."""
    assert process.stdin
    try:
        process.stdin.close()
        process.wait(10)
    except (BrokenPipeError, subprocess.TimeoutExpired):
        process.kill()
        process.wait()


def client_settings(settings: str | Mapping[str, str]) -> Mapping[str, str]:
    """All of a Java client's settings; a bootstrap address alone is enough of them."""
    return {"bootstrap.servers": settings} if isinstance(settings, str) else settings
