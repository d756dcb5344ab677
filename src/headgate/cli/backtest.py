"""`headgate share-groups --backtest`: what the breaker of a group would have done with other settings, from the tables.

It reads the recorded counts of one group and simulates all configurations in this process, so it needs neither Spark
nor a running gateway, and has the records of today. `breaker_backtest` has whole days of all groups.
"""

import argparse
import shlex
import time
from collections.abc import Sequence
from typing import Final

from headgate.base.errors import UsageError
from headgate.base.locations import Location
from headgate.cli.cluster_calls import tell
from headgate.cli.columns import json_text, table, widest
from headgate.cli.escaping import escaped
from headgate.lineage.backtests import MAX_DAYS, GroupBacktest, backtest_group
from headgate.lineage.estate import Estate
from headgate.share_groups.model.backtest import BacktestSummary
from headgate.share_groups.model.breaker import BreakerRules
from headgate.share_groups.model.group_configs import BREAKER_ENABLE, MIN_MESSAGES, THRESHOLD_PERCENT, WINDOW_MS

_SHOWN: Final = 10
_HEADING: Final = ("", "THRESHOLD", "WINDOW", "MIN-MESSAGES", "TRIPS", "PAUSED", "AVOIDED", "FALSE-TRIPS")


def run(args: argparse.Namespace, root: Location) -> int:
    if not 1 <= args.days <= MAX_DAYS:
        raise UsageError(f"--days must be from 1 to {MAX_DAYS}")
    [group] = args.group
    estate = Estate(root, cluster=args.cluster_id)
    now_ms = time.time_ns() // 1_000_000
    try:
        found = backtest_group(
            estate, group, days=args.days, now_ms=now_ms, on_rows=lambda rows: tell(f"{rows} records read")
        )
    finally:
        estate.close()
    if found is None:
        raise UsageError(f"no records of the share group {escaped(group)} were counted in this time: check the name")
    print(json_text(found.document()) if args.json else backtest_text(found), end="")
    return 0


def backtest_text(found: GroupBacktest) -> str:
    """The live setting, the recommended one, and those that avoid most."""
    summaries, best = found.summaries, found.recommended
    by_use = sorted(range(1, len(summaries)), key=lambda number: (_use(summaries[number]), number))
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
    time_span = "day" if found.days == 1 else f"{found.days} days"
    text += f"\n{len(summaries)} settings over the last {time_span}; --json has all. "
    text += f"A simulated pause takes {found.pause_s} s.\n"
    if found.left_out_s:
        text += f"The group was really paused for {found.left_out_s} s, which are left out.\n"
    if found.real_trips:
        text += f"The circuit breaker really tripped {_times(found.real_trips)} then.\n"
    if found.changes:
        text += f"Its settings were changed {_times(found.changes)} then; the last ones are simulated as live.\n"
    if not found.is_recorded:
        text += "No change of its settings is recorded: the defaults are simulated as live.\n"
    if not found.is_enabled:
        text += "The circuit breaker of the group is not enabled: the live setting does nothing.\n"
    if best is None:
        if any(one.trips for one in summaries):
            return text + "No setting is recommended: one member or one key alone caused each trip.\n"
        return text + "No setting would have tripped.\n"
    if best == 0 and found.is_enabled:
        return text + "Keep the live setting.\n"
    command = _command(found.group, summaries[best].rules, enable=not found.is_enabled)
    return text + f"To use the recommended setting:\n  {command}\n"


def _use(one: BacktestSummary) -> tuple[bool, int, int]:
    return not one.trips, one.false_trips, -one.avoided


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _command(group: str, rules: BreakerRules, *, enable: bool) -> str:
    values = (
        *(((BREAKER_ENABLE, "true"),) if enable else ()),
        (THRESHOLD_PERCENT, rules.threshold_percent),
        (WINDOW_MS, rules.window_ms),
        (MIN_MESSAGES, rules.min_messages),
    )
    configs = ",".join(f"{name}={value}" for name, value in values)
    return (
        "kafka-configs.sh --bootstrap-server GATEWAY --alter --entity-type groups "
        f"--entity-name {shlex.quote(escaped(group))} --add-config {configs}"
    )
