"""Shared by the long-running commands: the signals that end them, and waiting until the gateway is ready."""

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping

from headgate.base.clock import Clock
from headgate.base.errors import INTERRUPTED

_POLL_SECONDS = 0.05
_PROGRESS_SECONDS = 2.0


class Stopped:
    """Set by SIGTERM (exit code 0) or SIGINT (130)."""

    def __init__(self) -> None:
        self.exit_code = 0
        self.event = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop, 0)
        loop.add_signal_handler(signal.SIGINT, self.stop, INTERRUPTED)

    def stop(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self.event.set()


async def ready_or_stopped(problems: Callable[[], Mapping[str, str]], stopped: Stopped, clock: Clock) -> bool:
    """Wait until there are no problems, and print them every two seconds; False when a signal came first."""
    printed = clock.monotonic()
    while (reasons := problems()) and not stopped.event.is_set():
        if clock.monotonic() - printed >= _PROGRESS_SECONDS:
            printed = clock.monotonic()
            text = "; ".join(f"{what}: {why}" for what, why in sorted(reasons.items()))
            print(f"headgate: waiting for the cluster: {text}", file=sys.stderr)
        try:
            async with asyncio.timeout(_POLL_SECONDS):
                await stopped.event.wait()
        except TimeoutError:
            continue
    return not stopped.event.is_set()
