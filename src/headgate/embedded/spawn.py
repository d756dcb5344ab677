"""Child processes that the kernel kills when this process ends in any way.

The kernel ties such a child to the *thread* that started it (prctl(2), PR_SET_PDEATHSIG), and a thread may end long
before its process. All children are therefore started by one thread that lives as long as the process. The child itself
makes the request, in `_TETHER`, before it becomes the program: code between fork and exec in this process would run in
a copy of a threaded interpreter.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue

from headgate.base.errors import PlatformError

# Arguments: the parent's pid, then the program. The program keeps the pid of this one.
_TETHER = """
import ctypes, os, signal, sys
parent, command = int(sys.argv[1]), sys.argv[2:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG
if os.getppid() != parent:
    sys.exit("tether: the parent has ended")
try:
    os.execv(command[0], command)
except OSError as error:
    sys.exit(f"tether: {command[0]}: {error}")
"""


class _Spawner:
    """The one long-lived thread, started when it is first needed, and again in a forked process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._wanted: SimpleQueue[tuple[list[str], Path, Future[subprocess.Popen[bytes]]]] = SimpleQueue()

    def start(self, command: list[str], output: Path) -> subprocess.Popen[bytes]:
        started: Future[subprocess.Popen[bytes]] = Future()
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._wanted = os.getpid(), SimpleQueue()
                threading.Thread(target=self._serve, args=(self._wanted,), name="spawner", daemon=True).start()
            self._wanted.put((command, output, started))
        return started.result()

    @staticmethod
    def _serve(wanted: "SimpleQueue[tuple[list[str], Path, Future[subprocess.Popen[bytes]]]]") -> None:
        while True:
            command, output, started = wanted.get()
            try:
                with output.open("ab") as sink:
                    # Its own session: Ctrl-C at the terminal ends this process, which stops its children in order.
                    # A UTF-8 locale: under the C locale Java cannot open a path that is not ASCII.
                    child = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=sink,
                        stderr=sink,
                        start_new_session=True,
                        env={**os.environ, "LC_ALL": "C.UTF-8"},
                    )
            except OSError as error:
                started.set_exception(PlatformError(f"{command[-1]} cannot be started: {error}"))
            else:
                started.set_result(child)


_SPAWNER = _Spawner()


def start_tethered(command: Sequence[str | Path], *, output: Path) -> subprocess.Popen[bytes]:
    """Start `command` with stdout and stderr appended to `output`; it is killed when this process ends."""
    tether = [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid())]
    return _SPAWNER.start([*tether, *map(str, command)], output)


def stop_all(children: Sequence[subprocess.Popen[bytes]], timeout: float) -> None:
    """Terminate all children at once, and kill those that need more than `timeout` seconds."""
    for child in children:
        child.terminate()
    deadline = time.monotonic() + timeout
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
