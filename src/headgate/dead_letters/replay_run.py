"""What a replay does before its first record, and what watches it: the same for the command and for the web server."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.dead_letters.model.plans import ReplayPlan, ReplayRefusedError, ReplayRules
from headgate.dead_letters.plan_store import check_targets
from headgate.dead_letters.progress_topic import ensure_progress_topic
from headgate.dead_letters.replay_control import ReplayControl
from headgate.dead_letters.replayer import Replayer, ReplayOptions, ReplayResult
from headgate.kafka.topics import TopicAdmin

MOST_RATE: Final = 1_000_000
_WATCH_S: Final = 1.0


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


class BreakerWatch(threading.Thread):
    """Stops the replay when the breaker of the group trips after the replay began.

    `look` returns the breaker's generation and whether the group is paused; `tell` gets what the operator must know.
    """

    def __init__(
        self, group: str, control: ReplayControl, look: Callable[[], tuple[int, bool]], tell: Callable[[str], None]
    ) -> None:
        super().__init__(name="headgate-breaker-watch", daemon=True)
        self._group = group
        self._control = control
        self._look = look
        self._tell = tell
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        first: int | None = None
        while True:
            try:
                generation, paused = self._look()
            except ClusterError as failure:
                if first is None:
                    self._tell(
                        f"the circuit breaker of group {self._group} cannot be watched, so the replay does not stop "
                        f"when it trips: {failure}"
                    )
                    return
            else:
                if first is None:
                    first = generation
                    if paused:
                        self._tell(f"group {self._group} is paused: it reads replayed records when it is resumed")
                elif generation > first:
                    self._control.stop(f"the circuit breaker of group {self._group} tripped again")
                    return
            if self._stopped.wait(_WATCH_S):
                return
