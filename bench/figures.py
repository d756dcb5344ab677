"""Medians and ratios out of raw rounds.

One rule: a ratio is made within a round and the median is taken of those, so that what slowed a whole round down
falls out of it. A table's ratio may therefore differ a little from that of its medians.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.record import Run, StageRecord
from bench.scenarios import BY_NAME, Unit

Figure = Callable[[Mapping[str, float], Unit], float | None]


def throughput(figures: Mapping[str, float], unit: Unit) -> float:
    """MB, calls or connections a second."""
    return (figures["bytes"] / 1e6 if unit is Unit.BYTES else figures["calls"]) / figures["seconds"]


def proxy_cpu(figures: Mapping[str, float], unit: Unit) -> float | None:
    """Seconds a GB, or microseconds a call or connection, of the proxy's processes; None where there is none."""
    used = figures["proxy_cpu_s"]
    if not used:
        return None
    return used / (figures["bytes"] / 1e9) if unit is Unit.BYTES else used * 1e6 / figures["calls"]


def p50(figures: Mapping[str, float], unit: Unit) -> float:  # noqa: ARG001
    return figures["p50_us"]


def p99(figures: Mapping[str, float], unit: Unit) -> float:  # noqa: ARG001
    return figures["p99_us"]


def foreign_share(run: Run, cores: int) -> float | None:
    """How much of the machine others had while the run was counted: noise, from 0 to 1."""
    figures = run.figures
    if "machine_cpu_s" not in figures:
        return None
    ours = figures["proxy_cpu_s"] + figures["broker_cpu_s"] + figures["loader_cpu_s"]
    others = figures["machine_cpu_s"] + figures["stolen_cpu_s"] - ours
    return max(0.0, others / (figures["seconds"] * cores))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """One stage's runs, asked by scenario and peer."""

    stage: StageRecord

    def of(self, scenario: str, peer: str, figure: Figure) -> dict[int, float]:
        """The figure by round, of the rounds that have it."""
        unit = BY_NAME[scenario].unit
        found = {}
        for run in self.stage.runs:
            if (run.scenario, run.peer) == (scenario, peer) and run.figures:
                value = figure(run.figures, unit)
                if value is not None:
                    found[run.round] = value
        return found

    def median(self, scenario: str, peer: str, figure: Figure) -> float | None:
        values = self.of(scenario, peer, figure).values()
        return statistics.median(values) if values else None

    def spread(self, scenario: str, peer: str, figure: Figure) -> float | None:
        """Largest less smallest round, as a share of the median."""
        values = self.of(scenario, peer, figure).values()
        return (max(values) - min(values)) / statistics.median(values) if len(values) > 1 else None

    def ratio(self, scenario: str, peer: str, base: str, figure: Figure) -> float | None:
        ours, theirs = self.of(scenario, peer, figure), self.of(scenario, base, figure)
        ratios = [ours[number] / theirs[number] for number in ours.keys() & theirs.keys() if theirs[number]]
        return statistics.median(ratios) if ratios else None

    def difference(self, scenario: str, peer: str, base: str, figure: Figure) -> float | None:
        ours, theirs = self.of(scenario, peer, figure), self.of(scenario, base, figure)
        found = [ours[number] - theirs[number] for number in ours.keys() & theirs.keys()]
        return statistics.median(found) if found else None


def memory(name: str) -> Figure:
    """A figure of the idle scenario: empty_mb, full_mb or largest_mb."""
    return lambda figures, unit: figures.get(name)  # noqa: ARG005
