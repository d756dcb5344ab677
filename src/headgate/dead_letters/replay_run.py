"""What a replay does before its first record, and what watches it: the same for the command and for the web server."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

from headgate.base.clock import Clock
from headgate.base.errors import HeadgateError
from headgate.base.locations import Location
from headgate.dead_letters.audit import refresh_audit
from headgate.dead_letters.model.plans import ReplayPlan, ReplayRefusedError, ReplayRules
from headgate.dead_letters.plan_store import check_targets
from headgate.dead_letters.progress_topic import ensure_progress_topic
from headgate.dead_letters.replay_control import ReplayControl
from headgate.dead_letters.replayer import Replayer, ReplayOptions, ReplayResult
from headgate.kafka.topics import TopicAdmin

MOST_RATE: Final = 1_000_000
# One failed look can be a broker that restarts; after so many in a row the replay says so.
FAILURES_TOLD: Final = 5


def checked_replayer(
    plan: ReplayPlan,
    rules: ReplayRules,
    settings: Mapping[str, Any],
    *,
    clock: Clock,
    options: ReplayOptions,
    control: ReplayControl,
    on_progress: Callable[[ReplayResult], None],
) -> Replayer:
    """The replayer of a plan whose targets may be written to; `ReplayRefusedError` when they may not."""
    admin = TopicAdmin(settings)
    limits = check_targets(plan, rules, admin)
    now_ms = clock.epoch_ms()
    for one in limits.values():
        refused = one.refusal(oldest_at=plan.oldest_at, now_ms=now_ms, timestamps=options.timestamps)
        if refused is not None:
            raise ReplayRefusedError(refused)
    ensure_progress_topic(admin)
    return Replayer(
        plan=plan,
        limits=limits,
        settings=settings,
        admin=admin,
        clock=clock,
        options=options,
        control=control,
        on_progress=on_progress,
    )


@contextmanager
def audited(
    root: Location, settings: Mapping[str, Any], plan: ReplayPlan, tell: Callable[[str], None]
) -> Iterator[None]:
    """Bring `replay_audit` up to date at the end of the block, also when it fails; `tell` gets why it could not be."""
    try:
        yield
    finally:
        try:
            refresh_audit(root, settings, TopicAdmin(settings), plan.cluster_id)
        except HeadgateError as failure:
            tell(f"the table replay_audit was not updated: {failure}; the next replay or plan updates it")


class GroupBreaker(Protocol):
    """The breaker of the group; its coroutines run in one event loop."""

    async def generation(self) -> tuple[int, bool]:
        """The generation of the breaker, and whether the group is paused; `HeadgateError` when it is not known."""

    async def close(self) -> None:
        """Close its connections."""


class BreakerWatch(threading.Thread):
    """Stops the replay when the breaker of the group trips after the replay began.

    `tell` gets what the operator must know: also that the breaker cannot be watched any more, and that it can again.
    """

    def __init__(
        self,
        group: str,
        control: ReplayControl,
        breaker: GroupBreaker,
        tell: Callable[[str], None],
        *,
        every_s: float = 1.0,
    ) -> None:
        super().__init__(name="headgate-breaker-watch", daemon=True)
        self._group = group
        self._control = control
        self._breaker = breaker
        self._tell = tell
        self._every_s = every_s
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        with asyncio.Runner() as runner:
            try:
                self._watch(lambda: runner.run(self._breaker.generation()))
            finally:
                runner.run(self._breaker.close())

    def _watch(self, look: Callable[[], tuple[int, bool]]) -> None:
        first: int | None = None
        failures = 0
        while True:
            try:
                generation, paused = look()
            except HeadgateError as failure:
                failures += 1
                if first is None or failures == FAILURES_TOLD:
                    when = "cannot" if first is None else "can no longer"
                    self._tell(
                        f"the circuit breaker of group {self._group} {when} be watched, so the replay does not stop "
                        f"when it trips: {failure}"
                    )
                if first is None:
                    return
            else:
                if failures >= FAILURES_TOLD:
                    self._tell(f"the circuit breaker of group {self._group} is watched again")
                failures = 0
                if first is None:
                    first = generation
                    if paused:
                        self._tell(f"group {self._group} is paused: it reads replayed records when it is resumed")
                elif generation > first:
                    self._control.stop(f"the circuit breaker of group {self._group} tripped again")
                    return
            if self._stopped.wait(self._every_s):
                return
