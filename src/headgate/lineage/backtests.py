"""A back-test of one share group, from the tables: what its breaker would have done with other settings. No Spark.

It has the records of today; the table `breaker_backtest` has whole days of all groups.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headgate.lineage.estate import Estate, NoTableError
from headgate.share_groups.model.backtest import (
    DAY_S,
    LETTER_DELAY_S,
    NO_KEY,
    BacktestSummary,
    CountColumns,
    GroupHistory,
    LetterColumns,
    configurations,
    recommended,
    summarize,
)
from headgate.share_groups.model.recorded_history import paused_periods, recorded_event, recorded_settings, rules_of
from headgate.tables.reader import Condition

Row = dict[str, Any]
DEFAULT_DAYS: Final = 7
MAX_DAYS: Final = 90
_TOLD_EVERY: Final = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBacktest:
    """The summaries of all settings, the live one first; `recommended` is a place among them.

    `pause_s` is the length of a simulated pause, and `left_out_s` the time in which the group was really paused.
    """

    group: str
    days: int
    summaries: tuple[BacktestSummary, ...]
    recommended: int | None
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
        return known | {"live": 0, "pause_s": self.pause_s, "left_out_s": self.left_out_s}


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
    letters = _letters(estate, group, first - LETTER_DELAY_S, end)
    history = GroupHistory(counts, begin=first, end=end, paused=paused_periods(recorded, end=end), letters=letters)
    settings = recorded_settings(recorded)
    pause_s = settings.auto_resume_ms // 1000
    summaries = [summarize(rules, history.simulate(rules, pause_s)) for rules in configurations(rules_of(settings))]
    return GroupBacktest(
        group=group,
        days=days,
        summaries=tuple(summaries),
        recommended=recommended(summaries),
        pause_s=pause_s,
        left_out_s=history.left_out_s(first, end),
    )


def _counted(rows: Iterable[Row], on_rows: Callable[[int], None] | None) -> CountColumns:
    members: dict[str, int] = {}
    counted: list[tuple[int, int, int, int]] = []
    for row in rows:
        member = members.setdefault(row["member"], len(members))
        counted.append((row["at"] // 1000, member, row["accepted"], row["dead_lettered"]))
        if on_rows is not None and len(counted) % _TOLD_EVERY == 0:
            on_rows(len(counted))
    columns = np.array(counted, dtype=np.int64).reshape(-1, 4)
    return CountColumns(second=columns[:, 0], member=columns[:, 1], delivered=columns[:, 2], dlq_written=columns[:, 3])


def _letters(estate: Estate, group: str, begin: int, end: int) -> LetterColumns:
    """The dead letters that the gateway wrote and did not withdraw; none while there is no table of them."""
    keys: dict[str, int] = {}
    made: list[tuple[int, int]] = []
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
            made.append((row["dead_lettered_at"], NO_KEY if key is None else keys.setdefault(key, len(keys))))
    columns = np.array(made, dtype=np.int64).reshape(-1, 2)
    return LetterColumns(at=columns[:, 0], key=columns[:, 1])
