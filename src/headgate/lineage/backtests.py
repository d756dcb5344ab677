"""A back-test of one share group, from the tables: what its breaker would have done with other settings. No Spark.

It has the records of today; the table `breaker_backtest` has whole days of all groups.
"""

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headgate.lineage.estate import Estate, NoTableError
from headgate.share_groups.model.backtest import (
    DAY_S,
    DEAD_LETTER_DELAY_S,
    NO_KEY,
    BacktestSummary,
    CountColumns,
    DeadLetterColumns,
    GroupHistory,
    Numbers,
    configurations,
    recommended,
    summarize,
)
from headgate.share_groups.model.group_configs import MIN_MESSAGES, THRESHOLD_PERCENT, WINDOW_MS
from headgate.share_groups.model.recorded_history import (
    RecordedEvent,
    paused_periods,
    recorded_event,
    recorded_settings,
    rules_of,
)
from headgate.tables.reader import Condition

Row = dict[str, Any]
DEFAULT_DAYS: Final = 7
MAX_DAYS: Final = 90
_TOLD_EVERY: Final = 500_000
_SIMULATED: Final = frozenset((THRESHOLD_PERCENT, WINDOW_MS, MIN_MESSAGES))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBacktest:
    """The summaries of all settings, the live one first; `recommended` is a place among them.

    `is_enabled` is false when the breaker of the group is not enabled, so that its live setting does nothing. Of the
    simulated time `real_trips` were recorded, and `changes` of the three settings; `is_recorded` is false when no
    change of them is recorded at all, so that the live setting is taken to be the defaults. `pause_s` is the length of
    a simulated pause, and `left_out_s` the time in which the group was really paused.
    """

    group: str
    days: int
    summaries: tuple[BacktestSummary, ...]
    recommended: int | None
    is_enabled: bool
    real_trips: int
    changes: int
    is_recorded: bool
    pause_s: int
    left_out_s: int

    def document(self) -> Row:
        configs = [
            {
                "threshold_percent": one.rules.threshold_percent,
                "window_ms": one.rules.window_ms,
                "min_messages": one.rules.min_messages,
                "trips": one.trips,
                "paused_s": one.paused_s,
                "avoided": one.avoided,
                "false_trips": one.false_trips,
            }
            for one in self.summaries
        ]
        known = {"group": self.group, "days": self.days, "configs": configs, "recommended": self.recommended}
        return known | {
            "live": 0,
            "enabled": self.is_enabled,
            "real_trips": self.real_trips,
            "changes": self.changes,
            "recorded": self.is_recorded,
            "pause_s": self.pause_s,
            "left_out_s": self.left_out_s,
        }


def backtest_group(
    estate: Estate, group: str, *, days: int, now_ms: int, on_rows: Callable[[int], None] | None = None
) -> GroupBacktest | None:
    """Backtests a group; None when none of its records was counted in these days, `NoTableError` without tables.

    `on_rows` is called with the number of rows that were read, now and then.
    """
    end = now_ms // 1000
    begin = end - days * DAY_S
    of_group = Condition("group", "=", group)
    counts = _counted(
        estate.of_one_cluster(
            estate.rows(
                "dispositions",
                of_group,
                Condition("at", ">=", begin * 1000),
                Condition("at", "<", end * 1000),
                columns=("cluster_id", "member", "at", "accepted", "dead_lettered"),
            )
        ),
        on_rows,
    )
    if not counts.second.size:
        return None
    events = estate.rows("breaker_events", of_group, columns=("cluster_id", "at", "event", "by", "detail"))
    recorded = [
        recorded_event(one["at"], one["event"], one["by"], one["detail"]) for one in estate.of_one_cluster(events)
    ]
    first = max(begin, int(counts.second.min()))
    letters = _letters(estate, group, first - DEAD_LETTER_DELAY_S, end)
    history = GroupHistory(counts, begin=first, end=end, paused=paused_periods(recorded, end=end), dead_letters=letters)
    settings = recorded_settings(recorded)
    within = [one for one in recorded if first <= one.at // 1000 < end]
    pause_s = settings.auto_resume_ms // 1000
    summaries = [summarize(rules, history.simulate(rules, pause_s)) for rules in configurations(rules_of(settings))]
    return GroupBacktest(
        group=group,
        days=days,
        summaries=tuple(summaries),
        recommended=recommended(summaries),
        is_enabled=settings.breaker_enable,
        real_trips=sum(one.event == "tripped" for one in within),
        changes=sum(_changes_rules(one) for one in within),
        is_recorded=any(_changes_rules(one) for one in recorded),
        pause_s=pause_s,
        left_out_s=history.left_out_s(first, end),
    )


def _changes_rules(one: RecordedEvent) -> bool:
    return any(name in _SIMULATED for name, _ in one.changes)


def _counted(rows: Iterable[Row], on_rows: Callable[[int], None] | None) -> CountColumns:
    members: dict[str, int] = {}
    second, member, delivered, written = (array("q") for _ in range(4))  # 32 bytes a row: there may be millions
    for row in rows:
        second.append(row["at"] // 1000)
        member.append(members.setdefault(row["member"], len(members)))
        delivered.append(row["accepted"])
        written.append(row["dead_lettered"])
        if on_rows is not None and len(second) % _TOLD_EVERY == 0:
            on_rows(len(second))
    return CountColumns(
        second=_numbers(second), member=_numbers(member), delivered=_numbers(delivered), dlq_written=_numbers(written)
    )


def _letters(estate: Estate, group: str, begin: int, end: int) -> DeadLetterColumns:
    """The dead letters that the gateway wrote and did not withdraw; none while there is no table of them."""
    keys: dict[str, int] = {}
    made, of_key = array("q"), array("q")
    try:
        rows = estate.rows(
            "dead_letters",
            Condition("group", "=", group),
            Condition("dead_lettered_at", ">=", begin * 1000),
            Condition("dead_lettered_at", "<", end * 1000),
            columns=("cluster_id", "dead_lettered_at", "format", "withdrawn", "key_hash"),
        )
    except NoTableError:
        rows = iter(())
    for row in estate.of_one_cluster(rows):
        if row["format"] == "kafka" and not row["withdrawn"]:
            key = row["key_hash"]
            made.append(row["dead_lettered_at"])
            of_key.append(NO_KEY if key is None else keys.setdefault(key, len(keys)))
    return DeadLetterColumns(at=_numbers(made), key=_numbers(of_key))


def _numbers(values: "array[int]") -> Numbers:
    return np.frombuffer(values, dtype=np.int64)
