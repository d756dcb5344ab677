"""bench/RESULTS.md out of one campaign: written whole each time, never mended by hand.

One rule: everything on the page comes from the campaign's record and `bench/NOTES.md`, which is kept by hand and
stands on the page as it is.
"""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.figures import Rounds, foreign_share, memory, p50, p99, proxy_cpu, throughput
from bench.record import Campaign, PeerRecord, Run, StageRecord
from bench.scenarios import SCENARIOS, Scenario, Unit
from bench.targets import DIRECT, judge

PAGE = Path(__file__).with_name("RESULTS.md")
NOTES = Path(__file__).with_name("NOTES.md")
NONE = "-"

_HEADS = {
    Unit.BYTES: ("MB/s", "CPU s/GB"),
    Unit.CALLS: ("calls/s", "CPU us/call"),
    Unit.CONNECTIONS: ("connections/s", "CPU us/connection"),
}


def page(campaign: Campaign, notes: str = "") -> str:
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench` from `bench/results/latest.json`; `python -m bench --render` renders it again.",
        "",
        *_how(campaign),
        "",
        "## Targets",
        "",
        *_targets(campaign),
    ]
    if notes:
        lines += ["", notes.strip()]
    for stage in campaign.stages:
        lines += ["", f"## {stage.title}", "", *_stage(stage, int(campaign.facts.get("cores", "1")))]
    lines += ["", "## Single functions", "", *_micro(campaign)]
    return "\n".join(lines) + "\n"


def write(campaign: Campaign) -> None:
    notes = NOTES.read_text(encoding="utf-8") if NOTES.exists() else ""
    fresh = PAGE.with_suffix(".new")
    fresh.write_text(page(campaign, notes), encoding="utf-8")
    fresh.replace(PAGE)


def _how(campaign: Campaign) -> Iterator[str]:
    yield from _table(
        ("", ""),
        [
            ("began", campaign.began),
            ("took", f"{campaign.seconds / 60:.1f} minutes"),
            ("command", f"`{campaign.command}`"),
            *((name, value) for name, value in campaign.facts.items()),
        ],
    )
    yield ""
    yield (
        f"Everything runs on this one machine over loopback: loader, proxies and brokers share its cores. Peers take"
        f" turns; a run counts {campaign.counted_seconds:g} s after a warm-up; figures are medians of"
        f" {campaign.rounds} round{'s' * (campaign.rounds != 1)}, ratios are medians of each round's own ratio. CPU is"
        ' user and system time of the proxy\'s whole process tree while calls are counted. "Spread" is the largest'
        ' less the smallest round, as a share of the median; "others" is the share of the machine that went to'
        " foreign processes. Trust ratios and CPU before throughput."
    )


def _targets(campaign: Campaign) -> Iterator[str]:
    if campaign.watchers:
        yield f"Headgate watched Produce and Fetch with {', '.join(campaign.watchers)}."
    else:
        yield (
            "**Without watching**: the targets are meant with NodeEndpoints check, metrics and watching on, and this"
            " version of Headgate has no watcher of Produce and Fetch. What is met here has to be shown again with one."
        )
    yield ""
    rows = []
    for verdict in judge(campaign):
        target = verdict.target
        sign = ">=" if target.at_least else "<="
        value = NONE if verdict.value is None else f"{_short(verdict.value)}{target.suffix}"
        rows.append((target.text, f"{sign} {_short(target.limit)}{target.suffix}", value, verdict.text))
    yield from _table(("target", "limit", "found", ""), rows)


def _stage(stage: StageRecord, cores: int) -> Iterator[str]:
    if stage.skipped:
        yield f"Not run. {stage.skipped}"
        return
    yield from (f"- {peer.title}: {peer.detail}" for peer in stage.peers if peer.detail)
    yield from (f"- {peer.title}: **absent**. {peer.absent}" for peer in stage.peers if peer.absent)
    noise = [share for run in stage.runs if (share := foreign_share(run, cores)) is not None]
    if noise:
        middle, worst = statistics.median(noise), max(noise)
        yield f"- others had {middle:.0%} of the machine in the median run, {worst:.0%} in the worst"
    for scenario in SCENARIOS:
        if any(run.scenario == scenario.name for run in stage.runs):
            yield from ("", f"### {scenario.title} (`{scenario.name}`)", "")
            yield from _scenario(stage, scenario)
            yield from _failures(stage, scenario)


def _scenario(stage: StageRecord, scenario: Scenario) -> Iterator[str]:
    rounds = Rounds(stage=stage)
    there = [peer for peer in stage.peers if any(_is_of(run, scenario, peer) for run in stage.runs)]
    heads: tuple[str, ...]
    if scenario.unit is Unit.MEMORY:
        heads = ("", "MB", "MB without connections", "largest process MB", "KB a connection")
        yield from _table(heads, [_memory_row(rounds, scenario, peer) for peer in there])
    elif scenario.unit is Unit.LATENCY:
        heads = ("", "p50 us", "p99 us", "p50 above direct", "p99 above direct", "CPU us/call", "spread of p50")
        yield from _table(heads, [_latency_row(rounds, scenario, peer) for peer in there])
    else:
        rate, cpu = _HEADS[scenario.unit]
        heads = ("", rate, "ratio to direct", cpu, "p50 us", "p99 us", "spread")
        yield from _table(heads, [_load_row(rounds, scenario, peer) for peer in there])


def _load_row(rounds: Rounds, scenario: Scenario, peer: PeerRecord) -> tuple[str, ...]:
    name = scenario.name
    timed = not scenario.uses_java_tool
    return (
        peer.title,
        _short(rounds.median(name, peer.name, throughput)),
        _short(rounds.ratio(name, peer.name, DIRECT, throughput)),
        _short(rounds.median(name, peer.name, proxy_cpu)),
        _short(rounds.median(name, peer.name, p50)) if timed else NONE,
        _short(rounds.median(name, peer.name, p99)) if timed else NONE,
        _percent(rounds.spread(name, peer.name, throughput)),
    )


def _latency_row(rounds: Rounds, scenario: Scenario, peer: PeerRecord) -> tuple[str, ...]:
    name = scenario.name
    added = (rounds.difference(name, peer.name, DIRECT, figure) for figure in (p50, p99))
    return (
        peer.title,
        _short(rounds.median(name, peer.name, p50)),
        _short(rounds.median(name, peer.name, p99)),
        *(NONE if peer.name == DIRECT else _short(value) for value in added),
        _short(rounds.median(name, peer.name, proxy_cpu)),
        _percent(rounds.spread(name, peer.name, p50)),
    )


def _memory_row(rounds: Rounds, scenario: Scenario, peer: PeerRecord) -> tuple[str, ...]:
    full, empty, largest = (
        rounds.median(scenario.name, peer.name, memory(name)) for name in ("full_mb", "empty_mb", "largest_mb")
    )
    connections = int(str(scenario.words["connections"]))
    each = None if full is None or empty is None else (full - empty) * 1000 / connections
    return peer.title, _short(full), _short(empty), _short(largest), _short(each)


def _failures(stage: StageRecord, scenario: Scenario) -> Iterator[str]:
    failed = [run for run in stage.runs if run.scenario == scenario.name and run.failed]
    if failed:
        yield ""
        yield from (f"- round {run.round} of {run.peer} failed: {run.failed}" for run in failed)


def _micro(campaign: Campaign) -> Iterator[str]:
    if campaign.micro_failed:
        yield f"- not measured: {campaign.micro_failed}"
    yield from (f"- {name}: {_short(value)} us" for name, value in campaign.micro.items())


def _is_of(run: Run, scenario: Scenario, peer: PeerRecord) -> bool:
    return (run.scenario, run.peer) == (scenario.name, peer.name)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"


def _short(value: float | None) -> str:
    """Three digits that count, and none more."""
    if value is None:
        return NONE
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
