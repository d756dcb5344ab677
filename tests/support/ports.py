"""The one allocator of test ports: blocks of 16 from 20000 to 31999, below the ephemeral range.

A lock file makes it safe for parallel runs: a block is owned by the process whose id stands in its file, and a
block of a process that has ended is free again.
"""

import fcntl
import os
import socket
import tempfile
from pathlib import Path

FIRST, LAST, SIZE = 20000, 31999, 16
_FOLDER = Path(tempfile.gettempdir()) / "headgate-test-ports"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def port_block() -> int:
    """The first port of a block of 16 that nobody else has until this process ends."""
    _FOLDER.mkdir(exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for first in range(FIRST, LAST - SIZE + 2, SIZE):
            owner = _FOLDER / str(first)
            if owner.exists() and _alive(int(owner.read_text() or "0")):
                continue
            if all(_free(port) for port in range(first, first + SIZE)):
                owner.write_text(str(os.getpid()))
                return first
    raise RuntimeError(f"no free block of {SIZE} ports between {FIRST} and {LAST}")
