"""A child ends with the process that started it, and not with the thread."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headgate.base.errors import PlatformError
from headgate.embedded import spawn
from headgate.embedded.spawn import start_tethered, stop_all

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_output_of_a_child_is_appended_to_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print('out', flush=True); print('err', file=sys.stderr)"]
    for _ in range(2):
        assert start_tethered(command, output=tmp_path / "log").wait(20) == 0
    assert (tmp_path / "log").read_text().split() == ["out", "err"] * 2


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    children: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: children.append(start_tethered(SLEEP, output=tmp_path / "log")))
    thread.start()
    thread.join()
    time.sleep(0.3)
    assert children[0].poll() is None
    children[0].kill()
    children[0].wait(10)


def test_a_child_does_not_outlive_a_process_that_was_killed(tmp_path: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from headgate.embedded.spawn import start_tethered, stop_all
print(start_tethered({SLEEP!r}, output=Path({str(tmp_path / "log")!r})).pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        deadline = time.monotonic() + 10
        # The kernel is asked by the child itself, a moment after it has started.
        while "time.sleep(60)" not in "".join(Path(f"/proc/{pid}/cmdline").read_text().split("\0")[2:3]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        parent.kill()
    while running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_program_that_does_not_exist_ends_at_once(tmp_path: Path) -> None:
    assert start_tethered([tmp_path / "nothing"], output=tmp_path / "log").wait(20) == 1
    assert "No such file" in (tmp_path / "log").read_text()


def test_a_log_that_cannot_be_written_is_a_platform_error(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="cannot be started"):
        start_tethered(SLEEP, output=tmp_path / "no" / "log")


def test_a_child_whose_parent_has_ended_does_not_start(tmp_path: Path) -> None:
    tether = [sys.executable, "-I", "-S", "-c", spawn._TETHER, "1", *SLEEP]
    done = subprocess.run(tether, capture_output=True, text=True, timeout=20, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr.strip()) == (1, "tether: the parent has ended")


def test_children_are_stopped_at_once_and_killed_at_one_deadline(tmp_path: Path) -> None:
    ignoring = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True)"
    stubborn = f"{ignoring}; time.sleep(60)"
    log = tmp_path / "log"
    children = [start_tethered([sys.executable, "-c", stubborn], output=log) for _ in range(3)]
    deadline = time.monotonic() + 20
    while log.read_text().count("on") < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    began = time.monotonic()
    stop_all(children, 1.0)
    assert [child.returncode for child in children] == [-signal.SIGKILL] * 3
    assert time.monotonic() - began < 2.5
