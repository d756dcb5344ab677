"""A part of the campaign in a process of its own: one line of JSON asks, one line of JSON answers.

Attacker, watcher and hostile broker must not share an interpreter, or the lock of one would be the latency that the
other measures. One rule: a child ends with its standard input, so none outlives the test, however the test ends.
"""

import asyncio
import json
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_ROOT = Path(__file__).resolve().parents[2]
_MANY_FILES = 16384
Answers = dict[str, Any]
Serve = Callable[[Answers], Awaitable[Answers]]


class ChildError(AssertionError):
    """A child did not answer, or ended."""


class Child:
    """`python -m module`, asked by `ask`; ended by the end of the block, by its id."""

    def __init__(self, module: str, *arguments: str, niceness: int = 0) -> None:
        command = ["nice", "-n", str(niceness), sys.executable, "-m", module, *arguments]
        self._name = module.rpartition(".")[2]
        self._process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, what: str, *, patience: float = 60.0, **more: Any) -> Answers:
        """Ask and wait for the answer, with so many seconds of patience."""
        self.begin(what, **more)
        return self.answer(patience=patience)

    def begin(self, what: str, **more: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"ask": what, **more}).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self, *, patience: float) -> Answers:
        assert self._process.stdout
        deadline = time.monotonic() + patience
        while b"\n" not in self._received:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._process.stdout.fileno(), 1 << 16) if readable else b""
            if not piece:
                self._process.poll()
                raise ChildError(f"{self._name} said nothing for {patience:g} s; exit code {self._process.returncode}")
            self._received += piece
        line, _, self._received = self._received.partition(b"\n")
        answer: Answers = json.loads(line)
        if "failed" in answer:
            raise ChildError(f"{self._name}: {answer['failed']}")
        return answer


async def questions() -> AsyncIterator[Answers]:
    """What the parent asks, until it closes the pipe."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while line := await reader.readline():
            yield json.loads(line)
    finally:
        transport.close()


async def serve(handle: Serve) -> None:
    """Answer one question after the other; a question that fails is answered with why."""
    async for question in questions():
        try:
            answer = await handle(question)
        except Exception as failure:  # noqa: BLE001 - the parent says it where the test is read
            answer = {"failed": repr(failure)}
        print(json.dumps(answer), flush=True)


def allow_many_files(wanted: int = _MANY_FILES) -> None:
    """Let this process, and those that it starts, have so many sockets; what the system grants at most otherwise."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
        except ValueError:  # only root may
            wanted = hard
        else:
            return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
