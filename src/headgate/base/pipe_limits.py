"""How many pipes a worker may have: the kernel limits the pages of all pipes of a user.

Workers use pipes for large responses (`proxy/pipes.py`), and `headgate doctor` checks that there are some.
"""

import os
from pathlib import Path
from typing import Final

PIPE_BYTES: Final = 512 * 1024  # with fewer the kernel is called too often, with more nothing is gained
MOST_PIPES: Final = 64  # of a worker: only clients that are slower than their broker hold one between wake-ups
_SHARE_OF_USER: Final = 2  # the gateway takes one part in so many of what its user may have
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_LIMITS: Final = Path("/proc/sys/fs")


def pipe_limit(workers: int, limits: Path = _LIMITS) -> int:
    """How many pipes of `PIPE_BYTES` one of so many workers may have; 0 where the kernel allows none."""
    pages, largest = (_number(limits / name) for name in ("pipe-user-pages-soft", "pipe-max-size"))
    if largest < PIPE_BYTES:
        return 0
    if not pages:  # without a limit
        return MOST_PIPES
    return min(MOST_PIPES, pages * _PAGE_BYTES // PIPE_BYTES // _SHARE_OF_USER // workers)


def user_pages_for(pipes: int, workers: int) -> int:
    """The `fs.pipe-user-pages-soft` with which each of so many workers has so many pipes."""
    return pipes * workers * _SHARE_OF_USER * PIPE_BYTES // _PAGE_BYTES


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0
