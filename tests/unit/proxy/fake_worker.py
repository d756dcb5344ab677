"""A worker that does what the first word of a file says: `python fake_worker.py FILE`.

It finds its socket to the supervisor among what it has inherited instead of reading its inheritance, so that nothing
of Headgate has to be imported: it starts in no time.

    serves      reports that nothing is wrong; ends when it is told to
    troubled    reports a problem
    noticing    serves, and reports a detail
    silent      reports nothing
    broken      ends at once with code 2
    stubborn    serves, and does not end when it is told to
    babbling    serves, then reports what is no report
    verbose     serves, and every report is larger than a supervisor accepts
"""

import json
import os
import signal
import socket
import stat
import sys
import time
from pathlib import Path


def main(file: Path) -> int:
    manner = file.read_text(encoding="utf-8").split()[0]
    if manner == "broken":
        return 2
    sys.stdin.buffer.read()
    ended: list[int] = []
    signal.signal(signal.SIGTERM, signal.SIG_IGN if manner == "stubborn" else lambda number, _: ended.append(number))
    descriptors = sorted(int(link.name) for link in Path("/proc/self/fd").iterdir())
    sockets = [one for one in map(_inherited, descriptors) if one is not None]
    [reports] = [one for one in sockets if one.family == socket.AF_UNIX]
    listeners = [one for one in sockets if one.family == socket.AF_INET]
    problems = {"upstream": "is away"} if manner == "troubled" else {}
    details = {"topology store": "2 cancelled calls have not ended"} if manner == "noticing" else {}
    reports.setblocking(False)
    calls = 0
    while not ended:
        calls += 1
        samples = [["headgate_connections", [], len(listeners)], ["headgate_connections_accepted", [], calls]]
        line = json.dumps({"samples": samples, "problems": problems, "details": details}) + "\n"
        try:
            if manner == "verbose":
                _send_all(reports, line.replace("[[", "[" + '["headgate_other", [], 1], ' * 100_000 + "[").encode())
            elif manner != "silent":
                reports.send(line.encode())
            if manner == "babbling":
                reports.send(b"{" * 100 + b"\n")
            if not reports.recv(1):
                return 0  # the supervisor is gone
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return 0
    return 0


def _send_all(reports: socket.socket, data: bytes) -> None:
    reports.setblocking(True)
    try:
        reports.sendall(data)
    finally:
        reports.setblocking(False)


def _inherited(descriptor: int) -> socket.socket | None:
    """A socket that is not one of the standard streams; standard input may be there twice."""
    if descriptor < 3:
        return None
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    if not stat.S_ISSOCK(found.st_mode) or found.st_ino == os.fstat(0).st_ino:
        return None
    return socket.socket(fileno=descriptor)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
