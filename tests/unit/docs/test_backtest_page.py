"""The run in `docs/backtest.md` is what the command prints of its numbers, and recommends what the rule recommends."""

import re
import shlex
from pathlib import Path

from headgate.cli.backtest import backtest_text
from headgate.cli.main import parse_arguments
from headgate.lineage.backtests import GroupBacktest
from headgate.share_groups.model.backtest import BacktestSummary, configurations, recommended
from headgate.share_groups.model.breaker import BreakerRules

PAGE = (Path(__file__).parents[3] / "docs" / "backtest.md").read_text("utf-8")
ROW = r"^(live|recommended|) +(\d+)% +(\d+) s +(\d+) +(\d+) +(\d+) s +(\d+) +(\d+)$"
[(COMMAND, SHOWN)] = re.findall(r"```console\n\$ headgate (.*)\n((?:.*\n)*?)```", PAGE)


def test_the_run_is_what_the_command_prints() -> None:
    arguments = parse_arguments(shlex.split(COMMAND))
    rows = re.findall(ROW, SHOWN, re.MULTILINE)
    listed = [
        BacktestSummary(
            rules=BreakerRules(threshold_percent=int(threshold), window_ms=int(window) * 1000, min_messages=int(least)),
            trips=int(trips),
            paused_s=int(paused),
            avoided=int(avoided),
            false_trips=int(false),
        )
        for _, threshold, window, least, trips, paused, avoided, false in rows
    ]
    live = listed[0].rules
    others = [one for one in configurations(live) if one not in {summary.rules for summary in listed}]
    unlisted = [BacktestSummary(rules=one, trips=1, paused_s=0, avoided=0, false_trips=20) for one in others]
    [pause_s] = re.findall(r"A simulated pause takes (\d+) s", SHOWN)
    [left_out_s] = re.findall(r"really paused for (\d+) s", SHOWN)
    [real_trips] = re.findall(r"really tripped (\d+) times", SHOWN)
    summaries = (*listed, *unlisted)
    found = GroupBacktest(
        group=arguments.group[0],
        days=7,
        summaries=summaries,
        recommended=recommended(summaries),
        is_enabled="not enabled" not in SHOWN,
        real_trips=int(real_trips),
        changes=0,
        is_recorded=True,
        pause_s=int(pause_s),
        left_out_s=int(left_out_s),
    )
    assert backtest_text(found) == SHOWN
