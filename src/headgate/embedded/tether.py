"""Becomes the program in its arguments, tied to its parent: `python tether.py PARENT_PID PROGRAM ARGUMENT...`.

Run as a script by `spawn.py`, with nothing of Headgate importable. It asks the kernel to kill this process when its
parent ends, makes sure that the parent has not ended meanwhile, and replaces itself: the program keeps the pid.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2)


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("tether: the parent has ended")
    try:
        os.execv(command[0], command)  # noqa: S606 - a shell is the last thing wanted here
    except OSError as error:
        sys.exit(f"tether: {command[0]}: {error}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
