"""Background tasks: their owner, and retrying until something succeeds.

Invariant: a task has an owner that reports its failure once and ends it. Logging is the caller's, through callbacks,
so that each feature keeps its own log event and metric.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
OnFailure = Callable[[BaseException], None]


class TaskSet:
    """Owns background tasks: `on_failure` is called once for each that raises; `cancel_all` ends the others."""

    def __init__(self, on_failure: OnFailure) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task that runs to its end, also when its caller stops waiting for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def cancel_all(self, *, grace_s: float = 0.0) -> None:
        """Let the tasks run for up to `grace_s` seconds, cancel the rest, and return when all have ended."""
        if self._tasks and grace_s > 0:
            await asyncio.wait(self._tasks, timeout=grace_s)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def join(self) -> None:
        """Return when all tasks have ended, also those that are started meanwhile; none is cancelled."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._on_failure(failure)


async def retry(
    attempt: Callable[[], Awaitable[T]],
    *,
    pause_s: float,
    on_problem: Callable[[str], None],
    errors: type[Exception] | tuple[type[Exception], ...] = Exception,
) -> T:
    """Call `attempt` every `pause_s` seconds until it succeeds, and return its result.

    `on_problem` gets the text of a failure when it differs from that of the attempt before, so that a long outage is
    logged once. Exceptions other than `errors` are raised.
    """
    problem: str | None = None
    while True:
        try:
            return await attempt()
        except errors as failure:
            text = str(failure) or repr(failure)
            if text != problem:
                on_problem(text)
            problem = text
        await asyncio.sleep(pause_s)


async def run_forever(work: Callable[[], Awaitable[None]], *, pause_s: float, on_failure: OnFailure) -> None:
    """Run `work` again whenever it returns, and `pause_s` seconds after it raised."""
    while True:
        try:
            await work()
        except Exception as failure:  # noqa: BLE001 - the supervisor of this task
            on_failure(failure)
            await asyncio.sleep(pause_s)
