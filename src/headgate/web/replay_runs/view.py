"""The replays as callers see them: from the topic, and for a process of this server from its last report."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.web.replay_runs.job import ReplayKind
from headgate.web.replay_runs.progress import ReplayRecords, ReplayTail, ReplayTotals
from headgate.web.replay_runs.supervisor import MOST_RUNNING, ReplayRun, ReplaySupervisor
from headgate.web.visible_names import VisibleNames

Row = dict[str, Any]
_HIDDEN: Final = "The text is not shown to a token that is limited to names"
_COUNTS: Final = ("written", "parked", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHead:
    """The part of a plan that its replay needs; `records` are all that are to be written."""

    group: str
    to: str
    records: int


class ReplayView:
    """Used on the event loop. `tail` is None in tests that read no topic."""

    def __init__(self, records: ReplayRecords, supervisor: ReplaySupervisor, tail: ReplayTail | None = None) -> None:
        self.records = records
        self._supervisor = supervisor
        self._tail = tail

    @property
    def problem(self) -> str | None:
        return None if self._tail is None else self._tail.not_read

    @property
    def version(self) -> int:
        """Another one after each change."""
        return self.records.changes + self._supervisor.changes

    def state(self, plan: str) -> Row:
        """The state and the numbers of a plan's replays."""
        run, totals = self._supervisor.run_of(plan), self.records.totals(plan)
        is_newest = run is not None and (run.is_running or totals is None or run.at >= totals.at)
        counted = [one for one in (run, totals) if one is not None]
        state = "PLANNED"
        if is_newest and run is not None:
            state = run.state
        elif totals is not None:
            state = totals.state or "RUNNING"
        return {"state": state} | {
            name: max((int(getattr(one, name)) for one in counted), default=0) for name in _COUNTS
        }

    def replay(self, plan: str, head: PlanHead | None, names: VisibleNames) -> Row | None:
        """The replay of a plan as the caller may see it; None where there is none."""
        run, totals = self._supervisor.run_of(plan), self.records.totals(plan)
        dry = self._supervisor.run_of(plan, dry=True)
        newest = run or dry
        group = head.group if head is not None else totals.group if totals is not None else None
        if group is None and newest is not None:
            group = newest.group
        if (totals is None and newest is None) or (names.are_limited and (group is None or not names.has(group))):
            return None
        state = self.state(plan)
        is_here = run is not None and run.is_running
        is_current = run is not None and (is_here or totals is None or run.at >= totals.at)
        at = max(one.at for one in (run, totals, dry) if one is not None)
        by = run.by if run is not None and is_current else totals.by if totals is not None else None
        of_run: Row = {"rate": None, "timestamp": None, "stopped_by": None, "error": None, "reasons": {}, "notes": []}
        if run is not None and is_current:
            of_run = {
                "rate": run.rate,
                "timestamp": run.timestamps,
                "stopped_by": run.stopped_by,
                "error": _text(run.error, names),
                "reasons": dict(run.reasons),
                "notes": [] if names.are_limited else list(run.notes),
            }
        return {
            "plan": plan,
            "group": group,
            "to": None if head is None or (head.to != "original" and not names.has(head.to)) else head.to,
            **state,
            "records": None if head is None else head.records,
            "at": at,
            "by": by,
            "here": is_here,
            **of_run,
            "go_on": None if is_here else _go_on(plan, state["state"]),
            "dry_run": None if dry is None else _dry_run(dry, names),
        }

    def replays(self, heads: Mapping[str, PlanHead], names: VisibleNames, limit: int) -> tuple[list[Row], bool]:
        """The newest changes first; whether there are more."""
        plans = {run.plan for run in self._supervisor.runs()}
        plans |= {one.plan for one in self._newest(limit + len(plans), names, heads)}
        rows = (self.replay(plan, heads.get(plan), names) for plan in plans)
        found = sorted((row for row in rows if row is not None), key=lambda row: (-row["at"], row["plan"]))
        return found[:limit], len(found) > limit

    def _newest(self, limit: int, names: VisibleNames, heads: Mapping[str, PlanHead]) -> list[ReplayTotals]:
        found = []
        for one in self.records.all_totals():
            group = heads[one.plan].group if one.plan in heads else one.group
            if names.are_limited and (group is None or not names.has(group)):
                continue
            found.append(one)
            if len(found) > limit:
                break
        return found

    def document(self, heads: Mapping[str, PlanHead], names: VisibleNames, limit: int) -> Row:
        rows, truncated = self.replays(heads, names, limit)
        return {
            "replays": rows,
            "truncated": truncated,
            "running": self._supervisor.running,
            "most": MOST_RUNNING,
            "problem": self.problem,
        }


def _dry_run(run: ReplayRun, names: VisibleNames) -> Row:
    assert run.kind is ReplayKind.DRY_RUN
    return {
        "state": run.state,
        **{name: getattr(run, name) for name in _COUNTS},
        "reasons": dict(run.reasons),
        "stopped_by": run.stopped_by,
        "error": _text(run.error, names),
    }


def _text(text: str | None, names: VisibleNames) -> str | None:
    """A text may have any names."""
    return _HIDDEN if text is not None and names.are_limited else text


def _go_on(plan: str, state: str) -> str | None:
    """The plan is quoted for a shell: it may be the name that another operator wrote to the topic."""
    named = shlex.quote(plan)
    match state:
        case "PAUSED" | "FAILED":
            return f"Start it here again, or run `headgate dlq replay {named} --config FILE`: it goes on where it was"
        case "RUNNING" | "STARTING":
            return (
                "A command or another server runs it, or it was killed. One that was killed goes on where it was when "
                f"it is started again, here or with `headgate dlq replay {named} --config FILE`"
            )
        case _:
            return None
