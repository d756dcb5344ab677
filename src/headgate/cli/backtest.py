"""`headgate share-groups --backtest`: what the breaker of a group would have done with other settings, from the tables.

It reads the recorded counts of one group and simulates all configurations in this process, so it needs neither Spark
nor a running gateway, and has the records of today. `breaker_backtest` has whole days of all groups.
"""

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from headgate.base.errors import PlatformError, UsageError
from headgate.cli.cluster_calls import tell
from headgate.cli.columns import json_text, table, widest
from headgate.cli.escaping import escaped
from headgate.share_groups.model.backtest import (
    DAY_S,
    BacktestSummary,
    CountColumns,
    GroupHistory,
    configurations,
    recommended,
    summarize,
)
from headgate.share_groups.model.breaker import BreakerRules
from headgate.share_groups.model.group_configs import MIN_MESSAGES, THRESHOLD_PERCENT, WINDOW_MS, GroupSettings
from headgate.share_groups.model.recorded_history import paused_periods, recorded_event, recorded_settings, rules_of
from headgate.tables.definitions import table_named
from headgate.tables.reader import Condition, TableReader

_MAX_DAYS: Final = 90
_SHOWN: Final = 10
_ROWS_TOLD: Final = 500_000
_HEADING: Final = ("", "THRESHOLD", "WINDOW", "MIN-MESSAGES", "TRIPS", "PAUSED", "AVOIDED", "FALSE-TRIPS")


def run(args: argparse.Namespace, root: Path) -> int:
    if not 1 <= args.days <= _MAX_DAYS:
        raise UsageError(f"--days must be from 1 to {_MAX_DAYS}")
    [group] = args.group
    end = time.time_ns() // 1_000_000_000
    reader = TableReader(root)
    try:
        history, settings = _read(reader, group, end - args.days * DAY_S, end)
    finally:
        reader.close()
    live = rules_of(settings)
    pause_s = settings.auto_resume_ms // 1000
    summaries = [summarize(rules, history.simulate(rules, pause_s)) for rules in configurations(live)]
    best = recommended(summaries)
    left_out_s = history.left_out_s(history.begin, history.end)
    if args.json:
        print(json_text(_document(group, args.days, summaries, best, left_out_s)), end="")
    else:
        print(_text(group, args.days, summaries, best, left_out_s, pause_s), end="")
    return 0


def _read(reader: TableReader, group: str, begin: int, end: int) -> tuple[GroupHistory, GroupSettings]:
    of_group = Condition("group", "=", group)
    rows = reader.stream(
        table_named("dispositions"),
        where=(of_group, Condition("at", ">=", begin * 1000), Condition("at", "<", end * 1000)),
        columns=("member", "at", "accepted", "dead_lettered"),
    )
    if rows is None:
        raise PlatformError(
            "there is no table dispositions: name the folder of the tables with --path, or run `headgate pipeline run`"
        )
    counts = _counted(rows)
    if not counts.second.size:
        raise UsageError(f"no records of the share group {escaped(group)} were counted in this time: check the name")
    events = reader.stream(table_named("breaker_events"), where=(of_group,), columns=("at", "event", "by", "detail"))
    recorded = [recorded_event(one["at"], one["event"], one["by"], one["detail"]) for one in events or ()]
    first = max(begin, int(counts.second.min()))
    history = GroupHistory(counts, begin=first, end=end, paused=paused_periods(recorded, end=end))
    return history, recorded_settings(recorded)


def _counted(rows: Iterable[dict[str, Any]]) -> CountColumns:
    members: dict[str, int] = {}
    counted: list[tuple[int, int, int, int]] = []
    for row in rows:
        member = members.setdefault(row["member"], len(members))
        counted.append((row["at"] // 1000, member, row["accepted"], row["dead_lettered"]))
        if len(counted) % _ROWS_TOLD == 0:
            tell(f"{len(counted)} records read")
    columns = np.array(counted, dtype=np.int64).reshape(-1, 4)
    return CountColumns(second=columns[:, 0], member=columns[:, 1], delivered=columns[:, 2], dlq_written=columns[:, 3])


def _document(
    group: str, days: int, summaries: Sequence[BacktestSummary], best: int | None, left_out_s: int
) -> dict[str, Any]:
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
        for one in summaries
    ]
    return {
        "group": group,
        "days": days,
        "configs": configs,
        "recommended": best,
        "live": 0,
        "left_out_s": left_out_s,
    }


def _text(
    group: str, days: int, summaries: Sequence[BacktestSummary], best: int | None, left_out_s: int, pause_s: int
) -> str:
    """The live setting, the recommended one, and those that avoid most."""
    by_use = sorted(
        range(1, len(summaries)), key=lambda number: (summaries[number].false_trips, -summaries[number].avoided, number)
    )
    shown = list(dict.fromkeys([0, *(() if best is None else (best,)), *by_use]))[:_SHOWN]
    rows: list[Sequence[str]] = [_HEADING]
    for number in shown:
        one = summaries[number]
        mark = " ".join(word for word, at in (("live", 0), ("recommended", best)) if at == number)
        rows.append(
            (
                mark,
                f"{one.rules.threshold_percent}%",
                f"{one.rules.window_ms / 1000:g} s",
                str(one.rules.min_messages),
                str(one.trips),
                f"{one.paused_s} s",
                str(one.avoided),
                str(one.false_trips),
            )
        )
    widths = [widest(rows, place, least=len(name)) for place, name in enumerate(_HEADING)]
    text = table(rows, widths[:-1])
    text += (
        f"\n{len(summaries)} settings over the last {days} days; a simulated pause takes {pause_s} s. --json has all.\n"
    )
    if left_out_s:
        text += f"The group was really paused for {left_out_s} s, which are left out.\n"
    if best is None:
        return text + "No setting would have tripped.\n"
    if best == 0:
        return text + "Keep the live setting.\n"
    return text + f"To use the recommended setting:\n  {_command(group, summaries[best].rules)}\n"


def _command(group: str, rules: BreakerRules) -> str:
    values = (
        (THRESHOLD_PERCENT, rules.threshold_percent),
        (WINDOW_MS, rules.window_ms),
        (MIN_MESSAGES, rules.min_messages),
    )
    configs = ",".join(f"{name}={value}" for name, value in values)
    return (
        "kafka-configs.sh --bootstrap-server GATEWAY --alter --entity-type groups "
        f"--entity-name {escaped(group)} --add-config {configs}"
    )
