"""Plans and replays as text and as the JSON documents of the commands."""

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from headgate.cli.escaping import escaped
from headgate.cli.row_text import print_rows
from headgate.dead_letters.model.plans import ORDER_NOTES, ReplayPlan
from headgate.dead_letters.replayer import ReplayResult

_BAR: Final = 30
_EVERY_S: Final = 2.0
_EVERY_ON_TERMINAL_S: Final = 0.2
_RATE_S: Final = 10.0


def plan_document(plan: ReplayPlan) -> dict[str, Any]:
    return {
        "plan": plan.plan,
        "records": plan.records,
        "expired": plan.expired,
        "superseded": plan.superseded,
        "to": plan.to,
        "group": plan.group,
        "parked": plan.parked,
        "already_replayed": plan.already_replayed,
        "over_max_replays": plan.over_max_replays,
        "targets": dict(plan.targets),
        "reasons": dict(plan.reasons),
        "readers": list(plan.readers),
        "notes": list(ORDER_NOTES),
    }


def print_plan(plan: ReplayPlan, next_command: str) -> None:
    targets = ", ".join(sorted(plan.targets)) or "nowhere"
    print(f"plan {plan.plan}: {plan.records} records of group {escaped(plan.group)} to {escaped(targets)}")
    for number, words in (
        (plan.parked, "to the parking topic: replayed too often"),
        (plan.expired, "left out: the source is gone or not identified, and the dead letter has no copy"),
        (plan.superseded, "left out: the partition has a later record of the same key (--include-superseded)"),
        (plan.already_replayed, "left out: already replayed"),
        (plan.over_max_replays, "left out: replayed too often, and there is no parking topic"),
    ):
        if number:
            print(f"{number:>8} {words}")
    if plan.reasons:
        print()
        print_rows(["reason", "records"], [[escaped(words), str(number)] for words, number in plan.reasons.items()])
    print()
    for reader in plan.readers:
        print(f"also reads it: {escaped(reader)}")
    for note in ORDER_NOTES:
        print(f"note: {note}")
    if plan.to_write:
        print(f"next: {escaped(next_command)}")


def replay_document(result: ReplayResult) -> dict[str, Any]:
    return {
        "plan": result.plan,
        "state": result.state,
        "written": result.written,
        "parked": result.parked,
        "skipped": result.skipped,
        "reasons": result.reasons,
        "stopped_by": result.stopped_by,
    }


def replay_text(result: ReplayResult, *, dry_run: bool) -> str:
    verb = "would be written" if dry_run else "written"
    counts = f"{result.written} records {verb}, {result.parked} parked, {result.skipped} skipped"
    reasons = ", ".join(f"{number} {escaped(why)}" for why, number in sorted(result.reasons.items()))
    state = "dry run" if dry_run else result.state
    return f"plan {result.plan}: {state}: {counts}{f' ({reasons})' if reasons else ''}\n"


class ReplayBar:
    """Progress on standard error: a bar on a terminal, else a line every two seconds, with the rate of the last ten."""

    def __init__(self, total: int, now: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._now = now
        self._on_terminal = sys.stderr.isatty()
        self._printed = now()
        self._seen: deque[tuple[float, int]] = deque()  # when how many were done

    def show(self, result: ReplayResult) -> None:
        now = self._now()
        if not self._seen:
            self._seen.append((now, result.done))
        if now - self._printed < (_EVERY_ON_TERMINAL_S if self._on_terminal else _EVERY_S):
            return
        self._printed = now
        share = min(1.0, result.done / max(1, self._total))
        while len(self._seen) > 1 and self._seen[0][0] < now - _RATE_S:
            self._seen.popleft()
        began, before = self._seen[0]
        rate = (result.done - before) / max(0.001, now - began)
        self._seen.append((now, result.done))
        line = f"{result.done} of {self._total} records ({share:.0%}), {rate:.0f} records/s, {result.state}"
        if self._on_terminal:
            filled = "#" * round(_BAR * share)
            print(f"\r[{filled:<{_BAR}}] {line} ", end="", file=sys.stderr, flush=True)
        else:
            print(f"headgate: {line}", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._on_terminal:
            print(file=sys.stderr)
